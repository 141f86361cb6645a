"""The clients for asyncio: the same meaning as the others, and the event loop is never held up."""

from __future__ import annotations

import asyncio
import signal
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from barnabas.clients.aio import producer as aio_producer
from barnabas.clients.aio.producer import AsyncDelivery
from barnabas.clients.errors import BufferFull, ClientClosed, InvalidClientConfig, NotDelivered, RequestRefused
from barnabas.clients.partitioners import RoundRobin
from barnabas.clients.records import RecordMetadata, TopicPartition
from barnabas.clients.semantics import at_least_once, at_most_once, stored_with_result
from barnabas.clients.serializers import JSON
from tests.support.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import FrameType


async def write(bootstrap: str, topic: str, count: int = 100) -> None:
    async with AsyncProducer(bootstrap) as producer:
        for number in range(count):
            await producer.send(topic, str(number), partition=number % 4)


async def test_records_go_there_and_come_back(bootstrap: str, topic: str) -> None:
    async with AsyncProducer[Any, Any](bootstrap, value_serializer=JSON, linger=0) as producer:
        delivery = await producer.send(topic, {"n": 1}, "key", partition=2, headers={"a": "b"}, timestamp=5_000)
        sent = await delivery
        assert (sent.topic, sent.partition, sent.offset, sent.timestamp) == (topic, 2, 0, 5_000)
    async with AsyncConsumer[bytes, Any](
        bootstrap, topic, auto_offset_reset="earliest", value_deserializer=JSON
    ) as consumer:
        (record,) = [record async for record in consumer.until_end()]
    assert (record.key, record.value, record.headers) == (b"key", {"n": 1}, (("a", b"b"),))


async def test_many_deliveries_are_awaited_together(bootstrap: str, topic: str) -> None:
    async with AsyncProducer(bootstrap, buffer_messages=500, partitioner=RoundRobin()) as producer:
        sent = [await producer.send(topic, "x" * 100) for _ in range(3000)]
        places = {(found.partition, found.offset) for found in await asyncio.gather(*sent)}
    assert places == {(partition, offset) for partition in range(4) for offset in range(750)}


async def test_callbacks_run_in_the_event_loop(bootstrap: str, topic: str) -> None:
    told: asyncio.Queue[Any] = asyncio.Queue()
    async with AsyncProducer(bootstrap, linger=0) as producer:
        delivery = await producer.send(topic, "x", on_delivery=told.put_nowait)
        assert await told.get() is delivery


async def test_the_loop_goes_on_while_clients_wait(bootstrap: str, topic: str) -> None:
    """A clock goes on that ticks every 10 ms, while a consumer waits for records and while a buffer is full.

    Each waits again and again if need be: a machine that is busy with something else holds the clock up, too.
    """

    ticks = 0

    async def clock() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(clock())

    async def goes_on(wait: Callable[[], Awaitable[None]]) -> bool:
        for _ in range(20):
            before = ticks
            await wait()
            if ticks > before + 3:
                return True
        return False

    async with AsyncConsumer(bootstrap, topic) as consumer:

        async def for_records() -> None:
            assert await consumer.poll(0.5) == []

        assert await goes_on(for_records)
    producer = AsyncProducer(f"127.0.0.1:{free_port()}", buffer_messages=1, max_block=0.5, log_level=0)
    await producer.send("t", "x")

    async def for_room() -> None:
        with pytest.raises(BufferFull):
            await producer.send("t", "x")

    assert await goes_on(for_room)
    with pytest.raises(NotDelivered):
        await producer.close(0)
    ticking.cancel()


async def test_failures_that_nobody_awaited_are_raised_at_the_end() -> None:
    producer = AsyncProducer(f"127.0.0.1:{free_port()}", delivery_timeout=0.05, linger=0, log_level=0)
    await producer.send("t", "unseen")
    awaited = await producer.send("t", "seen")
    with pytest.raises(Exception, match="no broker answered in time"):
        await awaited
    with pytest.raises(NotDelivered) as caught:
        await producer.flush()
    assert caught.value.count == 1
    await producer.close()
    with pytest.raises(ClientClosed):
        await producer.send("t", "late")


async def test_discarded_records_are_told() -> None:
    producer = AsyncProducer(f"127.0.0.1:{free_port()}", buffer_messages=1, when_full="discard", log_level=0)
    await producer.send("t", "kept")
    told: asyncio.Queue[Any] = asyncio.Queue()
    discarded = await producer.send("t", "x", on_delivery=told.put_nowait)
    assert await told.get() is discarded
    with pytest.raises(BufferFull):
        await discarded
    with pytest.raises(NotDelivered) as caught:
        await producer.close(0)
    assert caught.value.count == 1


