"""A member of a consumer group as the log holds it, and the records that say so.

A member is a value: a heartbeat makes a new member, and the difference of the two decides which records are written.
Its partitions carry the epoch in which they were assigned to the member, so an offset that was read before can still be
committed after the member's epoch was raised.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.consumer.states import MemberState
from barnabas.protocol.coordinator_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    CoordinatorRecord,
    CurrentTopicPartitions,
    TargetTopicPartitions,
)
from barnabas.protocol.coordinator_records.by_hand import current_key, pack_assignment, pack_kept

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Partitions

    Assignment = Mapping[UUID, Mapping[int, int]]
    """Partitions by the id of their topic, each with the epoch in which the member was given it."""
    _Assignment = dict[UUID, Mapping[int, int]]
else:
    _Assignment = dict

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The member has left for a while: its partitions are kept for the next member with its instance id."""


class StoredAssignment(_Assignment):
    """An assignment as a record has it. Members keep it from epoch to epoch, so it is written once, too."""

    __slots__ = ("packed", "written")

    def __init__(self) -> None:
        self.written: tuple[CurrentTopicPartitions, ...] | None = None
        """What it is written as; None if that was not asked for yet."""
        self.packed: bytes | None = None
        """The same as bytes."""


NOTHING: Final = StoredAssignment()
NO_PARTITIONS: Final[Mapping[int, int]] = MappingProxyType({})


