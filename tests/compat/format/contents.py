"""Putting records into a broker and taking everything out again, to compare what two brokers make of one directory."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.compat.messages import Message
from tests.support.waiting import wait_until


class Stored(NamedTuple):
    """A record as a reader sees it."""

    offset: int
    timestamp_type: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Contents(NamedTuple):
    """A partition as a reader sees it."""

    start: int
    end: int
    by_time: tuple[int, ...]
    """The offsets that a search for some timestamps finds."""
    records: list[Stored]


def text_messages(count: int, size: int, seed: int) -> list[Message]:
    """Messages of the last hours, of letters that compress to about three quarters: every codec fills segments."""
    letters = random.Random(seed)
    start = int(time.time() * 1000) - count * 1_000
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return [
        Message(
            b"key %d" % number,
            "".join(letters.choices(alphabet, k=size)).encode(),
            start + number * 1_000,
            (("number", b"%d" % number),),
        )
        for number in range(count)
    ]


def produce(producer: Producer, topic: str, partition: int, messages: list[Message]) -> None:
    """Send messages to one partition and wait until all are acknowledged."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: object) -> None:
        if error is not None:
            failures.append(error)

    def is_taken(message: Message) -> bool:
        """False while a broker that has just started says that there is no such topic."""
        try:
            producer.produce(
                topic,
                message.value,
                message.key,
                partition=partition,
                timestamp=message.timestamp,
                headers=list(message.headers),
                on_delivery=on_delivery,
            )
        except KafkaException as refused:
            if refused.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                raise
            producer.list_topics(topic, 10)
            return False
        return True

    for message in messages:
        wait_until(partial(is_taken, message), f"{topic} to be known", 30)
    assert producer.flush(60) == 0
    assert not failures


def read(bootstrap: str, topic: str, partition: int) -> Contents:
    """All of a partition, from its start to its end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "census",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        place = TopicPartition(topic, partition)
        start, end = consumer.get_watermark_offsets(place, timeout=30)
        consumer.assign([TopicPartition(topic, partition, start)])
        records = _to_the_end(consumer)
        consumer.unassign()
        times = sorted({record.timestamp for record in records})
        asked = [TopicPartition(topic, partition, timestamp) for timestamp in times[:: max(1, len(times) // 6)]]
        by_time = tuple(consumer.offsets_for_times([one], timeout=30)[0].offset for one in asked)
        return Contents(start, end, by_time, records)
    finally:
        consumer.close()


def _to_the_end(consumer: Consumer) -> list[Stored]:
    records = []
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        message: Any = consumer.poll(1)
        if message is None:
            continue
        if (error := message.error()) is None:
            kind, timestamp = message.timestamp()
            headers = tuple(message.headers() or ())
            records.append(Stored(message.offset(), kind, timestamp, message.key(), message.value(), headers))
        elif error.code() == KafkaError._PARTITION_EOF:
            return records
        else:
            raise KafkaException(error)
    raise AssertionError(f"the end did not come within two minutes, after {len(records)} records")
