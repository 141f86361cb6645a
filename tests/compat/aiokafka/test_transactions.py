"""aiokafka with transactions: a loop that reads, processes and writes."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import ProducerFenced

from tests.support.markers import wait_for_markers

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


async def values(bootstrap: str, topic: str) -> list[bytes | None]:
    """What a reader of committed records sees once no transaction is open."""
    await asyncio.to_thread(wait_for_markers, bootstrap, topic)
    place = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", auto_offset_reset="none")
    await consumer.start()
    try:
        consumer.assign([place])
        end = (await consumer.end_offsets([place]))[place]
        consumer.seek(place, 0)
        found: list[bytes | None] = []
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                found += [record.value for record in records]
        return found
    finally:
        await consumer.stop()


async def copy(bootstrap: str, source: str, target: str, name: str) -> dict[TopicPartition, object]:
    """Copy in transactions, one of which is aborted; the offsets that are committed in the end."""
    place = TopicPartition(source, 0)
    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await consumer.start()
    await producer.start()
    try:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(target, b"never seen")
                raise ZeroDivisionError
        async with producer.transaction():
            for number in range(5):
                record = await asyncio.wait_for(consumer.getone(), 30)
                assert record.value == f"{number}".encode()
                await producer.send_and_wait(target, record.value)
            await producer.send_offsets_to_transaction({place: 5}, name)
        async with asyncio.timeout(30):  # the commit is answered before its markers are written, as with Kafka
            while (committed := await consumer.committed(place)) is None:
                await asyncio.sleep(0.01)
        return {place: committed}
    finally:
        await producer.stop()
        await consumer.stop()


async def send(bootstrap: str, topic: str, count: int) -> None:
    """Plain records."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            await producer.send_and_wait(topic, f"{number}".encode())


async def test_records_and_offsets_are_committed_together(bootstrap: str, new_topic: TopicMaker) -> None:
    source, target, name = new_topic(), new_topic(), uuid.uuid4().hex

    await send(bootstrap, source, 5)
    assert await copy(bootstrap, source, target, name) == {TopicPartition(source, 0): 5}
    assert await values(bootstrap, target) == [f"{number}".encode() for number in range(5)]


async def test_a_zombie_is_fenced(bootstrap: str, new_topic: TopicMaker) -> None:
    topic, name = new_topic(), uuid.uuid4().hex

    zombie = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await zombie.start()
    await zombie.begin_transaction()
    await zombie.send_and_wait(topic, b"zombie")
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name) as heir:
        with pytest.raises(ProducerFenced):
            await zombie.send_and_wait(topic, b"after its time")
            await zombie.commit_transaction()
        async with heir.transaction():
            await heir.send_and_wait(topic, b"heir")
    await zombie.stop()
    assert await values(bootstrap, topic) == [b"heir"]
