"""What a transaction coordinator keeps in `__transaction_state`: Kafka's record schemas, under Kafka's names.

There is one kind of record: the whole state of a transactional id. The newest one of an id counts, so the topic can be
compacted, and a tombstone forgets the id. Values are written in version 1, as Kafka does from transaction.version 1 on;
version 0 is read too.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from barnabas.model.errors import InvalidRecord
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.coordinator_records.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    Cursor,
    Item,
    Schema,
    array,
)
from barnabas.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from barnabas.protocol.wire.varint import uvarint


class TransactionLogKey(NamedTuple):
    """A transactional id."""

    transactional_id: str


class PartitionsSchema(NamedTuple):
    """Partitions of one topic that a transaction has written to."""

    topic: str
    partition_ids: tuple[int, ...]


class TransactionLogValue(NamedTuple):
    """The state of a transactional id. A tuple, because each step of a transaction makes one of another."""

    producer_id: int
    producer_epoch: int
    transaction_timeout_ms: int
    transaction_status: int
    transaction_last_update_timestamp_ms: int
    transaction_partitions: tuple[PartitionsSchema, ...] | None = None
    """None where there can be none."""
    transaction_start_timestamp_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change: another one, if the last change brought a new id."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that the end of the transaction brings, because the epochs of this one are used up."""
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    client_transaction_version: int = 0
    """The transaction.version that the client spoke when it changed this state."""


class TransactionRecord(NamedTuple):
    """A record; no value forgets the id."""

    key: TransactionLogKey
    value: TransactionLogValue | None


_HEAD: Final = struct.Struct(">hqhib")
_TIMES: Final = struct.Struct(">qq")
_LONG_TAG: Final = struct.Struct(">bbq")
_SHORT_TAG: Final = struct.Struct(">bbh")
_NUMBER: Final = 0
_KEY: Final = Schema(TransactionLogKey, (Item("transactional_id", STRING),))
_PARTITIONS: Final = Schema(
    PartitionsSchema, (Item("topic", STRING), Item("partition_ids", array(INT32))), writes=1, reads=1, flexible_since=1
)
_VALUE: Final = Schema(
    TransactionLogValue,
    (
        Item("producer_id", INT64),
        Item("previous_producer_id", INT64, tag=0, default=NO_PRODUCER_ID),
        Item("next_producer_id", INT64, tag=1, default=NO_PRODUCER_ID),
        Item("producer_epoch", INT16),
        Item("next_producer_epoch", INT16, tag=3, default=NO_PRODUCER_EPOCH),
        Item("transaction_timeout_ms", INT32),
        Item("transaction_status", INT8),
        Item("transaction_partitions", array(_PARTITIONS.type, nullable=True)),
        Item("transaction_last_update_timestamp_ms", INT64),
        Item("transaction_start_timestamp_ms", INT64),
        Item("client_transaction_version", INT16, tag=2, default=0),
    ),
    writes=1,
    reads=1,
    flexible_since=1,
)


SCHEMAS: Final = (_KEY, _PARTITIONS, _VALUE)
"""Everything that the topic's records are made of."""


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """The bytes of a record's key and value, packed by hand: a producer waits for them when it commits.

    Tests hold them equal to what the schemas above make.
    """
    (transactional_id,), value = record
    key = (_remembered_key if len(transactional_id) <= LONGEST_REMEMBERED else _encode_key)(transactional_id)
    if value is None:
        return key, None
    head = _HEAD.pack(
        _VALUE.writes,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_status,
    )
    times = _TIMES.pack(value.transaction_last_update_timestamp_ms, value.transaction_start_timestamp_ms)
    return key, b"".join((head, _encode_partitions(value.transaction_partitions), times, _encode_tags(value)))


def _encode_key(transactional_id: str) -> bytes:
    out = bytearray(_NUMBER.to_bytes(2, "big"))
    STRING.write(out, transactional_id, False)
    return bytes(out)


_remembered_key: Final = lru_cache(maxsize=4096)(_encode_key)


def _encode_partitions(topics: tuple[PartitionsSchema, ...] | None) -> bytes:
    if topics is None:
        return b"\0"
    out = bytearray(uvarint(len(topics) + 1))
    for topic, partition_ids in topics:
        name = topic.encode()
        out += uvarint(len(name) + 1) + name + uvarint(len(partition_ids) + 1)
        out += struct.pack(f">{len(partition_ids)}i", *partition_ids)
        out.append(0)
    return bytes(out)


def _encode_tags(value: TransactionLogValue) -> bytes:
    """The fields that are left out where they have their defaults, by their tags."""
    tags = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(0, 8, value.previous_producer_id))
    if value.next_producer_id != NO_PRODUCER_ID:
        tags.append(_LONG_TAG.pack(1, 8, value.next_producer_id))
    if value.client_transaction_version:
        tags.append(_SHORT_TAG.pack(2, 2, value.client_transaction_version))
    if value.next_producer_epoch != NO_PRODUCER_EPOCH:
        tags.append(_SHORT_TAG.pack(3, 2, value.next_producer_epoch))
    return uvarint(len(tags)) + b"".join(tags)


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record in these bytes; None if it is of a type that is not known. Raises InvalidRecord."""
    if len(key) < 2:
        raise InvalidRecord(f"a key of {len(key)} bytes has no type of record")
    if int.from_bytes(key[:2], "big") != _NUMBER:
        return None
    decoded = _KEY.read(Cursor(key, 2, 0, flexible=False))
    if value is None:
        return TransactionRecord(decoded, None)
    if len(value) < 2:
        raise InvalidRecord(f"a transaction's value of {len(value)} bytes has no version")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= _VALUE.reads:
        raise InvalidRecord(f"a transaction's value is of version {version}, and {_VALUE.reads} is the newest known")
    cursor = Cursor(value, 2, version, flexible=version >= _VALUE.flexible_since)
    return TransactionRecord(decoded, _VALUE.read(cursor))
