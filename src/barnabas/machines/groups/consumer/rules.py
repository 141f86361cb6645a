"""The rules of consumer groups (KIP-848): members send heartbeats, and the broker decides who reads what.

A heartbeat has the member's subscription and its partitions, and is answered with its assignment. It may raise the
group epoch, make a new target assignment and take the member one step towards it. The other members take their steps
with heartbeats of their own. A member that sends no heartbeat for its session timeout, or does not revoke partitions
within its rebalance timeout, is removed.

Partitions have at most one owner at any time; `reconciliation` keeps that. Epochs only rise; `rebalance` keeps
that. Classic members of a consumer group are in `migration/classic_members`.
"""

from __future__ import annotations

from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32, i32Timedelta

from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.consumer.checks import (
    check_epoch,
    check_released,
    check_request,
    check_room,
    holder_of,
)
from barnabas.machines.groups.consumer.describe import describe_group
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Member,
    StoredAssignment,
    current_record,
    kept_record,
    replacement,
)
from barnabas.machines.groups.consumer.metadata_hash import differs
from barnabas.machines.groups.consumer.patterns import matching
from barnabas.machines.groups.consumer.rebalance import (
    REBALANCE,
    SESSION,
    ConsumerRebalance,
    cancel_timers,
    compare_again,
)
from barnabas.machines.groups.consumer.states import MemberState
from barnabas.machines.groups.migration.classic_members import ClassicMembers
from barnabas.machines.groups.migration.conversion import Conversion
from barnabas.machines.groups.table import PackedRecord, TimerKey
from barnabas.machines.outcome import Draft, OneRecord, Outcome, Timer, as_before
from barnabas.model.errors import ApiError, GroupIdNotFound
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.coordinator_records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    ShareGroupKey,
)
from barnabas.protocol.messages.groups.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    TopicPartitions,
)
from barnabas.protocol.wire.durations import MILLISECOND, NO_TIME, NOT_GIVEN

if TYPE_CHECKING:
    from collections.abc import Collection
    from uuid import UUID

    from kio.schema.consumer_group_describe.v1.response import DescribedGroup
    from kio.schema.heartbeat.v4 import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.leave_group.v5 import LeaveGroupRequest
    from kio.schema.leave_group.v5.response import LeaveGroupResponse

    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.settings import GroupSettings
    from barnabas.machines.groups.table import Group, GroupDraft, GroupOutcome, GroupTable, PackedOutcome
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.coordinator_records import CoordinatorRecord
    from barnabas.protocol.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from barnabas.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
    from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse


_NOT_OF_CONSUMER_GROUPS: Final = (OffsetCommitKey, GroupMetadataKey, ShareGroupKey)


class StillThere(NamedTuple):
    """A heartbeat that changes nothing: its member is in the epoch that it says."""

    session: TimerKey
    session_timeout_ms: int
    interval_ms: int
    """After which the next heartbeat is expected."""


class Stepped(NamedTuple):
    """The answer to a heartbeat of a member that has stepped into another epoch, and keeps what it has."""

    epoch: int
    interval_ms: int


