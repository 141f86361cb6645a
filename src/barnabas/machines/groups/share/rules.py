"""The rules of share groups (KIP-932): members send heartbeats, and the broker decides who shares which partitions.

A heartbeat may raise the group epoch, make a new target assignment, and gives the member its part of it at once: since
partitions are shared, nobody waits for another to give one back. A member that sends no heartbeat for its session
timeout is removed.

Partitions are given to members only when the share coordinator has state of them. A heartbeat that finds subscribed
partitions without state writes them down and sends `InitializeStates`; `initialized` says that it was done, and the
next heartbeat gives them out. If nothing is heard of it, it is tried again after a while. What is asked of a group
besides heartbeats is in `offsets`.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1 import ShareGroupHeartbeatResponse
from kio.schema.share_group_heartbeat.v1.response import Assignment, TopicPartitions
from kio.static.primitive import i32, i32Timedelta

from barnabas.machines.groups.consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from barnabas.machines.groups.consumer.metadata_hash import differs, group_hash
from barnabas.machines.groups.consumer.target import may_assign
from barnabas.machines.groups.share.checks import check_epoch, check_request, check_room
from barnabas.machines.groups.share.describe import describe_group
from barnabas.machines.groups.share.group import ShareGroup
from barnabas.machines.groups.share.member import ShareMember, current_record, member_record, removal_records
from barnabas.machines.groups.share.offsets import InitializeStates, ShareOffsets, share_group
from barnabas.machines.groups.share.state_partitions import NamedPartitions
from barnabas.machines.groups.share.target import make_target
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import Draft, Outcome, answer
from barnabas.machines.shares.unset import UNINITIALIZED
from barnabas.model.errors import ApiError, GroupIdNotFound
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
)
from barnabas.protocol.wire.durations import NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from uuid import UUID

    from kio.schema.share_group_describe.v1.response import DescribedGroup
    from kio.schema.share_group_heartbeat.v1 import ShareGroupHeartbeatRequest

    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.settings import GroupSettings
    from barnabas.machines.groups.table import Group, GroupDraft, GroupOutcome, GroupTable
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.coordinator_records import ShareGroupKey

SESSION: Final = "share.session"
"""The timer of a member's session."""


