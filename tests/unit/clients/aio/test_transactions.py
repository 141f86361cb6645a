"""ProducerTransactions that do not end well: what is under way in a thread is over before anything else is asked."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.clients.aio import AsyncProducer
from barnabas.clients.errors import ClientFailed, TransactionAborted
from barnabas.clients.library import load_kafka
from barnabas.clients.producer.producer import Producer
from barnabas.clients.producer.transactions import ProducerTransactions
from tests.support.processes import free_port

DEADLINE = 10.0


class Librdkafka:
    """The transactional calls of librdkafka's producer. One of them is held until the test lets it go."""

    def __init__(self, held: str, failure: Exception | None = None) -> None:
        self.held = held
        self.failure = failure
        self.reached = threading.Event()
        self.let_go = threading.Event()
        self.told: list[str] = []

    def _take(self, call: str) -> None:
        self.told.append(call)
        if call == self.held:
            self.reached.set()
            assert self.let_go.wait(DEADLINE)
            self.told.append(f"{call} is over")
            if self.failure is not None:
                raise self.failure

    def init_transactions(self, _: float) -> None:
        self._take("init")

    def begin_transaction(self) -> None:
        self._take("begin")

    def send_offsets_to_transaction(self, _places: Any, _group: Any, _timeout: float) -> None:
        self._take("offsets")

    def commit_transaction(self, _: float) -> None:
        self._take("commit")

    def abort_transaction(self, _: float) -> None:
        self._take("abort")

    def flush(self, _: float) -> int:
        return 0


class Reader:
    """What a transaction asks of a consumer."""

    commits_by_itself = False
    reads_committed = True

    def __init__(self) -> None:
        self.unfinished = {("t", 0): 5}
        self.taken_back: dict[tuple[str, int], int] = {}
        self.doubted: dict[tuple[str, int], int] = {}
        self.in_transaction = False

    def begin_transaction(self) -> None:
        self.in_transaction = True

    def end_transaction(self) -> None:
        self.in_transaction = False

    def require_complete(self) -> None:
        assert self.in_transaction

    def doubt(self) -> None:
        self.doubted, self.unfinished = self.unfinished, {}

    async def group_metadata(self) -> object:
        return object()

    def handed_out(self) -> dict[tuple[str, int], int]:
        return self.unfinished

    def mark_committed(self) -> None:
        self.unfinished = {}

    async def take_back(self) -> None:
        self.taken_back, self.unfinished = self.unfinished, {}


async def cancelled_in(library: Librdkafka, reader: Any) -> None:
    """Run a transaction, cancel its task while librdkafka holds a call, then let the call go."""

    async def transact(producer: AsyncProducer) -> None:
        async with producer.transaction(reader):
            pass

    async def work() -> None:
        async with AsyncProducer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
            producer._transactions = ProducerTransactions(load_kafka(), library)
            task = asyncio.create_task(transact(producer))
            assert await asyncio.to_thread(library.reached.wait, DEADLINE)
            task.cancel()
            await asyncio.sleep(0.02)  # a task that did not wait would be over, and have asked for more
            task.cancel()
            await asyncio.sleep(0)
            assert not task.done()
            library.let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not producer._transactions.open

    await asyncio.wait_for(work(), 3 * DEADLINE)


async def test_a_commit_that_is_under_way_stands() -> None:
    library, reader = Librdkafka("commit"), Reader()
    await cancelled_in(library, reader)
    assert library.told == ["init", "begin", "offsets", "commit", "commit is over"]
    assert reader.unfinished == reader.taken_back == {}


@pytest.mark.parametrize("call", ["begin", "offsets"])
async def test_what_is_not_committed_is_aborted_after_the_call_that_was_under_way(call: str) -> None:
    library, reader = Librdkafka(call), Reader()
    await cancelled_in(library, reader)
    assert library.told[-3:] == [call, f"{call} is over", "abort"]
    assert "commit" not in library.told
    assert reader.taken_back == {("t", 0): 5}


