"""Exactly once where it is hard: rebalances and seeks inside a transaction, and commits whose answer does not come."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.aio import AsyncConsumer, AsyncProducer
from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import BrokerSilent, ClientFailed, DeserializationFailed, TransactionAborted
from barnabas.clients.producer import transactions
from barnabas.clients.producer.producer import Producer
from barnabas.clients.records import TopicPartition
from barnabas.testing import Broker
from tests.support.markers import wait_for_markers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNT = 20


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"num.partitions": 1}) as running:
        yield running


@pytest.fixture
def source(broker: Broker) -> str:
    """A topic with the numbers 0 to 19."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(name, str(number))
    return name


@pytest.fixture
def consumer(broker: Broker, source: str) -> Iterator[Consumer[bytes, bytes]]:
    with Consumer(broker.bootstrap_servers, source, **settings(source)) as opened:
        yield opened


@pytest.fixture
def producer(broker: Broker, source: str) -> Iterator[Producer]:
    with Producer(broker.bootstrap_servers, transactional_id=source, linger=0) as opened:
        yield opened


def settings(source: str) -> dict[str, Any]:
    return {
        "group_id": source,
        "auto_offset_reset": "earliest",
        "auto_commit": False,
        "heartbeat_interval_ms": 50,
        "max_poll_records": 5,
    }


def copies(broker: Broker, source: str) -> list[int]:
    """What was copied and can be read, once all markers are written."""
    wait_for_markers(broker.bootstrap_servers, f"{source}-copy")
    with Consumer(broker.bootstrap_servers, f"{source}-copy", auto_offset_reset="earliest") as consumer:
        return [int(record.value or b"") for record in consumer.until_end()]


def copy(producer: Producer, consumer: Consumer[bytes, bytes], source: str) -> int:
    records = consumer.poll(10)
    for record in records:
        producer.send(f"{source}-copy", record.value)
    return len(records)


def copy_the_rest(producer: Producer, consumer: Consumer[bytes, bytes], source: str) -> None:
    while (consumer.committed(TopicPartition(source, 0))[TopicPartition(source, 0)] or 0) < COUNT:
        with producer.transaction(consumer):
            copy(producer, consumer, source)


def test_a_rebalance_in_the_block_aborts_it(
    broker: Broker, producer: Producer, consumer: Consumer[bytes, bytes], source: str
) -> None:
    with (
        pytest.raises(TransactionAborted, match=f"{source}-0 .the partition was revoked"),
        producer.transaction(consumer),
    ):
        assert copy(producer, consumer, source)
        broker.faults.rebalance(source)
        wait_until(lambda: copy(producer, consumer, source) and consumer._reader.handed_out.dropped, "a rebalance")
    copy_the_rest(producer, consumer, source)
    assert copies(broker, source) == list(range(COUNT))


def test_a_seek_backwards_in_the_block_aborts_it(
    broker: Broker, producer: Producer, consumer: Consumer[bytes, bytes], source: str
) -> None:
    with pytest.raises(TransactionAborted, match="a seek moved the partition back"), producer.transaction(consumer):
        assert copy(producer, consumer, source)
        consumer.seek(TopicPartition(source, 0), 2)
        copy(producer, consumer, source)
    with pytest.raises(TransactionAborted, match="its records were taken back"), producer.transaction(consumer):
        assert copy(producer, consumer, source)
        consumer.take_back()
    copy_the_rest(producer, consumer, source)
    assert copies(broker, source) == list(range(COUNT))


def test_a_seek_forwards_drops_nothing(broker: Broker, producer: Producer, source: str) -> None:
    def no_seven(data: bytes) -> bytes:
        if data == b"7":
            raise ValueError("seven")
        return data

    with Consumer(broker.bootstrap_servers, source, **settings(source), value_deserializer=no_seven) as consumer:
        with producer.transaction(consumer):
            with pytest.raises(DeserializationFailed) as caught:
                while True:
                    copy(producer, consumer, source)
            consumer.seek(caught.value.partition, caught.value.offset + 1)
        assert consumer.committed() == {TopicPartition(source, 0): 7}
        copy_the_rest(producer, consumer, source)
    assert copies(broker, source) == [*range(7), *range(8, COUNT)]


def test_a_commit_of_the_consumer_in_the_block_is_refused(
    producer: Producer, consumer: Consumer[bytes, bytes], source: str
) -> None:
    with pytest.raises(ClientFailed, match="the transaction that is open commits"), producer.transaction(consumer):
        copy(producer, consumer, source)
        consumer.commit()
    assert consumer.committed(TopicPartition(source, 0)) == {TopicPartition(source, 0): None}


