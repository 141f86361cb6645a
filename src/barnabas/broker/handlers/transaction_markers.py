"""WriteTxnMarkers v1–2: another broker's coordinator ends transactions in partitions that this broker leads.

Also `kafka-transactions.sh --abort` asks this, to end a transaction that no coordinator knows any more. A partition
that is not led here is told as such, and the coordinator asks whoever leads it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from barnabas.broker.partition import Marker
from barnabas.machines.transactions.steps import EPOCH_BUMPS_SINCE
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest

    from barnabas.broker.caller import Caller
    from barnabas.broker.context import Broker
    from barnabas.model.errors import ApiError

    Waiting = dict[tuple[str, int], asyncio.Future[ErrorCode]]
    """What becomes of a marker in each partition."""


async def write_txn_markers(broker: Broker, request: WriteTxnMarkersRequest, caller: Caller) -> WriteTxnMarkersResponse:
    """Write all markers; the answer waits until they are committed."""
    begun = [_write(broker, each) for each in request.markers]
    results = [await _result(asked, waiting) for asked, waiting in zip(request.markers, begun, strict=True)]
    return WriteTxnMarkersResponse(markers=tuple(results))


def _write(broker: Broker, asked: WritableTxnMarker) -> Waiting:
    bumped = asked.transaction_version >= EPOCH_BUMPS_SINCE
    marker = Marker(asked.producer_id, asked.producer_epoch, asked.coordinator_epoch, asked.transaction_result, bumped)
    return {
        (topic.name, index): _begin(broker, TopicPartition(topic.name, index), marker)
        for topic in asked.topics
        for index in topic.partition_indexes
    }


async def _result(asked: WritableTxnMarker, waiting: Waiting) -> WritableTxnMarkerResult:
    codes = {place: await future for place, future in waiting.items()}
    return WritableTxnMarkerResult(
        producer_id=asked.producer_id,
        topics=tuple(
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=tuple(
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                    for index in topic.partition_indexes
                ),
            )
            for topic in asked.topics
        ),
    )


def _begin(broker: Broker, tp: TopicPartition, marker: Marker) -> asyncio.Future[ErrorCode]:
    future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

    def done(error: ApiError | None) -> None:
        if not future.done():
            future.set_result(ErrorCode.none if error is None else error.code)

    broker.transactions.writer.write(tp, marker, done)
    return future
