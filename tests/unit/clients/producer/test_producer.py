from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.aio import AsyncConsumer, AsyncProducer
from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import (
    BrokerSilent,
    BufferFull,
    ClientClosed,
    ClientFailed,
    InvalidClientConfig,
    NotDelivered,
    SerializationFailed,
)
from barnabas.clients.producer.producer import Producer
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.clients.producer.delivery import Delivery

pytestmark = pytest.mark.slow


@pytest.fixture
def unreachable() -> Iterator[Producer]:
    """A producer of which nothing ever arrives, with room for three records."""
    producer = Producer(f"127.0.0.1:{free_port()}", buffer_messages=3, log_level=0, max_block=0.05)
    yield producer
    try:
        producer.close(0)
    except NotDelivered:
        assert producer._native.closed


def test_a_full_buffer_holds_the_sender_until_its_deadline(unreachable: Producer) -> None:
    for _ in range(3):
        unreachable.send("t", "x")
    with pytest.raises(
        BufferFull, match=r"record for t: the buffer is full after 0\.05 s, with \d+ records on their way"
    ):
        unreachable.send("t", "x")


def test_a_full_buffer_can_be_an_error_at_once() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", buffer_messages=1, when_full="raise", log_level=0)
    producer.send("t", "x")
    with pytest.raises(BufferFull, match=r"the buffer is full, with \d+ records"):
        producer.send("t", "x")
    with pytest.raises(NotDelivered, match="1 record was not delivered"):
        producer.close(0)


def test_discarded_records_are_told_to_their_callbacks() -> None:
    told: list[Delivery] = []
    producer = Producer(f"127.0.0.1:{free_port()}", buffer_messages=1, when_full="discard", log_level=0)
    kept = producer.send("t", "x")
    discarded = [producer.send("t", "x", on_delivery=told.append) for _ in range(3)]
    assert told == discarded
    assert all(isinstance(delivery.exception(), BufferFull) for delivery in told)
    assert not kept.done()
    assert kept.exception is not None
    with pytest.raises(NotDelivered) as caught:
        producer.close(0)
    assert caught.value.count == 1


def test_closing_in_a_hurry_tells_what_was_given_up(unreachable: Producer) -> None:
    sent = [unreachable.send("t", "x") for _ in range(3)]
    with pytest.raises(NotDelivered, match="3 records were not delivered: record for t: it was still in the buffer"):
        unreachable.close(0.01)
    assert all(delivery.done() for delivery in sent)


def test_a_flush_that_takes_too_long_says_how_many_are_left(unreachable: Producer) -> None:
    unreachable.send("t", "x")
    with pytest.raises(TimeoutError, match=r"up to \d records are still on their way after 0\.01 s"):
        unreachable.flush(0.01)


def test_a_record_that_did_not_arrive_fails_the_flush_once() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", delivery_timeout=0.05, linger=0, log_level=0)
    producer.send("t", "x")
    with pytest.raises(NotDelivered, match="no broker answered in time"):
        producer.flush(10)
    producer.close()


def test_an_error_of_the_block_comes_first_and_is_noted() -> None:
    with (
        pytest.raises(ZeroDivisionError) as caught,
        Producer(f"127.0.0.1:{free_port()}", delivery_timeout=0.05, linger=0, log_level=0) as producer,
    ):
        producer.send("t", "x")
        raise ZeroDivisionError
    assert any("1 record was not delivered" in note for note in caught.value.__notes__)


def test_an_error_that_leads_to_a_close_is_not_replaced(unreachable: Producer) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        try:
            unreachable.send("t", "x")
            raise ZeroDivisionError
        finally:
            unreachable.close(0.05)
    assert any("1 record was not delivered" in note for note in caught.value.__notes__)


async def test_an_error_that_leads_to_a_close_is_not_replaced_in_asyncio() -> None:
    producer = AsyncProducer(f"127.0.0.1:{free_port()}", log_level=0)
    with pytest.raises(ZeroDivisionError) as caught:
        try:
            delivery = await producer.send("t", "x")
            raise ZeroDivisionError
        finally:
            await producer.close(0.05)
    assert any("1 record was not delivered" in note for note in caught.value.__notes__)
    assert delivery is not None


