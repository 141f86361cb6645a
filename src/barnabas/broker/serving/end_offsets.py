"""Where partitions end for their readers, as their leaders say, whichever brokers these are."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kio.schema.list_offsets.v11.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from barnabas.broker.serving.asking import ask
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.list_offsets import LATEST
from barnabas.protocol.wire.conversion import zero

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.broker.context import BrokerContext


async def end_offsets(
    broker: BrokerContext, leader: int, partitions: Collection[TopicPartition], *, seconds: float, purpose: str
) -> Mapping[TopicPartition, int | ErrorCode]:
    """The high watermarks of partitions, as the broker says that leads them."""
    names: dict[str, list[int]] = {}
    for tp in partitions:
        names.setdefault(tp.topic, []).append(tp.partition)
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=tuple(
            ListOffsetsTopic(
                name=TopicName(name),
                partitions=tuple(
                    zero(ListOffsetsPartition, partition_index=i32(index), timestamp=i64(LATEST)) for index in indexes
                ),
            )
            for name, indexes in names.items()
        ),
        timeout=i32Timedelta.parse(timedelta(seconds=seconds)),
    )
    try:
        response: ListOffsetsResponse = await ask(
            broker, leader, request, ListOffsetsResponse, seconds=seconds, purpose=purpose
        )
    except ChannelBroken:
        return dict.fromkeys(partitions, ErrorCode.network_exception)
    return {
        TopicPartition(topic.name, part.partition_index): part.offset
        if part.error_code is ErrorCode.none
        else part.error_code
        for topic in response.topics
        for part in topic.partitions
    }
