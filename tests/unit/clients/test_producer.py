from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.aio import AsyncConsumer, AsyncProducer
from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import BufferFull, InvalidClientConfig, NotDelivered, SerializationFailed
from barnabas.clients.producer import Producer
from tests.support.processes import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.clients.delivery import Delivery


@pytest.fixture
def unreachable() -> Iterator[Producer]:
    """A producer of which nothing ever arrives, with room for three records."""
    producer = Producer(f"127.0.0.1:{free_port()}", buffer_messages=3, log_level=0, max_block=0.05)
    yield producer
    try:
        producer.close(0)
    except NotDelivered:
        assert producer._closed


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
    with pytest.raises(TimeoutError, match=r"1 records are still on their way after 0\.01 s"):
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


def test_a_consumer_that_commits_by_itself_takes_part_in_no_transaction() -> None:
    with (
        Producer("127.0.0.1:1", transactional_id="t") as producer,
        Consumer("127.0.0.1:1", group_id="g") as consumer,
        pytest.raises(InvalidClientConfig, match="give the consumer auto_commit=False"),
        producer.transaction(consumer),
    ):
        raise AssertionError("the block has begun")


def test_nor_does_one_of_asyncio() -> None:
    async def run() -> None:
        async with (
            AsyncProducer("127.0.0.1:1", transactional_id="t") as producer,
            AsyncConsumer("127.0.0.1:1", group_id="g") as consumer,
        ):
            with pytest.raises(InvalidClientConfig, match="give the consumer auto_commit=False"):
                async with producer.transaction(consumer):
                    raise AssertionError("the block has begun")

    asyncio.run(run())


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


@pytest.mark.parametrize("seconds", [1e12, float("nan"), float("inf")])
def test_times_that_cannot_be_waited_are_refused(seconds: float) -> None:
    with pytest.raises(InvalidClientConfig, match=f"^{seconds} seconds are no time".replace("+", r"\+")):
        Producer("127.0.0.1:1", delivery_timeout=seconds)


def test_what_librdkafka_refuses_is_one_line() -> None:
    with pytest.raises(InvalidClientConfig) as caught:
        Producer("127.0.0.1:1", linger=-1)
    assert "is outside allowed range" in str(caught.value)
    assert "\n" not in str(caught.value)
