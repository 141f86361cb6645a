"""AddPartitionsToTxn: up to version 3 of a client with one transaction, from version 4 on of a broker with many.

Handlers know the newest form. `up` makes it of an older request; `down` makes an older answer of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32

from barnabas.protocol.wire.conversion import convert

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.model.ids import TopicPartition

BATCHED_SINCE: Final = 4


def up(request: Any, version: int) -> Any:
    """The request as one with a list of transactions."""
    if version >= BATCHED_SINCE:
        return request
    return AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=tuple(
                    AddPartitionsToTxnTopic(name=topic.name, partitions=topic.partitions)
                    for topic in request.v3_and_below_topics
                ),
            ),
        )
    )


def down(response: Any, version: int) -> Any:
    """The answer for the one transaction of an older request."""
    if version >= BATCHED_SINCE:
        return response
    from kio.schema.add_partitions_to_txn.v3.response import AddPartitionsToTxnResponse, AddPartitionsToTxnTopicResult

    results = (topic for result in response.results_by_transaction for topic in result.topic_results)
    return AddPartitionsToTxnResponse(
        throttle_time=response.throttle_time,
        results_by_topic_v3_and_below=tuple(convert(topic, AddPartitionsToTxnTopicResult) for topic in results),
    )


def transaction(
    transactional_id: str, producer: tuple[int, int], partitions: Collection[TopicPartition], verify_only: bool
) -> AddPartitionsToTxnTransaction:
    """What a broker asks a coordinator for one transaction."""
    topics: dict[str, list[i32]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(i32(index))
    return AddPartitionsToTxnTransaction(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer[0]),
        producer_epoch=i16(producer[1]),
        verify_only=verify_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=TopicName(name), partitions=tuple(indexes)) for name, indexes in topics.items()
        ),
    )
