"""DescribeShareGroupOffsets v0–1, AlterShareGroupOffsets v0, DeleteShareGroupOffsets v0: how far share groups are.

The group coordinator answers; the offsets themselves are with the share coordinator, which it asks.

- Describe: start offset and leader epoch of partitions, or of all that have state; v1+ with the lag: messages after the
  start that nobody has dealt with. A partition without state has start offset -1, and that is no error.
- Alter: partitions begin at other offsets, and all that was delivered is forgotten. The group must have no members; one
  that does not exist is made.
- Delete: topics have no state any more, and begin by share.auto.offset.reset when somebody subscribes again. The group
  must have no members.

All are UNSUPPORTED_VERSION while the feature share.version is 0.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kio.schema.alter_share_group_offsets.v0 import response as altering
from kio.schema.delete_share_group_offsets.v0 import response as deleting
from kio.schema.describe_share_group_offsets.v1 import response as describing
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from barnabas.broker.coordinators.share_persister import StatePartition
from barnabas.broker.serving.end_offsets import end_offsets
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.shares.unset import UNINITIALIZED
from barnabas.model.errors import ApiError, ErrorCode, InvalidGroupId, UnknownTopicOrPartition
from barnabas.model.ids import TopicPartition
from barnabas.protocol.coordinator_records.share_state import NOT_COUNTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from kio.schema.alter_share_group_offsets.v0.request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestTopic,
    )
    from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.coordinators.calls import Call
    from barnabas.broker.coordinators.share_persister import StateSummary
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.controller.image import TopicImage
    from barnabas.machines.groups.assignors.spec import Partitions
    from barnabas.machines.groups.coordinator import GroupCoordinator
    from barnabas.machines.groups.share.offsets import StartOffsets
    from barnabas.machines.groups.table import GroupOutcome

UNKNOWN_LAG: Final = -1
ASK_SECONDS: Final = 30.0
"""How long the leader of a partition has to say where it ends."""
UNKNOWN: Final = UnknownTopicOrPartition("This server does not host this topic-partition.")
NO_STATE: Final = "There is no offset information to delete."


# Describe


async def describe_share_group_offsets(
    broker: BrokerContext, request: DescribeShareGroupOffsetsRequest, caller: Caller
) -> describing.DescribeShareGroupOffsetsResponse:
    """Tell how far groups are."""
    broker.groups.check_share_protocol()
    groups = await asyncio.gather(*(_describe_or_failure(broker, group, caller) for group in request.groups))
    return describing.DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


async def _describe_or_failure(
    broker: BrokerContext, group: DescribeShareGroupOffsetsRequestGroup, caller: Caller
) -> describing.DescribeShareGroupOffsetsResponseGroup:
    try:
        topics = await _describe(broker, group, caller)
    except ApiError as error:
        return describing.DescribeShareGroupOffsetsResponseGroup(
            group_id=group.group_id, topics=(), error_code=error.code, error_message=str(error)
        )
    return describing.DescribeShareGroupOffsetsResponseGroup(
        group_id=group.group_id, topics=topics, error_code=ErrorCode.none, error_message=None
    )


async def _describe(
    broker: BrokerContext, group: DescribeShareGroupOffsetsRequestGroup, caller: Caller
) -> tuple[describing.DescribeShareGroupOffsetsResponseTopic, ...]:
    image = broker.metadata.image
    wanted: dict[UUID, frozenset[int]] = {}
    missing = []
    if group.topics is None:
        states: Partitions = await _ask(
            broker,
            group.group_id,
            lambda machine, call, now_ms: machine.shares.initialized_partitions(group.group_id, call, now_ms),
            caller,
            only_reads=True,
        )
        wanted = {topic_id: found for topic_id, found in states.items() if topic_id in image.topic_names}
    for topic in group.topics or ():
        known = image.topic(topic.topic_name)
        if known is None:
            parts = tuple(_described(index) for index in topic.partitions)
            missing.append(_described_topic(topic.topic_name, None, parts))
        else:
            wanted[known.topic_id] = frozenset(topic.partitions)
    summaries = await broker.groups.persister.read_summary(group.group_id, wanted) if wanted else {}
    ends = await _ends(broker, [place for place, summary in summaries.items() if _has_lag(summary)])
    found = [
        _described_topic(
            image.topic_names[topic_id],
            topic_id,
            tuple(_described_with(index, summaries, ends, topic_id) for index in sorted(partitions)),
        )
        for topic_id, partitions in wanted.items()
    ]
    return (*found, *missing)


def _has_lag(summary: StateSummary) -> bool:
    """Whether what is known of a partition is enough to count the messages that are left."""
    return (
        summary.error_code is ErrorCode.none
        and summary.start_offset != UNINITIALIZED
        and summary.delivery_complete_count != NOT_COUNTED
    )


def _described_with(
    index: int,
    summaries: Mapping[StatePartition, StateSummary],
    ends: Mapping[StatePartition, int | ErrorCode],
    topic_id: UUID,
) -> describing.DescribeShareGroupOffsetsResponsePartition:
    place = StatePartition(topic_id, index)
    summary = summaries[place]
    if summary.error_code is not ErrorCode.none:  # there is nothing, and that is no error
        return _described(index)
    end = ends.get(place)
    if isinstance(end, ErrorCode):
        return _described(index, start_offset=0, error_code=end)
    lag = UNKNOWN_LAG if end is None else end - summary.start_offset - summary.delivery_complete_count
    return _described(index, start_offset=summary.start_offset, leader_epoch=summary.leader_epoch, lag=lag)


def _described(
    index: int,
    *,
    start_offset: int = UNINITIALIZED,
    leader_epoch: int = 0,
    lag: int = UNKNOWN_LAG,
    error_code: ErrorCode = ErrorCode.none,
) -> describing.DescribeShareGroupOffsetsResponsePartition:
    return describing.DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(index),
        start_offset=i64(start_offset),
        leader_epoch=i32(leader_epoch),
        lag=i64(lag),
        error_code=error_code,
        error_message=None,
    )


def _described_topic(
    name: str, topic_id: UUID | None, partitions: tuple[describing.DescribeShareGroupOffsetsResponsePartition, ...]
) -> describing.DescribeShareGroupOffsetsResponseTopic:
    return describing.DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(name), topic_id=topic_id, partitions=partitions
    )


async def _ends(broker: BrokerContext, places: Iterable[StatePartition]) -> dict[StatePartition, int | ErrorCode]:
    """Where partitions end for their readers, as their leaders say."""
    by_leader: dict[int, dict[TopicPartition, StatePartition]] = {}
    ends: dict[StatePartition, int | ErrorCode] = {}
    image = broker.metadata.image
    for place in places:
        name = image.topic_names.get(place.topic_id)
        partition = None if name is None else image.partition(name, place.partition)
        if name is None or partition is None or partition.leader < 0:
            ends[place] = ErrorCode.leader_not_available
        else:
            by_leader.setdefault(partition.leader, {})[TopicPartition(name, place.partition)] = place
    answers = await asyncio.gather(
        *(
            end_offsets(broker, leader, mine, seconds=ASK_SECONDS, purpose="offsets")
            for leader, mine in by_leader.items()
        )
    )
    for answer, mine in zip(answers, by_leader.values(), strict=True):
        ends |= {place: answer.get(tp, ErrorCode.unknown_topic_or_partition) for tp, place in mine.items()}
    return ends


# Alter


async def alter_share_group_offsets(
    broker: BrokerContext, request: AlterShareGroupOffsetsRequest, caller: Caller
) -> altering.AlterShareGroupOffsetsResponse:
    """Let partitions of a group begin at other offsets."""
    broker.groups.check_share_protocol()
    image = broker.metadata.image
    offsets: dict[UUID, dict[int, int]] = {
        topic.topic_id: {
            part.partition_index: part.start_offset
            for part in asked.partitions
            if 0 <= part.partition_index < len(topic.partitions)
        }
        for asked in request.topics
        if (topic := image.topic(asked.topic_name)) is not None
    }
    codes = await _alter(broker, request.group_id, {topic: found for topic, found in offsets.items() if found}, caller)
    return altering.AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(_altered(topic, image.topic(topic.topic_name), codes) for topic in request.topics),
    )


async def _alter(
    broker: BrokerContext, group_id: str, offsets: StartOffsets, caller: Caller
) -> Mapping[StatePartition, ErrorCode]:
    wanted = await _ask(
        broker, group_id, lambda machine, call, now_ms: machine.shares.alter(group_id, offsets, call, now_ms), caller
    )
    return await broker.groups.initialize_states(wanted) if offsets else {}


def _altered(
    asked: AlterShareGroupOffsetsRequestTopic, topic: TopicImage | None, codes: Mapping[StatePartition, ErrorCode]
) -> altering.AlterShareGroupOffsetsResponseTopic:
    topic_id = None if topic is None else topic.topic_id

    def result(index: int) -> altering.AlterShareGroupOffsetsResponsePartition:
        code = UNKNOWN.code if topic_id is None else codes.get(StatePartition(topic_id, index), UNKNOWN.code)
        return altering.AlterShareGroupOffsetsResponsePartition(
            partition_index=i32(index), error_code=code, error_message=str(UNKNOWN) if code is UNKNOWN.code else None
        )

    return altering.AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=topic_id,
        partitions=tuple(result(part.partition_index) for part in asked.partitions),
    )


# Delete


async def delete_share_group_offsets(
    broker: BrokerContext, request: DeleteShareGroupOffsetsRequest, caller: Caller
) -> deleting.DeleteShareGroupOffsetsResponse:
    """Forget how far a group is with topics."""
    broker.groups.check_share_protocol()
    image = broker.metadata.image
    group_id = request.group_id
    topics = [topic for asked in request.topics if (topic := image.topic(asked.topic_name)) is not None]
    wanted = await _ask(
        broker,
        group_id,
        lambda machine, call, now_ms: machine.shares.begin_delete(group_id, topics, call, now_ms),
        caller,
    )
    codes = await broker.groups.persister.delete(*wanted) if wanted.partitions else {}
    errors = {topic_id: _first_error(codes, topic_id) for topic_id in wanted.partitions}
    done = {topic_id for topic_id, code in errors.items() if code is ErrorCode.none}
    if done:
        await _ask(
            broker,
            group_id,
            lambda machine, call, now_ms: machine.shares.complete_delete(group_id, done, call, now_ms),
            caller,
        )
    return deleting.DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(_deleted(asked.topic_name, image.topic(asked.topic_name), errors) for asked in request.topics),
    )


def _first_error(codes: Mapping[StatePartition, ErrorCode], topic_id: UUID) -> ErrorCode:
    found = (code for place, code in codes.items() if place.topic_id == topic_id)
    return next((code for code in found if code is not ErrorCode.none), ErrorCode.none)


def _deleted(
    name: TopicName, topic: TopicImage | None, errors: Mapping[UUID, ErrorCode]
) -> deleting.DeleteShareGroupOffsetsResponseTopic:
    if topic is None or topic.topic_id not in errors:
        message = str(UNKNOWN) if topic is None else NO_STATE
        return deleting.DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, topic_id=None, error_code=UNKNOWN.code, error_message=message
        )
    code = errors[topic.topic_id]
    return deleting.DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic.topic_id,
        error_code=code,
        error_message=None if code is ErrorCode.none else code.name,
    )


async def _ask(
    broker: BrokerContext,
    group_id: str,
    decide: Callable[[GroupCoordinator, Call[Any], int], GroupOutcome],
    caller: Caller,
    *,
    only_reads: bool = False,
) -> Any:
    """What a group's coordinator answers. Raises ApiError."""
    if not group_id:
        raise InvalidGroupId("The group id must not be empty.")
    found = broker.groups.ask(group_id, decide, caller, 0, lambda error: error, only_reads=only_reads)
    answer = await found if asyncio.isfuture(found) else found
    if isinstance(answer, ApiError):
        raise answer
    return answer
