"""Broker 99, which is only a channel: what a broker without sockets asks another one, and what it is answered."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse
from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse

from barnabas.machines.controller.image import BrokerImage, Endpoint
from barnabas.model.errors import ErrorCode
from barnabas.net.channel import Channel, ChannelOptions
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.wire import codec
from tests.support.wire import build

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from barnabas.broker.context import BrokerContext

OTHER = 99


def other_broker(answer: Callable[[Any], Awaitable[Any]]) -> Callable[[str, int, ChannelOptions], Channel]:
    """Makes channels on which requests, as they go over the wire, are answered by a function."""

    class ToOther(Channel):
        async def ask(
            self,
            key: int,
            version: int,
            body: Sequence[bytes | bytearray | memoryview],
            *,
            flexible: bool,
            seconds: float,
        ) -> memoryview:
            request = codec.decode(ApiKey(key), version, version, memoryview(b"".join(body)), 0)
            return memoryview(codec.encode(ApiKey(key), version, 7, await answer(request)))[8:]

    return ToOther


def move_to_other(broker: BrokerContext, name: str) -> None:
    """Tell a broker, as its controller would, that broker 99 is up and has all partitions of a topic."""
    image = broker.metadata.image
    endpoints = {broker.settings.static.inter_broker_listener: Endpoint("other", 9092)}
    topic = image.topics[name]
    partitions = tuple(
        replace(each, leader=OTHER, leader_epoch=each.leader_epoch + 1, replicas=(OTHER,), isr=(OTHER,))
        for each in topic.partitions
    )
    broker.metadata.replace(
        replace(
            image,
            brokers={**image.brokers, OTHER: BrokerImage(broker_id=OTHER, epoch=5, endpoints=endpoints, rack=None)},
            topics={**image.topics, name: replace(topic, partitions=partitions)},
        )
    )


def added(request: Any, code: ErrorCode = ErrorCode.none) -> Any:
    """The answer to AddPartitionsToTxn, the same for all partitions."""
    return build(
        AddPartitionsToTxnResponse,
        {
            "results_by_transaction": [
                {
                    "transactional_id": each.transactional_id,
                    "topic_results": [
                        {
                            "name": topic.name,
                            "results_by_partition": [
                                {"partition_index": index, "partition_error_code": code} for index in topic.partitions
                            ],
                        }
                        for topic in each.topics
                    ],
                }
                for each in request.transactions
            ]
        },
    )


def marked(request: Any) -> Any:
    """The answer to WriteTxnMarkers: all are written."""
    return build(
        WriteTxnMarkersResponse,
        {
            "markers": [
                {
                    "producer_id": marker.producer_id,
                    "topics": [
                        {
                            "name": topic.name,
                            "partitions": [
                                {"partition_index": index, "error_code": ErrorCode.none}
                                for index in topic.partition_indexes
                            ],
                        }
                        for topic in marker.topics
                    ],
                }
                for marker in request.markers
            ]
        },
    )
