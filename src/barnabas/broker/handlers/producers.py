"""InitProducerId v0–5 and DescribeProducers v0: ids for producers, and what logs remember of them.

InitProducerId
- Without a transactional id every request gets a fresh producer id with epoch 0, also when it names an old one (v3+).
- A producer id without epoch, or an epoch without producer id, is an INVALID_REQUEST; so is an empty transactional id.
- With a transactional id its coordinator decides: the id's producer id with the next epoch. If the producer before has
  left a transaction open, that is aborted first, and the client is told to come again (CONCURRENT_TRANSACTIONS).
- v3+: a producer that says who it is goes on after an error, if nobody took its place (PRODUCER_FENCED; before v4
  INVALID_PRODUCER_EPOCH).

DescribeProducers
- The producers of each partition that this broker leads: epoch, last sequence, last timestamp, where an open
  transaction began.
"""

from __future__ import annotations

from asyncio import isfuture
from dataclasses import replace
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

from barnabas.broker.cold_logs import open_logs
from barnabas.broker.throttle import NO_THROTTLE
from barnabas.machines.controller.names import check_name
from barnabas.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from kio.schema.describe_producers.v0.request import DescribeProducersRequest
    from kio.schema.init_producer_id.v5.request import InitProducerIdRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker

FENCED_SINCE: Final = 4
"""The version of InitProducerId from which on clients know PRODUCER_FENCED."""
NONE: Final = -1
"""No producer id, no epoch."""


async def init_producer_id(
    broker: Broker, request: InitProducerIdRequest, caller: Caller, version: int
) -> InitProducerIdResponse:
    """Give out a producer id, and to a transactional producer the epoch that fences the one before it."""
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return _refused(ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return await _init_transactional(broker, request, version)
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(await broker.producer_ids.next()),
        producer_epoch=i16(0),
    )


async def _init_transactional(broker: Broker, request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    transactional_id = request.transactional_id
    assert transactional_id is not None
    try:
        machine = broker.transactions.runtime.find(transactional_id).machine
    except ApiError as error:
        return _refused(error.code)
    is_known = machine is not None and not machine.needs_producer_id(transactional_id)
    fresh_id = NONE if is_known else await broker.producer_ids.next()
    answer = broker.transactions.ask(
        transactional_id,
        lambda machine, call, now_ms: machine.init_producer_id(request, fresh_id, call, now_ms),
        version,
        lambda error: _refused(error.code),
    )
    response: InitProducerIdResponse = await answer if isfuture(answer) else answer
    if version < FENCED_SINCE and response.error_code is ErrorCode.producer_fenced:
        return replace(response, error_code=ErrorCode.invalid_producer_epoch)
    return response


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(throttle_time=NO_THROTTLE, error_code=code, producer_epoch=i16(NONE))


async def describe_producers(
    broker: Broker, request: DescribeProducersRequest, caller: Caller
) -> DescribeProducersResponse:
    """Tell who writes."""
    await open_logs(broker, ((topic.name, index) for topic in request.topics for index in topic.partition_indexes))
    return DescribeProducersResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(_partition(broker, topic.name, index) for index in topic.partition_indexes),
            )
            for topic in request.topics
        ),
    )


def _partition(broker: Broker, topic: str, index: i32) -> PartitionResponse:
    try:
        check_name(topic)
        log = broker.replicas.find(topic, index).log
    except ApiError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=str(error), active_producers=()
        )
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.none,
        active_producers=tuple(
            ProducerState(
                producer_id=ProducerId(producer.producer_id),
                producer_epoch=i32(producer.producer_epoch),
                last_sequence=i32(producer.last_sequence),
                last_timestamp=i64(producer.last_timestamp),
                coordinator_epoch=i32(producer.coordinator_epoch),
                current_txn_start_offset=i64(producer.current_txn_start_offset),
            )
            for producer in log.producers()
        ),
    )
