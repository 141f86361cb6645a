"""ListOffsets v1–11, OffsetForLeaderEpoch v2–4, DeleteRecords v0–2: offsets by time and epoch, and where logs start.

ListOffsets
- -1 the end that the caller may read to (the high watermark; with read_committed the last stable offset; for replicas
  and Kafka's debugging consumer the log's end), -2 the start, -3 the record with the largest timestamp (v7+), -4 the
  start on local disk (v8+), -5 and -6 the end and the pending start of tiered storage (v9+, v11+), and otherwise the
  first record with at least that timestamp.
- There is no tiered storage: -4 is -2, and -5 and -6 find nothing. Nothing found is offset -1 without an error.
- A special offset that the request's version does not know is UNSUPPORTED_VERSION; a partition asked for twice in one
  request is INVALID_REQUEST.
- Searches by time read files, so they run in a thread.
- Here and in OffsetForLeaderEpoch, a request with a replica id of a broker that the caller has not proved to be gets
  TOPIC_AUTHORIZATION_FAILED.

OffsetForLeaderEpoch
- Where an epoch ends, which is how consumers and followers find out what was cut from a log; -1 when it is not known.

DeleteRecords
- Moves the log's start; -1 means up to the high watermark. The space is freed by retention.
- A topic that is only compacted is refused with POLICY_VIOLATION, an internal one with INVALID_TOPIC_EXCEPTION.
- The answer is the low watermark, the lowest log start over all replicas whose brokers are up. It comes when the low
  watermark has reached what was asked for, or with REQUEST_TIMED_OUT after the request's timeout; the leader's log has
  its new start then all the same. The wait ends with the client's connection.

Not implemented: tiered storage.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.delete_records.v2 import response as deleting
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from barnabas.broker.replication.cold_logs import open_logs
from barnabas.broker.serving.long_answers import PART
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.partition import UNKNOWN_OFFSET
from barnabas.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    InvalidTopic,
    OffsetNotAvailable,
    OffsetOutOfRange,
    PolicyViolation,
    TopicAuthorizationFailed,
    UnsupportedVersion,
)
from barnabas.model.internal_topics import INTERNAL_TOPICS
from barnabas.protocol.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
)
from barnabas.storage.log.log import TimestampOffset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kio.schema.delete_records.v2.request import DeleteRecordsPartition, DeleteRecordsRequest
    from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
    from kio.schema.offset_for_leader_epoch.v4.request import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
        OffsetForLeaderTopic,
    )
    from kio.schema.types import TopicName

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.serving.caller import Caller
    from barnabas.storage.log.log import Log

TIERED: Final = frozenset({LATEST_TIERED, EARLIEST_PENDING_UPLOAD})
CONSUMER: Final = -1
READ_COMMITTED: Final = 1
HIGH_WATERMARK: Final = -1
_LOOK_AGAIN: Final = 0.02
"""Seconds between two looks at the low watermark: followers move it, and brokers that come and go."""
NOTHING: Final = TimestampOffset(-1, -1, -1)


class Search(NamedTuple):
    """A search by time, to be made in a thread."""

    log: Log
    timestamp: int
    up_to: int

    def run(self) -> TimestampOffset | ApiError:
        """Look through the log's files; a failure of one log is no failure of the others."""
        try:
            if self.timestamp == MAX_TIMESTAMP:
                found = self.log.offset_of_max_timestamp()
            else:
                found = self.log.offset_for_time(self.timestamp, up_to=self.up_to)
        except ApiError as error:
            return error
        return NOTHING if found is None or found.offset >= self.up_to else found