class ShareRules:
    """Decides for the share groups of one coordinator."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self._image = table.image
        """As it was when topics changed last."""
        self._topic_hashes: dict[str, int] = {}
        self.offsets = ShareOffsets(table)

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, asker: Asker[ShareGroupHeartbeatResponse], now_ms: int
    ) -> GroupOutcome:
        """A member joins, leaves, or reports that it is alive."""
        draft: GroupDraft = Draft()
        try:
            check_request(request)
            if request.member_epoch == LEAVE_EPOCH:
                response = self._leave(request, draft)
            else:
                response = self._beat(request, asker, draft, now_ms)
        except ApiError as error:
            draft = Draft()
            response = ShareGroupHeartbeatResponse(
                throttle_time=NO_TIME,
                error_code=error.code,
                error_message=str(error),
                member_epoch=i32(0),
                heartbeat_interval=NO_TIME,
            )
        draft.reply(asker, response)
        return draft.outcome()

    def describe(self, group_id: str, asker: Asker[DescribedGroup], now_ms: int) -> GroupOutcome:
        """A group for ShareGroupDescribe."""
        try:
            group = share_group(self._table, group_id)
        except ApiError as error:
            return answer(asker, error)
        assignor = self._table.settings.share_assignors[0]
        return answer(asker, describe_group(group, self._table.image, assignor))

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """Remove a member that sent no heartbeat for its session timeout."""
        draft: GroupDraft = Draft()
        group = self._table.groups.get(key.group_id)
        if isinstance(group, ShareGroup) and (member := group.members.get(key.member_id)) is not None:
            self._remove(group, member, draft)
        return draft.outcome()

    def replay(self, key: ShareGroupKey, record: CoordinatorRecord) -> None:
        """Take over a record of a share group; the tombstone of the group's own key removes it."""
        group_id = key.group_id
        group = self._table.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            group = self._table.groups[group_id] = ShareGroup(group_id)
        if record.value is None and isinstance(key, ShareGroupMetadataKey):
            del self._table.groups[group_id]
            self.offsets.asked.pop(group_id, None)
        else:
            group.apply(record)

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Give every member a session again, and those who may be making state some time to say that it is there."""
        self._image = self._table.image
        draft: GroupDraft = Draft()
        for group in self._groups():
            self.offsets.asked[group.group_id] = dict.fromkeys(group.state_partitions.initializing, now_ms)
            for member in group.members.values():
                self._hold_session(group, member, draft, now_ms)
        return draft.outcome()

    def topics_changed(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """Topics came, went or grew: the next heartbeat of each group that reads one of them sees to it."""
        before, after = self._image, self._table.image
        self._image = after
        changed = {name for name in names if differs(before, after, name)}
        for name in changed:
            self._topic_hashes.pop(name, None)
        for group in self._groups() if changed else ():
            if group.is_subscribed_to_any(changed):
                group.metadata_current = False
        return Outcome()

    def topics_deleted(self, topic_ids: Collection[UUID], now_ms: int) -> GroupOutcome:
        """These topics are gone, and share coordinators forget their state by themselves."""
        draft: GroupDraft = Draft()
        for group in self._groups():
            had = group.state_partitions
            left = had.without_topics(topic_ids)
            if left != had:
                draft.changes.append(left.record(group.group_id))
        return replace(draft.outcome(), is_divisible=True)

    def _groups(self) -> Iterator[ShareGroup]:
        return (group for group in list(self._table.groups.values()) if isinstance(group, ShareGroup))

    # Heartbeats

    def _beat(
        self,
        request: ShareGroupHeartbeatRequest,
        asker: Asker[ShareGroupHeartbeatResponse],
        draft: GroupDraft,
        now_ms: int,
    ) -> ShareGroupHeartbeatResponse:
        joins = request.member_epoch == JOIN_EPOCH
        settings = self._table.settings_of(request.group_id)
        group = _group_of(self._table.groups.get(request.group_id), request.group_id, joins)
        check_room(group, request.member_id, settings.share_max_size)
        old = _member_of(group, request.member_id, joins)
        check_epoch(old, request.member_epoch)
        new = _updated(old, request, asker)
        draft.otherwise = partial(self._undecided, group)
        epoch = self._subscribe(group, old, new, draft)
        target_epoch, target = self._target(group, epoch, new, settings, draft, now_ms)
        member = self._reconciled(group, old, new, target_epoch, target, epoch, draft)
        self._hold_session(group, member, draft, now_ms)
        self._initialize(group, epoch, old, new, settings, draft, now_ms)
        is_full = request.subscribed_topic_names is not None
        changed = joins or is_full or member.assigned != old.assigned
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            member_id=member.member_id,
            member_epoch=i32(member.epoch),
            heartbeat_interval=_interval(settings.share_heartbeat_interval_ms),
            assignment=_assignment(member) if changed else None,
        )

    def _leave(self, request: ShareGroupHeartbeatRequest, draft: GroupDraft) -> ShareGroupHeartbeatResponse:
        group = share_group(self._table, request.group_id)
        self._remove(group, group.member(request.member_id), draft)
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval=NO_TIME,
        )

    def _subscribe(self, group: ShareGroup, old: ShareMember, new: ShareMember, draft: GroupDraft) -> int:
        """The group's epoch with this member in it: raised if subscriptions, topics or their states changed.

        While an epoch still waits for its target assignment, that will have the new states too.
        """
        if new is not old:
            draft.changes.append(member_record(group.group_id, new))
        waits = group.epoch > group.assignment_epoch
        raises = new.topics != old.topics or (not waits and self._has_new_states(group))
        if not raises and group.metadata_current:
            return group.epoch
        hashed = group_hash(group.topics_without(old, new), self._table.image, self._topic_hashes)
        group.metadata_current = True
        if not raises and hashed == group.metadata_hash:
            return group.epoch
        draft.changes.append(epoch_record(group.group_id, group.epoch + 1, hashed))
        return group.epoch + 1

    def _has_new_states(self, group: ShareGroup) -> bool:
        """Whether there are partitions that members may have and are not to have; topics that are gone do not count."""
        names = self._table.image.topic_names
        return any(topic in names for topic in group.topics_not_assigned())

    def _target(
        self,
        group: ShareGroup,
        epoch: int,
        new: ShareMember,
        settings: GroupSettings,
        draft: GroupDraft,
        now_ms: int,
    ) -> tuple[int, Partitions]:
        """The epoch of the target assignment, and what it gives the member; a new one if it is time for one."""
        interval_ms = settings.share_assignment_interval_ms
        if group.assignment_epoch >= epoch or not may_assign(group.assignment_timestamp, interval_ms, now_ms):
            return group.assignment_epoch, group.targets.get(new.member_id, {})
        target, records = make_target(group, epoch, new, self._table.image, now_ms)
        draft.changes.extend(records)
        return epoch, target

    def _reconciled(
        self,
        group: ShareGroup,
        old: ShareMember,
        new: ShareMember,
        target_epoch: int,
        target: Partitions,
        epoch: int,
        draft: GroupDraft,
    ) -> ShareMember:
        """The member with its part of the target; topics that it does not subscribe to are left out."""
        if epoch == group.epoch and new.epoch == target_epoch:
            return new
        names = self._table.image.topic_names
        mine = {topic: found for topic, found in target.items() if names.get(topic) in new.topics}
        member = new.at_epoch(target_epoch, mine)
        if member != new:
            draft.changes.append(current_record(group.group_id, member))
        return member

    def _remove(self, group: ShareGroup, member: ShareMember, draft: GroupDraft) -> None:
        """Remove a member, and raise the group epoch."""
        group_id = group.group_id
        draft.changes.extend(removal_records(group_id, member.member_id))
        hashed = group_hash(group.topics_without(member), self._table.image, self._topic_hashes)
        draft.changes.append(epoch_record(group_id, group.epoch + 1, hashed))
        draft.cancel_timer(TimerKey(SESSION, group_id, member.member_id))

    def _hold_session(self, group: ShareGroup, member: ShareMember, draft: GroupDraft, now_ms: int) -> None:
        timeout_ms = self._table.settings_of(group.group_id).share_session_timeout_ms
        draft.set_timer(TimerKey(SESSION, group.group_id, member.member_id), now_ms + timeout_ms)

    def _undecided(self, group: ShareGroup) -> GroupOutcome:
        """A heartbeat was not stored: topics have to be compared again, and states asked for again."""
        group.metadata_current = False
        self.offsets.asked.pop(group.group_id, None)
        return Outcome()

    # The states of partitions

    def _initialize(
        self,
        group: ShareGroup,
        epoch: int,
        old: ShareMember,
        new: ShareMember,
        settings: GroupSettings,
        draft: GroupDraft,
        now_ms: int,
    ) -> None:
        """Have state made of subscribed partitions that have none, unless it was asked for a short while ago."""
        names = group.topics_without(old, new) if new.topics != old.topics else group.topics
        lately = range(now_ms - settings.share_initialize_retry_interval_ms + 1, now_ms + 1)
        missing = self._without_state(group, names, lately)
        if not missing:
            return
        self.offsets.asked.setdefault(group.group_id, {}).update(dict.fromkeys(missing, now_ms))
        draft.changes.append(group.state_partitions.initialize(missing).record(group.group_id))
        offsets = {topic: dict.fromkeys(sorted(found.partitions), UNINITIALIZED) for topic, found in missing.items()}
        draft.sends.append(InitializeStates(group.group_id, epoch, offsets))

    def _without_state(self, group: ShareGroup, names: Collection[str], lately: range) -> dict[UUID, NamedPartitions]:
        """Partitions that have no state, unless it was asked for in these milliseconds."""
        states = group.state_partitions
        asked = self.offsets.asked.get(group.group_id, {})
        missing: dict[UUID, NamedPartitions] = {}
        for name in names:
            topic = self._table.image.topic(name)
            if topic is None:
                continue
            done = states.initialized.get(topic.topic_id)
            known = frozenset[int]() if done is None else done.partitions
            begun = states.initializing.get(topic.topic_id)
            if begun is not None and asked.get(topic.topic_id, 0) in lately:
                known |= begun.partitions
            if len(known) < len(topic.partitions):
                rest = frozenset(range(len(topic.partitions))) - known
                missing[topic.topic_id] = NamedPartitions(name, rest)
        return missing


def epoch_record(group_id: str, epoch: int, hashed: int) -> CoordinatorRecord:
    """The epoch of a group, and the hash of the topics that it was raised for."""
    return CoordinatorRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, hashed))


def _group_of(found: Group | None, group_id: str, joins: bool) -> ShareGroup:
    if isinstance(found, ShareGroup):
        return found
    if found is not None:
        raise GroupIdNotFound(f"Group {group_id} is not a share group.")
    if not joins:
        raise GroupIdNotFound(f"Share group {group_id} not found.")
    return ShareGroup(group_id)


def _member_of(group: ShareGroup, member_id: str, joins: bool) -> ShareMember:
    if joins:
        return group.members.get(member_id) or ShareMember(member_id=member_id)
    return group.member(member_id)


def _updated(
    member: ShareMember, request: ShareGroupHeartbeatRequest, asker: Asker[ShareGroupHeartbeatResponse]
) -> ShareMember:
    """The member with everything that the request says about it; what it leaves out stays."""
    names = request.subscribed_topic_names
    rack_id = member.rack_id if request.rack_id is None else request.rack_id
    topics = member.topics if names is None else frozenset(names)
    said = (rack_id, topics, asker.client_id, asker.client_host)
    if said == (member.rack_id, member.topics, member.client_id, member.client_host):
        return member  # as almost all heartbeats say: a copy would cost more than all the rest
    return member._replace(rack_id=rack_id, topics=topics, client_id=asker.client_id, client_host=asker.client_host)


@lru_cache(64)
def _interval(milliseconds: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=milliseconds))


def _assignment(member: ShareMember) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic, partitions=tuple(i32(partition) for partition in sorted(partitions)))
            for topic, partitions in sorted(member.assigned.items())
        )
    )
