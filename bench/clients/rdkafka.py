"""librdkafka, through confluent-kafka: topics, consuming at full speed, and the time from one end to the other."""

from __future__ import annotations

import gc
import time
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_BATCH: Final = 10_000
_SILENCE: Final = 30.0
"""Seconds without a record after which a consumer is stuck."""
_QUIET: Final = {"log_level": 2}
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_FULL_SPEED: Final = {
    # By default a consumer whose queue was full once does not fetch for a second.
    "fetch.queue.backoff.ms": 2,
    "queued.min.messages": 1_000_000,
}


class Consumed(NamedTuple):
    """What a consumer took in, without its first batch, whose arrival starts the clock."""

    records: int
    seconds: float

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / self.seconds


def create_topics(port: int, names: list[str], partitions: int, replicas: int = 1) -> None:
    """Create topics with this many partitions each, and wait until every one of these has a leader."""
    admin = _admin(port)
    wanted = [NewTopic(name, num_partitions=partitions, replication_factor=replicas) for name in names]
    for created in admin.create_topics(wanted, operation_timeout=60, request_timeout=120).values():
        created.result()
    _wait_for_leaders(admin, names, partitions)


def _wait_for_leaders(admin: AdminClient, names: list[str], partitions: int) -> None:
    deadline = time.monotonic() + 60
    while not _led(admin, names, partitions):
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(names)} topics with {partitions} partitions have no leaders yet")
        time.sleep(0.05)


def create_assigned(port: int, name: str, replicas: list[list[int]]) -> None:
    """Create a topic whose partitions have these replicas, and wait until every one of them has a leader."""
    admin = _admin(port)
    wanted = NewTopic(name, num_partitions=len(replicas), replica_assignment=replicas)
    admin.create_topics([wanted], operation_timeout=60, request_timeout=120)[name].result()
    _wait_for_leaders(admin, [name], len(replicas))


def delete_topic(port: int, name: str) -> None:
    """Delete a topic; its files may take their time."""
    delete_topics(port, [name])


def delete_topics(port: int, names: list[str]) -> None:
    """Delete topics."""
    admin = _admin(port)
    for deleted in admin.delete_topics(names, operation_timeout=30).values():
        deleted.result()


def count_records(port: int, topic: str, partitions: int) -> int:
    """The end offsets of all partitions, added up; a leader that does not know yet that it leads is asked again."""
    with _consumer(port, {}) as consumer:
        return sum(_end_offset(consumer, TopicPartition(topic, partition)) for partition in range(partitions))


def produce(
    port: int, topic: str, partitions: int, value: bytes, records: int, settings: Mapping[str, str] = _NOTHING
) -> float:
    """Send so many records with acks=1, to each partition in turn; records per second, until all are acknowledged."""
    failed = 0

    def count_failure(error: KafkaError | None, _: Message) -> None:
        nonlocal failed
        failed += error is not None

    address = {"bootstrap.servers": f"127.0.0.1:{port}", "acks": "1", "linger.ms": 5, **_QUIET, **settings}
    with Producer({**address, "delivery.report.only.error": True, "on_delivery": count_failure}) as producer:
        producer.list_topics(topic, _SILENCE)  # so that it is connected
        started = time.perf_counter()
        for number in range(records):
            while True:
                try:
                    producer.produce(topic, value, partition=number % partitions)
                    break
                except BufferError:
                    producer.poll(0.01)
        left = producer.flush(120)
        seconds = time.perf_counter() - started
    if left or failed:
        raise RuntimeError(f"{left + failed} records were not delivered")
    return records / seconds


def consume(port: int, topic: str, partitions: int, records: int, settings: Mapping[str, str] = _NOTHING) -> Consumed:
    """Read so many records from the beginning of assigned partitions, as fast as they come."""
    with _consumer(port, {**_FULL_SPEED, **settings}) as consumer, _without_collector():
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        first = _some(consumer, records)
        started = time.perf_counter()
        taken = first
        while taken < records:
            taken += _some(consumer, records - taken)
        return Consumed(taken - first, time.perf_counter() - started)


def latencies(port: int, topic: str, value: bytes, count: int, per_second: float) -> list[float]:
    """Seconds from `produce` to the same record's arrival at a consumer, one record at a time."""
    settings = {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 0, **_QUIET}
    with Producer(settings) as producer, _consumer(port, {}) as consumer, _without_collector():
        consumer.assign([TopicPartition(topic, 0, 0)])
        samples = []
        due = time.perf_counter()
        for _ in range(count):
            time.sleep(max(0.0, due - time.perf_counter()))
            due += 1 / per_second
            started = time.perf_counter()
            producer.produce(topic, value, partition=0)
            _one(consumer)
            samples.append(time.perf_counter() - started)
            producer.poll(0)
        return samples


def produce_one_each(port: int, topics: list[str], partitions: int) -> None:
    """Put one record into every partition."""
    failed: list[str] = []

    def report(error: object, message: Message) -> None:
        if error is not None:
            failed.append(f"{message.topic()}-{message.partition()}: {error}")

    with Producer({"bootstrap.servers": f"127.0.0.1:{port}", **_QUIET}) as producer:
        for topic in topics:
            for partition in range(partitions):
                producer.produce(topic, b"x" * 100, partition=partition, on_delivery=report)
        left = producer.flush(120)
    if left or failed:
        raise RuntimeError(f"{left + len(failed)} records were not delivered; {failed[:3]}")


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    deadline = time.monotonic() + _SILENCE
    while True:
        try:
            return (consumer.get_watermark_offsets(partition, _SILENCE) or (0, -1))[1]
        except KafkaException as failure:
            if failure.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _some(consumer: Consumer, at_most: int) -> int:
    messages = consumer.consume(min(at_most, _BATCH), _SILENCE)
    if not messages:
        raise RuntimeError(f"no record came for {_SILENCE:.0f} seconds, {at_most} to go")
    error: Callable[[Message], object] = Message.error
    if any(map(error, messages)):
        raise KafkaException(next(filter(None, map(error, messages))))
    return len(messages)


def _one(consumer: Consumer) -> None:
    message = consumer.poll(_SILENCE)
    if message is None:
        raise RuntimeError(f"the record did not come within {_SILENCE:.0f} seconds")
    if message.error() is not None:
        raise KafkaException(message.error())


def _led(admin: AdminClient, names: list[str], partitions: int) -> bool:
    topics = admin.list_topics(timeout=30).topics
    return all(
        name in topics
        and len(topics[name].partitions) == partitions
        and all(partition.leader >= 0 for partition in topics[name].partitions.values())
        for name in names
    )


def _admin(port: int) -> AdminClient:
    return AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", **_QUIET})


@contextmanager
def _consumer(port: int, settings: dict[str, Any]) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "error",
            **_QUIET,
            **settings,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _without_collector() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
