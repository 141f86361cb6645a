"""Kafka's schemas of the records, as tables. Versions that Kafka 4.3.0 writes are written, all older ones are read.

Committed offsets are not here: `offset_commit` packs them by hand. `member_metadata` does so with members of classic
groups, and `by_hand` with records of consumer groups.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.protocol.coordinator_records.fields import (
    BYTES,
    INT8,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UUID_,
    Item,
    Schema,
    array,
)
from barnabas.protocol.coordinator_records.member_metadata import packed_by_hand
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
    CurrentTopicPartitions,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    PartitionMetadata,
    TargetTopicPartitions,
    TopicMetadata,
)
from barnabas.protocol.coordinator_records.share_messages import (
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
)


class RecordType(NamedTuple):
    """A kind of record: the number that its key starts with, the schema of its key and of its value."""

    number: int
    key: Schema
    value: Schema


GROUP_ID: Final = (Item("group_id", STRING),)
GROUP_AND_MEMBER_ID: Final = (Item("group_id", STRING), Item("member_id", STRING))
GROUP_METADATA_WRITTEN: Final = 3
"""Version 4 is flexible, and brokers before Kafka 3.7 cannot read it."""

MEMBER_METADATA: Final = Schema(
    MemberMetadata,
    (
        Item("member_id", STRING),
        Item("group_instance_id", NULLABLE_STRING, since=3),
        Item("client_id", STRING),
        Item("client_host", STRING),
        Item("rebalance_timeout", INT32, since=1, default=-1),
        Item("session_timeout", INT32),
        Item("subscription", BYTES),
        Item("assignment", BYTES),
    ),
    writes=GROUP_METADATA_WRITTEN,
)
PARTITION_METADATA: Final = Schema(PartitionMetadata, (Item("partition", INT32), Item("racks", array(STRING))))
TOPIC_METADATA: Final = Schema(
    TopicMetadata,
    (
        Item("topic_id", UUID_),
        Item("topic_name", STRING),
        Item("num_partitions", INT32),
        Item("partition_metadata", array(PARTITION_METADATA.type)),
    ),
)
CLASSIC_PROTOCOL: Final = Schema(ClassicProtocol, (Item("name", STRING), Item("metadata", BYTES)))
CLASSIC_MEMBER_METADATA: Final = Schema(
    ClassicMemberMetadata,
    (Item("session_timeout_ms", INT32), Item("supported_protocols", array(CLASSIC_PROTOCOL.type))),
)
TARGET_TOPIC_PARTITIONS: Final = Schema(
    TargetTopicPartitions, (Item("topic_id", UUID_), Item("partitions", array(INT32)))
)
CURRENT_TOPIC_PARTITIONS: Final = Schema(
    CurrentTopicPartitions,
    (
        Item("topic_id", UUID_),
        Item("partitions", array(INT32)),
        Item("assignment_epochs", array(INT32, nullable=True), tag=0),
    ),
)
TOPIC_PARTITIONS_INFO: Final = Schema(
    ShareTopicPartitionsInfo, (Item("topic_id", UUID_), Item("topic_name", STRING), Item("partitions", array(INT32)))
)
TOPIC_INFO: Final = Schema(ShareTopicInfo, (Item("topic_id", UUID_), Item("topic_name", STRING)))


def _key(of: type, items: tuple[Item, ...]) -> Schema:
    return Schema(of, items, flexible_since=1)


RECORD_TYPES: Final = (
    RecordType(
        2,
        _key(GroupMetadataKey, (Item("group", STRING),)),
        Schema(
            GroupMetadataValue,
            (
                Item("protocol_type", STRING),
                Item("generation", INT32),
                Item("protocol", NULLABLE_STRING),
                Item("leader", NULLABLE_STRING),
                Item("current_state_timestamp", INT64, since=2, default=-1),
                Item("members", array(packed_by_hand(MEMBER_METADATA))),
            ),
            writes=GROUP_METADATA_WRITTEN,
            reads=4,
            flexible_since=4,
        ),
    ),
    RecordType(
        3,
        _key(ConsumerGroupMetadataKey, GROUP_ID),
        Schema(ConsumerGroupMetadataValue, (Item("epoch", INT32), Item("metadata_hash", INT64, tag=0, default=0))),
    ),
    RecordType(
        4,
        _key(ConsumerGroupPartitionMetadataKey, GROUP_ID),
        Schema(ConsumerGroupPartitionMetadataValue, (Item("topics", array(TOPIC_METADATA.type)),)),
    ),
    RecordType(
        5,
        _key(ConsumerGroupMemberMetadataKey, GROUP_AND_MEMBER_ID),
        Schema(
            ConsumerGroupMemberMetadataValue,
            (
                Item("instance_id", NULLABLE_STRING),
                Item("rack_id", NULLABLE_STRING),
                Item("client_id", STRING),
                Item("client_host", STRING),
                Item("subscribed_topic_names", array(STRING)),
                Item("subscribed_topic_regex", NULLABLE_STRING),
                Item("rebalance_timeout_ms", INT32),
                Item("server_assignor", NULLABLE_STRING),
                Item("classic_member_metadata", CLASSIC_MEMBER_METADATA.tagged_type, tag=0),
            ),
        ),
    ),
    RecordType(
        6,
        _key(ConsumerGroupTargetAssignmentMetadataKey, GROUP_ID),
        Schema(
            ConsumerGroupTargetAssignmentMetadataValue,
            (Item("assignment_epoch", INT32), Item("assignment_timestamp", INT64, tag=0, default=0)),
        ),
    ),
    RecordType(
        7,
        _key(ConsumerGroupTargetAssignmentMemberKey, GROUP_AND_MEMBER_ID),
        Schema(
            ConsumerGroupTargetAssignmentMemberValue,
            (Item("topic_partitions", array(TARGET_TOPIC_PARTITIONS.type)),),
        ),
    ),
    RecordType(
        8,
        _key(ConsumerGroupCurrentMemberAssignmentKey, GROUP_AND_MEMBER_ID),
        Schema(
            ConsumerGroupCurrentMemberAssignmentValue,
            (
                Item("member_epoch", INT32),
                Item("previous_member_epoch", INT32),
                Item("state", INT8),
                Item("assigned_partitions", array(CURRENT_TOPIC_PARTITIONS.type)),
                Item("partitions_pending_revocation", array(CURRENT_TOPIC_PARTITIONS.type)),
            ),
        ),
    ),
    RecordType(
        10,
        _key(ShareGroupMemberMetadataKey, GROUP_AND_MEMBER_ID),
        Schema(
            ShareGroupMemberMetadataValue,
            (
                Item("rack_id", NULLABLE_STRING),
                Item("client_id", STRING),
                Item("client_host", STRING),
                Item("subscribed_topic_names", array(STRING)),
            ),
        ),
    ),
    RecordType(
        11,
        _key(ShareGroupMetadataKey, GROUP_ID),
        Schema(ShareGroupMetadataValue, (Item("epoch", INT32), Item("metadata_hash", INT64))),
    ),
    RecordType(
        12,
        _key(ShareGroupTargetAssignmentMetadataKey, GROUP_ID),
        Schema(
            ShareGroupTargetAssignmentMetadataValue,
            (Item("assignment_epoch", INT32), Item("assignment_timestamp", INT64, tag=0, default=0)),
        ),
    ),
    RecordType(
        13,
        _key(ShareGroupTargetAssignmentMemberKey, GROUP_AND_MEMBER_ID),
        Schema(
            ShareGroupTargetAssignmentMemberValue,
            (Item("topic_partitions", array(TARGET_TOPIC_PARTITIONS.type)),),
        ),
    ),
    RecordType(
        14,
        _key(ShareGroupCurrentMemberAssignmentKey, GROUP_AND_MEMBER_ID),
        Schema(
            ShareGroupCurrentMemberAssignmentValue,
            (
                Item("member_epoch", INT32),
                Item("previous_member_epoch", INT32),
                Item("state", INT8),
                Item("assigned_partitions", array(TARGET_TOPIC_PARTITIONS.type)),
            ),
        ),
    ),
    RecordType(
        15,
        _key(ShareGroupStatePartitionMetadataKey, GROUP_ID),
        Schema(
            ShareGroupStatePartitionMetadataValue,
            (
                Item("initializing_topics", array(TOPIC_PARTITIONS_INFO.type)),
                Item("initialized_topics", array(TOPIC_PARTITIONS_INFO.type)),
                Item("deleting_topics", array(TOPIC_INFO.type)),
            ),
        ),
    ),
    RecordType(
        16,
        _key(ConsumerGroupRegularExpressionKey, (Item("group_id", STRING), Item("regular_expression", STRING))),
        Schema(
            ConsumerGroupRegularExpressionValue,
            (Item("topics", array(STRING)), Item("version", INT64), Item("timestamp", INT64)),
        ),
    ),
)