class ConsumerRules:
    """Decides for the consumer groups of one coordinator."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._image = table.image
        """As it was when topics changed last."""
        self._rebalance = ConsumerRebalance(table)
        self._conversion = Conversion(table, self._rebalance)
        self._classic_members = ClassicMembers(table, self._rebalance, self._conversion)

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, asker: Asker[ConsumerGroupHeartbeatResponse], now_ms: int
    ) -> PackedOutcome:
        """A member joins, leaves, or reports that it is alive and which partitions it has."""
        group = self._table.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and (member := unchanged_member(group, request, asker)) is not None:
            if member.is_reconciled_to(group.epoch):
                return self._stay(group, member, asker, now_ms)
            if (after := self._rebalance.keeps_all(group, member)) is not None:
                return self._stay(group, after, asker, now_ms, (_kept(group, member, after),))
            return self._follow(group, member, _owned(request), asker, now_ms)
        return self._decide(request, asker, now_ms)

    def still_there(
        self, group_id: str, member_id: str, epoch: int, client_id: str, client_host: str
    ) -> StillThere | None:
        """What `heartbeat` decides about a member that is where it is to be and says nothing new; None for others.

        Tests hold the two equal.
        """
        group = self._table.groups.get(group_id)
        if (
            not isinstance(group, ConsumerGroup)
            or not JOIN_EPOCH < epoch == group.epoch == group.assignment_epoch
            or (member := group.members.get(member_id)) is None
            or not member.is_reconciled_to(epoch)
            or not _is_plain(group, member, client_id, client_host)
        ):
            return None
        settings = self._table.settings_of(group_id)
        return StillThere(
            _session(group, member), settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms
        )

    def step(
        self, group_id: str, member_id: str, epoch: int, client_id: str, client_host: str, now_ms: int
    ) -> OneRecord | None:
        """What `heartbeat` decides about a member that says nothing new, keeps what it has, and steps into an epoch.

        None for others. Tests hold the two equal.
        """
        group = self._table.groups.get(group_id)
        if (
            not isinstance(group, ConsumerGroup)
            or group.epoch != group.assignment_epoch
            or (member := group.members.get(member_id)) is None
            or not JOIN_EPOCH < epoch == member.epoch
            or member.is_reconciled_to(group.epoch)
            or not _is_plain(group, member, client_id, client_host)
            or (after := self._rebalance.keeps_all(group, member)) is None
        ):
            return None
        settings, record = self._table.settings_of(group_id), _kept(group, member, after)
        return OneRecord(
            record.pair,
            record,
            PackedRecord.take,
            Stepped(after.epoch, settings.consumer_heartbeat_interval_ms),
            Timer(_session(group, member), now_ms + settings.consumer_session_timeout_ms),
        )

    def _stay(
        self,
        group: ConsumerGroup,
        member: Member,
        asker: Asker[ConsumerGroupHeartbeatResponse],
        now_ms: int,
        changes: tuple[PackedRecord, ...] = (),
    ) -> PackedOutcome:
        """The member is alive and keeps what it has, in its epoch or, by a record, in the next."""
        settings = self._table.settings_of(group.group_id)
        return Outcome(
            changes=changes,
            otherwise=as_before,
            replies=((asker, _answer(member, settings, None)),),
            timers=(Timer(_session(group, member), now_ms + settings.consumer_session_timeout_ms),),
        )

    def _follow(
        self,
        group: ConsumerGroup,
        old: Member,
        owned: Partitions | None,
        asker: Asker[ConsumerGroupHeartbeatResponse],
        now_ms: int,
    ) -> GroupOutcome:
        """The member is alive, and takes its next step towards the target assignment."""
        settings = self._table.settings_of(group.group_id)
        draft: GroupDraft = Draft()
        draft.otherwise = as_before
        member = self._rebalance.follow(group, old, owned, draft, now_ms)
        draft.set_timer(_session(group, member), now_ms + settings.consumer_session_timeout_ms)
        draft.reply(asker, _answer(member, settings, None if member.assigned == old.assigned else _assignment(member)))
        return draft.outcome()

    def _decide(
        self, request: ConsumerGroupHeartbeatRequest, asker: Asker[ConsumerGroupHeartbeatResponse], now_ms: int
    ) -> GroupOutcome:
        draft: GroupDraft = Draft()
        try:
            settings = self._table.settings_of(request.group_id)
            check_request(request, asker.version, settings.consumer_assignors)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                response = self._leave(request, draft, now_ms)
            else:
                response = self._beat(request, asker, settings, draft, now_ms)
        except ApiError as error:
            draft = Draft()
            response = ConsumerGroupHeartbeatResponse(
                throttle_time=NO_TIME,
                error_code=error.code,
                error_message=str(error),
                member_epoch=i32(0),
                heartbeat_interval=NO_TIME,
            )
        draft.reply(asker, response)
        return draft.outcome()

    def classic_join(self, request: JoinGroupRequest, asker: Asker[JoinGroupResponse], now_ms: int) -> GroupOutcome:
        """JoinGroup for a consumer group."""
        return self._classic_members.join(self._consumer_group(request.group_id), request, asker, now_ms)

    def classic_sync(self, request: SyncGroupRequest, asker: Asker[SyncGroupResponse], now_ms: int) -> GroupOutcome:
        """SyncGroup for a consumer group."""
        return self._classic_members.sync(self._consumer_group(request.group_id), request, asker, now_ms)

    def classic_heartbeat(
        self, request: HeartbeatRequest, asker: Asker[HeartbeatResponse], now_ms: int
    ) -> GroupOutcome:
        """Heartbeat for a consumer group."""
        return self._classic_members.heartbeat(self._consumer_group(request.group_id), request, asker, now_ms)

    def leave_group(self, request: LeaveGroupRequest, asker: Asker[LeaveGroupResponse], now_ms: int) -> GroupOutcome:
        """LeaveGroup for a consumer group."""
        return self._classic_members.leave(self._consumer_group(request.group_id), request, asker, now_ms)

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """Remove a member that sent no heartbeat, or did not revoke, join or sync in time."""
        draft: GroupDraft = Draft()
        group = self._table.groups.get(key.group_id)
        if isinstance(group, ConsumerGroup) and (member := group.members.get(key.member_id)) is not None:
            gives_back = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch != LEAVE_STATIC_EPOCH
            if key.kind != REBALANCE or gives_back:
                self._conversion.remove(group, (member,), draft, now_ms)
        return draft.outcome()

    def replay(self, record: CoordinatorRecord) -> None:
        """Take over a record of a consumer group; the tombstone of the group's own key removes it."""
        key, value = record
        if isinstance(key, _NOT_OF_CONSUMER_GROUPS):
            return
        group_id = key.group_id
        group = self._table.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            group = self._table.groups[group_id] = ConsumerGroup(group_id)
        if value is None and isinstance(key, ConsumerGroupMetadataKey):
            del self._table.groups[group_id]
        else:
            group.apply(record)

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Give every member that was read from the log a session of its own again."""
        self._image = self._table.image
        draft: GroupDraft = Draft()
        for group in self._consumer_groups():
            group.stale_regexes.update(group.regexes)
            for member in group.members.values():
                self._hold_session(group, member, draft, now_ms)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    key = TimerKey(REBALANCE, group.group_id, member.member_id)
                    draft.set_timer(key, now_ms + member.rebalance_timeout_ms)
        return draft.outcome()

    def topics_changed(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """Topics came, went or grew: the next heartbeat of each group that reads one of them sees to it."""
        before, after = self._image, self._table.image
        self._image = after
        changed = {name for name in names if differs(before, after, name)}
        if not changed:
            return Outcome()
        self._rebalance.forget_topics(changed)
        came = [name for name in changed if name in after.topics and name not in before.topics]
        matched: dict[str, frozenset[str]] = {}
        for group in self._consumer_groups():
            if group.is_subscribed_to_any(changed):
                group.metadata_current = False
            for regex in group.regexes if came else ():
                if regex not in matched:
                    matched[regex] = matching(regex, came)
                resolved = group.resolved.get(regex)
                if resolved is None or not resolved.topics >= matched[regex]:
                    group.stale_regexes.add(regex)
        return Outcome()

    def describe(self, group: ConsumerGroup) -> DescribedGroup:
        """A group for ConsumerGroupDescribe."""
        default_assignor = self._table.settings_of(group.group_id).consumer_assignors[0]
        return describe_group(group, self._table.image, default_assignor)

    def abandon(self, code: ErrorCode) -> GroupOutcome:
        """Nobody waits for an answer here: heartbeats are answered at once."""
        return Outcome()

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._table.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def _consumer_groups(self) -> list[ConsumerGroup]:
        return [group for group in self._table.groups.values() if isinstance(group, ConsumerGroup)]

    def _beat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        asker: Asker[ConsumerGroupHeartbeatResponse],
        settings: GroupSettings,
        draft: GroupDraft,
        now_ms: int,
    ) -> ConsumerGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN_EPOCH
        found = self._table.groups.get(request.group_id)
        group = self._group_of(found, request.group_id, joins, draft, now_ms)
        check_room(group, request.member_id, settings.consumer_max_size)
        owned = _owned(request)
        old = self._member_of(group, request, owned, draft)
        new = _updated(old, request, asker)
        change = self._rebalance.subscribe(group, old, new, draft, now_ms, asker.may_see)
        target = self._rebalance.target(group, change, old, new, draft, now_ms)
        member = self._rebalance.reconcile(group, change, target, new, owned, draft, now_ms)
        self._hold_session(group, member, draft, now_ms)
        if isinstance(found, ClassicGroup):
            self._conversion.dissolve(found, draft)
        else:
            draft.otherwise = partial(compare_again, group)
        is_full = (
            request.rebalance_timeout != NOT_GIVEN
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        changed = joins or is_full or member.assigned != old.assigned
        return _answer(member, settings, _assignment(member) if changed else None)

    def _group_of(
        self, found: Group | None, group_id: str, joins: bool, draft: GroupDraft, now_ms: int
    ) -> ConsumerGroup:
        """The group as it will be: a new one, or a classic one in its new shape, if a member joins it."""
        if isinstance(found, ConsumerGroup):
            return found
        if not joins:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        if isinstance(found, ClassicGroup):
            return self._conversion.upgraded(found, draft, now_ms)
        if found is not None:
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return ConsumerGroup(group_id)

    def _member_of(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, owned: Partitions | None, draft: GroupDraft
    ) -> Member:
        """The member as it was before this heartbeat; a new one if it joins."""
        member_id = request.member_id or self._table.new_id()
        joins = request.member_epoch == JOIN_EPOCH
        if request.instance_id is None:
            member = group.members.get(member_id) or Member(member_id=member_id) if joins else group.member(member_id)
            check_epoch(member, request.member_epoch, owned)
            return member
        if not joins:
            member = holder_of(group, request.instance_id, member_id)
            check_epoch(member, request.member_epoch, owned)
            return member
        holder = group.static_member(request.instance_id)
        if holder is None:
            return group.members.get(member_id) or Member(member_id=member_id)
        if holder.classic is None:
            check_released(group, holder, member_id)
        member, records = replacement(group.group_id, holder, member_id, group.targets.get(holder.member_id, {}))
        draft.changes.extend(records)
        cancel_timers(group.group_id, holder.member_id, draft)
        return member

    def _leave(
        self, request: ConsumerGroupHeartbeatRequest, draft: GroupDraft, now_ms: int
    ) -> ConsumerGroupHeartbeatResponse:
        group = self._consumer_group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = holder_of(group, request.instance_id, request.member_id)
        if request.instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
            draft.changes.append(current_record(group.group_id, member.away()))
        else:
            self._conversion.remove(group, (member,), draft, now_ms)
        return ConsumerGroupHeartbeatResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval=NO_TIME,
        )

    def _hold_session(self, group: ConsumerGroup, member: Member, draft: GroupDraft, now_ms: int) -> None:
        if member.classic is None:
            timeout_ms = self._table.settings_of(group.group_id).consumer_session_timeout_ms
        else:
            timeout_ms = member.classic.session_timeout_ms
        draft.set_timer(_session(group, member), now_ms + timeout_ms)


def _kept(group: ConsumerGroup, before: Member, after: Member) -> PackedRecord:
    """The record of a member that is in another epoch and keeps its assignment, which is the object that it had."""
    assigned = after.assigned
    assert isinstance(assigned, StoredAssignment)  # as that of each member whose records were replayed
    return PackedRecord(kept_record(group.group_id, after, assigned), group, before, after)


def _is_plain(group: ConsumerGroup, member: Member, client_id: str, client_host: str) -> bool:
    """Whether nothing has to be looked at in a heartbeat of the member, from this client, that says nothing new."""
    return (
        group.metadata_current
        and not group.regexes
        and member.instance_id is None
        and member.classic is None
        and member.client_id == client_id
        and member.client_host == client_host
        and not member.member_id.isspace()
    )


def _session(group: ConsumerGroup, member: Member) -> TimerKey:
    return TimerKey(SESSION, group.group_id, member.member_id)


def unchanged_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, asker: Asker[ConsumerGroupHeartbeatResponse]
) -> Member | None:
    """The member, if its request says nothing new but which partitions it has, and the group has its target assignment.

    None if that is not sure. All the rules would come to the same decision: none of them but reconciliation would
    change anything, and none would refuse the request.
    """
    member = group.members.get(request.member_id)
    if (
        member is not None
        and request.member_epoch == member.epoch
        and member.epoch > JOIN_EPOCH
        and group.assignment_epoch == group.epoch
        and member.state is not MemberState.UNKNOWN
        and group.metadata_current
        and not group.regexes
        and request.instance_id is None
        and member.instance_id is None
        and _updated(member, request, asker) is member
        and not member.member_id.isspace()
    ):
        return member
    return None


def _updated(
    member: Member, request: ConsumerGroupHeartbeatRequest, asker: Asker[ConsumerGroupHeartbeatResponse]
) -> Member:
    """The member with everything that the request says about it; what it leaves out stays."""
    timeout = request.rebalance_timeout
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if (
        names is None
        and regex is None
        and timeout == NOT_GIVEN
        and request.server_assignor is None
        and request.rack_id is None
        and member.client_id == asker.client_id
        and member.client_host == asker.client_host
        and member.instance_id == request.instance_id
        and member.classic is None
    ):
        return member  # as almost every heartbeat has it
    return member._replace(
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout == NOT_GIVEN else timeout // MILLISECOND,
        assignor=member.assignor if request.server_assignor is None else request.server_assignor,
        topics=member.topics if names is None else frozenset(names),
        regex=member.regex if regex is None else regex,
        client_id=asker.client_id,
        client_host=asker.client_host,
        classic=None,
    )


@lru_cache(64)
def _interval(milliseconds: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=milliseconds))


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    owned: dict[UUID, frozenset[int]] = {}
    for topic in request.topic_partitions:
        if topic.topic_id is not None:
            owned[topic.topic_id] = owned.get(topic.topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _answer(
    member: Member, settings: GroupSettings, assignment: HeartbeatAssignment | None
) -> ConsumerGroupHeartbeatResponse:
    interval_ms = settings.consumer_heartbeat_interval_ms
    if assignment is None and len(member.member_id) <= LONGEST_REMEMBERED:
        return _still_there(member.member_id, member.epoch, interval_ms)
    return _make_answer(member.member_id, member.epoch, interval_ms, assignment)


def _make_answer(
    member_id: str, epoch: int, interval_ms: int, assignment: HeartbeatAssignment | None = None
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_TIME,
        error_code=ErrorCode.none,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval=_interval(interval_ms),
        assignment=assignment,
    )


_still_there = lru_cache(maxsize=1024)(_make_answer)
"""What a member is answered as long as nothing changes."""


def _assignment(member: Member) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(sorted(partitions)))
            for topic, partitions in sorted(member.assigned.items())
        )
    )
