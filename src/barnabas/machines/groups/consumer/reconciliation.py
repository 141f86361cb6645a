"""Reconciliation: how a member gets from its assignment to its target, so that no partition has two owners.

A member first revokes, then gets: it stays in its epoch until it no longer reports the partitions that it has to
revoke, and gets a partition only when no other member has it. Each heartbeat takes one step, and the table of member
states has all of them.

Invariant: a partition that is assigned to a member, or that it has not revoked yet, is assigned to no other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.groups.consumer.member import NO_PARTITIONS, NOTHING
from barnabas.machines.groups.consumer.states import MEMBER_TRANSITIONS, MemberState
from barnabas.model.errors import FencedMemberEpoch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.consumer.member import Assignment, Member


_NONE: Final[frozenset[int]] = frozenset()


class Reconciliation(NamedTuple):
    """What a member is reconciled with."""

    target_epoch: int
    target: Partitions
    owners_of: Callable[[UUID], Mapping[int, str]]
    """The partitions of a topic that somebody has, or has not given back yet, with who that is."""
    is_subscribed: Callable[[UUID], bool]
    """Whether the member subscribes to a topic, whatever its target says."""
    subscription_changed: bool
    """Whether the member changed its subscription just now."""
    owned: Partitions | None
    """What the member says that it has; None if it says nothing."""

    def step(self, member: Member) -> Member:
        """The member after one step; the same member if there is nothing to do or it has to be waited for."""
        after = self._next(member)
        if after is not member:
            MEMBER_TRANSITIONS.check(member.state, after.state)
        return after

    def _next(self, member: Member) -> Member:
        state = member.state
        if state is MemberState.STABLE and member.epoch == self.target_epoch:
            return self._drop_unsubscribed(member) if self.subscription_changed else member
        if state is MemberState.UNREVOKED_PARTITIONS and self._owns_any(member.pending_revocation):
            return self._drop_unsubscribed(member) if self.subscription_changed else member
        if state is MemberState.UNKNOWN and (self.owned is None or self.owned):
            raise FencedMemberEpoch(
                f"The state of member {member.member_id} is not known here. It has to revoke its partitions and rejoin."
            )
        return self._towards_target(member)

    def _owns_any(self, assignment: Assignment) -> bool:
        """Whether the member still has one of these partitions, as far as it says."""
        if self.owned is None:
            return True
        return any(
            partition in assignment[topic]
            for topic, partitions in self.owned.items()
            if topic in assignment
            for partition in partitions
        )

    def _drop_unsubscribed(self, member: Member) -> Member:
        """Ask back only what the member no longer subscribes to, and leave it where it is otherwise."""
        dropped = [topic for topic in member.assigned if not self.is_subscribed(topic)]
        if not dropped:
            return member
        assigned = {topic: epochs for topic, epochs in member.assigned.items() if topic not in dropped}
        pending = dict(member.pending_revocation)
        for topic in dropped:
            pending[topic] = {**pending.get(topic, {}), **member.assigned[topic]}
        if self._owns_any(pending):
            return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, pending)
        return member.at_epoch(member.epoch, member.state, assigned, member.pending_revocation)

    def _towards_target(self, member: Member) -> Member:
        target = {topic: wanted for topic, wanted in self.target.items() if self.is_subscribed(topic)}
        kept: dict[UUID, Mapping[int, int]] = {}
        revoked: dict[UUID, Mapping[int, int]] = {}
        for topic, epochs in member.assigned.items():
            wanted = target.get(topic, _NONE)
            if epochs.keys() <= wanted:
                kept[topic] = epochs
                continue
            revoked[topic] = {partition: epoch for partition, epoch in epochs.items() if partition not in wanted}
            if left := {partition: epoch for partition, epoch in epochs.items() if partition in wanted}:
                kept[topic] = left
        if revoked and self._owns_any(revoked):
            return member.at_epoch(member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked)
        waits, gained = False, False
        for topic, wanted in target.items():
            missing = wanted - member.assigned.get(topic, NO_PARTITIONS).keys()
            if not missing:
                continue
            owners, own = self.owners_of(topic), member.pending_revocation.get(topic, NO_PARTITIONS)
            free = [partition for partition in sorted(missing) if partition not in owners or partition in own]
            if free:
                kept[topic] = {**kept.get(topic, NO_PARTITIONS), **dict.fromkeys(free, self.target_epoch)}
                gained = True
            waits = waits or len(free) < len(missing)
        state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
        assigned = kept if revoked or gained else member.assigned
        return member.at_epoch(self.target_epoch, state, assigned, NOTHING)