async def test_positions_seeks_and_pauses(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic)
    first = TopicPartition(topic, 0)
    async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
        await consumer.assign({first: 20})
        assert [record.offset for record in await consumer.poll(30)] == [20, 21, 22, 23, 24]
        assert await consumer.position(first) == 25
        assert await consumer.ends(first) == (0, 25)
        await consumer.seek(first, 24)
        await consumer.pause(first)
        assert await consumer.poll(0.2) == []
        await consumer.resume()
        assert [record.offset for record in await consumer.poll(30)] == [24]
        await consumer.seek_to_beginning()
        assert (await consumer.poll(30))[0].offset == 0
        assert await consumer.seek_to_time(0) == {first: 0}
        with pytest.raises(InvalidClientConfig, match="needs a group"):
            await consumer.commit()


async def test_groups_commit_and_go_on(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic)
    group = uuid.uuid4().hex
    came: list[TopicPartition] = []

    async def on_assign(partitions: list[TopicPartition]) -> None:
        assert await consumer.committed(*partitions) == dict.fromkeys(partitions)
        came.extend(partitions)

    async with AsyncConsumer(bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe(topic, on_assign=on_assign)
        read = 0
        async for _ in consumer:
            read += 1
            if read == 30:
                consumer.done()
                break
    assert sorted(came) == [TopicPartition(topic, number) for number in range(4)]
    async with AsyncConsumer(
        bootstrap, topic, group_id=group, auto_offset_reset="earliest", auto_commit=False
    ) as consumer:
        assert len([record async for record in consumer.until_end()]) == 70
        await consumer.commit()
        assert set((await consumer.committed()).values()) == {25}


async def test_what_was_in_hand_is_read_again(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic)
    group = uuid.uuid4().hex
    settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest"}
    with pytest.raises(ZeroDivisionError):
        async with AsyncConsumer(bootstrap, topic, **settings) as consumer:
            read = 0
            async for _ in consumer:
                read += 1
                if read == 8:
                    raise ZeroDivisionError
    async with AsyncConsumer(bootstrap, **settings) as consumer:
        committed = await consumer.committed(*await consumer.partitions(topic))
    assert sum(offset or 0 for offset in committed.values()) == 7


async def test_the_helpers_work_with_async_for(bootstrap: str, topic: str) -> None:
    await write(bootstrap, topic, 20)
    for helper, done in ((at_most_once, 5), (at_least_once, 4)):
        group = uuid.uuid4().hex
        settings: dict[str, Any] = {"group_id": group, "auto_offset_reset": "earliest", "auto_commit": False}
        async with AsyncConsumer(bootstrap, topic, **settings) as consumer:
            read = 0
            records = helper(consumer, 1) if helper is at_most_once else helper(consumer, 0)
            async for _ in records:
                read += 1
                if read == 5:
                    break
        async with AsyncConsumer(bootstrap, **settings) as consumer:
            committed = await consumer.committed(*await consumer.partitions(topic))
        assert sum(offset or 0 for offset in committed.values()) == done
    async with AsyncConsumer(bootstrap) as consumer:
        read = 0
        async for record in stored_with_result(consumer, topic, lambda partition: 3):
            assert record.offset >= 3
            read += 1
            if read == 8:
                break


async def test_a_cancelled_wait_leaves_the_consumer_usable(bootstrap: str, topic: str) -> None:
    async with AsyncConsumer(bootstrap, topic, auto_offset_reset="earliest") as consumer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                async for _ in consumer:
                    raise AssertionError("the topic is empty")
        await write(bootstrap, topic, 4)
        assert await consumer.poll(30)


class Interrupted(Exception):
    """What the signal handler of a test raises."""


@pytest.fixture
def interruptions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A signal every millisecond, whose handler raises where the outcome of a record is noted; where it did."""
    monkeypatch.setattr(aio_producer, "LOOK_SECONDS", 0.1)
    raised: list[str] = []

    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is AsyncDelivery.__call__.__code__:
            raised.append(frame.f_code.co_name)
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    yield raised
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


async def test_a_signal_handler_that_raises_leaves_no_future_without_an_end(
    bootstrap: str, topic: str, interruptions: list[str]
) -> None:
    sent: list[AsyncDelivery] = []
    async with AsyncProducer(bootstrap, linger=0) as producer:
        while not interruptions:
            with suppress(Interrupted):
                sent.append(await producer.send(topic, b"x"))
        found = await asyncio.gather(*sent, return_exceptions=True)
    lost = [outcome for outcome in found if not isinstance(outcome, RecordMetadata)]
    assert [getattr(outcome, "name", outcome) for outcome in lost] == ["_INTR"] * len(interruptions)


async def test_topics_are_administered(bootstrap: str, unused_topic: str) -> None:
    async with AsyncAdmin(bootstrap) as admin:
        await admin.create_topic(unused_topic, partitions=2, configs={"retention.ms": "1000000"})
        await admin.create_topic(unused_topic, exist_ok=True)
        assert unused_topic in await admin.topic_names()
        partitions = await admin.partitions(unused_topic)
        assert await admin.end_offsets(partitions) == dict.fromkeys(partitions, 0)
        await admin.delete_topics(unused_topic)
        with pytest.raises(RequestRefused):
            await admin.partitions(unused_topic)
