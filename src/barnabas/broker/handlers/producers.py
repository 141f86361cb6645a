"""InitProducerId v0–5 and DescribeProducers v0: ids for producers, and what logs remember of them.

InitProducerId
- Without a transactional id every request gets a fresh producer id with epoch 0, also when it names an old one (v3+).
- A producer id without epoch, or an epoch without producer id, is an INVALID_REQUEST; so is an empty transactional id.
- With a transactional id its coordinator decides: the id's producer id with the next epoch. If the producer before has
  left a transaction open, it is aborted first, and the client must try again (CONCURRENT_TRANSACTIONS).
- v3+: a producer that sends its id and epoch can go on after an error, unless it was fenced (PRODUCER_FENCED; before v4
  INVALID_PRODUCER_EPOCH).

DescribeProducers
- The producers of each partition that this broker leads: epoch, last sequence, last timestamp, where an open
  transaction began. A partition that is named twice is described once.

Not implemented: two-phase commit (v6).
"""

from __future__ import annotations

from asyncio import isfuture
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32, i64

from barnabas.broker.replication.cold_logs import open_logs
from barnabas.broker.serving.long_answers import PART
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.names import check_name
from barnabas.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
    from kio.schema.types import TopicName

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.storage.log.log import Log

INIT_FENCED_SINCE: Final = 4
"""The version of InitProducerId from which on clients know PRODUCER_FENCED."""
NONE: Final = -1
"""No producer id, no epoch."""


async def init_producer_id(
    broker: BrokerContext, request: InitProducerIdRequest, caller: Caller, version: int
) -> InitProducerIdResponse:
    """Give out a producer id, and to a transactional producer the epoch that fences the one before it."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return _refusal(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return await _init_transactional(broker, request, version)
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(await broker.producer_ids.next()),
        producer_epoch=i16(0),
    )


async def _init_transactional(
    broker: BrokerContext, request: InitProducerIdRequest, version: int
) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    assert transactional_id is not None
    try:
        machine = broker.transactions.runtime.find(transactional_id).machine
    except ApiError as error:
        return _refusal(error.code)
    is_known = machine is not None and not machine.needs_producer_id(transactional_id)
    fresh_id = NONE if is_known else await broker.producer_ids.next()
    answer = broker.transactions.ask(
        transactional_id,
        lambda machine, call, now_ms: machine.init_producer_id(request, fresh_id, call, now_ms),
        version,
        lambda error: _refusal(error.code),
    )
    response: InitProducerIdResponse = await answer if isfuture(answer) else answer
    if version < INIT_FENCED_SINCE and response.error_code is ErrorCode.producer_fenced:
        return replace(response, error_code=ErrorCode.invalid_producer_epoch)
    return response


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time=NO_THROTTLE, error_code=code, producer_epoch=i16(NONE))


async def describe_producers(
    broker: BrokerContext, request: DescribeProducersRequest, caller: Caller
) -> DescribeProducersResponse:
    """Describe the producers of partitions."""
    topics: dict[TopicName, dict[i32, None]] = {}
    for topic in request.topics:
        topics.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    asked = [(name, index) for name, indexes in topics.items() for index in indexes]
    await open_logs(broker, asked)
    each = broker.long_answers.each
    found = await each(asked, lambda partition: _known_producers(broker, *partition))
    states: list[list[ProducerState]] = [[] for _ in asked]
    parts = (
        (known[0], known[1][start : start + PART], states[number])
        for number, known in enumerate(found)
        if not isinstance(known, ApiError)
        for start in range(0, len(known[1]), PART)
    )
    await each(parts, lambda part: part[2].extend(_states(part[0], part[1])), lambda part: len(part[1]))
    told = iter(
        await each(zip(asked, found, states, strict=True), lambda one: _partition_response(one[0][1], one[1], one[2]))
    )
    return DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicResponse(name=name, partitions=tuple(islice(told, len(indexes)))) for name, indexes in topics.items()
        ),
    )


def _known_producers(broker: BrokerContext, topic: str, index: i32) -> tuple[Log, list[int]] | ApiError:
    """A partition's log and the ids of its producers, or why they cannot be told."""
    try:
        check_name(topic)
        log = broker.replicas.find(topic, index).log
        return log, log.producers.ids()
    except ApiError as error:
        return error


def _partition_response(index: i32, known: object, states: Sequence[ProducerState]) -> PartitionResponse:
    if isinstance(known, ApiError):
        return PartitionResponse(
            partition_index=index, error_code=known.code, error_message=str(known), active_producers=()
        )
    return PartitionResponse(partition_index=index, error_code=ErrorCode.none, active_producers=tuple(states))


def _states(log: Log, producer_ids: Iterable[int]) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=i32(producer.producer_epoch),
            last_sequence=i32(producer.last_sequence),
            last_timestamp=i64(producer.last_timestamp),
            coordinator_epoch=i32(producer.coordinator_epoch),
            current_txn_start_offset=i64(producer.current_txn_start_offset),
        )
        for producer in log.producers.describe(producer_ids)
    ]