def test_a_consumer_that_commits_by_itself_takes_part_in_no_transaction() -> None:
    with (
        Producer("127.0.0.1:1", transactional_id="t") as producer,
        Consumer("127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(InvalidClientConfig, match="give the consumer auto_commit=False"),
        producer.transaction(consumer),
    ):
        raise AssertionError("the block has begun")


async def test_nor_does_one_of_asyncio() -> None:
    async with (
        AsyncProducer("127.0.0.1:1", transactional_id="t") as producer,
        AsyncConsumer("127.0.0.1:1", group_id="g") as consumer,
    ):
        with pytest.raises(InvalidClientConfig, match="give the consumer auto_commit=False"):
            async with producer.transaction(consumer):
                raise AssertionError("the block has begun")


@pytest.mark.parametrize(
    ("record", "told"),
    [
        ({"partition": 2**40}, "no broker takes partition 1099511627776 with timestamp 0"),
        ({"timestamp": 2**70}, f"no broker takes partition -1 with timestamp {2**70}"),
    ],
)
def test_numbers_beyond_those_of_a_record_are_refused(unreachable: Producer, record: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidClientConfig, match=f"^record for t: {told}"):
        unreachable.send("t", "x", **record)


def test_only_keys_and_values_are_told_to_be_serialized(unreachable: Producer) -> None:
    with pytest.raises(SerializationFailed, match="Give key_serializer= or value_serializer="):
        unreachable.send("t", 5)  # type: ignore[arg-type]
    with pytest.raises(SerializationFailed) as caught:
        unreachable.send("t", "x", headers={"a": 5})  # type: ignore[arg-type]
    assert "serializer" not in str(caught.value)


@pytest.mark.parametrize("headers", [[("\ud800", b"x")], {"\udcff": b"x"}, (("a", b"y"), ("\ud800", b"x"))])
def test_a_header_whose_name_is_not_unicode_is_refused(unreachable: Producer, headers: Any) -> None:
    """confluent-kafka would end the process."""
    with pytest.raises(SerializationFailed, match=r"^record for t: the name of a header is not Unicode"):
        unreachable.send("t", "x", headers=headers)


@pytest.mark.parametrize("seconds", [1e12, float("nan"), float("inf")])
def test_times_that_cannot_be_waited_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidClientConfig, match=f"^{seconds} seconds are no time".replace("+", r"\+")):
        Producer("127.0.0.1:1", delivery_timeout=seconds)


def test_what_librdkafka_refuses_is_one_line() -> None:
    with pytest.raises(InvalidClientConfig) as caught:
        Producer("127.0.0.1:1", linger=-1)
    assert "is outside allowed range" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_who_sends_after_the_end_is_told_so() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", log_level=0)
    producer.close()
    producer.close()
    for call in (lambda: producer.send("t", "x"), producer.flush, lambda: producer.partitions("t")):
        with pytest.raises(ClientClosed, match="the producer is closed"):
            call()


def test_a_record_that_comes_while_the_producer_is_closed_is_told_of_or_refused() -> None:
    """Whatever the threads do: no future is left without an end."""
    sent: list[Delivery] = []
    refused: list[ClientClosed] = []
    senders = 8
    for _ in range(5):
        producer = Producer(f"127.0.0.1:{free_port()}", value_serializer=slowly, log_level=0)
        begun = threading.Barrier(senders + 1)

        def send(producer: Producer[Any, Any] = producer, begun: threading.Barrier = begun) -> None:
            begun.wait(30)
            for _ in range(100_000):  # many more than are sent before it is closed, also if that takes its time
                try:
                    sent.append(producer.send("t", "x"))
                except ClientClosed as error:
                    refused.append(error)
                    return

        threads = [threading.Thread(target=send) for _ in range(senders)]
        for thread in threads:
            thread.start()
        begun.wait(30)
        try:
            producer.close(0)
        except NotDelivered as told:
            assert told.count
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    assert all(delivery.done() for delivery in sent)
    assert len(refused) == 5 * senders


class ClosedOnTheWay:
    """librdkafka's producer, where somebody closes ours just before a record comes into the buffer."""

    def __init__(self, producer: Producer[Any, Any]) -> None:
        self._producer = producer
        self._client = producer._native.client

    def __len__(self) -> int:
        return len(self._client)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def produce(self, *arguments: Any) -> None:
        closing = threading.Thread(target=self._producer.close, args=(0,))
        closing.start()
        closing.join(30)
        assert not closing.is_alive()
        self._client.produce(*arguments)


