"""confluent-kafka (librdkafka) produces and reads assigned partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Received

from tests.compat.messages import CODECS, Message, messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.compat.conftest import TopicMaker


def send(producer: Producer, topic: str, sent: list[Message], partition: int = 0) -> list[Received]:
    """Send messages to one partition and return what the broker acknowledged, in the order of the answers."""
    delivered: list[Received] = []

    def on_delivery(error: KafkaError | None, message: Received) -> None:
        if error is not None:
            raise KafkaException(error)
        delivered.append(message)

    for message in sent:
        producer.produce(
            topic,
            key=message.key,
            value=message.value,
            timestamp=message.timestamp,
            headers=list(message.headers),
            partition=partition,
            on_delivery=on_delivery,
        )
    assert producer.flush(30) == 0
    return delivered


def produce(bootstrap: str, topic: str, sent: list[Message], partition: int = 0, **settings: Any) -> list[Received]:
    """Send through a producer of its own, with these settings (underscores for dots)."""
    options = {key.replace("_", "."): value for key, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 0, **options})
    return send(producer, topic, sent, partition)


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[Consumer]:
    opened = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigned",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    yield opened
    opened.close()


def consume(consumer: Consumer, count: int) -> list[Received]:
    """Read `count` messages; an error that the client reports fails the test."""
    found: list[Received] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages came within 30 s"
        message = consumer.poll(0.5)
        if message is None:
            continue
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
    return found


def reach_end(consumer: Consumer) -> None:
    """Wait for the client to say that it stands at the partition's end."""
    end = consumer.poll(30)
    assert end is not None
    error = end.error()
    assert error is not None
    assert error.code() == KafkaError._PARTITION_EOF


def content(received: Received) -> Message:
    """What of a received message must equal what was sent."""
    headers: Any = received.headers() or ()
    return Message(received.key(), received.value(), received.timestamp()[1], tuple(headers))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("codec", CODECS)
def test_what_was_produced_is_read_back(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer, codec: str, acks: str
) -> None:
    topic = new_topic(2)
    sent = {partition: messages(150) for partition in (0, 1)}
    # The producer lives as long as the test: one that closes its socket may take unacknowledged records with it.
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "compression.type": codec, "linger.ms": 5})
    for partition, batch in sent.items():
        send(producer, topic, batch, partition)
    for partition, batch in sent.items():
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        found = consume(consumer, len(batch))
        assert [message.offset() for message in found] == list(range(len(batch)))
        assert [content(message) for message in found] == batch


def test_an_idempotent_producer_keeps_order_with_requests_in_flight(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic()
    sent = messages(2_000)
    delivered = produce(
        bootstrap, topic, sent, enable_idempotence=True, linger_ms=0, batch_num_messages=20, compression_type="lz4"
    )
    assert [message.offset() for message in delivered] == list(range(len(sent)))
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [content(message) for message in consume(consumer, len(sent))] == sent


def test_a_producer_spreads_keys_over_partitions(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topic = new_topic(4)
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random"})
    for number in range(400):
        producer.produce(topic, key=f"{number % 20}", value=f"{number}")
    producer.flush(30)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(4)])
    found = consume(consumer, 400)
    homes: dict[bytes, set[int]] = {}
    for message in found:
        homes.setdefault(message.key(), set()).add(message.partition())  # type: ignore[arg-type]  # every message has both
    assert len(homes) == 20
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_a_topic_is_made_when_it_is_first_used(bootstrap: str, unused_topic: str, consumer: Consumer) -> None:
    [sent] = messages(1)
    produce(bootstrap, unused_topic, [sent])
    consumer.assign([TopicPartition(unused_topic, 0, 0)])
    assert [content(message) for message in consume(consumer, 1)] == [sent]


def test_a_waiting_consumer_is_woken_by_a_new_record(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    patient = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "assigned",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 120_000,
            "socket.timeout.ms": 150_000,
        }
    )
    produce(bootstrap, topic, messages(1))
    patient.assign([TopicPartition(topic, 0, 0)])
    consume(patient, 1)
    produce(bootstrap, topic, messages(1), acks=1)
    assert consume(patient, 1)[0].offset() == 1, "which is not waited for as long as a fetch may sleep"
    patient.close()


