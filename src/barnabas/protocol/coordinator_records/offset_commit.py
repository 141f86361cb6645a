"""Committed offsets, packed by hand: a coordinator writes one for every partition of every commit.

A value is written in version 4, or in version 1 where it has a time of expiry, which no later version has.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final
from uuid import UUID

from barnabas.model.errors import InvalidRecord
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.coordinator_records.fields import (
    INT32,
    INT64,
    STRING,
    Cursor,
)
from barnabas.protocol.coordinator_records.messages import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.wire.framing import MAX_STRING
from barnabas.protocol.wire.varint import uvarint

LEGACY_NUMBER: Final = 0
"""The type that keys had in Kafka's first version of this topic; their fields are the same."""
NUMBER: Final = 1
NEWEST: Final = 4
WITH_EXPIRY: Final = 1

_PARTITION: Final = struct.Struct(">i")
_V1_HEAD: Final = struct.Struct(">hqh")
_V1_TAIL: Final = struct.Struct(">qq")
_V4_HEAD: Final = struct.Struct(">hqi")
_V4_PLAIN: Final = struct.Struct(">hqiBqB")
_V4_PLAIN_WITH_ID: Final = struct.Struct(">hqiBq3s16s")
_TIMESTAMP: Final = struct.Struct(">q")
_TOPIC_ID_TAG: Final = b"\x01\x00\x10"
"""One tagged field, number 0, of sixteen bytes."""
_TAGGED_VALUE_SIZE: Final = _V4_PLAIN_WITH_ID.size
_LONGEST_NAMES: Final = 2 * (2 + LONGEST_REMEMBERED)
"""Bytes of a group's and a topic's name in a key."""


def encode_key(key: OffsetCommitKey) -> bytes:
    """The key's bytes."""
    return _remembered_key(key) if len(key[0]) <= LONGEST_REMEMBERED else _encode_key(key)


def _encode_key(key: OffsetCommitKey) -> bytes:
    group, topic, partition = key
    out = bytearray(NUMBER.to_bytes(2, "big"))
    STRING.write(out, group, False)
    STRING.write(out, topic, False)
    return bytes(out) + _PARTITION.pack(partition)


_remembered_key: Final = lru_cache(maxsize=4096)(_encode_key)
"""Those of a consumer's partitions are written again and again."""


def encode_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp: int,
    expire_timestamp: int,
    topic_id: UUID | None,
) -> bytes:
    """The bytes of an OffsetCommitValue, whose fields these are."""
    if expire_timestamp != -1:
        encoded = _metadata(metadata)
        return (
            _V1_HEAD.pack(WITH_EXPIRY, offset, len(encoded))
            + encoded
            + _V1_TAIL.pack(commit_timestamp, expire_timestamp)
        )
    if not metadata:
        if topic_id is None:
            return _V4_PLAIN.pack(NEWEST, offset, leader_epoch, 1, commit_timestamp, 0)
        return _V4_PLAIN_WITH_ID.pack(NEWEST, offset, leader_epoch, 1, commit_timestamp, _TOPIC_ID_TAG, topic_id.bytes)
    encoded = _metadata(metadata)
    return (
        _V4_HEAD.pack(NEWEST, offset, leader_epoch)
        + uvarint(len(encoded) + 1)
        + encoded
        + _TIMESTAMP.pack(commit_timestamp)
        + (b"\x00" if topic_id is None else _TOPIC_ID_TAG + topic_id.bytes)
    )


def _metadata(metadata: str) -> bytes:
    encoded = metadata.encode()
    if len(encoded) > MAX_STRING:
        raise InvalidRecord(f"metadata of {len(encoded)} bytes: records take no more than {MAX_STRING}")
    return encoded


def decode_key(data: bytes) -> OffsetCommitKey:
    """The key in these bytes, whose type was looked at already."""
    names = data[2:-4]
    group, topic = (_remembered_names if len(names) <= _LONGEST_NAMES else _group_and_topic)(names)
    return OffsetCommitKey(group, topic, _PARTITION.unpack(data[-4:])[0])


def _group_and_topic(data: bytes) -> tuple[str, str]:
    cursor = Cursor(data, 0, 0, flexible=False)
    group, topic = STRING.read(cursor), STRING.read(cursor)
    if cursor.position != len(data):
        raise InvalidRecord(f"{len(data) - cursor.position} bytes too many between the topic and the partition")
    return group, topic


_remembered_names: Final = lru_cache(maxsize=4096)(_group_and_topic)


def decode_value(data: bytes, version: int) -> OffsetCommitValue:
    """The value in these bytes."""
    if version == NEWEST and len(data) == _TAGGED_VALUE_SIZE:
        _, offset, leader_epoch, length, commit_timestamp, tag, topic_id = _V4_PLAIN_WITH_ID.unpack(data)
        if length == 1 and tag == _TOPIC_ID_TAG:
            return OffsetCommitValue(offset, leader_epoch, "", commit_timestamp, -1, _id(topic_id))
    cursor = Cursor(data, 2, version, flexible=version >= 4)
    offset = INT64.read(cursor)
    leader_epoch = INT32.read(cursor) if version >= 3 else -1
    metadata = STRING.read(cursor)
    commit_timestamp = INT64.read(cursor)
    expire_timestamp = INT64.read(cursor) if version == WITH_EXPIRY else -1
    id_bytes = b""
    if cursor.flexible:
        for _ in range(cursor.uvarint()):
            number = cursor.uvarint()
            content = cursor.take(cursor.uvarint())
            if number == 0:
                id_bytes = content
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, _id(id_bytes))


@lru_cache(maxsize=1024)
def _id(encoded: bytes) -> UUID | None:
    if not any(encoded):
        return None
    if len(encoded) != 16:
        raise InvalidRecord(f"a topic id of {len(encoded)} bytes")
    return UUID(bytes=encoded)
