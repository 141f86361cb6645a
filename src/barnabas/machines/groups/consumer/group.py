"""A consumer group (KIP-848) as the log holds it: its epochs, members, target assignment and resolved patterns.

The group epoch is raised when members or topics change, the assignment epoch follows when a target assignment was made
for it, and each member's epoch follows when the member has revoked what it had to. None of the three goes back.

All of it is changed by `apply` alone, one record at a time; the few attributes below `Soft state` are lost on a reload.
"""

from __future__ import annotations

from collections import Counter
from operator import is_
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.consumer.member import NO_PARTITIONS, NOTHING, Member
from barnabas.machines.groups.consumer.states import ConsumerGroupState
from barnabas.model.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from barnabas.protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CoordinatorRecord,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.consumer.member import Assignment
    from barnabas.machines.groups.table import CommitCheck
    from barnabas.protocol.coordinator_records import Key

FIRST_EPOCH = 1
"""The epoch of a group that no member has joined, and of its empty target assignment."""


_NO_OWNERS: Final[Mapping[int, str]] = MappingProxyType({})


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched."""

    topics: frozenset[str]
    version: int
    """Kafka's version of the metadata; here, where metadata has none, the time."""
    timestamp: int


class ConsumerGroup:
    """A consumer group."""

    may_expire = True

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        """When the target assignment was made; 0 if that is not known."""
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Partitions] = {}
        self.resolved: dict[str, ResolvedRegex] = {}
        self.has_partition_metadata = False
        """Whether the log has a record that brokers before 4.1 wrote in place of the hash."""

        self.instances: dict[str, str] = {}
        """Member ids by group.instance.id."""
        self.assignors: Counter[str] = Counter()
        """How many members ask for each assignor."""
        self.regexes: Counter[str] = Counter()
        """How many members subscribe to each pattern."""
        self.classic_protocols: Counter[str] = Counter()
        """How many classic members support each of their protocols."""
        self.classic_members = 0
        self._names: Counter[str] = Counter()
        self._owners: dict[UUID, dict[int, str]] = {}

        # Soft state
        self.metadata_current = False
        """Whether `metadata_hash` holds for the cluster as it is; False until it was compared."""
        self.stale_regexes: set[str] = set()
        """Patterns that may match a topic which came after they were resolved."""
        self.asked_to_rejoin: set[str] = set()
        """Classic members that have to join again and have not done so."""

    @property
    def state(self) -> ConsumerGroupState:
        """What the group is doing."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    def member(self, member_id: str) -> Member:
        """The member of this id."""
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"Group {self.group_id} has no member {member_id}.")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member of this instance id."""
        if instance_id is None or (member_id := self.instances.get(instance_id)) is None:
            return None
        return self.members[member_id]

    def target_of(self, member: Member) -> Partitions:
        """What a member is to have; of a static member, the target of its instance id."""
        if member.instance_id is None:
            return self.targets.get(member.member_id, {})
        return self.targets.get(self.instances.get(member.instance_id, ""), {})

    def owners_of(self, topic_id: UUID) -> Mapping[int, str]:
        """The partitions of a topic that a member has, or has not given back yet, with the id of that member."""
        return self._owners.get(topic_id, _NO_OWNERS)

    def topics_without(self, removed: Iterable[Member], added: Iterable[Member] = ()) -> set[str]:
        """The topics subscribed by name, if some members were removed and others added."""
        names = self._names.copy()
        for member in removed:
            names.subtract(member.topics)
        for member in added:
            names.update(member.topics)
        return {name for name, count in names.items() if count > 0}

    def preferred_assignor(self, old: Member | None = None, new: Member | None = None) -> str | None:
        """The assignor that most members ask for, if `old` became `new`; None if none asks for one."""
        counts = self.assignors.copy()
        _move(counts, _optional(old and old.assignor), _optional(new and new.assignor))
        return max(counts, key=counts.__getitem__, default=None)

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool = False
    ) -> CommitCheck | None:
        """Refuse a commit of a client that is no member, or has a higher epoch; a lower one is checked by partition.

        A member whose epoch was raised meanwhile may commit partitions that it has had since the epoch it knows.
        """
        if epoch < 0 and not self.members:
            return None
        if transactional and epoch < 0 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if member.classic is None and version < 9 and not transactional:
            raise UnsupportedVersion("Members of a consumer group commit with OffsetCommit version 9 or higher.")
        if epoch == member.epoch:
            return None
        stale = StaleMemberEpoch if member.classic is None else IllegalGeneration
        if epoch > member.epoch:
            raise stale(f"The epoch {epoch} of member {member_id} is higher than its current epoch {member.epoch}.")

        def check(topic: str, topic_id: UUID | None, partition: int) -> None:
            given = None if topic_id is None else member.assignment_epoch(topic_id, partition)
            if given is None:
                raise stale(f"{topic}-{partition} is not assigned to member {member_id}, and it is not revoking it.")
            if epoch < given:
                raise stale(
                    f"The epoch {epoch} of member {member_id} is lower than epoch {given}, "
                    f"in which {topic}-{partition} was assigned to it."
                )

        return check

    def check_offset_fetch(self, member_id: str | None, epoch: int, now_ms: int) -> None:
        """Refuse a fetch of offsets by a member that is behind; a fetch without a member is not checked."""
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            stale = StaleMemberEpoch if member.classic is None else IllegalGeneration
            raise stale(f"The epoch {epoch} of member {member_id} is not its current epoch {member.epoch}.")

    def check_offset_delete(self) -> None:
        """Offsets may be deleted in every state; topics that are in use are kept by `is_subscribed_to`."""

    def check_delete(self) -> None:
        """Refuse to delete a group that has members."""
        if self.members:
            raise NonEmptyGroup(f"Group {self.group_id} has {len(self.members)} members. Stop them first.")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic, by name or by pattern."""
        return topic in self._names or any(topic in regex.topics for regex in self.resolved.values())

    def is_subscribed_to_any(self, topics: Set[str]) -> bool:
        """Whether a member reads one of these topics, by name or by pattern."""
        return not (
            self._names.keys().isdisjoint(topics)
            and all(regex.topics.isdisjoint(topics) for regex in self.resolved.values())
        )

    def offsets_unused_since(self, committed_ms: int, topic: str) -> int | None:
        """From when on the retention of an offset counts: its commit, unless the topic is subscribed."""
        return None if self.is_subscribed_to(topic) else committed_ms

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group's own state; its own key comes last, and removes the group."""
        group_id = self.group_id
        keys: tuple[Key, ...] = (
            *(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id) for member_id in self.members),
            *(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id) for member_id in self.members),
            ConsumerGroupTargetAssignmentMetadataKey(group_id),
            *(ConsumerGroupMemberMetadataKey(group_id, member_id) for member_id in self.members),
            *(ConsumerGroupRegularExpressionKey(group_id, regex) for regex in self.resolved),
            ConsumerGroupPartitionMetadataKey(group_id),
            ConsumerGroupMetadataKey(group_id),
        )
        return tuple(CoordinatorRecord(key, None) for key in keys)

    def apply(self, record: CoordinatorRecord) -> None:
        """Take over what a record of this group says."""
        key, value = record
        match key:
            case ConsumerGroupCurrentMemberAssignmentKey(_, member_id):
                self._replay_current(member_id, value)
            case ConsumerGroupMemberMetadataKey(_, member_id):
                self._replay_member(member_id, value)
            case ConsumerGroupTargetAssignmentMemberKey(_, member_id):
                if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
                    self.targets[member_id] = {
                        topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions
                    }
                else:
                    self.targets.pop(member_id, None)
            case ConsumerGroupTargetAssignmentMetadataKey():
                if isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
                    self.assignment_epoch, self.assignment_timestamp = (
                        value.assignment_epoch,
                        value.assignment_timestamp,
                    )
                else:
                    self.assignment_epoch, self.assignment_timestamp = -1, 0
            case ConsumerGroupRegularExpressionKey(_, regex):
                self.stale_regexes.discard(regex)
                if isinstance(value, ConsumerGroupRegularExpressionValue):
                    self.resolved[regex] = ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)
                else:
                    self.resolved.pop(regex, None)
            case ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case ConsumerGroupMetadataKey():
                if isinstance(value, ConsumerGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_current(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
            if member is None:
                self._put(member_id, None, Member(member_id=member_id).placed_by(value))
            else:
                self.members[member_id] = after = member.placed_by(value)
                self._move_ownership(member_id, member, after)
        elif member is not None:
            self._put(member_id, member, member.without_place())

    def _replay_member(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if isinstance(value, ConsumerGroupMemberMetadataValue):
            self._put(member_id, member, (member or Member(member_id=member_id)).described_by(value))
        elif member is not None:
            self._put(member_id, member, None)

    def _put(self, member_id: str, old: Member | None, new: Member | None) -> None:
        """Put a member in the place of what it was, and keep everything that is counted over members in step."""
        self._count(old, new)
        self._move_ownership(member_id, old, new)
        if old is not None and old.instance_id is not None and self.instances.get(old.instance_id) == old.member_id:
            del self.instances[old.instance_id]
        if new is None:
            if old is not None:
                del self.members[old.member_id]
                self.asked_to_rejoin.discard(old.member_id)
            return
        self.members[new.member_id] = new
        if new.instance_id is not None:
            self.instances[new.instance_id] = new.member_id

    def _move_ownership(self, member_id: str, old: Member | None, new: Member | None) -> None:
        """A member has other partitions than before, or the same."""
        had, has = _held(old), _held(new)
        if all(map(is_, had, has)):
            return
        for assignment in had:
            for topic, partitions in assignment.items():
                owners = self._owners.get(topic, {})
                left = [each.get(topic, NO_PARTITIONS).keys() for each in has]
                for partition in partitions.keys() - left[0] - left[1]:
                    if owners.get(partition) == member_id:
                        del owners[partition]
                if not owners:
                    self._owners.pop(topic, None)
        for assignment in has:
            for topic, partitions in assignment.items():
                self._owners.setdefault(topic, {}).update(dict.fromkeys(partitions, member_id))

    def _count(self, old: Member | None, new: Member | None) -> None:
        if (
            old is not None
            and new is not None
            and old.topics is new.topics
            and old.regex is new.regex
            and old.assignor is new.assignor
            and old.classic is new.classic
        ):
            return  # as in nearly every step of a rebalance: only what the member has changes
        _move(self._names, old.topics if old else (), new.topics if new else ())
        _move(self.regexes, _optional(old and old.regex), _optional(new and new.regex))
        _move(self.assignors, _optional(old and old.assignor), _optional(new and new.assignor))
        _move(self.classic_protocols, _protocols(old), _protocols(new))
        self.classic_members += (new is not None and new.classic is not None) - (
            old is not None and old.classic is not None
        )


def _held(member: Member | None) -> tuple[Assignment, Assignment]:
    return (NOTHING, NOTHING) if member is None else (member.assigned, member.pending_revocation)


def _optional(name: str | Member | None) -> tuple[str, ...]:
    return (name,) if isinstance(name, str) and name else ()


def _protocols(member: Member | None) -> tuple[str, ...]:
    if member is None or member.classic is None:
        return ()
    return tuple({protocol.name: None for protocol in member.classic.supported_protocols})


def _move(counts: Counter[str], old: Iterable[str], new: Iterable[str]) -> None:
    """Count `new` in place of `old`; what is counted no more is forgotten."""
    for name in old:
        counts[name] -= 1
        if not counts[name]:
            del counts[name]
    for name in new:  # one at most as a rule, which `Counter.update` takes seventy bytecodes for
        counts[name] += 1