async def list_offsets(broker: BrokerContext, request: ListOffsetsRequest, caller: Caller) -> ListOffsetsResponse:
    """Find offsets by timestamp."""
    await open_logs(
        broker,
        (
            (topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
            if part.timestamp in (EARLIEST, EARLIEST_LOCAL) or request.isolation_level == READ_COMMITTED
        ),
    )
    asked = Counter((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    found: dict[tuple[str, int], TimestampOffset | ApiError] = {}
    searches: dict[tuple[str, int], Search] = {}

    def look_up(place: tuple[TopicName, ListOffsetsPartition]) -> None:
        topic, part = place
        key = (topic, part.partition_index)
        try:
            if asked[key] > 1:
                raise InvalidRequest(f"Partition {key[1]} of {key[0]} is in the request {asked[key]} times.")
            _check_replica(request.replica_id, caller)
            known = _look_up(broker, request, topic, part)
        except ApiError as error:
            found[key] = error
            return
        if isinstance(known, Search):
            searches[key] = known
        else:
            found[key] = known

    each = broker.long_answers.each
    await each(((topic.name, part) for topic in request.topics for part in topic.partitions), look_up)
    if searches:
        found |= await asyncio.get_running_loop().run_in_executor(broker.executor, _search_all, searches)
    return ListOffsetsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(await each(request.topics, lambda topic: _topic_response(topic, found), _partitions_of)),
    )


def _topic_response(
    topic: ListOffsetsTopic, found: Mapping[tuple[str, int], TimestampOffset | ApiError]
) -> ListOffsetsTopicResponse:
    indexes = dict.fromkeys(part.partition_index for part in topic.partitions)
    return ListOffsetsTopicResponse(
        name=topic.name, partitions=tuple(_partition_response(index, found[topic.name, index]) for index in indexes)
    )


def _partitions_of(topic: ListOffsetsTopic | OffsetForLeaderTopic) -> int:
    return len(topic.partitions)


def _search_all(searches: dict[tuple[str, int], Search]) -> dict[tuple[str, int], TimestampOffset | ApiError]:
    return {key: search.run() for key, search in searches.items()}


def _look_up(
    broker: BrokerContext, request: ListOffsetsRequest, topic: str, part: ListOffsetsPartition
) -> TimestampOffset | Search:
    """What is asked for, if memory has it, or else how to find it."""
    timestamp = part.timestamp
    if timestamp < EARLIEST_LOCAL and timestamp not in TIERED:
        raise UnsupportedVersion(f"Timestamp {timestamp} has no meaning in this version of ListOffsets.")
    partition = broker.replicas.find(topic, part.partition_index)
    partition.leader.check_epoch(part.current_leader_epoch)
    if timestamp in TIERED:
        return NOTHING
    log = partition.log
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, log.log_start_offset, log.epoch_at(log.log_start_offset))
    end = _readable_end(partition, request)
    if timestamp == LATEST:
        return TimestampOffset(-1, end, partition.leader.leader_epoch)
    return Search(log, timestamp, end)


def _readable_end(partition: LeaderPartition, request: ListOffsetsRequest) -> int:
    leader, log = partition.leader, partition.log
    if request.replica_id != CONSUMER:
        return log.log_end_offset
    if not leader.knows_high_watermark:
        raise OffsetNotAvailable(
            f"The high watermark of {partition.tp} is {leader.high_watermark}, "
            f"not yet at the start of leader epoch {leader.leader_epoch} ({leader.epoch_start_offset}). Try again."
        )
    if request.isolation_level != READ_COMMITTED:
        return leader.high_watermark
    log.open()
    return log.last_stable_offset(leader.high_watermark)


def _partition_response(index: i32, found: TimestampOffset | ApiError) -> ListOffsetsPartitionResponse:
    if isinstance(found, ApiError):
        return ListOffsetsPartitionResponse(partition_index=index, error_code=found.code)
    return ListOffsetsPartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        timestamp=i64(found.timestamp),
        offset=i64(found.offset),
        leader_epoch=i32(found.leader_epoch),
    )


async def offset_for_leader_epoch(
    broker: BrokerContext, request: OffsetForLeaderEpochRequest, caller: Caller
) -> OffsetForLeaderEpochResponse:
    """Find where leader epochs end."""
    await open_logs(broker, ((topic.topic, part.partition) for topic in request.topics for part in topic.partitions))

    def epoch_ends(topic: OffsetForLeaderTopic) -> OffsetForLeaderTopicResult:
        ends = (_epoch_end(broker, topic.topic, part, request.replica_id, caller) for part in topic.partitions)
        return OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(ends))

    return OffsetForLeaderEpochResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(await broker.long_answers.each(request.topics, epoch_ends, _partitions_of)),
    )


