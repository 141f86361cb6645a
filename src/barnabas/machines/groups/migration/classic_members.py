"""Members that use the classic protocol inside a consumer group, while the group is upgraded or downgraded.

To such a member the group looks classic: its epoch is the generation, no member is the leader, every join is answered
at once, and SyncGroup brings what the broker assigned. Where a member of the new protocol would learn of a change in
the response to a heartbeat, this one gets REBALANCE_IN_PROGRESS and joins again, within its rebalance timeout.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.consumer_protocol import by_id, read_subscription, write_assignment
from barnabas.machines.groups.classic.join import FIRST_VERSION_WITH_REQUIRED_ID, Joining
from barnabas.machines.groups.classic.rules import ClassicRules
from barnabas.machines.groups.classic.subscription import CONSUMER_PROTOCOL_TYPE
from barnabas.machines.groups.consumer.checks import check_room, holder_of
from barnabas.machines.groups.consumer.member import NO_PARTITIONS, Member, partitions_of, replacement
from barnabas.machines.groups.consumer.rebalance import JOIN, SESSION, SYNC, compare_again
from barnabas.machines.groups.consumer.states import MemberState
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft
from barnabas.model.errors import (
    ApiError,
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRecord,
    InvalidSessionTimeout,
    UnknownMemberId,
    UnknownServerError,
)
from barnabas.protocol.coordinator_records import ClassicMemberMetadata
from barnabas.protocol.messages.groups.join_group import JoinGroupResponse
from barnabas.protocol.messages.groups.sync_group import SyncGroupResponse
from barnabas.protocol.wire.durations import NO_TIME

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4 import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.leave_group.v5 import LeaveGroupRequest
    from kio.schema.leave_group.v5.request import MemberIdentity
    from kio.schema.leave_group.v5.response import LeaveGroupResponse

    from barnabas.machines.groups.classic.consumer_protocol import ClassicSubscription
    from barnabas.machines.groups.consumer.group import ConsumerGroup
    from barnabas.machines.groups.consumer.rebalance import ConsumerRebalance
    from barnabas.machines.groups.migration.conversion import Conversion
    from barnabas.machines.groups.table import GroupDraft, GroupOutcome, GroupTable
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.messages.groups.join_group import JoinGroupRequest
    from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest


class ClassicMembers:
    """The classic protocol for consumer groups of one coordinator."""

    def __init__(self, table: GroupTable, rebalance: ConsumerRebalance, conversion: Conversion) -> None:
        self._table = table
        self._rebalance = rebalance
        self._conversion = conversion
        self._classic = ClassicRules(table)

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, asker: Asker[JoinGroupResponse], now_ms: int
    ) -> GroupOutcome:
        """JoinGroup; an empty group becomes a classic one by it."""
        draft: GroupDraft = Draft()
        try:
            if group.is_empty:
                draft.changes.extend(group.tombstones())
                self._classic.join(draft, None, request, asker, now_ms)
            else:
                draft.reply(asker, self._join(group, Joining.of(request, asker), draft, now_ms))
        except ApiError as error:
            draft = Draft()
            draft.reply(asker, replies.join_refused(error.code, request.member_id))
        return draft.outcome()

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, asker: Asker[SyncGroupResponse], now_ms: int
    ) -> GroupOutcome:
        """SyncGroup: what the member is assigned now."""
        draft: GroupDraft = Draft()
        try:
            member = self._classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
            _check_protocol(member, request.protocol_type, request.protocol_name)
            answer = self._sync(group, member, request, draft, now_ms)
        except ApiError as error:
            answer = replies.sync_refused(error.code)
        draft.reply(asker, answer)
        return draft.outcome()

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, asker: Asker[HeartbeatResponse], now_ms: int
    ) -> GroupOutcome:
        """Heartbeat: whether there is a reason to join again."""
        draft: GroupDraft = Draft()
        try:
            member = self._classic_member(group, request.member_id, request.group_instance_id)
            _check_generation(member, request.generation_id)
        except ApiError as error:
            draft.reply(asker, replies.heartbeat(error.code))
            return draft.outcome()
        self._hold_session(group, member, draft, now_ms)
        code = ErrorCode.none
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits_for_others(group, member))
        ):
            code = ErrorCode.rebalance_in_progress
            self._ask_to_rejoin(group, member, draft, now_ms)
        draft.reply(asker, replies.heartbeat(code))
        return draft.outcome()

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, asker: Asker[LeaveGroupResponse], now_ms: int
    ) -> GroupOutcome:
        """LeaveGroup, of members of either protocol."""
        draft: GroupDraft = Draft()
        leaving: dict[str, Member] = {}
        answers = []
        for identity in request.members:
            try:
                member = _leaving(group, identity)
            except ApiError as error:
                answers.append(replies.member_left(identity, error.code))
                continue
            leaving[member.member_id] = member
            answers.append(replies.member_left(identity))
        self._conversion.remove(group, tuple(leaving.values()), draft, now_ms)
        draft.reply(asker, replies.left(answers))
        return draft.outcome()

    def _join(self, group: ConsumerGroup, joining: Joining, draft: GroupDraft, now_ms: int) -> JoinGroupResponse:
        settings = self._table.settings_of(group.group_id)
        shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not shortest <= joining.session_timeout_ms <= longest:
            raise InvalidSessionTimeout(
                f"The session timeout of {joining.session_timeout_ms} ms is not between {shortest} and {longest} ms."
            )
        member_id = joining.member_id or self._table.new_id()
        check_room(group, member_id, settings.consumer_max_size)
        _check_supported(group, joining)
        needs_id = joining.asker.version >= FIRST_VERSION_WITH_REQUIRED_ID
        if not joining.member_id and joining.instance_id is None and needs_id:
            return replies.join_refused(ErrorCode.member_id_required, member_id)
        subscription = _subscription(joining)
        holder = group.static_member(joining.instance_id)
        old = self._old_member(group, joining, member_id, holder, draft)
        new = _updated(old, joining, subscription)
        owned = by_id(subscription.owned, self._table.image)
        change = self._rebalance.subscribe(group, old, new, draft, now_ms, joining.asker.may_see)
        if holder is not None and holder.classic is None and self._conversion.may_downgrade(group, (holder,), new):
            if rebalances := group.assignment_epoch < change.epoch:
                member = new
            else:
                target = self._rebalance.last_target(group, new)
                member = self._rebalance.reconcile(group, change, target, new, owned, draft, now_ms)
            draft.changes.clear()
            reason = "its assignment is older than the group" if rebalances else None
            self._conversion.downgrade(group, (holder,), member, draft, now_ms, reason)
        else:
            target = self._rebalance.target(group, change, old, new, draft, now_ms)
            member = self._rebalance.reconcile(group, change, target, new, owned, draft, now_ms)
            self._hold_session(group, member, draft, now_ms)
            sync_key = TimerKey(SYNC, group.group_id, member_id)
            draft.set_timer(sync_key, now_ms + joining.rebalance_timeout_ms)
            draft.cancel_timer(TimerKey(JOIN, group.group_id, member_id))
            draft.otherwise = partial(_joined_in_vain, group, member_id, member_id in group.asked_to_rejoin)
            group.asked_to_rejoin.discard(member_id)
        return JoinGroupResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            generation_id=i32(member.epoch),
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joining.protocols[0].name,
            leader="",
            member_id=member_id,
            members=(),
        )

    def _old_member(
        self, group: ConsumerGroup, joining: Joining, member_id: str, holder: Member | None, draft: GroupDraft
    ) -> Member:
        """The member as it was before it joined; a new one if it was none."""
        if joining.instance_id is not None and joining.member_id:
            return holder_of(group, joining.instance_id, member_id)
        if holder is not None:
            member, records = replacement(group.group_id, holder, member_id, group.targets.get(holder.member_id, {}))
            draft.changes.extend(records)
            return member
        return group.members.get(member_id) or Member(member_id=member_id)

    def _sync(
        self, group: ConsumerGroup, member: Member, request: SyncGroupRequest, draft: GroupDraft, now_ms: int
    ) -> SyncGroupResponse:
        assert member.classic is not None
        if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._ask_to_rejoin(group, member, draft, now_ms)
            return replies.sync_refused(ErrorCode.rebalance_in_progress)
        draft.cancel_timer(TimerKey(SYNC, group.group_id, member.member_id))
        self._hold_session(group, member, draft, now_ms)
        metadata = member.classic.supported_protocols[0].metadata
        return SyncGroupResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(partitions_of(member.assigned), self._table.image, metadata),
        )

    def _classic_member(self, group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
        member = group.member(member_id) if instance_id is None else holder_of(group, instance_id, member_id)
        if member.classic is None:
            raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
        return member

    def _hold_session(self, group: ConsumerGroup, member: Member, draft: GroupDraft, now_ms: int) -> None:
        assert member.classic is not None
        key = TimerKey(SESSION, group.group_id, member.member_id)
        draft.set_timer(key, now_ms + member.classic.session_timeout_ms)

    def _ask_to_rejoin(self, group: ConsumerGroup, member: Member, draft: GroupDraft, now_ms: int) -> None:
        """Give the member its rebalance timeout to join, counted from when it was asked first."""
        if member.member_id not in group.asked_to_rejoin:
            group.asked_to_rejoin.add(member.member_id)
            key = TimerKey(JOIN, group.group_id, member.member_id)
            draft.set_timer(key, now_ms + member.rebalance_timeout_ms)


def _updated(member: Member, joining: Joining, subscription: ClassicSubscription) -> Member:
    return member._replace(
        instance_id=member.instance_id if joining.instance_id is None else joining.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        topics=subscription.topics,
        regex="",
        client_id=joining.asker.client_id,
        client_host=joining.asker.client_host,
        classic=ClassicMemberMetadata(joining.session_timeout_ms, joining.protocols),
    )


def _joined_in_vain(group: ConsumerGroup, member_id: str, was_asked: bool) -> GroupOutcome:
    """A join is more than can be stored at once: the member is what it was, and has no more time than it had."""
    if was_asked:
        group.asked_to_rejoin.add(member_id)
    return compare_again(group)


def _subscription(joining: Joining) -> ClassicSubscription:
    try:
        return read_subscription(joining.protocols[0].metadata)
    except InvalidRecord as error:
        raise UnknownServerError(str(error)) from None


def _check_supported(group: ConsumerGroup, joining: Joining) -> None:
    """Refuse a client with which the classic members would have no common protocol."""
    names = {protocol.name for protocol in joining.protocols}
    if joining.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        group.classic_protocols[name] == group.classic_members for name in names
    ):
        raise InconsistentGroupProtocol(
            f"The classic members of group {group.group_id} support none of {sorted(names)}."
        )


def _check_generation(member: Member, generation: int) -> None:
    if generation != member.epoch:
        raise IllegalGeneration(
            f"Member {member.member_id} is in epoch {member.epoch}, not in generation {generation}."
        )


def _check_protocol(member: Member, protocol_type: str | None, protocol_name: str | None) -> None:
    assert member.classic is not None
    name = member.classic.supported_protocols[0].name
    if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol_name not in (None, name):
        raise InconsistentGroupProtocol(f"Member {member.member_id} has to use protocol {name} of type consumer.")


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    """Whether another member still has a partition of this member's target."""
    return any(
        not group.owners_of(topic).keys().isdisjoint(partitions - member.assigned.get(topic, NO_PARTITIONS).keys())
        for topic, partitions in group.targets.get(member.member_id, {}).items()
    )


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """Who leaves; an administrator names a static member by its instance id alone."""
    if identity.group_instance_id is None:
        return group.member(identity.member_id)
    holder = group.static_member(identity.group_instance_id)
    if holder is None:
        raise UnknownMemberId(f"Group {group.group_id} has no static member {identity.group_instance_id}.")
    if identity.member_id not in ("", holder.member_id):
        raise FencedInstanceId(f"Static member {identity.group_instance_id} is member {holder.member_id} now.")
    return holder
