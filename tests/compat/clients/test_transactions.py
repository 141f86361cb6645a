"""Transactions of the producer: records and offsets become visible together or not at all.

The same tests run against Apache Kafka.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from barnabas.clients.admin.admin import Admin
from barnabas.clients.aio import AsyncConsumer, AsyncProducer
from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import ProducerFenced, TransactionAborted
from barnabas.clients.producer.producer import Producer
from tests.support.brokers import Barnabas, KafkaKRaft
from tests.support.markers import wait_for_markers

if TYPE_CHECKING:
    from collections.abc import Iterator


SETTINGS = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module", params=[Barnabas, KafkaKRaft], ids=["barnabas", "kafka"])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with request.param(tmp_path_factory.mktemp("kafka"), SETTINGS) as broker:
        yield broker.bootstrap


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex[:12]


@pytest.fixture
def topic(kafka: str, name: str) -> str:
    with Admin(kafka) as admin:
        admin.create_topic(name, partitions=2)
    return name


def values(kafka: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """What can be read once no transaction is open."""
    wait_for_markers(kafka, topic)
    with Consumer(kafka, topic, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        return sorted((record.value for record in consumer.until_end()), key=str)


def test_a_block_that_ends_well_is_visible_as_a_whole(kafka: str, topic: str) -> None:
    with Producer(kafka, transactional_id=topic) as producer:
        for block in range(3):
            with producer.transaction():
                for partition in range(2):
                    producer.send(topic, f"{block}-{partition}", partition=partition)
    assert values(kafka, topic) == [b"0-0", b"0-1", b"1-0", b"1-1", b"2-0", b"2-1"]


def test_a_block_that_fails_is_never_visible(kafka: str, topic: str) -> None:
    with Producer(kafka, transactional_id=topic, linger=0) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, "lost").result(30)
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, "kept")
    assert values(kafka, topic) == [b"kept"]
    assert values(kafka, topic, "read_uncommitted") == [b"kept", b"lost"]


def test_a_record_that_cannot_arrive_aborts_the_block(kafka: str, topic: str) -> None:
    with Admin(kafka) as admin:
        admin.alter_topic_config(topic, set_={"max.message.bytes": "1000"})
    with Producer(kafka, transactional_id=topic, linger=0) as producer:
        with pytest.raises(TransactionAborted, match="commit the transaction"), producer.transaction():
            producer.send(topic, "small", partition=0)
            producer.send(topic, "large" * 1000, partition=1)
        with producer.transaction():
            producer.send(topic, "kept", partition=0)
    assert values(kafka, topic) == [b"kept"]


def test_the_newer_producer_of_an_id_fences_the_older(kafka: str, topic: str) -> None:
    with Producer(kafka, transactional_id=topic) as older:
        with older.transaction():
            older.send(topic, "older")
        with Producer(kafka, transactional_id=topic) as newer:
            with newer.transaction():
                newer.send(topic, "newer")
            with (
                pytest.raises(ProducerFenced, match="another producer has the same"),
                older.transaction(),
            ):
                older.send(topic, "zombie")
    assert values(kafka, topic) == [b"newer", b"older"]


def test_reading_and_writing_count_each_record_once(kafka: str, topic: str) -> None:
    """A copy of a topic, with a failure in the middle: nothing is missing and nothing comes twice."""
    copy = f"{topic}-copy"
    with Admin(kafka) as admin:
        admin.create_topic(copy, partitions=1)
    with Producer(kafka) as producer:
        for number in range(40):
            producer.send(topic, str(number), partition=number % 2)
    failures = iter([False, True, False, True])
    with (
        Consumer(
            kafka, topic, group_id=topic, auto_commit=False, auto_offset_reset="earliest", max_poll_records=7
        ) as consumer,
        Producer(kafka, transactional_id=topic) as producer,
    ):
        while sum(offset or 0 for offset in consumer.committed(*consumer.partitions(topic)).values()) < 40:
            try:
                with producer.transaction(consumer):
                    for record in consumer.poll(5):
                        producer.send(copy, record.value)
                    if next(failures, False):
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
    assert sorted(int(value or b"") for value in values(kafka, copy)) == list(range(40))


async def test_the_same_with_asyncio(kafka: str, topic: str) -> None:
    copy = f"{topic}-copy"
    with Admin(kafka) as admin:
        admin.create_topic(copy, partitions=1)
    failures = iter([False, True])
    async with AsyncProducer(kafka) as producer:
        for number in range(20):
            await producer.send(topic, str(number), partition=number % 2)
    async with (
        AsyncConsumer(
            kafka, topic, group_id=topic, auto_commit=False, auto_offset_reset="earliest", max_poll_records=7
        ) as consumer,
        AsyncProducer(kafka, transactional_id=topic) as producer,
    ):
        partitions = await consumer.partitions(topic)
        while sum(offset or 0 for offset in (await consumer.committed(*partitions)).values()) < 20:
            try:
                async with producer.transaction(consumer):
                    for record in await consumer.poll(5):
                        await producer.send(copy, record.value)
                    if next(failures, False):
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
    assert sorted(int(value or b"") for value in values(kafka, copy)) == list(range(20))
