"""The records of `__consumer_offsets` as bytes and back, in Kafka's own schemas.

A key starts with two bytes that say of which type the record is, a value with two bytes of its version. Kafka 4.3.0
and every Kafka that it can be downgraded to read what `encode` writes; `decode` reads what any of them wrote.
"""

from __future__ import annotations

from typing import Final

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.coordinator_records import offset_commit
from barnabas.protocol.coordinator_records.by_hand import PACKERS, pack_key
from barnabas.protocol.coordinator_records.fields import Cursor, Schema
from barnabas.protocol.coordinator_records.messages import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CoordinatorRecord,
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    TargetTopicPartitions,
    TopicMetadata,
    Value,
)
from barnabas.protocol.coordinator_records.offset_commit import encode_key, encode_value
from barnabas.protocol.coordinator_records.schemas import RECORD_TYPES
from barnabas.protocol.coordinator_records.share_messages import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupKey,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    ShareTopicInfo,
    ShareTopicPartitionsInfo,
)

__all__ = [
    "ClassicMemberMetadata",
    "ClassicProtocol",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "CoordinatorRecord",
    "CurrentTopicPartitions",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "Key",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "PartitionMetadata",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupKey",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareTopicInfo",
    "ShareTopicPartitionsInfo",
    "TargetTopicPartitions",
    "TopicMetadata",
    "Value",
    "decode",
    "encode",
    "encode_by_schema",
]

_BY_NUMBER: Final = {record_type.number: record_type for record_type in RECORD_TYPES}
_BY_KEY: Final = {record_type.key.of: record_type for record_type in RECORD_TYPES}


def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The bytes of a record's key and value."""
    key, value = record
    if isinstance(key, OffsetCommitKey):
        if isinstance(value, OffsetCommitValue):
            return encode_key(key), encode_value(*value)
        if value is None:
            return encode_key(key), None
        raise TypeError(f"{type(value).__name__} is no value for {type(key).__name__}")
    number, key_schema, value_schema = _BY_KEY[type(key)]
    key_bytes = pack_key(number, [getattr(key, item.name) for item in key_schema.items])
    if value is None:
        return key_bytes, None
    if not isinstance(value, value_schema.of):
        raise TypeError(f"{type(value).__name__} is no value for {type(key).__name__}")
    if (pack := PACKERS.get(value_schema.of)) is not None and (packed := pack(value)) is not None:
        return key_bytes, packed
    return key_bytes, encode_by_schema(value_schema, value)


def encode_by_schema(schema: Schema, value: Value) -> bytes:
    """The bytes of a value, as its schema writes it."""
    version = schema.writes
    out = bytearray(version.to_bytes(2, "big"))
    schema.write(out, value, version >= schema.flexible_since)
    return bytes(out)


def decode(key: bytes, value: bytes | None) -> CoordinatorRecord | None:
    """The record in these bytes; None if it is of a type that is not known. Raises InvalidRecord."""
    if len(key) < 2:
        raise InvalidRecord(f"a key of {len(key)} bytes has no type of record")
    number = int.from_bytes(key[:2], "big")
    try:
        if number in (offset_commit.NUMBER, offset_commit.LEGACY_NUMBER):
            offset_key = offset_commit.decode_key(key)
            if value is None:
                return CoordinatorRecord(offset_key, None)
            version = _version(value, offset_commit.NEWEST)
            return CoordinatorRecord(offset_key, offset_commit.decode_value(value, version))
        if (record_type := _BY_NUMBER.get(number)) is None:
            return None
        _, key_schema, value_schema = record_type
        decoded_key = key_schema.read(Cursor(key, 2, 0, flexible=False))
        if value is None:
            return CoordinatorRecord(decoded_key, None)
        version = _version(value, value_schema.reads)
        cursor = Cursor(value, 2, version, flexible=version >= value_schema.flexible_since)
        return CoordinatorRecord(decoded_key, value_schema.read(cursor))
    except InvalidRecord as error:
        raise InvalidRecord(f"a group record of type {number} cannot be read: {error}") from error


def _version(value: bytes, newest: int) -> int:
    if len(value) < 2:
        raise InvalidRecord(f"its value of {len(value)} bytes has no version")
    version = int.from_bytes(value[:2], "big", signed=True)
    if not 0 <= version <= newest:
        raise InvalidRecord(f"its value is of version {version}, and {newest} is the newest known")
    return version
