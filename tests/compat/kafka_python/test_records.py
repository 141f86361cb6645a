"""kafka-python produces and reads assigned partitions."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import MessageSizeTooLargeError

from tests.compat.messages import CODECS, Message, messages
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.compat.conftest import TopicMaker


def produce(bootstrap: str, topic: str, sent: list[Message], partition: int = 0, **settings: Any) -> list[int]:
    """Send messages to one partition and return the offsets that the broker gave them."""
    with closing(KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **settings)) as producer:
        futures = [
            producer.send(
                topic,
                key=message.key,
                value=message.value,
                timestamp_ms=message.timestamp,
                headers=list(message.headers),
                partition=partition,
            )
            for message in sent
        ]
        producer.flush(30)
        return [future.get(30).offset for future in futures]


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[KafkaConsumer]:
    with closing(
        KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    ) as opened:
        yield opened


def consume(consumer: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def enough() -> bool:
        for records in consumer.poll(500, max_records=count - len(found)).values():
            found.extend(records)
        return len(found) >= count

    wait_until(enough, f"{count} messages")
    return found


def content(received: Any) -> Message:
    return Message(received.key, received.value, received.timestamp, tuple(received.headers))


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_was_produced_is_read_back(
    bootstrap: str, new_topic: TopicMaker, consumer: KafkaConsumer, codec: str, acks: int | str
) -> None:
    topic = new_topic()
    sent = messages(150)
    compression = None if codec == "none" else codec
    produce(bootstrap, topic, sent, acks=acks, compression_type=compression, enable_idempotence=False)
    consumer.assign([TopicPartition(topic, 0)])
    found = consume(consumer, len(sent))
    assert [message.offset for message in found] == list(range(len(sent)))
    assert [content(message) for message in found] == sent


def test_an_idempotent_producer_keeps_order(bootstrap: str, new_topic: TopicMaker, consumer: KafkaConsumer) -> None:
    topic = new_topic()
    sent = messages(500)
    offsets = produce(bootstrap, topic, sent, enable_idempotence=True, batch_size=2_000, compression_type="gzip")
    assert offsets == list(range(len(sent)))
    consumer.assign([TopicPartition(topic, 0)])
    assert [content(message) for message in consume(consumer, len(sent))] == sent


def test_offsets_by_time_and_both_ends(bootstrap: str, new_topic: TopicMaker, consumer: KafkaConsumer) -> None:
    topic = new_topic(2)
    sent = messages(200)
    produce(bootstrap, topic, sent, batch_size=1_000)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
    assert consumer.end_offsets([full, empty]) == {full: 200, empty: 0}
    found = consumer.offsets_for_times({full: sent[77].timestamp, empty: 0})
    assert (found[full].offset, found[full].timestamp) == (77, sent[77].timestamp)
    assert found[empty] is None
    assert consumer.offsets_for_times({full: sent[-1].timestamp + 1}) == {full: None}


def test_a_consumer_seeks(bootstrap: str, new_topic: TopicMaker, consumer: KafkaConsumer) -> None:
    topic = new_topic()
    sent = messages(100)
    produce(bootstrap, topic, sent, compression_type="lz4")
    place = TopicPartition(topic, 0)
    consumer.assign([place])
    consumer.seek(place, 42)
    assert content(consume(consumer, 1)[0]) == sent[42]
    consumer.seek_to_end(place)
    assert consumer.position(place) == 100
    consumer.seek(place, 5_000)
    assert consume(consumer, 1)[0].offset == 0


def test_topics_and_partitions_are_known(new_topic: TopicMaker, consumer: KafkaConsumer) -> None:
    topic = new_topic(3)
    assert topic in consumer.topics()
    assert consumer.partitions_for_topic(topic) == {0, 1, 2}


def test_a_batch_above_max_message_bytes_is_refused(
    bootstrap: str, new_topic: TopicMaker, consumer: KafkaConsumer
) -> None:
    topic = new_topic(1, {"max.message.bytes": "10000"})
    with pytest.raises(MessageSizeTooLargeError):
        produce(bootstrap, topic, [Message(b"k", b"x" * 20_000, messages(1)[0].timestamp, ())])
    place = TopicPartition(topic, 0)
    assert consumer.end_offsets([place]) == {place: 0}
