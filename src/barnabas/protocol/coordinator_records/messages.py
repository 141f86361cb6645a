"""What a group coordinator keeps in `__consumer_offsets`: Kafka's record schemas, under Kafka's names.

The key and value of a committed offset, members of classic groups, and assignments, are named tuples, since they are
made by the thousand and a named tuple is made in half the time; two of them are compared by their fields alone. All
others are dataclasses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.coordinator_records.share_messages import ShareGroupKey, ShareGroupValue

if TYPE_CHECKING:
    from uuid import UUID


class OffsetCommitKey(NamedTuple):
    """A partition that a group reads."""

    group: str
    topic: str
    partition: int


class OffsetCommitValue(NamedTuple):
    """How far a group has read a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = -1
    expire_timestamp: int = -1
    """-1 but for clients of long ago, which say themselves how long an offset is kept."""
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """A classic group."""

    group: str


class MemberMetadata(NamedTuple):
    """A member of a classic group."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: int
    session_timeout: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    """A generation of a classic group."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: int
    members: tuple[MemberMetadata, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    """A consumer group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    """The epoch of a consumer group, and a hash over the topics that it reads."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """The topics that a consumer group reads, before Kafka 4.1 wrote their hash instead."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The racks of a partition."""

    partition: int
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic that a consumer group reads."""

    topic_id: UUID
    topic_name: str
    num_partitions: int
    partition_metadata: tuple[PartitionMetadata, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataValue:
    """The topics that a consumer group reads."""

    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    """A member of a consumer group, as it described itself."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    """One of the protocols that a classic member offers; JoinGroup has it, too, so its fields say their types."""

    name: str = field(metadata={"kafka_type": "string"})
    metadata: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What is kept of a member that speaks the classic protocol in a consumer group."""

    session_timeout_ms: int
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    """A member's description of itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic_member_metadata: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """The target assignment of a consumer group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    """Which epoch of the group the target assignment was made for, and when."""

    assignment_epoch: int
    assignment_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """A member's part of the target assignment."""

    group_id: str
    member_id: str


class TargetTopicPartitions(NamedTuple):
    """Partitions of a topic."""

    topic_id: UUID
    partitions: tuple[int, ...]


class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    """What a member is to read."""

    topic_partitions: tuple[TargetTopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """A member's assignment as it stands."""

    group_id: str
    member_id: str


class CurrentTopicPartitions(NamedTuple):
    """Partitions of a topic, and for each the member's epoch when it was given it."""

    topic_id: UUID
    partitions: tuple[int, ...]
    assignment_epochs: tuple[int, ...] | None = None
    """None in what Kafka wrote before 4.3."""


class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    """What a member reads, and what it was asked to give back."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[CurrentTopicPartitions, ...]
    partitions_pending_revocation: tuple[CurrentTopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    """A regular expression that members of a consumer group subscribe to."""

    group_id: str
    regular_expression: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionValue:
    """The topics that matched it, and the version of the metadata they were found in."""

    topics: tuple[str, ...]
    version: int
    timestamp: int


Key = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
    | ShareGroupKey
)
Value = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | ShareGroupValue
)


class CoordinatorRecord(NamedTuple):
    """A record of `__consumer_offsets`."""

    key: Key
    value: Value | None
    """None is a tombstone: what the key names is no more."""
