"""The coordinator of the groups on one partition of `__consumer_offsets`: one machine made of three sets of rules.

Classic groups, whose leader assigns partitions, consumer groups, whose coordinator does, and committed offsets have
rules of their own (`classic`, `consumer`, `offsets`), which share one table of groups. This module leads a request to
the rules of the kind that its group is, and a record to the rules that wrote it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.machines.groups import classic_replies
from barnabas.machines.groups.classic import ClassicRules
from barnabas.machines.groups.classic_group import ClassicGroup
from barnabas.machines.groups.consumer import ConsumerRules
from barnabas.machines.groups.consumer_describe import list_group
from barnabas.machines.groups.consumer_group import ConsumerGroup
from barnabas.machines.groups.offsets import OffsetRules
from barnabas.machines.outcome import Draft, Outcome
from barnabas.model.errors import ApiError, ErrorCode, GroupIdNotFound, InvalidRecord
from barnabas.protocol import coordinator_records
from barnabas.protocol.coordinator_records import GroupMetadataKey, OffsetCommitKey

if TYPE_CHECKING:
    from collections.abc import Collection

    from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
    from kio.schema.heartbeat.v4.request import HeartbeatRequest
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.list_groups.v5.response import ListedGroup
    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
    from kio.schema.sync_group.v5.request import SyncGroupRequest
    from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest

    from barnabas.machines.groups.table import Asker, Group, GroupOutcome, GroupTable, TimerKey
    from barnabas.protocol.coordinator_records import CoordinatorRecord
    from barnabas.protocol.group_offsets import OffsetCommitRequest, OffsetFetchRequestGroup

logger = logging.getLogger(__name__)


class GroupCoordinator:
    """The groups of one partition."""

    def __init__(self, table: GroupTable) -> None:
        self.table = table
        self._classic = ClassicRules(table)
        self._consumer = ConsumerRules(table)
        self._offsets = OffsetRules(table)

    # Members

    def join_group(self, request: JoinGroupRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """JoinGroup."""
        if self._is_consumer(request.group_id):
            return self._consumer.classic_join(request, asker, now_ms)
        return self._classic.join_group(request, asker, now_ms)

    def sync_group(self, request: SyncGroupRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """SyncGroup."""
        if self._is_consumer(request.group_id):
            return self._consumer.classic_sync(request, asker, now_ms)
        return self._classic.sync_group(request, asker, now_ms)

    def heartbeat(self, request: HeartbeatRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """Heartbeat."""
        if self._is_consumer(request.group_id):
            return self._consumer.classic_heartbeat(request, asker, now_ms)
        return self._classic.heartbeat(request, asker, now_ms)

    def leave_group(self, request: LeaveGroupRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """LeaveGroup."""
        if self._is_consumer(request.group_id):
            return self._consumer.leave_group(request, asker, now_ms)
        return self._classic.leave_group(request, asker, now_ms)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, asker: Asker, now_ms: int
    ) -> GroupOutcome:
        """ConsumerGroupHeartbeat; a classic group becomes a consumer group by it, where that is allowed."""
        return self._consumer.heartbeat(request, asker, now_ms)

    def _is_consumer(self, group_id: str) -> bool:
        return isinstance(self.table.groups.get(group_id), ConsumerGroup)

    # Offsets

    def offset_commit(self, request: OffsetCommitRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """OffsetCommit."""
        return self._offsets.commit(request, asker, now_ms)

    def txn_offset_commit(self, request: TxnOffsetCommitRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """TxnOffsetCommit; its records are replayed as pending ones."""
        return self._offsets.txn_commit(request, asker, now_ms)

    def offset_fetch(
        self, request: OffsetFetchRequestGroup, require_stable: bool, asker: Asker, now_ms: int
    ) -> GroupOutcome:
        """One group of OffsetFetch."""
        return self._offsets.fetch(request, asker, now_ms, require_stable=require_stable)

    def offset_delete(self, request: OffsetDeleteRequest, asker: Asker, now_ms: int) -> GroupOutcome:
        """OffsetDelete."""
        return self._offsets.delete(request, asker, now_ms)

    # Groups seen from outside; the answers are parts of responses

    def list_groups(self, states: Collection[str], types: Collection[str], asker: Asker, now_ms: int) -> GroupOutcome:
        """The groups in one of these states and of one of these types, both in small letters; none means any."""
        listed = [_listed(group) for group in self.table.groups.values()]
        wanted = [
            group
            for group in listed
            if (not types or group.group_type in types) and (not states or group.group_state.lower() in states)
        ]
        return _answer(asker, wanted)

    def describe_classic(self, group_id: str, asker: Asker, now_ms: int) -> GroupOutcome:
        """A classic group; anything else is not found."""
        group = self.table.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            reason = "is not a classic group." if group is not None else "not found."
            return _answer(asker, GroupIdNotFound(f"Group {group_id} {reason}"))
        return _answer(asker, classic_replies.describe(group))

    def describe_consumer(self, group_id: str, asker: Asker, now_ms: int) -> GroupOutcome:
        """A consumer group; anything else is not found."""
        group = self.table.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            reason = "is not a consumer group." if group is not None else "not found."
            return _answer(asker, GroupIdNotFound(f"Group {group_id} {reason}"))
        return _answer(asker, self._consumer.describe(group))

    def delete_group(self, group_id: str, asker: Asker, now_ms: int) -> GroupOutcome:
        """Remove an empty group and its offsets; the answer is an error code."""
        group = self.table.groups.get(group_id)
        try:
            if group is None:
                raise GroupIdNotFound(f"Group {group_id} not found.")
            group.check_delete()
        except ApiError as error:
            return _answer(asker, error.code)
        changes = (*self._offsets.tombstones(group_id), *group.tombstones())
        return Outcome(changes=changes, replies=((asker, ErrorCode.none),), is_divisible=True)

    # What happens by itself

    def topics_changed(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """These topics came, went or have other partitions; the table has the new image."""
        return self._consumer.topics_changed(names, now_ms)

    def topics_deleted(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """These topics are gone: so are their offsets."""
        return self._offsets.topics_deleted(names, now_ms)

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """A timer is due."""
        rules, _, _ = key.kind.partition(".")
        if rules == "classic":
            return self._classic.expire(key, now_ms)
        if rules == "consumer":
            return self._consumer.expire(key, now_ms)
        return self._offsets.expire(key, now_ms)

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Everything was replayed: begin to wait for members and for old offsets."""
        draft: Draft[Any, Any, Any] = Draft()
        for outcome in (self._classic.loaded(now_ms), self._consumer.loaded(now_ms), self._offsets.loaded(now_ms)):
            draft.changes.extend(outcome.changes)
            draft.replies.extend(outcome.replies)
            draft.timers.extend(outcome.timers)
        return draft.outcome()

    def abandon(self, code: ErrorCode) -> GroupOutcome:
        """Tell everyone who waits that this coordinator is none any more."""
        outcomes = (self._classic.abandon(code), self._consumer.abandon(code))
        return Outcome(replies=tuple(reply for outcome in outcomes for reply in outcome.replies))

    # The log

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        return coordinator_records.encode(record)

    def replay(self, record: CoordinatorRecord) -> None:
        """A record was stored."""
        key = record.key
        if isinstance(key, OffsetCommitKey):
            self._offsets.replay(record)
        elif isinstance(key, GroupMetadataKey):
            self._classic.replay(record)
        else:
            self._consumer.replay(record)

    def replay_pending(self, record: CoordinatorRecord, producer_id: int) -> None:
        """An offset was stored that is part of a producer's transaction."""
        self._offsets.replay(record, producer_id)

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """A record of the log; one that cannot be read is passed over and told."""
        try:
            record = coordinator_records.decode(key, value)
        except InvalidRecord as error:
            logger.error("a record of the groups' log is passed over: %s", error)
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
        return classic_replies.listed(group)
    assert isinstance(group, ConsumerGroup)
    return list_group(group)


def _answer(asker: Asker, answer: Any) -> GroupOutcome:
    return Outcome(replies=((asker, answer),))
