"""How a classic group rebalances: members gather, a generation begins, its leader assigns.

    Empty ── wait group.initial.rebalance.delay.ms for more members, longer while they keep coming
    else  ── wait until all members have joined, at most their rebalance timeout; a member that has not is removed
    then  ── all members get the generation, and the leader also the members; a member that does not ask for its
             assignment (SyncGroup) within its rebalance timeout is removed, which begins the next rebalance

A static member that does not join is kept until its session ends: it may just be restarting.

Every asker is answered exactly once. Where Kafka forgets a request (an earlier join or sync of a member that asks
again, the sync of a member that is removed), it is answered here, since a client may wait for it on a connection that
serves nothing else meanwhile.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.group import InitialDelay
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft
from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.machines.groups.classic.group import ClassicGroup
    from barnabas.machines.groups.classic.members import ClassicMember
    from barnabas.machines.groups.settings import GroupSettings
    from barnabas.machines.groups.table import GroupDraft, GroupOutcome
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.messages.groups.join_group import JoinGroupResponse
    from barnabas.protocol.messages.groups.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)

SESSION_TIMER: Final = "classic.session"
"""Of a member: when its session ends without a heartbeat."""
JOIN_TIMER: Final = "classic.join"
"""Of a group: until when members are expected to join."""
SYNC_TIMER: Final = "classic.sync"
"""Of a group: until when members are expected to ask for their assignments."""

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60_000
"""How long the first join of a member may wait. It cannot send heartbeats meanwhile, so this is how one that is gone
is noticed; one that is still there asks again."""

PAUSE_MS: Final = 1000
"""How long at least a rebalance that no member joined waits before its next check."""


class ClassicRebalance:
    """One event of one group that may be part of a rebalance; what follows from it is added to one draft."""

    __slots__ = ("draft", "group", "now_ms", "settings")

    def __init__(self, group: ClassicGroup, settings: GroupSettings, draft: GroupDraft, now_ms: int) -> None:
        self.group = group
        self.settings = settings
        self.draft = draft
        self.now_ms = now_ms

    # Sessions.

    def expect(self, member_id: str, within_ms: int) -> None:
        """Remove a member unless it sends a heartbeat in time."""
        self.draft.set_timer(TimerKey(SESSION_TIMER, self.group.group_id, member_id), self.now_ms + within_ms)

    def heard_of(self, member: ClassicMember) -> None:
        """Restart a member's session timeout."""
        self.expect(member.member_id, member.session_timeout_ms)

    def forget(self, member_id: str) -> None:
        """Expect nothing more of a member."""
        self.draft.cancel_timer(TimerKey(SESSION_TIMER, self.group.group_id, member_id))

    # Parked requests.

    def park_join(self, member: ClassicMember, asker: Asker[JoinGroupResponse]) -> None:
        """Let a join wait; an earlier one of the same member is over."""
        self._answer_join(member, ErrorCode.rebalance_in_progress, member.member_id)
        self.group.park_join(member, asker)

    def park_sync(self, member: ClassicMember, asker: Asker[SyncGroupResponse]) -> None:
        """Let a sync wait; an earlier one of the same member is over."""
        self._answer_sync(member, ErrorCode.rebalance_in_progress)
        member.sync_asker = asker

    def refuse_parked(self, member: ClassicMember, error: ErrorCode, member_id: str) -> None:
        """Answer the requests of a member that wait with an error; `member_id` goes into the response to its join."""
        self._answer_join(member, error, member_id)
        self._answer_sync(member, error)

    def _answer_join(self, member: ClassicMember, error: ErrorCode, member_id: str) -> None:
        if (asker := self.group.take_join(member)) is not None:
            self.draft.reply(asker, replies.join_refused(error, member_id))

    def _answer_sync(self, member: ClassicMember, error: ErrorCode) -> bool:
        asker, member.sync_asker = member.sync_asker, None
        if asker is not None:
            self.draft.reply(asker, replies.sync_refused(error))
        return asker is not None

    # Members that go.

    def remove(self, member: ClassicMember) -> None:
        """Remove a member; its requests that wait get UNKNOWN_MEMBER_ID, and it may join again."""
        self.refuse_parked(member, ErrorCode.unknown_member_id, "")
        self.group.remove(member)
        self.forget(member.member_id)

    def remove_pending(self, member_id: str) -> None:
        """Take back an id that was given out."""
        self.group.pending_joins.discard(member_id)
        self.forget(member_id)

    # The first half of a rebalance: members join.

    def rebalance(self, reason: str) -> None:
        """Begin a rebalance, or go on with the one that is under way."""
        if self.group.state is ClassicGroupState.PREPARING_REBALANCE:
            self.complete_join_if_due()
        else:
            self.prepare(reason)

    def prepare(self, reason: str) -> None:
        """Begin a rebalance."""
        group = self.group
        if group.state is ClassicGroupState.COMPLETING_REBALANCE:
            self._withdraw_assignments()
        self.expect_no_sync()
        group.rebalance_reason = reason
        logger.info("Group %s rebalances after generation %d: %r", group.group_id, group.generation, reason)
        first = group.state is ClassicGroupState.EMPTY
        group.move_to(ClassicGroupState.PREPARING_REBALANCE, self.now_ms)
        if first:
            delay_ms = self.settings.initial_rebalance_delay_ms
            group.initial_delay = InitialDelay(delay_ms, max(group.rebalance_timeout_ms - delay_ms, 0))
            self._await_joins(delay_ms)
        elif group.all_joined:
            self.complete_join()
        else:
            self._await_joins(group.rebalance_timeout_ms)

    def complete_join_if_due(self) -> None:
        """Begin the generation if all members have joined; the first rebalance of a group waits for its timer."""
        group = self.group
        gathering = group.state is ClassicGroupState.PREPARING_REBALANCE and group.initial_delay is None
        if gathering and group.all_joined:
            self.complete_join()

    def join_time_over(self) -> None:
        """The timer fired: go on with who is here, or give a first rebalance another step."""
        delay = self.group.initial_delay
        if delay is None or not delay.grown or not delay.remaining_ms:
            self.complete_join()
            return
        step_ms = min(self.settings.initial_rebalance_delay_ms, delay.remaining_ms)
        self.group.initial_delay = InitialDelay(step_ms, max(delay.remaining_ms - delay.step_ms, 0))
        self._await_joins(step_ms)

    def complete_join(self) -> None:
        """Begin the next generation with those who have joined, and static members; without any, the group is empty."""
        group = self.group
        group.initial_delay = None
        for member in [m for m in group.members.values() if m.join_asker is None and m.instance_id is None]:
            self.remove(member)
        if not group.members:
            self.expect_no_join()
            self.draft.changes.append(group.empty_record(group.next_generation, self.now_ms))
        elif not group.elect_joined_leader():
            self._await_joins(max(group.rebalance_timeout_ms, PAUSE_MS))
        else:
            self.expect_no_join()
            self._begin_generation()

    def _begin_generation(self) -> None:
        group = self.group
        group.begin_generation(self.now_ms)
        for member in group.members.values():
            if (asker := group.take_join(member)) is not None:
                self.draft.reply(asker, replies.joined(group, member.member_id))
            member.is_new = False
            self.heard_of(member)
        self.draft.set_timer(TimerKey(SYNC_TIMER, group.group_id), self.now_ms + group.rebalance_timeout_ms)

    def _await_joins(self, within_ms: int) -> None:
        self.draft.set_timer(TimerKey(JOIN_TIMER, self.group.group_id), self.now_ms + within_ms)

    def expect_no_join(self) -> None:
        """Await no join any more."""
        self.draft.cancel_timer(TimerKey(JOIN_TIMER, self.group.group_id))

    # The second half: the leader assigns.

    def sync_received(self, member: ClassicMember) -> None:
        """A member has asked for its assignment; nothing is awaited once all have."""
        self.group.pending_syncs.discard(member.member_id)
        if not self.group.pending_syncs:
            self.expect_no_sync()

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Hand out the leader's assignments: the record makes the group Stable. Who got nothing gets empty bytes."""
        group = self.group
        self.draft.changes.append(group.record(self.now_ms, assignments))
        self.draft.otherwise = self._assignments_refused
        for member in group.members.values():
            asker, member.sync_asker = member.sync_asker, None
            if asker is not None:
                self.draft.reply(asker, replies.synced(group, assignments.get(member.member_id, b"")))
                self.heard_of(member)

    def _assignments_refused(self) -> GroupOutcome:
        """The group with its assignments is more than can be stored: it tries again."""
        turn = ClassicRebalance(self.group, self.settings, Draft(), self.now_ms)
        for member in self.group.members.values():
            turn.heard_of(member)
        turn.prepare("the assignments are too large to be stored")
        return turn.draft.outcome()

    def sync_time_over(self) -> None:
        """The timer fired: members that did not ask for their assignments are gone."""
        group = self.group
        late = [group.members[member_id] for member_id in group.members if member_id in group.pending_syncs]
        for member in late:
            self.remove(member)
        self.prepare(f"{', '.join(member.member_id for member in late)} did not ask for assignments in time")

    def expect_no_sync(self) -> None:
        """Await no sync any more."""
        self.group.pending_syncs.clear()
        self.draft.cancel_timer(TimerKey(SYNC_TIMER, self.group.group_id))

    def _withdraw_assignments(self) -> None:
        for member in self.group.members.values():
            member.assignment = b""
            if self._answer_sync(member, ErrorCode.rebalance_in_progress):
                self.heard_of(member)
