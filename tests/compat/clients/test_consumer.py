"""The consumer without a group: whole topics, assigned partitions, and where in them it is."""

from __future__ import annotations

import json
import re
import signal
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import ClientClosed, DeserializationFailed, InvalidClientConfig
from barnabas.clients.producer.producer import Producer
from barnabas.clients.records import TopicPartition
from barnabas.clients.serializers import JSON, STRING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Reader = Callable[..., Consumer[Any, Any]]


BEGAN = int(time.time() * 1000) - 3_600_000


@pytest.fixture
def written(bootstrap: str, topic: str) -> str:
    """A topic with the numbers 0 to 99 in partition 0, each a second after the other, and nothing in the others."""
    with Producer(bootstrap, linger=0.005) as producer:
        for number in range(100):
            producer.send(
                topic,
                str(number),
                f"k{number}",
                partition=0,
                timestamp=BEGAN + number * 1000,
                headers={"n": str(number)},
            )
    return topic


@pytest.fixture
def reader(bootstrap: str) -> Reader:
    """`reader(topics, ...)`: a consumer without a group, from the beginning."""

    def opened(topics: Any, **settings: Any) -> Consumer[Any, Any]:
        return Consumer(bootstrap, topics, auto_offset_reset="earliest", fetch_wait_max_ms=20, **settings)

    return opened


def test_records_come_as_they_were_written(reader: Reader, written: str) -> None:
    with reader(written) as consumer:
        records = list(consumer.until_end())
    assert [record.value for record in records] == [str(number).encode() for number in range(100)]
    last = records[-1]
    assert (last.topic, last.partition, last.offset, last.timestamp) == (written, 0, 99, BEGAN + 99_000)
    assert (last.key, last.headers, last.header("n")) == (b"k99", (("n", b"99"),), b"99")


def test_values_are_deserialized_and_null_stays_none(bootstrap: str, reader: Reader, topic: str) -> None:
    with Producer[str, Any](bootstrap, value_serializer=JSON, key_serializer=STRING, linger=0) as producer:
        producer.send(topic, {"a": 1}, "k", partition=0)
        producer.send(topic, None, "k", partition=0)
    with reader(topic, key_deserializer=STRING, value_deserializer=json.loads) as consumer:
        assert [(record.key, record.value) for record in consumer.until_end()] == [("k", {"a": 1}), ("k", None)]


def test_batches_are_as_large_as_asked_for(reader: Reader, written: str) -> None:
    with reader(written, max_poll_records=30) as consumer:
        sizes: list[int] = []
        while sum(sizes) < 100:
            sizes.append(len(consumer.poll(30)))
            assert sizes[-1] <= 30
        assert len(consumer.poll(0)) == 0
        consumer.seek_to_beginning(TopicPartition(written, 0))
        assert len(consumer.poll(30, max_records=7)) <= 7


def test_polling_comes_back_as_soon_as_there_is_something(reader: Reader, written: str) -> None:
    with reader(written) as consumer:
        began = time.monotonic()
        assert consumer.poll(60)
        assert time.monotonic() - began < 30
        began = time.monotonic()
        while consumer.poll(0.3):
            began = time.monotonic()
        assert time.monotonic() - began >= 0.25


def test_positions_follow_what_was_handed_out_not_what_was_fetched(reader: Reader, written: str) -> None:
    partition = TopicPartition(written, 0)
    with reader(written) as consumer:
        records = iter(consumer)
        for _ in range(5):
            next(records)
        assert consumer.position(partition) == 5
        assert consumer.handed_out() == {partition: 5}


def test_seeking_by_offset_drops_what_was_fetched(reader: Reader, written: str) -> None:
    partition = TopicPartition(written, 0)
    with reader(written) as consumer:
        records = iter(consumer)
        assert next(records).offset == 0
        consumer.seek(partition, 90)
        assert next(records).offset == 90
        consumer.seek_to_beginning()
        assert next(records).offset == 0
        assert consumer.ends(partition) == (0, 100)


def test_an_assignment_begins_where_it_says(reader: Reader, written: str) -> None:
    partition = TopicPartition(written, 0)
    with reader(None) as consumer:
        consumer.assign({partition: 95})
        assert consumer.assignment() == [partition]
        assert [record.offset for record in consumer.until_end()] == [95, 96, 97, 98, 99]
        consumer.assign([partition])
        assert next(iter(consumer)).offset == 0
        consumer.unsubscribe()
        assert consumer.assignment() == []


def test_a_start_is_asked_for_each_partition(reader: Reader, written: str) -> None:
    with reader(None) as consumer:
        asked: list[TopicPartition] = []

        def start(partition: TopicPartition) -> int | None:
            asked.append(partition)
            return 98 if partition.partition == 0 else None

        consumer.subscribe(written, start=start)
        assert [record.offset for record in consumer.until_end()] == [98, 99]
    assert asked == [TopicPartition(written, number) for number in range(4)]


