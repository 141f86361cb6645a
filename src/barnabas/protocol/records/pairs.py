"""Batches of records that are a key and a value and nothing else, packed by hand: coordinators write no others.

All records of such a batch have its time, and no headers. A test holds the batches equal to those of `build_batch`.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from barnabas.protocol.records.batch import (
    CRC_START,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL,
)
from barnabas.protocol.records.builder import NO_LEADER_EPOCH
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import compress
from barnabas.protocol.records.records import Record, encode_record, varint

if TYPE_CHECKING:
    from collections.abc import Sequence

    Pair = tuple[bytes, bytes | None]
    """Key and value of a record."""

_BEFORE_CRC: Final = struct.Struct(">qiibI")
_AFTER_CRC: Final = struct.Struct(">hiqqqhii")
_NO_PRODUCER: Final = NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE
_LENGTH_WITHOUT_RECORDS: Final = HEADER_SIZE - LOG_OVERHEAD

assert _BEFORE_CRC.size == CRC_START


def build_batch_of_pairs(
    pairs: Sequence[Pair], timestamp: int, codec: int = 0, producer: tuple[int, int] | None = None
) -> bytes:
    """One batch of these records, at least one; `producer`, an id and an epoch, is that of their transaction."""
    count = len(pairs)
    records = b"".join(map(_encode, range(count), pairs))
    if codec:
        records = compress(codec, records, None)
    if producer is None:
        head = _AFTER_CRC.pack(codec, count - 1, timestamp, timestamp, *_NO_PRODUCER, count)
    else:
        sequence = 0  # as Kafka's coordinator has it, for each batch
        head = _AFTER_CRC.pack(codec | TRANSACTIONAL, count - 1, timestamp, timestamp, *producer, sequence, count)
    protected = head + records
    length = _LENGTH_WITHOUT_RECORDS + len(records)
    return _BEFORE_CRC.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc32c(protected)) + protected


def _encode(number: int, pair: Pair) -> bytes:
    key, value = pair
    if value is not None:
        before, between = _around(number, len(key), len(value))
        return b"".join((before, key, between, value, b"\0"))
    return encode_record(Record(number, 0, key, value))


@lru_cache(maxsize=4096)
def _around(number: int, key_size: int, value_size: int) -> tuple[bytes, bytes]:
    """What stands before the key of a record and before its value, which sizes alone decide."""
    body, between = b"\0\0" + varint(number) + varint(key_size), varint(value_size)
    return varint(len(body) + key_size + len(between) + value_size + 1) + body, between