def _check_replica(replica_id: int, caller: Caller) -> None:
    """Raise TopicAuthorizationFailed if the replica id is that of a broker that the caller has not proved to be."""
    if replica_id >= 0 and replica_id != caller.broker_id:
        raise TopicAuthorizationFailed(f"Only broker {replica_id} may use replica id {replica_id}.")


def _epoch_end(
    broker: BrokerContext, topic: str, part: OffsetForLeaderPartition, replica_id: int, caller: Caller
) -> EpochEndOffset:
    try:
        _check_replica(replica_id, caller)
        partition = broker.replicas.find(topic, part.partition)
        partition.leader.check_epoch(part.current_leader_epoch)
        known = partition.end_of_epoch(part.leader_epoch)
    except ApiError as error:
        return EpochEndOffset(error_code=error.code, partition=part.partition)
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=part.partition,
        leader_epoch=i32(known.epoch),
        end_offset=i64(known.end_offset),
    )


async def delete_records(
    broker: BrokerContext, request: DeleteRecordsRequest, caller: Caller
) -> deleting.DeleteRecordsResponse:
    """Move the start of logs, and wait for the other replicas to do the same."""
    await open_logs(
        broker, ((topic.name, part.partition_index) for topic in request.topics for part in topic.partitions)
    )
    wanted = [(topic.name, part) for topic in request.topics for part in topic.partitions]
    each = broker.long_answers.each
    moved = await each(wanted, lambda place: _delete_before(broker, *place))
    deadline = asyncio.get_running_loop().time() + request.timeout.total_seconds()
    results_in_order = iter(await _results(broker, wanted, moved, deadline))
    return deleting.DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            deleting.DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(islice(results_in_order, len(topic.partitions)))
            )
            for topic in request.topics
        ),
    )


def _delete_before(broker: BrokerContext, topic: str, part: DeleteRecordsPartition) -> int | ApiError:
    """Where the partition is to begin."""
    try:
        return _new_start(broker, topic, part)
    except ApiError as refusal:
        return refusal


async def _results(
    broker: BrokerContext,
    wanted: Sequence[tuple[str, DeleteRecordsPartition]],
    moved: Sequence[int | ApiError],
    deadline: float,
) -> list[deleting.DeleteRecordsPartitionResult]:
    """What has become of each, when all of them are done or the time is over."""
    results = []
    for number, ((topic, part), offset) in enumerate(zip(wanted, moved, strict=True), 1):
        results.append(await _result(broker, topic, part.partition_index, offset, deadline))
        if number % PART == 0:
            await asyncio.sleep(0)
    return results


async def _result(
    broker: BrokerContext, topic: str, index: i32, offset: int | ApiError, deadline: float
) -> deleting.DeleteRecordsPartitionResult:
    low_watermark, error = UNKNOWN_OFFSET, ErrorCode.none
    try:
        if isinstance(offset, ApiError):
            raise offset
        while (low_watermark := broker.replicas.find(topic, index).low_watermark()) < offset:
            if asyncio.get_running_loop().time() >= deadline:
                error = ErrorCode.request_timed_out
                break
            await asyncio.sleep(_LOOK_AGAIN)
    except ApiError as refusal:
        low_watermark, error = UNKNOWN_OFFSET, refusal.code
    return deleting.DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=i64(low_watermark), error_code=error
    )


def _new_start(broker: BrokerContext, topic: str, part: DeleteRecordsPartition) -> int:
    partition = broker.replicas.find(topic, part.partition_index)
    if topic in INTERNAL_TOPICS:
        raise InvalidTopic(f"Records of the internal topic {topic} cannot be deleted.")
    log, high_watermark = partition.log, partition.leader.high_watermark
    if not log.config.delete:
        raise PolicyViolation(f"Records of {topic} cannot be deleted: its cleanup.policy does not have delete.")
    offset = high_watermark if part.offset == HIGH_WATERMARK else part.offset
    if not 0 <= offset <= high_watermark:
        raise OffsetOutOfRange(
            f"{partition.tp} has records up to offset {high_watermark}; records before {offset} cannot be deleted."
        )
    partition.delete_before(offset)
    return offset
