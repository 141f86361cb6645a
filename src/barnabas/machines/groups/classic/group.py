"""A classic group: its members, its generation, and what it is doing.

Hard state is what the log says, the last `GroupMetadataValue`. It is kept in `stored`, and only `replay` changes it. A
rebalance works ahead of the log: members join and leave and the generation rises before anything is written. All of
that is soft state. The record that ends a rebalance (assignments, or no members) makes it hard, and the replay of that
record moves the group to Stable or Empty. A reload in between returns to the last complete generation; its members have
to join again, or are removed when their sessions end.

Invariants: `leader` names a member, or there are none. All members support some common protocol. The generation only
rises. A Stable group is what its last record says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.machines.groups.classic.members import ClassicMember
from barnabas.machines.groups.classic.states import CLASSIC_TRANSITIONS, ClassicGroupState
from barnabas.machines.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from barnabas.model.errors import (
    CoordinatorNotAvailable,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.protocol.coordinator_records import CoordinatorRecord, GroupMetadataKey, GroupMetadataValue
from barnabas.protocol.records.batch import NO_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.machines.outcome import Asker
    from barnabas.protocol.coordinator_records import ClassicProtocol, MemberMetadata
    from barnabas.protocol.messages.groups.join_group import JoinGroupResponse


@dataclass(slots=True)
class InitialDelay:
    """How long the first rebalance of an empty group still waits for more members."""

    step_ms: int
    """How long the timer that runs was set to."""
    remaining_ms: int
    """By how much all further steps together may extend it."""
    grown: bool = False
    """Whether a member joined since the timer was set: a reason to wait for one more step."""


class ClassicGroup:
    """One classic group; also the shape of groups that only commit offsets, which have no protocol type."""

    may_expire = True

    __slots__ = (
        "_joined",
        "_speakers",
        "_topics",
        "generation",
        "group_id",
        "initial_delay",
        "instances",
        "leader",
        "members",
        "pending_joins",
        "pending_syncs",
        "protocol",
        "protocol_type",
        "rebalance_reason",
        "state",
        "state_since_ms",
        "stored",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = CLASSIC_TRANSITIONS.initial
        self.state_since_ms = NO_TIMESTAMP
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        """The name of the protocol that its members agreed on, such as an assignor."""
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        """By id; the longest-serving first."""
        self.instances: dict[str, str] = {}
        """The ids of static members, by group.instance.id."""
        self.stored: GroupMetadataValue | None = None
        """What the log says."""
        self.pending_joins: set[str] = set()
        """Ids that were given out to clients which have not joined with them yet."""
        self.pending_syncs: set[str] = set()
        """Members of this generation that have not asked for their assignments."""
        self.initial_delay: InitialDelay | None = None
        self.rebalance_reason = ""
        """Why the last rebalance began, for people."""
        self._joined = 0
        self._speakers: dict[str, int] = {}
        """How many members support a protocol."""
        self._topics: frozenset[str] | None = None

    @classmethod
    def of_members(
        cls, group_id: str, generation: int, protocol_type: str, members: Iterable[ClassicMember], now_ms: int
    ) -> ClassicGroup:
        """A Stable group of members that were members already, of another kind of group; there must be one at least."""
        group = cls(group_id)
        group.state = ClassicGroupState.STABLE
        group.state_since_ms = now_ms
        group.generation = generation
        for member in members:
            group.add(member, protocol_type)
        group.protocol = group.choose_protocol()
        group._topics = group._subscribed_topics()
        return group

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and expects none."""
        return self.state is ClassicGroupState.EMPTY

    def end(self) -> None:
        """Be no more."""
        if self.state is not ClassicGroupState.DEAD:
            self.move_to(ClassicGroupState.DEAD, self.state_since_ms)

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        """Change the state, as the table allows."""
        CLASSIC_TRANSITIONS.check(self.state, state)
        self.state = state
        self.state_since_ms = now_ms

    # Members.

    def add(self, member: ClassicMember, protocol_type: str) -> None:
        """Take a member in; the first says what type of group this is, and leads it."""
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        self._count_speaker(member, 1)
        self.pending_joins.discard(member.member_id)

    def remove(self, member: ClassicMember) -> None:
        """Let a member go, whose askers are answered; if it led, the longest-serving one leads."""
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        self._count_speaker(member, -1)
        self.pending_syncs.discard(member.member_id)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def replace(self, old: ClassicMember, new_id: str) -> ClassicMember:
        """Give a static member that restarted a new id; its requests that wait are answered."""
        new = ClassicMember(
            member_id=new_id,
            instance_id=old.instance_id,
            client_id=old.client_id,
            client_host=old.client_host,
            rebalance_timeout_ms=old.rebalance_timeout_ms,
            session_timeout_ms=old.session_timeout_ms,
            protocols=old.protocols,
            assignment=old.assignment,
        )
        led = self.leader == old.member_id
        self.remove(old)
        self.add(new, self.protocol_type or "")
        if led:
            self.leader = new_id
        return new

    def update(
        self,
        member: ClassicMember,
        protocols: tuple[ClassicProtocol, ...],
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Take over what a member says of itself when it joins again."""
        if protocols is not member.protocols:
            self._count_speaker(member, -1)
            member.protocols = protocols
            self._count_speaker(member, 1)
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def park_join(self, member: ClassicMember, asker: Asker[JoinGroupResponse]) -> None:
        """Let a member wait for the group to be complete; no earlier join of it is parked."""
        member.join_asker = asker
        self._joined += 1

    def take_join(self, member: ClassicMember) -> Asker[JoinGroupResponse] | None:
        """Who waits for the member's join, no longer parked."""
        asker, member.join_asker = member.join_asker, None
        if asker is not None:
            self._joined -= 1
        return asker

    @property
    def joined(self) -> int:
        """How many members wait for the group to be complete."""
        return self._joined

    @property
    def all_joined(self) -> bool:
        """Whether all members that are expected have joined."""
        return self._joined == len(self.members) and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to join: as long as the slowest says."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """The member of this id; raises if there is none, or if its instance id is another's now."""
        if instance_id is not None:
            holder = self.instances.get(instance_id)
            if holder is None:
                raise UnknownMemberId(f"Group {self.group_id} has no static member {instance_id}.")
            if holder != member_id:
                raise FencedInstanceId(
                    f"Static member {instance_id} of group {self.group_id} is now {holder}, not {member_id}."
                )
        if (member := self.members.get(member_id)) is None:
            raise UnknownMemberId(f"Group {self.group_id} has no member {member_id}.")
        return member

    # Protocols.

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a client that supports these protocols could be a member."""
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        size = len(self.members)
        return protocol_type == self.protocol_type and any(self._speakers.get(name, 0) == size for name in names)

    def choose_protocol(self) -> str:
        """The protocol with the most votes, of those that all members support."""
        candidates = {name for name, speakers in self._speakers.items() if speakers == len(self.members)}
        votes: dict[str, int] = {}
        for member, alike in self._alike():
            choice = member.vote(candidates)
            votes[choice] = votes.get(choice, 0) + alike
        return max(votes, key=votes.__getitem__)

    def _alike(self) -> list[tuple[ClassicMember, int]]:
        """Members that say the same of themselves, as nearly all do: one of them, and how many they are.

        What is said alike is one object (`protocol/messages/groups/join_group`). Those whose first member came first
        come first.
        """
        counts = Counter([id(member.protocols) for member in self.members.values()])
        found = {id(member.protocols): member for member in self.members.values()}
        return [(member, counts[said]) for said, member in found.items()]

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, otherwise let the first that has joined lead; False if none has."""
        if self.leader is not None and self.members[self.leader].join_asker is not None:
            return True
        for member in self.members.values():
            if member.join_asker is not None:
                self.leader = member.member_id
                return True
        return False

    @property
    def next_generation(self) -> int:
        """One that neither a member nor the log knows: a group that rebalances may be written ahead of its members."""
        return max(self.generation, 0 if self.stored is None else self.stored.generation) + 1

    def begin_generation(self, now_ms: int) -> None:
        """Go on with the members as they are; there must be one at least."""
        self.generation = self.next_generation
        self.protocol = self.choose_protocol()
        self._topics = self._subscribed_topics()
        self.pending_syncs = set(self.members)
        self.move_to(ClassicGroupState.COMPLETING_REBALANCE, now_ms)

    def _count_speaker(self, member: ClassicMember, by: int) -> None:
        for name in {protocol.name for protocol in member.protocols}:
            speakers = self._speakers.get(name, 0) + by
            if speakers:
                self._speakers[name] = speakers
            else:
                del self._speakers[name]

    # Topics and offsets.

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic; yes if the members are consumers and did not say it legibly."""
        if self._topics is None:
            return self.uses_consumer_protocol
        return topic in self._topics

    def offsets_unused_since(self, committed_ms: int, topic: str) -> int | None:
        """From when on the retention of an offset counts; None while it is in use."""
        if self.protocol_type is None:
            return committed_ms
        if self.state is ClassicGroupState.EMPTY:
            return committed_ms if self.state_since_ms == NO_TIMESTAMP else self.state_since_ms
        if self.state is ClassicGroupState.STABLE and self._topics is not None and topic not in self._topics:
            return committed_ms
        return None

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, transactional: bool = False
    ) -> None:
        """Refuse a commit that is neither a member's of this generation nor, in an empty group, a simple consumer's."""
        if self.state is ClassicGroupState.DEAD:
            raise CoordinatorNotAvailable(f"Group {self.group_id} was removed.")
        if epoch < 0 and self.state is ClassicGroupState.EMPTY:
            return
        if epoch < 0 and not member_id and instance_id is None:
            if transactional:
                return
            raise UnknownMemberId(f"Group {self.group_id} has members, and only they may commit its offsets.")
        self.member(member_id, instance_id)
        self.check_generation(epoch)
        if self.state is ClassicGroupState.COMPLETING_REBALANCE and not transactional:
            raise RebalanceInProgress(f"Group {self.group_id} waits for the assignment of its leader.")

    def check_generation(self, generation: int) -> None:
        """Refuse a request of another generation."""
        if generation != self.generation:
            raise IllegalGeneration(f"Group {self.group_id} is in generation {self.generation}, not {generation}.")

    def check_offset_fetch(self, member_id: str | None, epoch: int, now_ms: int) -> None:
        """Everybody may read the offsets of a classic group that lives."""
        self._check_alive()

    def check_offset_delete(self) -> None:
        """Refuse while members are there that are not consumers, since their topics are unknown."""
        self._check_alive()
        if self.state is not ClassicGroupState.EMPTY and not self.uses_consumer_protocol:
            raise NonEmptyGroup(f"Group {self.group_id} has members.")

    def check_delete(self) -> None:
        """Refuse while members are there."""
        self._check_alive()
        if self.state is not ClassicGroupState.EMPTY:
            raise NonEmptyGroup(f"Group {self.group_id} has members.")

    def _check_alive(self) -> None:
        if self.state is ClassicGroupState.DEAD:
            raise GroupIdNotFound(f"Group {self.group_id} was removed.")

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        return subscribed_topics([member.metadata(self.protocol) for member, _ in self._alike()])

    # Records.

    def record(self, now_ms: int, assignments: Mapping[str, bytes] | None = None) -> CoordinatorRecord:
        """The group as it is now, with these assignments or those that its members have; it must have members."""
        protocol = self.protocol or ""
        members = tuple(
            member.stored(protocol, member.assignment if assignments is None else assignments.get(member_id, b""))
            for member_id, member in self.members.items()
        )
        value = GroupMetadataValue(self.protocol_type or "", self.generation, protocol, self.leader, now_ms, members)
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def empty_record(self, generation: int, now_ms: int) -> CoordinatorRecord:
        """The group without members."""
        value = GroupMetadataValue(self.protocol_type or "", generation, None, None, now_ms, ())
        return CoordinatorRecord(GroupMetadataKey(self.group_id), value)

    def tombstones(self) -> tuple[CoordinatorRecord, ...]:
        """What removes the group from the log."""
        return (CoordinatorRecord(GroupMetadataKey(self.group_id), None),)

    def replay(self, value: GroupMetadataValue) -> None:
        """Be what a record says, unless members gather already: then the group is ahead of the log."""
        self.stored = value
        if self.state is ClassicGroupState.PREPARING_REBALANCE and self.members:
            return
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol if not value.members else value.protocol or ""
        if self._was_stored_as(value.members):
            for member, stored in zip(self.members.values(), value.members, strict=True):
                member.assignment = stored.assignment
        else:
            self._load_members(value.members, value.protocol or "")
        self.leader = value.leader if value.leader in self.members else next(iter(self.members), None)
        self._topics = self._subscribed_topics()
        self._settle(value)

    def _was_stored_as(self, members: tuple[MemberMetadata, ...]) -> bool:
        """Whether a record was just made of the members that are here, as nearly all are, so that it says the same."""
        return len(members) == len(self.members) and all(
            member.last_stored is stored for member, stored in zip(self.members.values(), members, strict=True)
        )

    def _load_members(self, members: tuple[MemberMetadata, ...], protocol: str) -> None:
        self.members = {stored.member_id: self._replayed(stored, protocol) for stored in members}
        self.instances = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        self._speakers = {}
        for member in self.members.values():
            self._count_speaker(member, 1)

    def _replayed(self, stored: MemberMetadata, protocol: str) -> ClassicMember:
        """The member of a record; one that is here keeps what the log does not hold."""
        loaded = ClassicMember.loaded(stored, protocol)
        if (live := self.members.get(stored.member_id)) is not None:
            loaded.join_asker, loaded.sync_asker, loaded.is_new = live.join_asker, live.sync_asker, live.is_new
            if loaded.protocols[0] in live.protocols:
                loaded.protocols = live.protocols
        return loaded

    def _settle(self, value: GroupMetadataValue) -> None:
        state = ClassicGroupState.STABLE if value.members else ClassicGroupState.EMPTY
        if self.state in (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE):
            CLASSIC_TRANSITIONS.check(self.state, state)
        self.state = state
        self.state_since_ms = value.current_state_timestamp
