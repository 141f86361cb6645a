"""The classic group protocol, by API: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and the timers between them.

Members choose a protocol and a leader with the coordinator's help, and the leader assigns: the coordinator never knows
what an assignment means. The rules of joining are in `join`, those of a rebalance in `rebalance`, the states
in `states`. Behaviour is that of Apache Kafka 4.3.0.

Each method answers with an outcome, whose records are replayed before the next event. A request that is refused changes
nothing and is answered with Kafka's code; one that is parked is answered in a later outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.join import Joining, join
from barnabas.machines.groups.classic.rebalance import JOIN_TIMER, SESSION_TIMER, SYNC_TIMER, ClassicRebalance
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    UnknownMemberId,
)
from barnabas.protocol.coordinator_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4 import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.leave_group.v5 import LeaveGroupRequest
    from kio.schema.leave_group.v5.request import MemberIdentity
    from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

    from barnabas.machines.groups.table import GroupDraft, GroupOutcome, GroupTable
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.coordinator_records import CoordinatorRecord
    from barnabas.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
    from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicRules:
    """The rules of all classic groups of one coordinator."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table

    # JoinGroup.

    def join_group(self, request: JoinGroupRequest, asker: Asker[JoinGroupResponse], now_ms: int) -> GroupOutcome:
        """Join a group, which is made if there is none; the answer may come when the group is complete."""
        draft: GroupDraft = Draft()
        try:
            self.join(draft, self._existing(request.group_id), request, asker, now_ms)
        except ApiError as error:
            draft.reply(asker, replies.join_refused(error.code, request.member_id))
        return draft.outcome()

    def join(
        self,
        draft: GroupDraft,
        existing: ClassicGroup | None,
        request: JoinGroupRequest,
        asker: Asker[JoinGroupResponse],
        now_ms: int,
    ) -> None:
        """Join this group, or a new one if there is none; raises without a change if the join is refused."""
        joining = Joining.of(request, asker)
        settings = self._table.settings_of(request.group_id)
        if not request.group_id:
            raise InvalidGroupId("The group id must not be empty.")
        shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not shortest <= joining.session_timeout_ms <= longest:
            raise InvalidSessionTimeout(
                f"The session timeout of {joining.session_timeout_ms} ms is not between {shortest} and {longest} ms."
            )
        if existing is None and request.member_id:
            raise UnknownMemberId(f"There is no group {request.group_id}.")
        group = ClassicGroup(request.group_id) if existing is None else existing
        join(ClassicRebalance(group, settings, draft, now_ms), joining, self._table.new_id)
        if existing is None:
            self._table.groups[group.group_id] = group
            draft.changes.append(ClassicGroup(group.group_id).empty_record(0, now_ms))

    # SyncGroup.

    def sync_group(self, request: SyncGroupRequest, asker: Asker[SyncGroupResponse], now_ms: int) -> GroupOutcome:
        """Ask for an assignment; the leader sends those of all members, the others wait for it."""
        draft: GroupDraft = Draft()
        try:
            self._sync(draft, request, asker, now_ms)
        except ApiError as error:
            draft.reply(asker, replies.sync_refused(error.code))
        return draft.outcome()

    def _sync(self, draft: GroupDraft, request: SyncGroupRequest, asker: Asker[SyncGroupResponse], now_ms: int) -> None:
        turn = self._turn(request.group_id, draft, now_ms)
        group = turn.group
        member = group.member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        same_type = request.protocol_type in (None, group.protocol_type)
        if not same_type or request.protocol_name not in (None, group.protocol):
            raise InconsistentGroupProtocol(
                f"Group {group.group_id} has protocol type {group.protocol_type} and protocol {group.protocol}."
            )
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            draft.reply(asker, replies.sync_refused(ErrorCode.rebalance_in_progress))
            return
        turn.sync_received(member)
        if group.state is ClassicGroupState.STABLE:
            draft.reply(asker, replies.synced(group, member.assignment))
            return
        turn.park_sync(member, asker)
        if group.leader == member.member_id:
            turn.assign({assigned.member_id: assigned.assignment for assigned in request.assignments})

    # Heartbeat.

    def heartbeat(self, request: HeartbeatRequest, asker: Asker[HeartbeatResponse], now_ms: int) -> GroupOutcome:
        """Stay a member; learn whether there is a rebalance to join."""
        draft: GroupDraft = Draft()
        try:
            turn = self._turn(request.group_id, draft, now_ms)
            member = turn.group.member(request.member_id, request.group_instance_id)
            turn.group.check_generation(request.generation_id)
        except ApiError as error:
            draft.reply(asker, replies.heartbeat(error.code))
            return draft.outcome()
        turn.heard_of(member)
        preparing = turn.group.state is ClassicGroupState.PREPARING_REBALANCE
        draft.reply(asker, replies.heartbeat(ErrorCode.rebalance_in_progress if preparing else ErrorCode.none))
        return draft.outcome()

    # LeaveGroup.

    def leave_group(self, request: LeaveGroupRequest, asker: Asker[LeaveGroupResponse], now_ms: int) -> GroupOutcome:
        """Remove members, each known by its id, or a static one by its instance id alone."""
        draft: GroupDraft = Draft()
        try:
            turn = self._turn(request.group_id, draft, now_ms)
        except InvalidGroupId as error:
            draft.reply(asker, replies.left((), error.code))
            return draft.outcome()
        except UnknownMemberId as error:
            draft.reply(asker, replies.left(replies.member_left(member, error.code) for member in request.members))
            return draft.outcome()
        before = len(turn.group.members)
        draft.reply(asker, replies.left([self._leave(turn, identity) for identity in request.members]))
        if len(turn.group.members) < before:
            reasons = [f"{m.member_id or m.group_instance_id} ({m.reason or 'not provided'})" for m in request.members]
            turn.rebalance(f"members leave: {', '.join(reasons)}")
        else:
            turn.complete_join_if_due()
        return draft.outcome()

    def _leave(self, turn: ClassicRebalance, identity: MemberIdentity) -> MemberResponse:
        group, member_id = turn.group, identity.member_id
        if member_id in group.pending_joins:
            turn.remove_pending(member_id)
            return replies.member_left(identity)
        if not member_id and identity.group_instance_id is not None:
            member_id = group.instances.get(identity.group_instance_id, "")
        try:
            turn.remove(group.member(member_id, identity.group_instance_id))
        except ApiError as error:
            return replies.member_left(identity, error.code)
        return replies.member_left(identity)

    # Timers.

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """A timer fired; one whose group or member is gone, or waits no more, does nothing."""
        draft: GroupDraft = Draft()
        group = self._table.groups.get(key.group_id)
        if isinstance(group, ClassicGroup):
            turn = ClassicRebalance(group, self._table.settings_of(key.group_id), draft, now_ms)
            if key.kind == SESSION_TIMER:
                self._session_over(turn, key.member_id)
            elif key.kind == JOIN_TIMER and group.state is ClassicGroupState.PREPARING_REBALANCE:
                turn.join_time_over()
            elif key.kind == SYNC_TIMER and group.pending_syncs:
                turn.sync_time_over()
        return draft.outcome()

    def _session_over(self, turn: ClassicRebalance, member_id: str) -> None:
        group = turn.group
        pending = member_id in group.pending_joins
        if pending:
            turn.remove_pending(member_id)
        elif (member := group.members.get(member_id)) is not None and (member.is_new or not member.is_waiting):
            turn.remove(member)
        else:
            return
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            if group.all_joined:
                turn.complete_join()
        elif not pending:
            turn.prepare(f"{member_id} sent no heartbeat for its session timeout")

    # The log, and the start and end of this coordinator.

    def replay(self, record: CoordinatorRecord) -> None:
        """Take over what the log says of a classic group."""
        key, value = record
        assert isinstance(key, GroupMetadataKey)
        group = self._table.groups.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.end()
                del self._table.groups[key.group]
            return
        assert isinstance(value, GroupMetadataValue)
        if not isinstance(group, ClassicGroup):
            group = self._table.groups[key.group] = ClassicGroup(key.group)
        group.replay(value)

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Begin the sessions of all members; a group that is larger than it may be now has to join again."""
        draft: GroupDraft = Draft()
        for group in self._groups():
            turn = ClassicRebalance(group, self._table.settings_of(group.group_id), draft, now_ms)
            for member in group.members.values():
                turn.heard_of(member)
            if len(group.members) > turn.settings.max_size:
                turn.prepare(f"the loaded group has more than {turn.settings.max_size} members")
        return draft.outcome()

    def abandon(self, code: ErrorCode) -> GroupOutcome:
        """Answer all members that wait with an error: this coordinator is not used any more."""
        draft: GroupDraft = Draft()
        for group in self._groups():
            if group.state is not ClassicGroupState.EMPTY or group.pending_joins:  # most may only have offsets
                self.dissolve(draft, group, code)
            group.end()
        return draft.outcome()

    # Groups that change their kind.

    def dissolve(self, draft: GroupDraft, group: ClassicGroup, code: ErrorCode) -> None:
        """Cancel all timers of a group, and answer the members that wait with this code.

        It ends with the record that removes it, and if that cannot be stored, goes on without those who waited.
        """
        turn = ClassicRebalance(group, self._table.settings_of(group.group_id), draft, 0)
        for member in group.members.values():
            turn.refuse_parked(member, code, member.member_id)
            turn.forget(member.member_id)
        for member_id in group.pending_joins:
            turn.forget(member_id)
        for kind in (JOIN_TIMER, SYNC_TIMER):
            draft.cancel_timer(TimerKey(kind, group.group_id))

    def adopt(self, draft: GroupDraft, group: ClassicGroup, now_ms: int, rebalance_reason: str | None) -> None:
        """Take over a group that was of another kind, and rebalance it if there is a reason."""
        self._table.groups[group.group_id] = group
        turn = ClassicRebalance(group, self._table.settings_of(group.group_id), draft, now_ms)
        for member in group.members.values():
            turn.heard_of(member)
        if rebalance_reason is not None:
            turn.prepare(rebalance_reason)

    def _groups(self) -> list[ClassicGroup]:
        return [group for group in self._table.groups.values() if isinstance(group, ClassicGroup)]

    def _existing(self, group_id: str) -> ClassicGroup | None:
        group = self._table.groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            return group
        raise InconsistentGroupProtocol(f"Group {group_id} is not a classic group.")

    def _turn(self, group_id: str, draft: GroupDraft, now_ms: int) -> ClassicRebalance:
        if not group_id:
            raise InvalidGroupId("The group id must not be empty.")
        group = self._table.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId(f"There is no classic group {group_id}.")
        return ClassicRebalance(group, self._table.settings_of(group_id), draft, now_ms)
