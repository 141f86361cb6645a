"""aiokafka produces and reads assigned partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError

from tests.compat.messages import CODECS, Message, messages

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


async def produce(bootstrap: str, topic: str, sent: list[Message], **settings: Any) -> list[int]:
    """Send messages to partition 0 and return the offsets that the broker gave them (none with acks=0)."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings) as producer:
        futures = [
            await producer.send(
                topic,
                key=message.key,
                value=message.value,
                timestamp_ms=message.timestamp,
                headers=list(message.headers),
                partition=0,
            )
            for message in sent
        ]
        await producer.flush()
        answers = [await future for future in futures]
        return [answer.offset for answer in answers if answer is not None]


def assigned(bootstrap: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50)


async def consume(consumer: AIOKafkaConsumer, count: int) -> list[Any]:
    async with asyncio.timeout(30):
        return [await consumer.getone() for _ in range(count)]


def content(received: Any) -> Message:
    return Message(received.key, received.value, received.timestamp, tuple(received.headers))


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
async def test_what_was_produced_is_read_back(
    bootstrap: str, new_topic: TopicMaker, codec: str, acks: int | str
) -> None:
    topic = new_topic()
    sent = messages(150)

    async def round_trip() -> list[Any]:
        await produce(bootstrap, topic, sent, acks=acks, compression_type=None if codec == "none" else codec)
        async with assigned(bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            return await consume(consumer, len(sent))

    found = await round_trip()
    assert [message.offset for message in found] == list(range(len(sent)))
    assert [content(message) for message in found] == sent


async def test_an_idempotent_producer_keeps_order(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    sent = messages(500)

    async def round_trip() -> list[Any]:
        offsets = await produce(
            bootstrap, topic, sent, enable_idempotence=True, max_batch_size=4_000, compression_type="zstd"
        )
        assert offsets == list(range(len(sent)))
        async with assigned(bootstrap) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            return await consume(consumer, len(sent))

    assert [content(message) for message in await round_trip()] == sent


async def test_offsets_by_time_both_ends_and_seeking(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    sent = messages(200)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)

    await produce(bootstrap, topic, sent, max_batch_size=2_000)
    async with assigned(bootstrap) as consumer:
        consumer.assign([full, empty])
        assert await consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
        assert await consumer.end_offsets([full, empty]) == {full: 200, empty: 0}
        found = await consumer.offsets_for_times({full: sent[50].timestamp, empty: 0})
        assert (found[full].offset, found[full].timestamp) == (50, sent[50].timestamp)
        assert found[empty] is None
        consumer.seek(full, 123)
        assert content((await consume(consumer, 1))[0]) == sent[123]
        await consumer.seek_to_end(full)
        assert await consumer.position(full) == 200
        assert consumer.highwater(full) == 200


async def test_a_batch_above_max_message_bytes_is_refused(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(1, {"max.message.bytes": "10000"})
    large = Message(b"k", b"x" * 20_000, messages(1)[0].timestamp, ())
    with pytest.raises(MessageSizeTooLargeError):
        await produce(bootstrap, topic, [large])
