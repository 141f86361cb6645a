"""confluent-kafka (librdkafka) with transactions: all of it is read or none, and a zombie writes nothing."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.support.markers import wait_for_markers

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid.uuid4().hex[:12]}"


def producer_of(bootstrap: str, transactional_id: str, **settings: object) -> Producer:
    """A producer whose last transaction, if it had one, is over."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0, **settings}
    )
    producer.init_transactions(30)
    return producer


def consumer_of(bootstrap: str, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def read_all(
    bootstrap: str, topic: str, partitions: int = 1, isolation: str = "read_committed", *, is_open: bool = False
) -> list[str]:
    """The values of all records that a consumer sees, up to the end of each partition.

    Unless one `is_open`, all transactions are at their end, or come to it soon.
    """
    if not is_open:
        wait_for_markers(bootstrap, topic)
    consumer = consumer_of(bootstrap, f"g-{uuid.uuid4().hex[:12]}", isolation)
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[str] = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None, f"{ended} of {partitions} partitions ended, with {values}"
        error = message.error()
        if error is None:
            values.append((message.value() or b"").decode())
        else:
            assert error.code() == KafkaError._PARTITION_EOF, error
            ended += 1
    consumer.close()
    return values


def test_committed_records_are_read(bootstrap: str, new_topic: TopicMaker, transactional_id: str) -> None:
    first, second = new_topic(2), new_topic()
    producer = producer_of(bootstrap, transactional_id)
    for number in range(3):
        producer.begin_transaction()
        for index in range(2):
            producer.produce(first, f"{number}-{index}", partition=index)
        producer.produce(second, f"{number}")
        producer.commit_transaction(30)
    assert sorted(read_all(bootstrap, first, 2)) == ["0-0", "0-1", "1-0", "1-1", "2-0", "2-1"]
    assert read_all(bootstrap, second) == ["0", "1", "2"]


def test_aborted_records_are_seen_by_those_only_who_want_to(
    bootstrap: str, new_topic: TopicMaker, transactional_id: str
) -> None:
    topic = new_topic()
    producer = producer_of(bootstrap, transactional_id)
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, f"{number}")
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    assert read_all(bootstrap, topic) == ["0", "2"]
    assert read_all(bootstrap, topic, isolation="read_uncommitted") == ["0", "1", "2", "3"]


def test_an_open_transaction_is_not_read_and_holds_back_what_follows(
    bootstrap: str, new_topic: TopicMaker, transactional_id: str
) -> None:
    topic = new_topic()
    producer = producer_of(bootstrap, transactional_id)
    producer.begin_transaction()
    producer.produce(topic, "open")
    producer.flush(30)
    other = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    other.produce(topic, "plain")
    other.flush(30)
    assert read_all(bootstrap, topic, is_open=True) == []
    producer.commit_transaction(30)
    assert read_all(bootstrap, topic) == ["open", "plain"]


def test_a_new_producer_aborts_what_the_old_one_left_and_fences_it(
    bootstrap: str, new_topic: TopicMaker, transactional_id: str
) -> None:
    topic = new_topic()
    zombie = producer_of(bootstrap, transactional_id)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie")
    zombie.flush(30)
    heir = producer_of(bootstrap, transactional_id)
    with pytest.raises(KafkaException) as caught:
        zombie.produce(topic, "after its time")
        zombie.commit_transaction(30)
    assert caught.value.args[0].code() in (KafkaError._FENCED, KafkaError._FATAL, KafkaError.PRODUCER_FENCED)
    heir.begin_transaction()
    heir.produce(topic, "heir")
    heir.commit_transaction(30)
    assert read_all(bootstrap, topic) == ["heir"]


def test_a_transaction_that_takes_too_long_is_aborted(
    bootstrap: str, new_topic: TopicMaker, transactional_id: str
) -> None:
    topic = new_topic()
    slow = producer_of(bootstrap, transactional_id, **{"transaction.timeout.ms": 1000, "message.timeout.ms": 1000})
    slow.begin_transaction()
    slow.produce(topic, "slow")
    slow.flush(30)
    other = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    other.produce(topic, "plain")
    other.flush(30)
    assert read_all(bootstrap, topic) == ["plain"], "the slow transaction is aborted"
    with pytest.raises(KafkaException):
        slow.commit_transaction(30)


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_are_committed_with_the_records(
    bootstrap: str, new_topic: TopicMaker, transactional_id: str, commits: bool
) -> None:
    source, target = new_topic(), new_topic()
    plain = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(5):
        plain.produce(source, f"{number}")
    plain.flush(30)
    group = f"g-{uuid.uuid4().hex[:12]}"
    consumer = consumer_of(bootstrap, group)
    consumer.subscribe([source])
    producer = producer_of(bootstrap, transactional_id)
    producer.begin_transaction()
    copied = 0
    while copied < 5:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is None:
            producer.produce(target, message.value())
            copied += 1
    places = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), 30)
    if commits:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)
    committed = consumer.committed([TopicPartition(source, 0)], 30)
    consumer.close()
    assert [place.offset for place in committed] == ([5] if commits else [-1001])
    assert read_all(bootstrap, target) == ([f"{number}" for number in range(5)] if commits else [])
