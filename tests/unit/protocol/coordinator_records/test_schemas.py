"""Records of groups: the bytes are Kafka's, older versions are read, damage is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from uuid import UUID

import pytest

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.coordinator_records import (
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
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    PartitionMetadata,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
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
    TargetTopicPartitions,
    TopicMetadata,
    decode,
    encode,
)
from tests.unit.protocol.coordinator_records.record_bytes import SERIALIZED

TOPIC_ID: Final = UUID("11223344-5566-7788-99aa-bbccddeeff00")
OFFSET_KEY: Final = OffsetCommitKey("grüppe", "orders", 7)
OFFSET: Final = OffsetCommitValue(42, -1, "note", 1000)
GROUP: Final = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="m-1",
    current_state_timestamp=1234,
    members=(MemberMetadata("m-1", "i-1", "c", "/127.0.0.1", 60000, 30000, b"\1\2", b"\3"),),
)
MEMBER: Final = ConsumerGroupMemberMetadataValue("i", None, "c", "/h", ("a", "b"), None, 300_000, "uniform")
CLASSIC_MEMBER: Final = replace(
    MEMBER, classic_member_metadata=ClassicMemberMetadata(45_000, (ClassicProtocol("range", b"\x09\x08"),))
)
TOPIC: Final = TopicMetadata(TOPIC_ID, "orders", 2, (PartitionMetadata(1, ("a", "b")),))


def _group(**changes: object) -> GroupMetadataValue:
    """The group as a version that has not all of its fields tells it."""
    member_changes = {name: changes.pop(name) for name in ("group_instance_id", "rebalance_timeout") if name in changes}
    (member,) = GROUP.members
    changed = member._replace(**member_changes)  # type: ignore[arg-type]  # by name
    return replace(GROUP, members=(changed,), **changes)  # type: ignore[arg-type]  # by name


RECORDS: Final = {
    "offset_v1": CoordinatorRecord(OFFSET_KEY, OFFSET._replace(expire_timestamp=2000)),
    "offset_v4": CoordinatorRecord(OFFSET_KEY, OFFSET._replace(leader_epoch=5, topic_id=TOPIC_ID)),
    "offset_v4_plain": CoordinatorRecord(OFFSET_KEY, OFFSET._replace(leader_epoch=5, metadata="")),
    "offset_v4_id": CoordinatorRecord(OFFSET_KEY, OFFSET._replace(leader_epoch=5, metadata="", topic_id=TOPIC_ID)),
    "offset_tombstone": CoordinatorRecord(OFFSET_KEY, None),
    "group_v3": CoordinatorRecord(GroupMetadataKey("g"), GROUP),
    "group_empty": CoordinatorRecord(GroupMetadataKey("g"), GroupMetadataValue("", 0, None, None, 1234, ())),
    "consumer_group": CoordinatorRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(9, -77)),
    "consumer_group_no_hash": CoordinatorRecord(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(9)),
    "partition_metadata": CoordinatorRecord(
        ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue((TOPIC,))
    ),
    "member": CoordinatorRecord(ConsumerGroupMemberMetadataKey("g", "m"), MEMBER),
    "member_classic": CoordinatorRecord(ConsumerGroupMemberMetadataKey("g", "m"), CLASSIC_MEMBER),
    "target_epoch": CoordinatorRecord(
        ConsumerGroupTargetAssignmentMetadataKey("g"), ConsumerGroupTargetAssignmentMetadataValue(4, 5000)
    ),
    "target_member": CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        ConsumerGroupTargetAssignmentMemberValue((TargetTopicPartitions(TOPIC_ID, (0, 3)),)),
    ),
    "current": CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=8,
            previous_member_epoch=7,
            state=1,
            assigned_partitions=(CurrentTopicPartitions(TOPIC_ID, (0, 3), (7, 8)),),
            partitions_pending_revocation=(CurrentTopicPartitions(TOPIC_ID, (5,)),),
        ),
    ),
    "regex": CoordinatorRecord(
        ConsumerGroupRegularExpressionKey("g", "or.*"), ConsumerGroupRegularExpressionValue(("orders",), 11, 12)
    ),
    "share_member": CoordinatorRecord(
        ShareGroupMemberMetadataKey("g", "m"), ShareGroupMemberMetadataValue("r", "c", "/h", ("a", "b"))
    ),
    "share_group": CoordinatorRecord(ShareGroupMetadataKey("g"), ShareGroupMetadataValue(9, -77)),
    "share_target_epoch": CoordinatorRecord(
        ShareGroupTargetAssignmentMetadataKey("g"), ShareGroupTargetAssignmentMetadataValue(4, 5000)
    ),
    "share_target_member": CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey("g", "m"),
        ShareGroupTargetAssignmentMemberValue((TargetTopicPartitions(TOPIC_ID, (0, 3)),)),
    ),
    "share_current": CoordinatorRecord(
        ShareGroupCurrentMemberAssignmentKey("g", "m"),
        ShareGroupCurrentMemberAssignmentValue(8, 7, 0, (TargetTopicPartitions(TOPIC_ID, (0, 3)),)),
    ),
    "share_states": CoordinatorRecord(
        ShareGroupStatePartitionMetadataKey("g"),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=(ShareTopicPartitionsInfo(TOPIC_ID, "orders", (2,)),),
            initialized_topics=(ShareTopicPartitionsInfo(TOPIC_ID, "orders", (0, 1)),),
            deleting_topics=(ShareTopicInfo(TOPIC_ID, "gone"),),
        ),
    ),
}
"""Records in the versions that Kafka 4.3.0 writes."""

OLD_RECORDS: Final = {
    "offset_legacy": CoordinatorRecord(OFFSET_KEY, OFFSET),
    "offset_v0": CoordinatorRecord(OFFSET_KEY, OFFSET),
    "offset_v2": CoordinatorRecord(OFFSET_KEY, OFFSET),
    "offset_v3": CoordinatorRecord(OFFSET_KEY, OFFSET._replace(leader_epoch=5)),
    "group_v0": CoordinatorRecord(
        GroupMetadataKey("g"), _group(current_state_timestamp=-1, group_instance_id=None, rebalance_timeout=-1)
    ),
    "group_v1": CoordinatorRecord(GroupMetadataKey("g"), _group(current_state_timestamp=-1, group_instance_id=None)),
    "group_v2": CoordinatorRecord(GroupMetadataKey("g"), _group(group_instance_id=None)),
    "group_v4": CoordinatorRecord(GroupMetadataKey("g"), GROUP),
}
"""Records in versions that are read and not written."""


def _bytes(name: str) -> tuple[bytes, bytes | None]:
    key, value = SERIALIZED[name]
    return bytes.fromhex(key), None if value is None else bytes.fromhex(value)


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_is_written_as_kafka_writes_it(name: str) -> None:
    assert encode(RECORDS[name]) == _bytes(name)


@pytest.mark.parametrize("name", [*RECORDS, *OLD_RECORDS])
def test_a_record_that_kafka_wrote_is_read(name: str) -> None:
    expected = {**RECORDS, **OLD_RECORDS}[name]
    found = decode(*_bytes(name))
    assert found == expected
    assert found is not None
    assert type(found.key) is type(expected.key)


def test_a_record_of_a_streams_group_is_passed_over() -> None:
    assert decode(*_bytes("streams")) is None


@pytest.mark.parametrize("name", [name for name in {**RECORDS, **OLD_RECORDS} if name != "offset_tombstone"])
def test_a_record_that_was_cut_short_is_refused(name: str) -> None:
    key, value = _bytes(name)
    assert value is not None
    for length in range(len(key)):
        with pytest.raises(InvalidRecord):
            decode(key[:length], value)
    for length in range(len(value)):
        with pytest.raises(InvalidRecord):
            decode(key, value[:length])


def test_lengths_beyond_the_record_are_refused() -> None:
    key, _ = _bytes("target_member")
    with pytest.raises(InvalidRecord, match="an array of 4294967293 elements"):
        decode(key, bytes.fromhex("0000feffffff0f"))
    with pytest.raises(InvalidRecord, match="record of type 2"):
        decode(bytes.fromhex("0002ffff"), None)


def test_a_version_from_the_future_is_refused() -> None:
    key, _ = _bytes("offset_v4")
    with pytest.raises(InvalidRecord, match="version 5, and 4 is the newest"):
        decode(key, bytes.fromhex("0005"))


def test_tagged_fields_from_the_future_are_passed_over() -> None:
    key, value = _bytes("consumer_group_no_hash")
    assert value is not None
    assert decode(key, value[:-1] + bytes.fromhex("010902abcd")) == RECORDS["consumer_group_no_hash"]
    key, value = _bytes("offset_v4_plain")
    assert value is not None
    assert decode(key, value[:-1] + bytes.fromhex("010902abcd")) == RECORDS["offset_v4_plain"]


def test_text_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="UTF-8"):
        decode(bytes.fromhex("00020001ff"), None)


def test_a_text_that_no_record_can_hold_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="32768 bytes"):
        encode(CoordinatorRecord(GroupMetadataKey("g" * 32768), None))
    with pytest.raises(InvalidRecord, match="32768 bytes"):
        encode(CoordinatorRecord(OFFSET_KEY, OFFSET._replace(metadata="m" * 32768)))


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="GroupMetadataValue is no value for OffsetCommitKey"):
        encode(CoordinatorRecord(OFFSET_KEY, GROUP))
    with pytest.raises(TypeError, match="OffsetCommitValue is no value for GroupMetadataKey"):
        encode(CoordinatorRecord(GroupMetadataKey("g"), OFFSET))
