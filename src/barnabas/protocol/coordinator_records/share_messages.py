"""What a group coordinator keeps of share groups (KIP-932) in `__consumer_offsets`, under Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.protocol.coordinator_records.messages import TargetTopicPartitions


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadataKey:
    """A member."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupMemberMetadataValue:
    """How a member describes itself."""

    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupMetadataKey:
    """A share group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupMetadataValue:
    """The epoch of a group, and the hash of the topics that it was raised for."""

    epoch: int
    metadata_hash: int


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadataKey:
    """The target assignment of a group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMetadataValue:
    """The epoch that a target assignment was made for, and when it was made; 0 if that is not known."""

    assignment_epoch: int
    assignment_timestamp: int = 0


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMemberKey:
    """The target of a member."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupTargetAssignmentMemberValue:
    """What a member is to read."""

    topic_partitions: tuple[TargetTopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignmentKey:
    """What a member has."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ShareGroupCurrentMemberAssignmentValue:
    """What a member reads."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TargetTopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadataKey:
    """The partitions of which a share coordinator keeps state for a group."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ShareTopicPartitionsInfo:
    """Partitions of a topic, by its id and name."""

    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShareTopicInfo:
    """A topic, by its id and name."""

    topic_id: UUID
    topic_name: str


@dataclass(frozen=True, slots=True)
class ShareGroupStatePartitionMetadataValue:
    """Partitions whose state is being made, those that have it, and topics whose state is being deleted."""

    initializing_topics: tuple[ShareTopicPartitionsInfo, ...]
    initialized_topics: tuple[ShareTopicPartitionsInfo, ...]
    deleting_topics: tuple[ShareTopicInfo, ...]


ShareGroupKey = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)
ShareGroupValue = (
    ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
)