class Member(NamedTuple):
    """A member. A tuple, since a rebalance makes several of each, and a frozen dataclass takes four times as long.

    What it says of itself comes first. The rest is its place, which each step of a rebalance makes anew (`placed`).
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    """Subscribed by name."""
    regex: str = ""
    """Subscribed by pattern, "" for none."""
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Set while the member uses the classic protocol."""
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    """Accepted once more, since the answer that raised the epoch may have been lost."""
    state: MemberState = MemberState.STABLE
    assigned: Assignment = NOTHING
    pending_revocation: Assignment = NOTHING
    """Partitions that the member has to revoke, and has not revoked yet."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether the member has all that the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def at_epoch(self, epoch: int, state: MemberState, assigned: Assignment, pending_revocation: Assignment) -> Member:
        """The member with a new assignment; the epoch it is in becomes its previous one."""
        return self.placed(epoch, self.epoch, state, assigned, pending_revocation)

    def placed(
        self,
        epoch: int,
        previous_epoch: int,
        state: MemberState,
        assigned: Assignment,
        pending_revocation: Assignment,
    ) -> Member:
        """The member in another place."""
        place = epoch, previous_epoch, state, assigned, pending_revocation
        return tuple.__new__(Member, (*self[:_PLACE], *place))  # which takes half the time of `_make`

    def away(self) -> Member:
        """The static member after it left for a while; the member that replaces it gets its partitions in epoch 0."""
        return self._replace(
            epoch=LEAVE_STATIC_EPOCH,
            pending_revocation=NOTHING,
            assigned={topic: dict.fromkeys(epochs, 0) for topic, epochs in self.assigned.items()},
        )

    def renamed(self, member_id: str) -> Member:
        """Whoever comes with the member's instance id and takes its place."""
        return self._replace(member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """In which epoch the member was given this partition; None if it does not have it."""
        for assignment in (self.assigned, self.pending_revocation):
            if (epoch := assignment.get(topic_id, {}).get(partition)) is not None:
                return epoch
        return None

    def described_by(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        """The member as it describes itself in a record."""
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def placed_by(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        """The member with the assignment in a record; what it has already is the same object as before."""
        epoch, previous_epoch, state, assigned, pending = value
        return self.placed(
            epoch,
            previous_epoch,
            MemberState.of(state),
            _read_again(self.assigned, assigned, epoch),
            _read_again(self.pending_revocation, pending, epoch),
        )

    def without_place(self) -> Member:
        """The member after its assignment was removed, and before it is removed itself."""
        return self._replace(
            epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned=NOTHING, pending_revocation=NOTHING
        )


_PLACE: Final = Member._fields.index("epoch")
"""How many fields say what a member says of itself."""


def partitions_of(assignment: Assignment) -> dict[UUID, frozenset[int]]:
    """An assignment without its epochs."""
    return {topic: frozenset(epochs) for topic, epochs in assignment.items()}


def held_by(member: Member) -> dict[UUID, frozenset[int]]:
    """The partitions that a member may be reading: those assigned, and those not revoked yet."""
    assigned, pending = member.assigned, member.pending_revocation
    return {
        topic: frozenset((*assigned.get(topic, ()), *pending.get(topic, ())))
        for topic in assigned.keys() | pending.keys()
    }


def with_epoch(partitions: Partitions, epoch: int) -> dict[UUID, dict[int, int]]:
    """Partitions that were all given in one epoch."""
    return {topic: dict.fromkeys(sorted(indexes), epoch) for topic, indexes in partitions.items()}


def member_record(group_id: str, member: Member) -> CoordinatorRecord:
    """How a member describes itself."""
    return CoordinatorRecord(
        ConsumerGroupMemberMetadataKey(group_id, member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=tuple(sorted(member.topics)),
            subscribed_topic_regex=member.regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.assignor,
            classic_member_metadata=member.classic,
        ),
    )


def current_record(group_id: str, member: Member) -> CoordinatorRecord:
    """What a member has."""
    return CoordinatorRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=member.state.value,
            assigned_partitions=_written_assignment(member.assigned),
            partitions_pending_revocation=_written_assignment(member.pending_revocation),
        ),
    )


def kept_record(group_id: str, member: Member, assigned: StoredAssignment) -> tuple[bytes, bytes]:
    """The bytes of `current_record` for a member that is stable and has nothing to revoke."""
    packed = assigned.packed
    if packed is None:
        packed = assigned.packed = pack_assignment(_written_assignment(assigned))
    return current_key(group_id, member.member_id), pack_kept(member.epoch, member.previous_epoch, packed)


def target_record(group_id: str, member_id: str, target: Partitions) -> CoordinatorRecord:
    """What a member is to have."""
    return CoordinatorRecord(
        ConsumerGroupTargetAssignmentMemberKey(group_id, member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            tuple(TargetTopicPartitions(topic, tuple(sorted(target[topic]))) for topic in sorted(target))
        ),
    )


def removal_records(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """What removes a member: first what it has, last the member."""
    return (
        CoordinatorRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        CoordinatorRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    )


def replacement(
    group_id: str, holder: Member, member_id: str, target: Partitions
) -> tuple[Member, tuple[CoordinatorRecord, ...]]:
    """Whoever takes the place of a static member, with all that it has and is to have, and the records that say so."""
    member = holder.renamed(member_id)
    return member, (
        *removal_records(group_id, holder.member_id),
        member_record(group_id, member),
        target_record(group_id, member_id, target),
        current_record(group_id, member),
    )


def _written_assignment(assignment: Assignment) -> tuple[CurrentTopicPartitions, ...]:
    if isinstance(assignment, StoredAssignment):
        if assignment.written is None:
            assignment.written = _write_assignment(assignment)
        return assignment.written
    return _write_assignment(assignment)


def _write_assignment(assignment: Assignment) -> tuple[CurrentTopicPartitions, ...]:
    written = []
    for topic in sorted(assignment):
        partitions = sorted(assignment[topic].items())
        indexes, epochs = zip(*partitions, strict=True)
        written.append(CurrentTopicPartitions(topic, indexes, epochs))
    return tuple(written)


def _read_again(before: Assignment, topics: tuple[CurrentTopicPartitions, ...], member_epoch: int) -> Assignment:
    """An assignment of a member that had one before; the same object, if it is the same."""
    if isinstance(before, StoredAssignment) and before.written is topics:
        return before
    assignment = _read_assignment(topics, member_epoch)
    return before if assignment == before else assignment


def _read_assignment(topics: tuple[CurrentTopicPartitions, ...], member_epoch: int) -> Assignment:
    """An assignment; records of older brokers have no epochs, and count as given in the member's epoch."""
    assignment = StoredAssignment()
    for topic in topics:
        if not topic.partitions:
            continue
        if topic.assignment_epochs is not None and len(topic.assignment_epochs) == len(topic.partitions):
            assignment[topic.topic_id] = dict(zip(topic.partitions, topic.assignment_epochs, strict=True))
        else:
            assignment[topic.topic_id] = dict.fromkeys(topic.partitions, max(member_epoch, 0))
    return assignment