def test_offsets_by_time_and_watermarks(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topic = new_topic()
    sent = messages(500)
    produce(bootstrap, topic, sent, batch_num_messages=37)
    place = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(place, timeout=30) == (0, 500)
    for asked, expected in [
        (sent[0].timestamp - 1, 0),
        (sent[0].timestamp, 0),
        (sent[250].timestamp - 5, 250),
        (sent[250].timestamp, 250),
        (sent[499].timestamp, 499),
        (sent[499].timestamp + 1, OFFSET_END),
    ]:
        [found] = consumer.offsets_for_times([TopicPartition(topic, 0, asked)], timeout=30)
        assert (found.error, found.offset) == (None, expected)


def test_a_consumer_starts_in_the_middle_and_seeks(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topic = new_topic()
    sent = messages(300)
    produce(bootstrap, topic, sent, batch_num_messages=50, compression_type="zstd")
    consumer.assign([TopicPartition(topic, 0, 123)])
    assert content(consume(consumer, 1)[0]) == sent[123]
    consumer.seek(TopicPartition(topic, 0, 7))
    assert content(consume(consumer, 1)[0]) == sent[7]
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    reach_end(consumer)
    produce(bootstrap, topic, sent[:1])
    assert consume(consumer, 1)[0].offset() == 300


def test_an_offset_out_of_range_is_reset(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topic = new_topic()
    produce(bootstrap, topic, messages(5))
    consumer.assign([TopicPartition(topic, 0, 1_000)])
    assert [message.offset() for message in consume(consumer, 5)] == [0, 1, 2, 3, 4]


def test_many_partitions_are_read_by_one_consumer(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topics = [new_topic(10) for _ in range(2)]
    sent = messages(20)
    for topic in topics:
        for partition in range(10):
            produce(bootstrap, topic, sent, partition)
    consumer.assign([TopicPartition(topic, partition, 0) for topic in topics for partition in range(10)])
    found = consume(consumer, 400)
    by_partition: dict[tuple[str | None, int | None], list[Message]] = {}
    for message in found:
        by_partition.setdefault((message.topic(), message.partition()), []).append(content(message))
    assert len(by_partition) == 20
    assert all(contents == sent for contents in by_partition.values())


def test_a_batch_above_max_message_bytes_is_refused(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topic = new_topic(1, {"max.message.bytes": "10000"})
    large = Message(b"k", b"x" * 20_000, messages(1)[0].timestamp, ())
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [large])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 0)


def test_a_record_of_ten_megabytes_passes_when_the_topic_allows_it(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer
) -> None:
    topic = new_topic(1, {"max.message.bytes": "20000000"})
    value = bytes(range(256)) * 40_000
    produce(bootstrap, topic, [Message(None, value, messages(1)[0].timestamp, ())], message_max_bytes=20_000_000)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consume(consumer, 1)[0].value() == value


def test_log_append_time_replaces_the_producers(bootstrap: str, new_topic: TopicMaker, consumer: Consumer) -> None:
    topic = new_topic(1, {"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    produce(bootstrap, topic, messages(3), compression_type="gzip")
    consumer.assign([TopicPartition(topic, 0, 0)])
    for message in consume(consumer, 3):
        kind, timestamp = message.timestamp()
        assert kind == 2
        assert before - 1000 <= timestamp <= int(time.time() * 1000) + 1000


def test_a_timestamp_too_far_in_the_future_is_refused(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    tomorrow = int(time.time() * 1000) + 86_400_000
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [Message(b"k", b"v", tomorrow, ())])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP


@pytest.mark.parametrize("stored", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_a_topic_with_its_own_codec_recompresses(
    bootstrap: str, new_topic: TopicMaker, consumer: Consumer, stored: str
) -> None:
    topic = new_topic(1, {"compression.type": stored})
    sent = messages(100)
    for codec in ("none", "zstd"):
        produce(bootstrap, topic, sent, compression_type=codec, enable_idempotence=True)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert [content(message) for message in consume(consumer, 200)] == sent + sent
