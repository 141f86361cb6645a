"""aiokafka's admin client, which speaks old versions of the admin APIs."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.compat.conftest import TopicMaker


@asynccontextmanager
async def admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def reached(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.02)


async def configs(client: AIOKafkaAdminClient, topic: str) -> dict[str, Any]:
    [response] = await client.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    [(error, _, _, _, entries)] = response.resources
    assert error == 0
    return {entry[0]: entry[1] for entry in entries}


async def test_a_topic_is_made_described_grown_and_deleted(bootstrap: str, unused_topic: str) -> None:
    async with admin(bootstrap) as client:
        made = await client.create_topics([NewTopic(unused_topic, 2, 1, topic_configs={"segment.ms": "70000"})])
        assert [(topic, error) for topic, error, *_ in made.topic_errors] == [(unused_topic, 0)]
        again = await client.create_topics([NewTopic(unused_topic, 2, 1)])
        assert [error for _, error, *_ in again.topic_errors] == [36]

        async def partitions(count: int) -> bool:
            [described] = await client.describe_topics([unused_topic])
            return len(described["partitions"]) == count

        await reached(lambda: partitions(2))
        assert unused_topic in await client.list_topics()
        grown = await client.create_partitions({unused_topic: NewPartitions(4)})
        assert [error for _, error, *_ in grown.topic_errors] == [0]
        await reached(lambda: partitions(4))
        gone = await client.delete_topics([unused_topic])
        assert [error for _, error, *_ in gone.topic_error_codes] == [0]

        async def is_gone() -> bool:
            return unused_topic not in await client.list_topics()

        await reached(is_gone)


async def test_configs_are_described_and_altered(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(1, {"retention.ms": "5000000"})

    async with admin(bootstrap) as client:
        assert (await configs(client, topic))["retention.ms"] == "5000000"
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "80000"})
        [response] = await client.alter_configs([resource])
        assert [resource[0] for resource in response.resources] == [0]

        async def altered() -> bool:
            found = await configs(client, topic)
            return (found["segment.ms"], found["retention.ms"]) == ("80000", "604800000")

        await reached(altered)


async def test_records_are_deleted(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()

    async with admin(bootstrap) as client:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(20):
                await producer.send_and_wait(topic, b"x", partition=0)
        place = TopicPartition(topic, 0)
        assert await client.delete_records({place: RecordsToDelete(before_offset=7)}) == {place: 7}
