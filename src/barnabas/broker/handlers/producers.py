"""InitProducerId v0–5 and DescribeProducers v0: ids for idempotent producers, and what logs remember of them.

InitProducerId
- Without a transactional id every request gets a fresh producer id with epoch 0, also when it names an old one (v3+).
- A producer id without epoch, or an epoch without producer id, is an INVALID_REQUEST; so is an empty transactional id.
- With a transactional id: COORDINATOR_NOT_AVAILABLE. Clients look for the coordinator first and are told there what to
  do, so few get here.

DescribeProducers
- The producers of each partition that this broker leads: epoch, last sequence, last timestamp.

Not implemented: transactions.
"""

from __future__ import annotations

from datetime import timedelta
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

NONE: Final = -1
"""No producer id, no epoch."""


async def init_producer_id(broker: Broker, request: InitProducerIdRequest, caller: Caller) -> InitProducerIdResponse:
    """Give out a producer id."""
    error = _refusal(request)
    if error is not None:
        return InitProducerIdResponse(throttle_time=NO_THROTTLE, error_code=error, producer_epoch=i16(NONE))
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(await broker.producer_ids.next()),
        producer_epoch=i16(0),
    )


def _refusal(request: InitProducerIdRequest) -> ErrorCode | None:
    if (request.producer_id == NONE) != (request.producer_epoch == NONE) or request.transactional_id == "":
        return ErrorCode.invalid_request
    if request.transactional_id is None:
        return None
    if request.transaction_timeout <= timedelta(0):
        return ErrorCode.invalid_transaction_timeout
    return ErrorCode.coordinator_not_available


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
