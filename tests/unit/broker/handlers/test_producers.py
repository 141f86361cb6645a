"""InitProducerId and DescribeProducers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest

from barnabas.broker.coordinators.producer_ids import ProducerIdSource
from barnabas.broker.handlers.producers import describe_producers, init_producer_id
from barnabas.metadata.znodes import ProducerIds
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire.conversion import zero
from tests.support.images import CALLER, ClusterOf, telling_broker
from tests.support.parts import append, make_topic, running_parts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

T = TypeVar("T")


class Blocks:
    """Blocks of two ids."""

    def __init__(self) -> None:
        self.given = 0

    async def allocate(self) -> ProducerIds:
        await asyncio.sleep(0)
        self.given += 1
        return ProducerIds(self.given * 10, 2)


async def test_ids_are_unique_though_many_ask_at_once() -> None:
    blocks = Blocks()

    async def run() -> list[int]:
        source = ProducerIdSource(blocks.allocate)
        return await asyncio.gather(*(source.next() for _ in range(5)))

    assert await run() == [10, 11, 20, 21, 30]
    assert blocks.given == 3


async def init(**values: Any) -> tuple[ErrorCode, int, int]:
    async def run() -> tuple[ErrorCode, int, int]:
        broker = telling_broker(ClusterOf(), producer_ids=ProducerIdSource(Blocks().allocate))
        request = zero(InitProducerIdRequest, **({"transaction_timeout": timedelta(minutes=1)} | values))
        response = await init_producer_id(broker, request, CALLER, 5)
        return response.error_code, response.producer_id, response.producer_epoch

    return await run()


class TestInitProducerId:
    async def test_every_producer_gets_a_fresh_id(self) -> None:
        assert await init() == (ErrorCode.none, 10, 0)
        assert await init(producer_id=3, producer_epoch=7) == (ErrorCode.none, 10, 0)

    @pytest.mark.parametrize(
        ("values", "error"),
        [
            ({"producer_id": 3}, ErrorCode.invalid_request),
            ({"producer_epoch": 3}, ErrorCode.invalid_request),
            ({"transactional_id": ""}, ErrorCode.invalid_request),
        ],
        ids=str,
    )
    async def test_what_is_refused(self, values: dict[str, Any], error: ErrorCode) -> None:
        assert await init(**values) == (error, -1, -1)


async def on_broker(directory: Path, use: Callable[[BrokerContext], Awaitable[T]]) -> T:
    async def run() -> T:
        async with running_parts(directory) as broker:
            return await use(broker)

    return await run()


async def describe(broker: BrokerContext, topic: str, *indexes: int) -> list[Any]:
    request = zero(DescribeProducersRequest, topics=(zero(TopicRequest, name=topic, partition_indexes=indexes),))
    (told,) = (await describe_producers(broker, request, CALLER)).topics
    assert [part.partition_index for part in told.partitions] == list(indexes)
    return list(told.partitions)


class TestDescribeProducers:
    async def test_who_wrote_to_a_partition(self, tmp_path: Path) -> None:
        async def write(broker: BrokerContext) -> None:
            await make_topic(broker, "a", 2)
            now = broker.clock.now_ms()
            append(broker.replicas.find("a", 0), [now, now + 5], producer_id=5, producer_epoch=1, base_sequence=0)
            append(broker.replicas.find("a", 0), [now])

        async def read(broker: BrokerContext) -> None:
            written, empty = await describe(broker, "a", 0, 1)
            (producer,) = written.active_producers
            assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 1, 1)
            assert producer.last_timestamp == broker.clock.now_ms() + 5
            assert producer.current_txn_start_offset == -1
            assert (empty.error_code, empty.active_producers) == (ErrorCode.none, ())

        await on_broker(tmp_path, write)
        await on_broker(tmp_path, read)

    async def test_partitions_that_are_not_there(self, tmp_path: Path) -> None:
        async def use(broker: BrokerContext) -> None:
            await make_topic(broker, "a")
            assert (await describe(broker, "a", 9))[0].error_code is ErrorCode.unknown_topic_or_partition
            assert (await describe(broker, "nope", 0))[0].error_code is ErrorCode.unknown_topic_or_partition
            assert (await describe(broker, "no pe", 0))[0].error_code is ErrorCode.invalid_topic_exception

        await on_broker(tmp_path, use)
