"""A member of a share group as the log holds it, and the records that say so.

A member is a value, as in consumer groups. It has whatever its target gives it as soon as it asks: other members may
have the same partitions.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    TargetTopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Partitions

NOTHING: Final[Mapping[UUID, frozenset[int]]] = MappingProxyType({})
STABLE: Final = 0
"""The only state of a member, as records have it."""


class ShareMember(NamedTuple):
    """A member."""

    member_id: str
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """Accepted once more, since the answer that raised the epoch may have been lost."""
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    assigned: Partitions = NOTHING

    def at_epoch(self, epoch: int, assigned: Partitions) -> ShareMember:
        """The member with what an epoch's target assignment gives it."""
        if epoch == self.epoch:
            return self._replace(assigned=assigned)
        return self._replace(epoch=epoch, previous_epoch=self.epoch, assigned=assigned)

    def described_by(self, value: ShareGroupMemberMetadataValue) -> ShareMember:
        """The member as it describes itself in a record."""
        return self._replace(
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )

    def placed_by(self, value: ShareGroupCurrentMemberAssignmentValue) -> ShareMember:
        """The member with the assignment in a record."""
        return self._replace(
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=read_partitions(value.assigned_partitions),
        )

    def without_place(self) -> ShareMember:
        """The member after its assignment was removed, and before it is removed itself."""
        return self._replace(epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING)


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """How a member describes itself."""
    return CoordinatorRecord(
        ShareGroupMemberMetadataKey(group_id, member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.topics)),
        ),
    )


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """What a member has."""
    return CoordinatorRecord(
        ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=STABLE,
            assigned_partitions=_written(member.assigned),
        ),
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    """What a member is to have."""
    return CoordinatorRecord(
        ShareGroupTargetAssignmentMemberKey(group_id, member_id),
        ShareGroupTargetAssignmentMemberValue(_written(target)),
    )


def removal_records(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """What removes a member: first what it has, last the member."""
    return (
        CoordinatorRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    )


def read_partitions(topics: Iterable[TargetTopicPartitions]) -> dict[UUID, frozenset[int]]:
    """Partitions in a record."""
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics}


def _written(partitions: Partitions) -> tuple[TargetTopicPartitions, ...]:
    return tuple(TargetTopicPartitions(topic, tuple(sorted(partitions[topic]))) for topic in sorted(partitions))
