"""What a share coordinator keeps in `__share_group_state`: Kafka's record schemas, under Kafka's names.

A ShareSnapshot has the whole state of a share partition, a ShareUpdate what changed since the last one. A snapshot
without a value forgets the share partition.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidRecord
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.coordinator_records.fields import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID_,
    Cursor,
    Item,
    Schema,
    array,
)
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from uuid import UUID

NOT_COUNTED: Final = -1
"""The number of deliveries that are complete, where the one who wrote does not know it."""


class StateBatch(NamedTuple):
    """Records from the first offset to the last (inclusive) with one delivery state and one delivery count."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareSnapshotKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: UUID
    partition: int


class ShareSnapshotValue(NamedTuple):
    """The whole state of a share partition."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    create_timestamp: int
    write_timestamp: int
    state_batches: tuple[StateBatch, ...]
    delivery_complete_count: int = NOT_COUNTED


class ShareUpdateKey(NamedTuple):
    """A share partition."""

    group_id: str
    topic_id: UUID
    partition: int


class ShareUpdateValue(NamedTuple):
    """What changed in the state of a share partition; a start offset or leader epoch of -1 did not change."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    state_batches: tuple[StateBatch, ...]
    delivery_complete_count: int = NOT_COUNTED


class ShareRecord(NamedTuple):
    """A record; no value forgets the share partition."""

    key: ShareSnapshotKey | ShareUpdateKey
    value: ShareSnapshotValue | ShareUpdateValue | None


_KEY_ITEMS: Final = (Item("group_id", STRING), Item("topic_id", UUID_), Item("partition", INT32))
_BATCH: Final = Schema(
    StateBatch,
    (
        Item("first_offset", INT64),
        Item("last_offset", INT64),
        Item("delivery_state", INT8),
        Item("delivery_count", INT16),
    ),
)
_COMPLETE: Final = Item("delivery_complete_count", INT32, tag=0, default=NOT_COUNTED)
_SNAPSHOT: Final = Schema(
    ShareSnapshotValue,
    (
        Item("snapshot_epoch", INT32),
        Item("state_epoch", INT32),
        Item("leader_epoch", INT32),
        Item("start_offset", INT64),
        _COMPLETE,
        Item("create_timestamp", INT64),
        Item("write_timestamp", INT64),
        Item("state_batches", array(_BATCH.type)),
    ),
)
_UPDATE: Final = Schema(
    ShareUpdateValue,
    (
        Item("snapshot_epoch", INT32),
        Item("leader_epoch", INT32),
        Item("start_offset", INT64),
        _COMPLETE,
        Item("state_batches", array(_BATCH.type)),
    ),
)
_TYPES: Final = {
    0: (Schema(ShareSnapshotKey, _KEY_ITEMS, flexible_since=1), _SNAPSHOT),
    1: (Schema(ShareUpdateKey, _KEY_ITEMS, flexible_since=1), _UPDATE),
}
_NUMBERS: Final = {ShareSnapshotKey: 0, ShareUpdateKey: 1}

_UPDATE_HEAD: Final = struct.Struct(">hiiq")
_BATCH_AND_NO_TAGS: Final = struct.Struct(">qqbhx")
_COMPLETE_TAG: Final = struct.Struct(">bbbi")
"""The number of tagged fields, and the tag, the length and the value of the one."""

SCHEMAS: Final = (_BATCH, *(schema for pair in _TYPES.values() for schema in pair))
"""Everything that the topic's records are made of."""


def encode(record: ShareRecord) -> tuple[bytes, bytes | None]:
    """The bytes of a record's key and value."""
    key, value = record
    number = _NUMBERS[type(key)]
    if value is None:
        return _encoded_key(number, *key), None
    if isinstance(value, ShareUpdateValue):
        return _encoded_key(number, *key), _encoded_update(value)
    schema = _TYPES[number][1]
    out = bytearray(schema.writes.to_bytes(2, "big"))
    schema.write(out, value, True)
    return _encoded_key(number, *key), bytes(out)


def _encoded_key(number: int, group_id: str, topic_id: UUID, partition: int) -> bytes:
    """The bytes of a key; a share partition writes the same one again and again."""
    encode_key = _remembered_key if len(group_id) <= LONGEST_REMEMBERED else _encode_key
    return encode_key(number, group_id, topic_id, partition)


def _encode_key(number: int, group_id: str, topic_id: UUID, partition: int) -> bytes:
    schema = _TYPES[number][0]
    out = bytearray(number.to_bytes(2, "big"))
    schema.write(out, schema.of(group_id, topic_id, partition), False)
    return bytes(out)


_remembered_key: Final = lru_cache(4096)(_encode_key)


def _encoded_update(value: ShareUpdateValue) -> bytes:
    """The bytes of an update, as its schema has them: each acknowledgement of a client writes one."""
    out = bytearray(_UPDATE_HEAD.pack(_UPDATE.writes, value.snapshot_epoch, value.leader_epoch, value.start_offset))
    out += uvarint(len(value.state_batches) + 1)
    for batch in value.state_batches:
        out += _BATCH_AND_NO_TAGS.pack(*batch)
    if value.delivery_complete_count == NOT_COUNTED:
        out.append(0)
    else:
        out += _COMPLETE_TAG.pack(1, 0, 4, value.delivery_complete_count)
    return bytes(out)


def decode(key: bytes, value: bytes | None) -> ShareRecord | None:
    """The record in these bytes; None if it is of a type that is not known. Raises InvalidRecord."""
    if len(key) < 2:
        raise InvalidRecord(f"a key of {len(key)} bytes has no type of record")
    found = _TYPES.get(int.from_bytes(key[:2], "big"))
    if found is None:
        return None
    key_schema, value_schema = found
    decoded = key_schema.read(Cursor(key, 2, 0, flexible=False))
    if value is None:
        return ShareRecord(decoded, None)
    if len(value) < 2:
        raise InvalidRecord(f"a share partition's value of {len(value)} bytes has no version")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= value_schema.reads:
        raise InvalidRecord(
            f"a share partition's value is of version {version}, and {value_schema.reads} is the newest known"
        )
    return ShareRecord(decoded, value_schema.read(Cursor(value, 2, version, flexible=True)))