def let_commits_be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a commit soon, and nothing that comes before it."""
    commit = transactions.ProducerTransactions._commit

    def impatient(self: transactions.ProducerTransactions) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(transactions, "TIMEOUT", 0.2)
            commit(self)

    monkeypatch.setattr(transactions.ProducerTransactions, "_commit", impatient)


def test_a_commit_that_counts_and_whose_answer_is_late_is_not_repeated(
    broker: Broker,
    producer: Producer,
    consumer: Consumer[bytes, bytes],
    source: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with producer.transaction(consumer):
        assert copy(producer, consumer, source)
    with monkeypatch.context() as patched, broker.faults.delay("END_TXN", 30, when="after", times=1):
        let_commits_be_impatient(patched)
        with pytest.raises(BrokerSilent, match="commit the transaction"), producer.transaction(consumer):
            assert copy(producer, consumer, source)
    copy_the_rest(producer, consumer, source)
    assert copies(broker, source) == list(range(COUNT))


async def test_nor_with_asyncio(broker: Broker, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def copy(producer: AsyncProducer, consumer: AsyncConsumer[bytes, bytes]) -> int:
        records = await consumer.poll(10)
        for record in records:
            await producer.send(f"{source}-copy", record.value)
        return len(records)

    async def work() -> None:
        async with (
            AsyncConsumer(broker.bootstrap_servers, source, **settings(source)) as consumer,
            AsyncProducer(broker.bootstrap_servers, transactional_id=source, linger=0) as producer,
        ):
            async with producer.transaction(consumer):
                assert await copy(producer, consumer)
            with monkeypatch.context() as patched, broker.faults.delay("END_TXN", 30, when="after", times=1):
                let_commits_be_impatient(patched)
                with pytest.raises(BrokerSilent, match="commit the transaction"):
                    async with producer.transaction(consumer):
                        assert await copy(producer, consumer)
            with pytest.raises(TransactionAborted, match="a seek moved the partition back"):
                async with producer.transaction(consumer):
                    assert await copy(producer, consumer)
                    await consumer.seek(TopicPartition(source, 0), 0)
            place = TopicPartition(source, 0)
            while ((await consumer.committed(place))[place] or 0) < COUNT:
                async with producer.transaction(consumer):
                    await copy(producer, consumer)

    await asyncio.wait_for(work(), 90)
    assert copies(broker, source) == list(range(COUNT))


class Interrupted(Exception):
    """What the signal handler of a test raises."""


class Interrupting:
    """librdkafka's producer, with a signal whose handler raises before a call of it is made, or just after."""

    def __init__(self, client: Any, call: str, *, after: bool) -> None:
        self._client = client
        self._call = call
        self._after = after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        return self._interrupted(found) if name == self._call else found

    def _interrupted(self, call: Any) -> Any:
        def interrupted(*arguments: Any) -> None:
            self._call = ""
            if self._after:
                call(*arguments)
            raise Interrupted

        return interrupted


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize(
    "call",
    [
        "init_transactions",
        "begin_transaction",
        "send_offsets_to_transaction",
        "commit_transaction",
        "abort_transaction",
    ],
)
def test_a_signal_in_any_call_of_a_transaction_neither_loses_nor_repeats(
    broker: Broker, producer: Producer, consumer: Consumer[bytes, bytes], source: str, call: str, *, after: bool
) -> None:
    working = producer._transactions
    assert working is not None
    working._client = Interrupting(working._client, call, after=after)
    records = consumer.poll(10)
    with pytest.raises(Interrupted), producer.transaction(consumer):
        for record in records:
            producer.send(f"{source}-copy", record.value)
        if call == "abort_transaction":
            raise ValueError("the block fails")
    copy_the_rest(producer, consumer, source)
    assert sorted(copies(broker, source)) == list(range(COUNT))


def test_a_signal_when_the_commit_is_done_does_not_take_the_records_back(
    broker: Broker,
    producer: Producer,
    consumer: Consumer[bytes, bytes],
    source: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted() -> None:
        monkeypatch.undo()
        raise Interrupted

    monkeypatch.setattr(consumer, "mark_committed", interrupted)
    with pytest.raises(Interrupted), producer.transaction(consumer):
        copy(producer, consumer, source)
    with pytest.raises(ValueError, match="fails"), producer.transaction(consumer):
        raise ValueError("the next block fails")
    copy_the_rest(producer, consumer, source)
    assert sorted(copies(broker, source)) == list(range(COUNT))


def test_a_rebalance_is_not_the_end(broker: Broker, source: str) -> None:
    """An eager rebalance takes all partitions away for a moment."""
    read = []
    with Consumer(
        broker.bootstrap_servers, source, **{**settings(source), "max_poll_records": 1, "auto_commit": True}
    ) as consumer:
        for record in consumer.until_end():
            read.append(record.offset)
            if record.offset in (3, 11):
                broker.faults.rebalance(source)
    assert read == list(range(COUNT))
