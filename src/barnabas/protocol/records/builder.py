"""Building record batches: what the broker writes itself, and what tests and tools send."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import compress
from barnabas.protocol.records.records import encode_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from barnabas.protocol.records.records import Record

LENGTH_AT: Final = 8
CRC_AT: Final = 17
_NUMBER: Final = struct.Struct(">I")
NO_LEADER_EPOCH: Final = -1


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    base_timestamp: int = NO_TIMESTAMP,
    leader_epoch: int = NO_LEADER_EPOCH,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    append_time: int | None = None,
) -> bytes:
    """One batch of `records`, at least one; with `append_time`, that is the time of all of them (LogAppendTime)."""
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if append_time is not None:
        attributes |= LOG_APPEND_TIME
        max_timestamp = append_time
    else:
        max_timestamp = base_timestamp + max([record.timestamp_delta for record in records])
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal(header, compress(codec, encode_records(records), level))


def seal(header: BatchHeader, payload: Buffer) -> bytes:
    """The batch of `header` and `payload` (as it is stored, compressed or not), its length and CRC made right."""
    view = memoryview(payload)
    head = bytearray(HEADER.pack(*header))
    _NUMBER.pack_into(head, LENGTH_AT, HEADER_SIZE - LOG_OVERHEAD + len(view))
    _NUMBER.pack_into(head, CRC_AT, crc32c(view, crc32c(head[CRC_START:])))
    return b"".join((head, view))


def checksum(header: BatchHeader, payload: Buffer) -> int:
    """The CRC of the batch that `header` and `payload` make."""
    return crc32c(payload, crc32c(HEADER.pack(*header)[CRC_START:]))