async def test_after_a_commit_that_fails_after_the_cancel_the_group_is_asked() -> None:
    kafka = load_kafka()
    failure = kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._STATE))
    library, reader = Librdkafka("commit", failure), Reader()
    await cancelled_in(library, reader)
    assert library.told[-3:] == ["commit", "commit is over", "abort"]
    assert (reader.doubted, reader.taken_back) == ({("t", 0): 5}, {})


async def test_an_abort_that_is_under_way_is_waited_for() -> None:
    library = Librdkafka("abort")
    reader: Any = Reader()

    async def work() -> None:
        async with AsyncProducer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
            producer._transactions = ProducerTransactions(load_kafka(), library)

            async def transact() -> None:
                async with producer.transaction(reader):
                    raise ZeroDivisionError

            task = asyncio.create_task(transact())
            assert await asyncio.to_thread(library.reached.wait, DEADLINE)
            task.cancel()
            await asyncio.sleep(0.02)
            assert not task.done()
            library.let_go.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    await asyncio.wait_for(work(), 3 * DEADLINE)
    assert library.told[-2:] == ["abort", "abort is over"]
    assert reader.taken_back == {("t", 0): 5}


async def test_a_second_block_fails_and_leaves_the_open_one_alone() -> None:
    library, ours, theirs = Librdkafka("nothing"), Reader(), Reader()

    async def work(reader: Any, other: Any) -> None:
        async with AsyncProducer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
            producer._transactions = ProducerTransactions(load_kafka(), library)
            async with producer.transaction(reader):
                with pytest.raises(ClientFailed, match="this producer is in one already"):
                    async with producer.transaction(other):
                        raise AssertionError("the block has begun")

    await asyncio.wait_for(work(ours, theirs), 3 * DEADLINE)
    assert library.told == ["init", "begin", "offsets", "commit"]
    assert (ours.taken_back, theirs.taken_back) == ({}, {("t", 0): 5})


def test_nor_does_one_without_asyncio_touch_it() -> None:
    library = Librdkafka("nothing")
    with Producer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
        producer._transactions = ProducerTransactions(load_kafka(), library)
        with producer.transaction():
            with pytest.raises(ClientFailed, match="this producer is in one already"), producer.transaction():
                raise AssertionError("the block has begun")
            assert producer._transactions.open
    assert library.told == ["init", "begin", "commit"]


def abort_fails() -> Librdkafka:
    kafka = load_kafka()
    library = Librdkafka("abort", kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._STATE)))
    library.let_go.set()
    return library


async def test_an_abort_that_fails_takes_the_consumer_back_all_the_same() -> None:
    reader: Any = Reader()

    async def work() -> None:
        async with AsyncProducer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
            producer._transactions = ProducerTransactions(load_kafka(), abort_fails())
            with pytest.raises(ClientFailed, match="abort the transaction"):
                async with producer.transaction(reader):
                    raise ZeroDivisionError

    await asyncio.wait_for(work(), 3 * DEADLINE)
    assert reader.taken_back == {("t", 0): 5}


def test_without_asyncio_too() -> None:
    taken_back: list[bool] = []
    reader: Any = SimpleNamespace(
        commits_by_itself=False,
        reads_committed=True,
        begin_transaction=lambda: None,
        end_transaction=lambda: None,
        take_back=lambda: taken_back.append(True),
    )
    with Producer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
        producer._transactions = ProducerTransactions(load_kafka(), abort_fails())
        with pytest.raises(ClientFailed, match="abort the transaction"), producer.transaction(reader):
            raise ZeroDivisionError
    assert taken_back == [True]


def test_why_a_transaction_was_to_be_aborted_is_told_also_where_the_abort_fails() -> None:
    forbidden = TransactionAborted("commit the transaction: Topic authorization failed")
    with Producer(f"127.0.0.1:{free_port()}", transactional_id="id", log_level=0) as producer:
        producer._transactions = ProducerTransactions(load_kafka(), abort_fails())
        with pytest.raises(TransactionAborted, match="Topic authorization failed") as caught, producer.transaction():
            raise forbidden
    (note,) = caught.value.__notes__
    assert note.startswith("abort the transaction: ")
