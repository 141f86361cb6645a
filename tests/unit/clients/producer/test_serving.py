"""Fatal errors come out of polls and flushes in three ways, one of which is no exception."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from barnabas.clients.aio import AsyncProducer
from barnabas.clients.errors import ClientFailed, ProducerFenced
from barnabas.clients.producer.delivery import Settlements
from barnabas.clients.producer.native import GIVE_UP_SECONDS, NativeProducer
from barnabas.clients.producer.poller import POLL_EVERY, Poller
from barnabas.clients.producer.producer import Producer
from barnabas.clients.producer.serving import FatalFailure, serve
from barnabas.clients.producer.transactions import ProducerTransactions
from tests.support.fatal_errors import WAYS, raise_an_exception
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class FailedClient:
    """A producer of confluent-kafka. Its first poll or flush fails for good, the second tells each record."""

    def __init__(self, fail: Callable[[], None]) -> None:
        self._fail = fail
        self.left = 3
        self.calls = 0
        self.is_full = False
        """Whether the buffer has no room before it was polled."""

    def __len__(self) -> int:
        return self.left

    def _serve(self, _: float) -> int:
        self.calls += 1
        if self.calls == 1:
            self._fail()
        self.left = 0
        return 0

    poll = flush = _serve

    def produce(self, *_: object) -> None:
        if self.is_full and not self.calls:
            raise BufferError
        raise_an_exception()

    def commit_transaction(self, _: float) -> None:
        raise_an_exception()


@pytest.fixture(params=WAYS)
def client(request: pytest.FixtureRequest) -> FailedClient:
    return FailedClient(WAYS[request.param])


@pytest.fixture
def native(client: FailedClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[NativeProducer]:
    monkeypatch.setattr(Poller, "start", lambda _: None)
    made = NativeProducer(confluent_kafka, client, Settlements())
    yield made
    made.end(made.shut(), 0)


def test_every_way_is_one_error(client: FailedClient) -> None:
    with pytest.raises(FatalFailure, match="fenced by another") as failure:
        serve(client.poll, 0)
    assert failure.value.error.code() == KafkaError._FENCED
    assert serve(client.poll, 0) == 0


def test_what_a_callback_raises_is_raised_as_it_is() -> None:
    passing = confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._TIMED_OUT))
    for error in (passing, ValueError("a bug"), SystemExit(3)):
        client = FailedClient(lambda error=error: (_ for _ in ()).throw(error))  # type: ignore[misc]
        with pytest.raises(type(error)):
            serve(client.poll, 0)


def test_the_thread_that_polls_outlives_it(client: FailedClient, caplog: pytest.LogCaptureFixture) -> None:
    poller = Poller(client, Settlements().failures)
    poller.start()
    try:
        wait_until(lambda: client.calls > 1, "it polls again")
    finally:
        poller.stop()
    (told,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert told.message.startswith("The producer failed for good.")
    assert told.message.endswith("fenced by another")
    assert told.exc_info is None


def test_the_end_of_a_program_says_what_did_not_arrive(client: FailedClient, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.warns(ResourceWarning):
        Poller(client, Settlements().failures).flush_at_exit(time.monotonic() + 1)
    assert [each.message.partition(" ")[0] for each in caplog.records] == ["The", "3"]


def test_it_is_logged_once_and_kept_whoever_hears_of_it_first(
    native: NativeProducer, client: FailedClient, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        client.calls = 0
        native.poll(0)
    assert len(caplog.records) == 1
    assert native.settlements.failures.fatal.code() == KafkaError._FENCED


def test_a_flush_waits_until_each_record_was_told(native: NativeProducer, client: FailedClient) -> None:
    native.wait_for_all(5)
    assert (client.calls, client.left) == (2, 0)


def test_a_flush_waits_for_no_reason_beyond_its_time(
    native: NativeProducer, client: FailedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(native.settlements.failures, "await_reason", waited.append)
    client.calls = 1  # it does not fail
    native.wait_for_all(0)
    native.wait_for_all(0.25)
    native.wait_for_all(None)
    native.wait_for_all(30)
    assert waited[0] == 0
    assert 0 < waited[1] <= 0.25
    assert waited[2:] == [GIVE_UP_SECONDS] * 2


def test_a_commit_says_what_it_was(client: FailedClient) -> None:
    transactions = ProducerTransactions(confluent_kafka, client)
    transactions.open = True
    with pytest.raises(ProducerFenced):
        transactions.commit()


@pytest.fixture
def sends(client: FailedClient, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Arguments of a producer whose client has failed, and which polls with its first record."""
    monkeypatch.setattr(confluent_kafka, "Producer", lambda *_, **__: client)
    monkeypatch.setattr(Poller, "start", lambda _: None)
    return {"bootstrap_servers": f"127.0.0.1:{free_port()}"}


def test_who_sends_is_told_by_the_record(sends: dict[str, Any], client: FailedClient) -> None:
    producer: Producer[str, str] = Producer(**sends)
    producer._native.poller.sends = POLL_EVERY - 1
    with pytest.raises(ClientFailed, match="fenced by another"):
        producer.send("t", "x")
    assert client.calls == 1
    producer.close()


async def test_and_so_in_asyncio(sends: dict[str, Any], client: FailedClient) -> None:
    producer: AsyncProducer[str, str] = AsyncProducer(**sends)
    producer._native.poller.sends = POLL_EVERY - 1
    with pytest.raises(ClientFailed, match="fenced by another"):
        await producer.send("t", "x")
    assert client.calls == 1
    await producer.close()


def test_who_waits_for_room_is_told_as_well(sends: dict[str, Any], client: FailedClient) -> None:
    client.is_full = True
    producer: Producer[str, str] = Producer(**sends)
    with pytest.raises(ClientFailed, match="fenced by another"):
        producer.send("t", "x")
    producer.close()


async def test_who_waits_for_room_in_asyncio_too(sends: dict[str, Any], client: FailedClient) -> None:
    client.is_full = True
    producer: AsyncProducer[str, str] = AsyncProducer(**sends)
    with pytest.raises(ClientFailed, match="fenced by another"):
        await producer.send("t", "x")
    await producer.close()
