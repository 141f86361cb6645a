"""Committed offsets: how far groups have read.

A commit is checked by its group, if there is one. Without a group, only a client that names no member may commit, and
the first such commit creates the group: a classic one without members. Topics come here with their name, and with
their id where that is known; offsets of a topic that was deleted and made again are not offsets of the new one.

Commits are most of what a coordinator does: a commit costs a few microseconds and as many again for each partition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.rebalance import SESSION_TIMER
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.offsets.expiry import OffsetExpiry
from barnabas.machines.groups.offsets.table import NO_PRODUCER, OffsetTable
from barnabas.machines.groups.table import TimerKey
from barnabas.machines.outcome import OneRecord, Outcome, Timer, as_before
from barnabas.model.errors import ApiError, ErrorCode, GroupIdNotFound, IllegalGeneration, StaleMemberEpoch
from barnabas.protocol.coordinator_records import CoordinatorRecord, OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.coordinator_records.offset_commit import encode_key, encode_value
from barnabas.protocol.messages.groups.offset_commit import (
    NO_RETENTION,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.protocol.messages.groups.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitResponse
from barnabas.protocol.wire.durations import MILLISECOND, NO_TIME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kio.schema.offset_delete.v0.request import OffsetDeleteRequest, OffsetDeleteRequestTopic

    from barnabas.machines.groups.table import CommitCheck, Group, GroupOutcome, GroupTable
    from barnabas.machines.outcome import Asker
    from barnabas.protocol.messages.groups.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic, OneOffset
    from barnabas.protocol.messages.groups.offset_fetch import OffsetFetchRequestGroup
    from barnabas.protocol.messages.groups.txn_offset_commit import TxnOffsetCommitRequest

MAX_RECORD_TEXT: Final = 0x7FFF
"""How many bytes a text in a record may have, whatever the settings allow."""
WITH_SESSIONS: Final = (ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE)
"""States of a group in which a commit of a member tells that the member is there."""
GROUP_ID_NOT_FOUND_SINCE: Final = 9
"""The version of OffsetCommit from which on clients know the error that there is no such group."""


class OffsetRules:
    """The rules of committed offsets."""

    def __init__(self, table: GroupTable) -> None:
        self._table = table
        self.offsets = OffsetTable()
        self._expiry = OffsetExpiry(table, self.offsets)

    # OffsetCommit.

    def commit(self, request: OffsetCommitRequest, asker: Asker[OffsetCommitResponse], now_ms: int) -> GroupOutcome:
        """Commit offsets: all of them or, if the group or a partition's owner is not who should commit, none."""
        group_id, epoch = request.group_id, request.generation_id_or_member_epoch
        group = self._table.groups.get(group_id)
        check = None
        expire_timestamp = -1
        if request.retention_time is not NO_RETENTION and request.retention_time != NO_RETENTION:
            expire_timestamp = now_ms + request.retention_time // MILLISECOND
        try:
            if group is not None:
                check = group.check_offset_commit(request.member_id, request.group_instance_id, epoch, asker.version)
            elif epoch >= 0:
                raise _no_group(group_id, request.member_id, asker.version)
            changes, topics = self._records(group_id, request.topics, check, now_ms, expire_timestamp)
        except ApiError as error:
            return Outcome(replies=((asker, OffsetCommitResponse(topics=_refused(request.topics, error.code))),))
        return Outcome(
            changes=tuple(changes),
            replies=((asker, OffsetCommitResponse(topics=tuple(topics))),),
            timers=() if (timer := _session(group, request.member_id, now_ms)) is None else (timer,),
            otherwise=as_before,
        )

    def commit_one(self, one: OneOffset, asker: Asker[ErrorCode], now_ms: int) -> GroupOutcome | OneRecord:
        """What `commit` decides about one offset without metadata; the answer is the result alone."""
        group_id, epoch, member_id, instance_id, topic_id, topic, partition, offset, leader_epoch = one
        group = self._table.groups.get(group_id)
        try:
            if group is not None:
                check = group.check_offset_commit(member_id, instance_id, epoch, asker.version)
                if check is not None:
                    check(topic, topic_id, partition)
            elif epoch >= 0:
                raise _no_group(group_id, member_id, asker.version)
        except ApiError as error:
            return Outcome(replies=((asker, error.code),))
        key = OffsetCommitKey(group_id, topic, partition)
        value = OffsetCommitValue(offset, leader_epoch, "", now_ms, -1, topic_id)
        return OneRecord(
            (encode_key(key), encode_value(*value)),
            CoordinatorRecord(key, value),
            self.replay,
            ErrorCode.none,
            _session(group, member_id, now_ms),
        )

    def _records(
        self,
        group_id: str,
        asked: Iterable[OffsetCommitRequestTopic],
        check: CommitCheck | None,
        now_ms: int,
        expire_timestamp: int = -1,
    ) -> tuple[list[CoordinatorRecord], list[OffsetCommitResponseTopic]]:
        """The records of a commit, and its results. Raises what `check` raises."""
        changes: list[CoordinatorRecord] = []
        topics: list[OffsetCommitResponseTopic] = []
        for topic in asked:
            name, topic_id = topic.name, topic.topic_id
            results: list[OffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                index, metadata = partition.partition_index, partition.committed_metadata or ""
                if metadata and _is_too_large(metadata, self._table.settings.offset_metadata_max_bytes):
                    results.append(_result(index, ErrorCode.offset_metadata_too_large))
                    continue
                if check is not None:
                    check(name, topic_id, index)
                offset = partition.committed_offset
                if expire_timestamp == -1:
                    value = OffsetCommitValue(offset, partition.committed_leader_epoch, metadata, now_ms, -1, topic_id)
                else:  # such a record has room for nothing else
                    value = OffsetCommitValue(offset, -1, metadata, now_ms, expire_timestamp, None)
                changes.append(CoordinatorRecord(OffsetCommitKey(group_id, name, index), value))
                results.append(_result(index))
            topics.append(OffsetCommitResponseTopic(topic_id=topic_id, name=name, partitions=tuple(results)))
        return changes, topics

    # TxnOffsetCommit.

    def txn_commit(
        self, request: TxnOffsetCommitRequest, asker: Asker[TxnOffsetCommitResponse], now_ms: int
    ) -> GroupOutcome:
        """Offsets of a transaction: all of them or none, and pending until it ends."""
        try:
            return self._txn_commit(request, asker, now_ms)
        except StaleMemberEpoch:
            code = ErrorCode.illegal_generation
        except ApiError as error:
            code = error.code
        return Outcome(replies=((asker, TxnOffsetCommitResponse(topics=_refused(request.topics, code))),))

    def _txn_commit(
        self, request: TxnOffsetCommitRequest, asker: Asker[TxnOffsetCommitResponse], now_ms: int
    ) -> GroupOutcome:
        group_id, epoch = request.group_id, request.generation_id
        group = self._table.groups.get(group_id)
        check = None
        if group is not None:
            check = group.check_offset_commit(
                request.member_id, request.group_instance_id, epoch, asker.version, transactional=True
            )
        elif epoch >= 0:
            raise IllegalGeneration(f"There is no group {group_id}, so it has no member {request.member_id}.")
        for topic in request.topics:
            found = self._table.image.topic(topic.name)
            topic.topic_id = None if found is None else found.topic_id
        changes, topics = self._records(group_id, request.topics, check, now_ms)
        return Outcome(changes=tuple(changes), replies=((asker, TxnOffsetCommitResponse(topics=tuple(topics))),))

    # OffsetFetch.

    def fetch(
        self,
        request: OffsetFetchRequestGroup,
        asker: Asker[OffsetFetchResponseGroup],
        now_ms: int,
        require_stable: bool,
    ) -> GroupOutcome:
        """Tell the offsets of one group; one that does not exist has none."""
        try:
            offsets = self._readable(request, now_ms, require_stable=require_stable)
        except ApiError as error:
            refused = OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.code)
            return Outcome(replies=((asker, refused),))
        topics = tuple(map(offsets.topic_response, offsets.requested_topics(request)))
        return Outcome(replies=((asker, OffsetFetchResponseGroup(group_id=request.group_id, topics=topics)),))

    def copy(
        self,
        request: OffsetFetchRequestGroup,
        asker: Asker[GroupOffsets | OffsetFetchResponseGroup],
        now_ms: int,
        require_stable: bool,
    ) -> GroupOutcome:
        """The same offsets as a `GroupOffsets` that does not change any more, to be packed later."""
        try:
            offsets = self._readable(request, now_ms, require_stable=require_stable)
        except ApiError as error:
            refused = OffsetFetchResponseGroup(group_id=request.group_id, error_code=error.code)
            return Outcome(replies=((asker, refused),))
        known = offsets.committed
        wanted = known if request.topics is None else {topic.name for topic in request.topics if topic.name in known}
        committed = {topic: dict(known[topic]) for topic in wanted}
        return Outcome(replies=((asker, GroupOffsets(offsets.group_id, committed, frozenset(offsets.unstable))),))

    def _readable(self, request: OffsetFetchRequestGroup, now_ms: int, require_stable: bool) -> GroupOffsets:
        """The offsets that the request may read. Raises ApiError."""
        group_id = request.group_id
        group = self._table.groups.get(group_id)
        committed: Mapping[str, Mapping[int, OffsetCommitValue]] = {}
        if group is not None:
            try:
                group.check_offset_fetch(request.member_id, request.member_epoch, now_ms)
                committed = self.offsets.topics(group_id)
            except GroupIdNotFound:
                pass
        return GroupOffsets(group_id, committed, self.offsets.open_keys(group_id) if require_stable else ())

    # OffsetDelete and DeleteGroups.

    def delete(self, request: OffsetDeleteRequest, asker: Asker[OffsetDeleteResponse], now_ms: int) -> GroupOutcome:
        """Forget offsets, but not of topics that the group reads."""
        changes: list[CoordinatorRecord] = []
        topics: list[OffsetDeleteResponseTopic] = []
        code = ErrorCode.none
        try:
            if (group := self._table.groups.get(request.group_id)) is None:
                raise GroupIdNotFound(f"There is no group {request.group_id}.")
            group.check_offset_delete()
            topics += [self._delete_topic(group, topic, changes) for topic in request.topics]
        except ApiError as error:
            code = error.code
        response = OffsetDeleteResponse(error_code=code, throttle_time=NO_TIME, topics=tuple(topics))
        return Outcome(changes=tuple(changes), replies=((asker, response),), otherwise=as_before)

    def _delete_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, changes: list[CoordinatorRecord]
    ) -> OffsetDeleteResponseTopic:
        in_use = group.is_subscribed_to(topic.name)
        code = ErrorCode.group_subscribed_to_topic if in_use else ErrorCode.none
        for partition in topic.partitions:
            key = OffsetCommitKey(group.group_id, topic.name, partition.partition_index)
            if not in_use and (self.offsets.get(key) is not None or self.offsets.is_open(key)):
                changes.append(CoordinatorRecord(key, None))
        return OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=tuple(
                OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
                for partition in topic.partitions
            ),
        )

    def tombstones(self, group_id: str, most: int) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the offsets of a group, or so many of them."""
        return tuple(CoordinatorRecord(key, None) for key in self.offsets.keys(group_id, most))

    # What happens by itself.

    def expire(self, key: TimerKey, now_ms: int) -> GroupOutcome:
        """A timer is due."""
        return self._expiry.expire(key, now_ms)

    def expire_offsets(self, now_ms: int) -> GroupOutcome:
        """Remove offsets that are older than offsets.retention.minutes, and groups that have nothing else."""
        return self._expiry.expire_offsets(now_ms)

    def topics_deleted(self, names: Collection[str], now_ms: int) -> GroupOutcome:
        """Remove the offsets of topics that are no more; the table has the image without them."""
        return self._expiry.topics_deleted(names, now_ms)

    # The log.

    def loaded(self, now_ms: int) -> GroupOutcome:
        """Begin to look for old offsets."""
        return self._expiry.loaded(now_ms)

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER) -> None:
        """An offset was committed or removed; `producer_id` says by whose transaction."""
        key: Any
        value: Any
        key, value = record  # of an offset, as `encode` and `decode` have seen to
        if value is None:
            self.offsets.remove(key)
            return
        groups = self._table.groups
        group_id = key[0]
        if group_id not in groups:
            groups[group_id] = ClassicGroup(group_id)
        if producer_id == NO_PRODUCER:
            self.offsets.put(key, value)
        else:
            self.offsets.put_pending(key, value, producer_id)

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """A transaction that committed offsets ended."""
        self.offsets.end_transaction(producer_id, commit)


def _is_too_large(metadata: str, limit: int) -> bool:
    """Kafka counts UTF-16 units, whatever the name of the setting says."""
    length = len(metadata)
    if metadata.isascii():
        return length > limit or length > MAX_RECORD_TEXT
    return len(metadata.encode("utf-16-le")) // 2 > limit or len(metadata.encode()) > MAX_RECORD_TEXT


def _no_group(group_id: str, member_id: str, version: int) -> ApiError:
    missing = GroupIdNotFound if version >= GROUP_ID_NOT_FOUND_SINCE else IllegalGeneration
    return missing(f"There is no group {group_id}, so it has no member {member_id}.")


@lru_cache(maxsize=4096)
def _result(index: int, code: ErrorCode = ErrorCode.none) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(partition_index=index, error_code=code)


def _refused(topics: Iterable[OffsetCommitRequestTopic], code: ErrorCode) -> tuple[OffsetCommitResponseTopic, ...]:
    """The results of a commit of which nothing is stored."""
    return tuple(
        OffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            name=topic.name,
            partitions=tuple(_result(partition.partition_index, code) for partition in topic.partitions),
        )
        for topic in topics
    )


def _session(group: Group | None, member_id: str, now_ms: int) -> Timer | None:
    """A commit is a sign of life of a member of a classic group."""
    if isinstance(group, ClassicGroup) and group.state in WITH_SESSIONS:
        member = group.members[member_id]
        return Timer(TimerKey(SESSION_TIMER, group.group_id, member_id), now_ms + member.session_timeout_ms)
    return None


class GroupOffsets(NamedTuple):
    """The committed offsets of a group."""

    group_id: str
    committed: Mapping[str, Mapping[int, OffsetCommitValue]]
    """By topic and partition."""
    unstable: Collection[OffsetCommitKey]
    """The partitions whose offsets a transaction is about to change, if the one who asks wants to wait for that."""

    def requested_topics(self, request: OffsetFetchRequestGroup) -> Iterable[OffsetFetchRequestTopics]:
        """The topics that a request asks for: those that it names, or all that the group has."""
        if request.topics is not None:
            return request.topics
        return (
            OffsetFetchRequestTopics(name=topic, partition_indexes=tuple(partitions))
            for topic, partitions in self.committed.items()
        )

    def topic_response(self, asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        """One topic's offsets."""
        committed = self.committed.get(asked.name, {})
        partitions: list[OffsetFetchResponsePartitions] = []
        for index in asked.partition_indexes:
            value = committed.get(index)
            if value is not None and asked.topic_id and value.topic_id and value.topic_id != asked.topic_id:
                value = None
            partitions.append(_fetched(OffsetCommitKey(self.group_id, asked.name, index), value, self.unstable))
        return OffsetFetchResponseTopics(topic_id=asked.topic_id, name=asked.name, partitions=tuple(partitions))


def _fetched(
    key: OffsetCommitKey, value: OffsetCommitValue | None, unstable: Collection[OffsetCommitKey]
) -> OffsetFetchResponsePartitions:
    if unstable and key in unstable:
        return OffsetFetchResponsePartitions(partition_index=key[2], error_code=ErrorCode.unstable_offset_commit)
    if value is None:
        return OffsetFetchResponsePartitions(partition_index=key[2])
    return OffsetFetchResponsePartitions(
        partition_index=key[2],
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )
