"""The coordinator of the groups on one partition of `__consumer_offsets`: one machine made of four sets of rules.

Classic groups, whose leader assigns partitions, consumer groups, whose coordinator does, share groups, whose members
share them, and committed offsets have rules of their own (`classic`, `consumer`, `share`, `offsets`) over one table of
groups. This module leads a request to the rules of the kind that its group is, and a record to those that wrote it.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.machines.groups.classic import replies
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.rules import ClassicRules
from barnabas.machines.groups.consumer.describe import list_group
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.rules import ConsumerRules
from barnabas.machines.groups.deletion import DELETE_TIMER, GroupDeletions
from barnabas.machines.groups.offsets.rules import OffsetRules
from barnabas.machines.groups.share.describe import list_group as list_share_group
from barnabas.machines.groups.share.group import ShareGroup
from barnabas.machines.groups.share.rules import ShareRules
from barnabas.machines.groups.table import PackedRecord
from barnabas.machines.outcome import Draft, Outcome, answer
from barnabas.model.errors import GroupIdNotFound, InvalidRecord
from barnabas.protocol import coordinator_records
from barnabas.protocol.coordinator_records import GroupMetadataKey, OffsetCommitKey, ShareGroupKey
from barnabas.protocol.records.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kio.schema.consumer_group_describe.v1 import response as consumer_response
    from kio.schema.describe_groups.v6 import response as classic_response
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.heartbeat.v4.response import HeartbeatResponse
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.leave_group.v5.response import LeaveGroupResponse
    from kio.schema.list_groups.v5.response import ListedGroup
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
    from kio.schema.share_group_describe.v1 import response as share_response
    from kio.schema.share_group_heartbeat.v1 import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse

    from barnabas.machines.controller.image import TopicImage
    from barnabas.machines.groups.offsets.rules import GroupOffsets
    from barnabas.machines.groups.share.offsets import DeleteStates
    from barnabas.machines.groups.table import Group, GroupDraft, GroupOutcome, GroupTable, TimerKey
    from barnabas.machines.outcome import Asker
    from barnabas.model.errors import ErrorCode
    from barnabas.protocol.coordinator_records import CoordinatorRecord, OffsetCommitValue
    from barnabas.protocol.messages.groups.join_group import JoinGroupRequest, JoinGroupResponse
    from barnabas.protocol.messages.groups.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
    from barnabas.protocol.messages.groups.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """The groups of one partition."""

    def __init__(self, table: GroupTable) -> None:
        self.table = table
        self._classic = ClassicRules(table)
        self._consumer = ConsumerRules(table)
        self.consumer_group_heartbeat = self._consumer.heartbeat
        """A classic group becomes a consumer group by it, where that is allowed."""
        self.still_there = self._consumer.still_there
        self.step = self._consumer.step
        self._share = ShareRules(table)
        self.shares = self._share.offsets
        """The states of share groups' partitions."""
        self._offsets = OffsetRules(table)
        self.offset_commit = self._offsets.commit
        self.commit_one = self._offsets.commit_one
        self.txn_offset_commit = self._offsets.txn_commit
        """Its records are replayed as pending ones."""
        self.deletions = GroupDeletions(table, self._offsets, self.shares)

    # Members

    def join_group(self, request: JoinGroupRequest, asker: Asker[JoinGroupResponse], now_ms: int) -> GroupOutcome:
        """JoinGroup."""
        if self._is_consumer(request.group_id):
            return self._consumer.classic_join(request, asker, now_ms)
        return self._classic.join_group(request, asker, now_ms)

    def sync_group(self, request: SyncGroupRequest, asker: Asker[SyncGroupResponse], now_ms: int) -> GroupOutcome:
        """SyncGroup."""
        if self._is_consumer(request.group_id):
            return self._consumer.classic_sync(request, asker, now_ms)
        return self._classic.sync_group(request, asker, now_ms)

    def heartbeat(self, request: HeartbeatRequest, asker: Asker[HeartbeatResponse], now_ms: int) -> GroupOutcome:
        """Heartbeat."""
        if self._is_consumer(request.group_id):
            return self._consumer.classic_heartbeat(request, asker, now_ms)
        return self._classic.heartbeat(request, asker, now_ms)

    def leave_group(self, request: LeaveGroupRequest, asker: Asker[LeaveGroupResponse], now_ms: int) -> GroupOutcome:
        """LeaveGroup."""
        if self._is_consumer(request.group_id):
            return self._consumer.leave_group(request, asker, now_ms)
        return self._classic.leave_group(request, asker, now_ms)

    def share_group_heartbeat(
        self, request: ShareGroupHeartbeatRequest, asker: Asker[ShareGroupHeartbeatResponse], now_ms: int
    ) -> GroupOutcome:
        """ShareGroupHeartbeat."""
        return self._share.heartbeat(request, asker, now_ms)

    def _is_consumer(self, group_id: str) -> bool:
        return isinstance(self.table.groups.get(group_id), ConsumerGroup)

    # Offsets

    def offset_fetch(
        self,
        request: OffsetFetchRequestGroup,
        require_stable: bool,
        asker: Asker[OffsetFetchResponseGroup],
        now_ms: int,
    ) -> GroupOutcome:
        """One group of OffsetFetch."""
        return self._offsets.fetch(request, asker, now_ms, require_stable=require_stable)

    def copy_offsets(
        self,
        request: OffsetFetchRequestGroup,
        require_stable: bool,
        asker: Asker[GroupOffsets | OffsetFetchResponseGroup],
        now_ms: int,
    ) -> GroupOutcome:
        """What one group of OffsetFetch asks for, as a `GroupOffsets` to be packed later, or its error."""
        return self._offsets.copy(request, asker, now_ms, require_stable=require_stable)

    def offset_delete(
        self, request: OffsetDeleteRequest, asker: Asker[OffsetDeleteResponse], now_ms: int
    ) -> GroupOutcome:
        """OffsetDelete."""
        return self._offsets.delete(request, asker, now_ms)

    # Groups seen from outside; the answers are parts of responses

    @property
    def committed_offsets(self) -> Mapping[str, Mapping[str, Mapping[int, OffsetCommitValue]]]:
        """By group, topic and partition: what stands in the log, to be read and not to be kept."""
        return self._offsets.offsets.committed

    def list_groups(
        self,
        group_ids: Iterable[str],
        states: Collection[str],
        types: Collection[str],
        asker: Asker[list[ListedGroup]],
        now_ms: int,
    ) -> GroupOutcome:
        """These groups, as far as they exist, in one of these states and of one of these types.

        Both are in small letters; none means any.
        """
        groups = self.table.groups
        listed = [_listed(groups[group_id]) for group_id in group_ids if group_id in groups]
        wanted = [
            group
            for group in listed
            if (not types or group.group_type in types) and (not states or group.group_state.lower() in states)
        ]
        return answer(asker, wanted)

    def describe_classic(
        self, group_id: str, asker: Asker[classic_response.DescribedGroup], now_ms: int
    ) -> GroupOutcome:
        """A classic group; anything else is not found."""
        group = self.table.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            reason = "is not a classic group." if group is not None else "not found."
            return answer(asker, GroupIdNotFound(f"Group {group_id} {reason}"))
        return answer(asker, replies.describe(group))

    def describe_consumer(
        self, group_id: str, asker: Asker[consumer_response.DescribedGroup], now_ms: int
    ) -> GroupOutcome:
        """A consumer group; anything else is not found."""
        group = self.table.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            reason = "is not a consumer group." if group is not None else "not found."
            return answer(asker, GroupIdNotFound(f"Group {group_id} {reason}"))
        return answer(asker, self._consumer.describe(group))

    def describe_share(self, group_id: str, asker: Asker[share_response.DescribedGroup], now_ms: int) -> GroupOutcome:
        """A share group; anything else is not found."""
        return self._share.describe(group_id, asker, now_ms)

    def delete_group(
        self, group_id: str, asker: Asker[ErrorCode | DeleteStates], now_ms: int, *, states_deleted: bool = False
    ) -> GroupOutcome:
        """Remove an empty group and its offsets; the answer is an error code, or what else has to be deleted first."""
        return self.deletions.delete(group_id, asker, now_ms, states_deleted=states_deleted)

    # What happens by itself

    def topics_changed(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """These topics came, went or have other partitions; the table has the new image."""
        self._share.topics_changed(names, now_ms)
        return self._consumer.topics_changed(names, now_ms)

    def topics_deleted(self, topics: Collection[TopicImage], now_ms: int) -> GroupOutcome:
        """These topics are gone: so are their offsets, and what share groups have of them."""
        shares = self._share.topics_deleted({topic.topic_id for topic in topics}, now_ms)
        offsets = self._offsets.topics_deleted({topic.name for topic in topics}, now_ms)
        return replace(offsets, changes=(*shares.changes, *offsets.changes))

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """A timer is due."""
        rules, _, _ = key.kind.partition(".")
        if rules == "classic":
            return self._classic.expire(key, now_ms)
        if rules == "consumer":
            return self._consumer.expire(key, now_ms)
        if rules == "share":
            return self._share.expire(key, now_ms)
        if key == DELETE_TIMER:
            return self.deletions.expire(now_ms)
        return self._offsets.expire(key, now_ms)

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Everything was replayed: begin to wait for members and for old offsets."""
        draft: GroupDraft = Draft()
        for rules in (self._classic, self._consumer, self._share, self._offsets):
            outcome = rules.loaded(now_ms)
            draft.changes.extend(outcome.changes)
            draft.replies.extend(outcome.replies)
            draft.timers.extend(outcome.timers)
        return draft.outcome()

    def abandon(self, code: ErrorCode) -> GroupOutcome:
        """Tell everyone who waits that this coordinator is none any more."""
        outcomes = (self._classic.abandon(code), self._consumer.abandon(code), self.deletions.abandon(code))
        return Outcome(replies=tuple(reply for outcome in outcomes for reply in outcome.replies))

    # The log

    @staticmethod
    def encode(record: CoordinatorRecord | PackedRecord) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        return record.pair if isinstance(record, PackedRecord) else coordinator_records.encode(record)

    def replay(self, record: CoordinatorRecord | PackedRecord) -> None:
        """A record was stored."""
        if isinstance(record, PackedRecord):
            if not record.take():
                self.replay_bytes(*record.pair, NO_PRODUCER_ID)
            return
        key = record.key
        if isinstance(key, OffsetCommitKey):
            self._offsets.replay(record)
        elif isinstance(key, GroupMetadataKey):
            self._classic.replay(record)
        elif isinstance(key, ShareGroupKey):
            self._share.replay(key, record)
        else:
            self._consumer.replay(record)

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        """An offset was stored that is part of a producer's transaction."""
        self._offsets.replay(record, producer_id)

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """Apply a record of the log; one that cannot be read is skipped and logged."""
        try:
            record = coordinator_records.decode(key, value)
        except InvalidRecord as error:
            logger.error("Skipped a record of __consumer_offsets that cannot be read: %s", error)
            return
        if record is None:
            return
        if isinstance(record.key, OffsetCommitKey):
            self.replay_pending(record, producer_id)
        else:
            self.replay(record)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The marker of a transaction that committed offsets."""
        self._offsets.end_transaction(producer_id, commit)


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        return replies.listed(group)
    if isinstance(group, ShareGroup):
        return list_share_group(group)
    assert isinstance(group, ConsumerGroup)
    return list_group(group)