def test_a_record_that_comes_after_the_rest_was_given_up_is_told_of() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", log_level=0)
    producer._native.client = ClosedOnTheWay(producer)
    told: list[Delivery] = []
    with pytest.raises(ClientClosed, match="before the record arrived"):
        producer.send("t", "x", on_delivery=told.append)
    assert told[0].done()


def slowly(value: str) -> str:
    time.sleep(0.0001)
    return value


def test_a_second_close_waits_for_the_first() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", delivery_timeout=0.3, linger=0, log_level=0)
    sent = producer.send("t", "x", on_delivery=lambda _: None)
    first = threading.Thread(target=producer.close)
    first.start()
    producer.close()
    assert sent.done()
    first.join(10)


def test_callbacks_may_not_wait(unreachable: Producer) -> None:
    refused: list[str] = []

    def wait(delivery: Delivery) -> None:
        for call in (other.result, unreachable.flush, unreachable.close):
            try:
                call()
            except ClientFailed as error:
                refused.append(str(error))

    unreachable.send("t", "x", on_delivery=wait)
    other = unreachable.send("t", "x")
    unreachable._native.purge(unreachable._native.client)
    wait_until(lambda: len(refused) == 3, "the callback")
    assert [text.partition(": a callback may not wait")[0] for text in refused] == [
        "wait for a record for t",
        "flush",
        "close",
    ]
    assert other.exception(10) is not None


def test_a_callback_that_ends_the_program_leaves_the_others_alone(unreachable: Producer) -> None:
    unreachable.send("t", "x", on_delivery=lambda _: sys.exit(1))
    told = unreachable.send("t", "x", on_delivery=lambda _: None)
    unreachable._native.purge(unreachable._native.client)
    wait_until(told.done, "the other record")
    assert unreachable._native.poller.is_alive()


def test_an_error_of_the_block_is_not_replaced_by_one_of_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", log_level=0)

    def fails(*_: object) -> None:
        raise BrokerSilent("abort the transaction: no broker answered in time")

    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError) as caught, producer:
        patched.setattr(producer._native, "wait_for_all", fails)
        raise ZeroDivisionError
    assert caught.value.__notes__ == ["abort the transaction: no broker answered in time"]


def test_the_first_millisecond_is_refused(unreachable: Producer) -> None:
    for first in (0, datetime(1970, 1, 1, tzinfo=UTC)):
        with pytest.raises(InvalidClientConfig, match="takes the timestamp 0 for now"):
            unreachable.send("t", "x", timestamp=first)


def test_a_producer_that_was_dropped_ends_by_itself_with_a_warning() -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", delivery_timeout=0.1, linger=0, log_level=0)
    delivery = producer.send("t", "x")
    poller = producer._native.poller
    with pytest.warns(ResourceWarning, match="a producer was not closed"):
        del producer
    poller.join(10)
    assert not poller.is_alive()
    assert delivery.done()


def test_a_program_that_ends_without_closing_says_what_did_not_arrive() -> None:
    program = (
        "from barnabas import Producer; from barnabas.clients.producer import poller; poller.EXIT_SECONDS = 0.2; "
        f"p = Producer('127.0.0.1:{free_port()}', log_level=0); p.send('t', 'x'); p.send('t', 'y')"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "default", "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert "ResourceWarning: a producer was not closed" in ended.stderr
    assert "2 records were not delivered: the program ended without closing their producer" in ended.stderr


def test_a_child_is_told_that_clients_do_not_come_along(unreachable: Producer) -> None:
    unfinished = unreachable.send("t", "x")
    consumer = Consumer("127.0.0.1:1", group_id="g", log_level=0)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        told = []
        for call in (lambda: unreachable.send("t", "y"), unfinished.result, consumer.assignment):
            try:
                call()
            except ClientClosed as error:
                told.append(str(error))
        unreachable.close()
        consumer.close()
        os.write(write, "\n".join(told).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read().splitlines()
    assert os.waitpid(child, 0)[1] == 0
    assert told == [
        "the producer was opened by the parent of this process, and its threads are there: open another one here",
        "record for t: the parent of this process sent it, and only the parent learns its outcome",
        "the consumer was opened by the parent of this process, and its threads are there: open another one here",
    ]
    consumer.close()
