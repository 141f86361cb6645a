"""The 61-byte header of a record batch (magic 2), read and written without touching the records.

    offset size field
         0    8 base offset                  written by the broker
         8    4 batch length                 bytes after this field
        12    4 partition leader epoch       written by the broker
        16    1 magic (2)
        17    4 CRC-32C                      of everything from byte 21 on
        21    2 attributes                   bits 0-2 codec, 3 timestamp type, 4 transactional,
                                             5 control, 6 delete horizon
        23    4 last offset delta
        27    8 base timestamp
        35    8 max timestamp
        43    8 producer id
        51    2 producer epoch
        53    4 base sequence
        57    4 record count

Base offset and leader epoch stand before the CRC's reach: a broker gives a batch its place by replacing the first
16 bytes, and the client's CRC goes on protecting everything else, on disk and on the wire.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = HEADER.size
"""Bytes before the first record."""
LOG_OVERHEAD: Final = 12
"""Base offset and length: what must be read to know how long a batch is."""
CRC_START: Final = 21
"""The CRC covers everything from here on."""
PLACE: Final = struct.Struct(">qii")
"""Base offset, batch length and leader epoch: the part that the broker writes."""
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
HAS_DELETE_HORIZON: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
MAX_PRODUCER_EPOCH: Final = 2**15 - 1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1


HeaderFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""What HEADER reads: the fields of BatchHeader without their names, which cost more than the reading."""


class BatchHeader(NamedTuple):
    """The header's fields in their order on disk."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """The whole batch in bytes, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record (compaction may have removed the record itself)."""
        return self.base_offset + self.last_offset_delta

    @property
    def codec(self) -> int:
        """The compression codec's number."""
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        """Whether this batch is a marker and not data."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether this batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def lacks_sequence(self) -> bool:
        """Whether this is data of a producer without a sequence number.

        Kafka's coordinators write 0 in every batch of a client's transaction; earlier versions of ours wrote nothing.
        """
        return self.base_sequence == NO_SEQUENCE and self.producer_id >= 0 and not self.attributes & CONTROL

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences wrap to 0 after 2**31 - 1."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`; the caller made sure that HEADER_SIZE bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(data, position))
