"""A share group (KIP-932) as the log holds it: its epochs, members, target assignment, and partitions with state.

All of it is changed by `apply` alone, one record at a time; the attributes below `Soft state` are lost on a reload.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Never

from barnabas.machines.groups.share.member import ShareMember, read_partitions
from barnabas.machines.groups.share.state_partitions import NO_STATE, StatePartitions
from barnabas.machines.groups.share.states import ShareGroupState
from barnabas.model.errors import GroupIdNotFound, NonEmptyGroup, UnknownMemberId
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
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
)

if TYPE_CHECKING:
    from collections.abc import Set
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.protocol.coordinator_records import Key

FIRST_EPOCH = 1
"""The epoch of a group that no member has joined, and of its empty target assignment."""


class ShareGroup:
    """A share group."""

    may_expire = False
    """Where its messages stand is kept until somebody deletes the group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assignment_timestamp = 0
        """When the target assignment was made; 0 if that is not known."""
        self.members: dict[str, ShareMember] = {}
        self.targets: dict[str, Partitions] = {}
        self.states: StatePartitions | None = None
        """Partitions with state at the share coordinator; None if there never were any."""
        self._names: Counter[str] = Counter()

        # Soft state
        self.metadata_current = False
        """Whether `metadata_hash` holds for the cluster as it is; False until it was compared."""
        self._not_assigned: tuple[UUID, ...] | None = None

    @property
    def state(self) -> ShareGroupState:
        """What the group is doing."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def state_partitions(self) -> StatePartitions:
        """Partitions with state at the share coordinator."""
        return self.states or NO_STATE

    def member(self, member_id: str) -> ShareMember:
        """The member of this id."""
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def topics_without(self, old: ShareMember, new: ShareMember | None = None) -> set[str]:
        """The topics that members subscribe to, if one became another or left."""
        names = self._names.copy()
        names.subtract(old.topics)
        names.update(new.topics if new else ())
        return {name for name, count in names.items() if count > 0}

    @property
    def topics(self) -> Set[str]:
        """The topics that members subscribe to."""
        return self._names.keys()

    def topics_not_assigned(self) -> tuple[UUID, ...]:
        """Subscribed topics of which the target assignment has not just the partitions that members may be given."""
        if self._not_assigned is None:
            given: dict[UUID, set[int]] = {}
            for target in self.targets.values():
                for topic, partitions in target.items():
                    given.setdefault(topic, set()).update(partitions)
            self._not_assigned = tuple(
                topic
                for topic, found in self.state_partitions.initialized.items()
                if found.name in self._names and given.get(topic, set()) ^ found.partitions
            )
        return self._not_assigned

    # What is asked of a group whatever its kind: it has no offsets that clients commit.

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool = False
    ) -> Never:
        """Refuse."""
        raise self._has_no_offsets()

    def check_offset_fetch(self, member_id: str | None, epoch: int, now_ms: int) -> Never:
        """Refuse."""
        raise self._has_no_offsets()

    def check_offset_delete(self) -> Never:
        """Refuse."""
        raise self._has_no_offsets()

    def _has_no_offsets(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.group_id} is not a consumer group.")

    def check_delete(self) -> None:
        """Refuse to delete a group, or where its messages stand, while it has members."""
        if self.members:
            raise NonEmptyGroup("The group is not empty.")

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic."""
        return topic in self._names

    def is_subscribed_to_any(self, topics: Set[str]) -> bool:
        """Whether a member reads one of these topics."""
        return not self._names.keys().isdisjoint(topics)

    def offsets_unused_since(self, committed_ms: int, topic: str) -> int | None:
        """It has none."""
        return None

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group; its own key comes last."""
        group_id = self.group_id
        keys: tuple[Key, ...] = (
            *(ShareGroupCurrentMemberAssignmentKey(group_id, member_id) for member_id in self.members),
            *(ShareGroupTargetAssignmentMemberKey(group_id, member_id) for member_id in self.members),
            ShareGroupTargetAssignmentMetadataKey(group_id),
            *(ShareGroupMemberMetadataKey(group_id, member_id) for member_id in self.members),
            ShareGroupStatePartitionMetadataKey(group_id),
            ShareGroupMetadataKey(group_id),
        )
        return tuple(CoordinatorRecord(key, None) for key in keys)

    def apply(self, record: CoordinatorRecord) -> None:
        """Take over what a record of this group says."""
        key, value = record
        if isinstance(key, ShareGroupCurrentMemberAssignmentKey):
            self._replay_current(key.member_id, value)
            return  # what a member has decides nothing: in a rebalance there is one of these for every member
        self._not_assigned = None
        match key:
            case ShareGroupMemberMetadataKey(_, member_id):
                self._replay_member(member_id, value)
            case ShareGroupTargetAssignmentMemberKey(_, member_id):
                if isinstance(value, ShareGroupTargetAssignmentMemberValue):
                    self.targets[member_id] = read_partitions(value.topic_partitions)
                else:
                    self.targets.pop(member_id, None)
            case ShareGroupTargetAssignmentMetadataKey():
                if isinstance(value, ShareGroupTargetAssignmentMetadataValue):
                    self.assignment_epoch = value.assignment_epoch
                    self.assignment_timestamp = value.assignment_timestamp
                else:
                    self.assignment_epoch, self.assignment_timestamp = -1, 0
            case ShareGroupStatePartitionMetadataKey():
                if isinstance(value, ShareGroupStatePartitionMetadataValue):
                    self.states = StatePartitions.read(value)
                else:
                    self.states = None
            case ShareGroupMetadataKey():
                if isinstance(value, ShareGroupMetadataValue):
                    self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _replay_current(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if isinstance(value, ShareGroupCurrentMemberAssignmentValue):
            self._put(member, (member or ShareMember(member_id=member_id)).placed_by(value))
        elif member is not None:
            self._put(member, member.without_place())

    def _replay_member(self, member_id: str, value: object) -> None:
        member = self.members.get(member_id)
        if isinstance(value, ShareGroupMemberMetadataValue):
            self._put(member, (member or ShareMember(member_id=member_id)).described_by(value))
        elif member is not None:
            self._put(member, None)

    def _put(self, old: ShareMember | None, new: ShareMember | None) -> None:
        """Put a member in the place of another, and count its topics."""
        if old is not None:
            for name in old.topics:
                self._names[name] -= 1
                if not self._names[name]:
                    del self._names[name]
        if new is not None:
            self._names.update(new.topics)
            self.members[new.member_id] = new
        elif old is not None:
            del self.members[old.member_id]