def test_a_paused_partition_hands_out_nothing_and_loses_nothing(reader: Reader, written: str) -> None:
    partition = TopicPartition(written, 0)
    with reader(written) as consumer:
        records = iter(consumer)
        assert next(records).offset == 0
        consumer.pause(partition)
        assert consumer.paused() == [partition]
        assert consumer.poll(0.2) == []
        assert consumer.position(partition) == 1
        consumer.resume()
        assert consumer.paused() == []
        assert [next(records).offset for _ in range(99)] == list(range(1, 100))


def test_seeking_while_paused_counts_at_the_resume(reader: Reader, written: str) -> None:
    partition = TopicPartition(written, 0)
    with reader(written) as consumer:
        next(iter(consumer))
        consumer.pause(partition)
        consumer.seek(partition, 97)
        consumer.resume(partition)
        assert [record.offset for record in consumer.until_end()] == [97, 98, 99]


def test_what_cannot_be_read_is_told_with_its_place_and_can_be_stepped_over(reader: Reader, written: str) -> None:
    def odd_is_bad(data: bytes) -> int:
        if data == b"3":
            raise ValueError("three is bad")
        return int(data)

    with reader(written, value_deserializer=odd_is_bad) as consumer:
        assert [record.value for record in consumer.poll(30)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(
                DeserializationFailed, match=f"value of {written}-0 at offset 3: .*three is bad"
            ) as caught:
                consumer.poll(30)
        assert (caught.value.partition, caught.value.offset, caught.value.data) == (TopicPartition(written, 0), 3, b"3")
        consumer.seek(caught.value.partition, caught.value.offset + 1)
        assert consumer.poll(30)[0].value == 4


def test_taking_back_hands_out_again_what_was_not_committed(reader: Reader, written: str) -> None:
    with reader(written) as consumer:
        records = iter(consumer)
        for _ in range(5):
            next(records)
        consumer.mark_committed()
        for _ in range(5):
            next(records)
        consumer.take_back()
        assert next(records).offset == 5


def test_topics_are_found_by_pattern(bootstrap: str, reader: Reader, topic: str) -> None:
    with Producer(bootstrap, linger=0) as producer:
        for name in (f"{topic}-1", f"{topic}-22", f"{topic}-other"):
            producer.send(name, name, partition=0)
    pattern = re.compile(topic + r"-\d+")
    with reader(pattern) as consumer:
        assert {record.topic for record in consumer.until_end()} == {f"{topic}-1", f"{topic}-22"}
    with reader([f"^{topic}-o.*", f"{topic}-1"]) as consumer:
        assert {record.topic for record in consumer.until_end()} == {f"{topic}-1", f"{topic}-other"}


class Interrupted(Exception):
    """What the signal handler of a test raises."""


@pytest.fixture
def interruptions() -> Iterator[list[str]]:
    """A signal every few milliseconds, whose handler raises where librdkafka is asked for messages; where it did."""
    raised: list[str] = []

    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code.co_name in ("_receive", "_wait"):
            raised.append(frame.f_code.co_name)
            raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.003)
    yield raised
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("group", [None, "interrupted"])
def test_a_signal_handler_that_raises_costs_no_records(
    bootstrap: str, topic: str, group: str | None, interruptions: list[str]
) -> None:
    seen: list[bytes | None] = []
    deadline = time.monotonic() + 60
    with Consumer(bootstrap, topic, group_id=group, auto_offset_reset="earliest", fetch_wait_max_ms=5) as consumer:
        with Producer(bootstrap, linger=0) as producer:
            for number in range(2000):
                producer.send(topic, str(number))
                if number % 10 == 0:
                    with suppress(Interrupted):  # now and then before these have come, so that they are waited for
                        seen += [record.value for record in consumer.poll(0.05)]
        while len(seen) < 2000 and time.monotonic() < deadline:
            with suppress(Interrupted):
                seen += [record.value for record in consumer.poll(0.05)]
    assert interruptions
    assert sorted(int(value or b"") for value in seen) == list(range(2000))


@pytest.mark.parametrize("call", ["commit", "commit_async", "group_metadata"])
def test_what_needs_a_group_says_so(reader: Reader, written: str, call: str) -> None:
    with reader(written) as consumer, pytest.raises(InvalidClientConfig, match="needs a group: give group_id="):
        getattr(consumer, call)()


def test_after_the_end_nothing_is_read(reader: Reader, written: str) -> None:
    consumer = reader(written)
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll(0)


def test_seeking_by_time_finds_the_first_record_that_is_not_older(reader: Reader, written: str) -> None:
    partition = TopicPartition(written, 0)
    with reader(written) as consumer:
        assert consumer.seek_to_time(BEGAN + 41_500, partition) == {partition: 42}
        assert next(iter(consumer)).offset == 42
        moment = datetime.fromtimestamp((BEGAN + 97_000) / 1000, UTC)
        offsets = consumer.seek_to_time(moment)
        assert offsets == {TopicPartition(written, n): 97 if n == 0 else 0 for n in range(4)}
        assert [record.offset for record in consumer.until_end()] == [97, 98, 99]
        assert consumer.seek_to_time(BEGAN + 10**7, partition) == {partition: 100}
