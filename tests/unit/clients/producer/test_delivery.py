from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.clients.aio import producer as aio_producer
from barnabas.clients.aio.producer import AsyncDelivery, OutcomeCollector
from barnabas.clients.errors import BrokerSilent, BufferFull, ClientFailed, NotDelivered, RequestRefused
from barnabas.clients.producer import delivery as delivery_module
from barnabas.clients.producer.delivery import REMEMBERED, Delivery, Settlements
from barnabas.clients.producer.encoding import refusal
from barnabas.clients.producer.serving import FatalFailure
from barnabas.clients.records import RecordMetadata
from barnabas.model.errors import ErrorCode
from barnabas.model.remedies import Remedy, RemedyKind


class Message:
    """As librdkafka gives it back."""

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return 40

    def timestamp(self) -> tuple[int, int]:
        return 1, 1000


def test_a_result_is_where_the_record_went() -> None:
    delivery = Delivery(Settlements(), "t", None)
    assert not delivery.done()
    assert repr(delivery) == "<Delivery to t pending>"
    delivery(None, Message())
    assert delivery.result() == RecordMetadata("t", 2, 40, 1000)
    assert delivery.exception() is None
    assert repr(delivery) == "<Delivery to t-2 at 40>"


def test_whoever_waits_is_woken() -> None:
    delivery = Delivery(Settlements(), "t", None)
    found: list[RecordMetadata] = []
    waiting = threading.Thread(target=lambda: found.append(delivery.result(30)))
    waiting.start()
    delivery(None, Message())
    waiting.join(30)
    assert found == [RecordMetadata("t", 2, 40, 1000)]


def test_waiting_ends_at_its_time() -> None:
    with pytest.raises(TimeoutError, match=r"no answer within 0\.01 s for a record for t"):
        Delivery(Settlements(), "t", None).result(0.01)


def test_callbacks_are_told_before_and_after() -> None:
    told: list[Any] = []
    delivery = Delivery(Settlements(), "t", told.append)
    delivery.add_done_callback(told.append)
    assert told == []
    delivery(None, Message())
    assert told == [delivery, delivery]
    delivery.add_done_callback(told.append)
    assert told == [delivery] * 3


def test_a_callback_that_fails_is_logged_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    told: list[Any] = []

    def broken(_: Delivery) -> None:
        raise ZeroDivisionError

    delivery = Delivery(Settlements(), "t", broken)
    delivery.add_done_callback(told.append)
    delivery(None, Message())
    assert told == [delivery]
    assert "The callback of a record for topic t failed" in caplog.text


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, RequestRefused, "record for t: .*too large"),
        (KafkaError._MSG_TIMED_OUT, BrokerSilent, "record for t: no broker answered in time"),
        (KafkaError._PURGE_QUEUE, ClientFailed, "it was still in the buffer when it was given up"),
        (KafkaError._PURGE_INFLIGHT, ClientFailed, "it had no answer yet when it was given up"),
        (KafkaError._FATAL, ClientFailed, "record for t"),
    ],
)
def test_failures_say_what_happened(code: int, kind: type[Exception], text: str) -> None:
    settlements = Settlements()
    settlements.failures.hold_no_more()
    delivery = Delivery(settlements, "t", None)
    delivery(KafkaError(code), Message())
    with pytest.raises(kind, match=text):
        delivery.result()


def test_brokers_errors_have_their_code() -> None:
    delivery = Delivery(Settlements(), "t", None)
    delivery(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Message())
    error = delivery.exception()
    assert isinstance(error, RequestRefused)
    assert error.code == ErrorCode.topic_authorization_failed


def test_failures_that_nobody_looked_at_are_raised_once() -> None:
    shared = Settlements()
    unseen, seen, told = Delivery(shared, "a", None), Delivery(shared, "b", None), Delivery(shared, "c", lambda _: None)
    for delivery in (unseen, seen, told):
        delivery.fail(BufferFull(f"no room for {delivery.topic}"))
    seen.exception()
    with pytest.raises(NotDelivered, match="1 record was not delivered: no room for a") as caught:
        shared.failures.raise_any()
    assert caught.value.count == 1
    shared.failures.raise_any()


def test_after_the_program_was_told_of_all_nothing_is_raised() -> None:
    shared = Settlements()
    shared.failures.ignore_all()
    Delivery(shared, "t", None).fail(BufferFull("it was still in the buffer"))
    shared.failures.raise_any()


def test_a_late_callback_counts_as_a_look() -> None:
    shared = Settlements()
    delivery = Delivery(shared, "t", None)
    delivery.fail(BufferFull("no room"))
    delivery.add_done_callback(lambda _: None)
    shared.failures.raise_any()


def test_of_many_failures_the_first_are_kept_and_all_are_counted() -> None:
    shared = Settlements()
    kept = [Delivery(shared, "t", None) for _ in range(REMEMBERED + 50)]
    for number, delivery in enumerate(kept):
        delivery.fail(BufferFull(f"reason {number % 5}"))
    with pytest.raises(NotDelivered) as caught:
        shared.failures.raise_any()
    assert caught.value.count == REMEMBERED + 50
    assert len(caught.value.errors) == REMEMBERED
    assert str(caught.value) == "150 records were not delivered: reason 0; reason 1; reason 2 (and 2 other reasons)"


def test_failures_of_deliveries_that_were_dropped_are_all_counted() -> None:
    shared = Settlements()
    for number in range(3):
        Delivery(shared, "t", None).fail(BufferFull(f"reason {number}"))
    with pytest.raises(NotDelivered, match="3 records were not delivered: reason 0; reason 1; reason 2"):
        shared.failures.raise_any()


def test_many_failures_that_were_all_looked_at_are_not_raised() -> None:
    shared = Settlements()
    failed = [Delivery(shared, "t", None) for _ in range(REMEMBERED + 50)]
    for delivery in failed:
        delivery.fail(BufferFull("no room"))
    for delivery in [*failed, *failed]:
        delivery.exception()
    assert shared.failures.forget() == (0, [])


def test_a_look_at_a_failure_that_was_raised_before_hides_no_later_one() -> None:
    shared = Settlements()
    rounds = [[Delivery(shared, "t", None) for _ in range(REMEMBERED + 1)] for _ in range(2)]
    for failed in rounds:
        shared.failures.forget()
        for delivery in failed:
            delivery.fail(BufferFull("no room"))
    rounds[0][-1].exception()
    assert shared.failures.forget()[0] == REMEMBERED + 1


def test_a_record_of_which_nothing_will_be_told_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_module, "LOOK_SECONDS", 0.05)
    shared = Settlements()
    told: list[Delivery] = []
    delivery = Delivery(shared, "t", told.append)  # whose callback a signal handler has interrupted
    shared.on_their_way = iter([1, 0]).__next__
    with pytest.raises(ClientFailed, match="a signal handler raised while its outcome was reported") as caught:
        delivery.result()
    assert caught.value.name == "_INTR"
    assert told == [delivery]


def async_delivery(shared: Settlements, collector: OutcomeCollector | None = None) -> AsyncDelivery:
    loop = asyncio.get_running_loop()
    delivery = AsyncDelivery(loop=loop)
    delivery.topic, delivery.collector = "t", collector or OutcomeCollector(loop, shared)
    return delivery


def fail(delivery: AsyncDelivery) -> None:
    delivery.outcome = BufferFull("no room")
    delivery.settle()


async def test_an_awaited_success_hides_no_dropped_failure() -> None:
    async def settled() -> int:
        shared = Settlements()
        for _ in range(20):  # of which some get the address of one that was dropped
            fail(async_delivery(shared))
            arrived = async_delivery(shared)
            arrived.outcome = (0, 1, 2)
            arrived.settle()
            assert await arrived == arrived.result() == RecordMetadata("t", 0, 1, 2)
            del arrived
        return shared.failures.forget()[0]

    assert await settled() == 20


async def test_an_awaited_failure_is_not_raised_again() -> None:
    async def looked_at() -> int:
        shared = Settlements()
        failed = [async_delivery(shared) for _ in range(REMEMBERED + 50)]
        for delivery in failed:
            fail(delivery)
        for delivery in failed:
            with pytest.raises(BufferFull):
                await delivery
        return shared.failures.forget()[0]

    assert await looked_at() == 0


async def test_a_future_whose_outcome_was_lost_ends_when_librdkafka_owes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler raised before the outcome was noted. As long as records are on their way it may still come."""
    monkeypatch.setattr(aio_producer, "LOOK_SECONDS", 0.01)
    owed = [1, 0, 1, 0, 0]
    shared = Settlements()
    shared.on_their_way = lambda: owed.pop(0)
    with pytest.raises(ClientFailed, match="a signal handler raised while its outcome was reported") as caught:
        await asyncio.wait_for(async_delivery(shared), 30)
    assert caught.value.name == "_INTR"
    assert owed == []
    shared.failures.raise_any()


class Interrupted(Exception):
    """What the signal handler of a test raises."""


class InterruptedDelivery(AsyncDelivery):
    """A signal handler raises where it is settled for the first time."""

    interruptions = 1

    def settle(self) -> None:
        if self.interruptions:
            self.interruptions -= 1
            raise Interrupted
        super().settle()


async def test_outcomes_that_a_signal_handler_kept_from_being_handed_over_are_not_lost() -> None:
    shared, loop = Settlements(), asyncio.get_running_loop()
    shared.on_their_way = lambda: 1  # others, so that nothing is given up
    collector = OutcomeCollector(loop, shared)
    sent: list[AsyncDelivery] = [InterruptedDelivery(loop=loop), AsyncDelivery(loop=loop)]
    for delivery in sent:
        delivery.topic, delivery.collector = "t", collector
        delivery(None, Message())
    with pytest.raises(Interrupted):
        collector.hand_over()
    assert await asyncio.wait_for(asyncio.gather(*sent), 30) == [RecordMetadata("t", 2, 40, 1000)] * 2


def no_producer_id() -> KafkaError:
    """What a user gets who may write to no topic."""
    return KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, "Failed to acquire idempotence PID", fatal=True)


def test_records_of_a_producer_that_failed_for_good_say_why() -> None:
    settlements = Settlements()
    settlements.failures.fail_for_good(FatalFailure(no_producer_id()))
    delivery = Delivery(settlements, "t", None)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    error = delivery.exception()
    assert isinstance(error, RequestRefused)
    assert str(error) == "no permission to write to topic t, nor to any other (Write on topic t)"
    assert error.remedy == Remedy(RemedyKind.ASK_FOR_PERMISSION, "Write topic t")


async def test_and_so_in_asyncio() -> None:
    settlements = Settlements()
    settlements.failures.fail_for_good(FatalFailure(no_producer_id()))
    delivery = AsyncDelivery()
    delivery.topic, delivery.collector = "t", OutcomeCollector(asyncio.get_running_loop(), settlements)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    with pytest.raises(RequestRefused, match="no permission to write to topic t, nor to any other"):
        await delivery


def test_who_sends_after_that_is_told_as_well() -> None:
    stopped = KafkaException(KafkaError(KafkaError._FATAL, "Unable to produce message"))
    error = refusal(("t", b"x", None, -1, None), stopped, no_producer_id())
    assert str(error) == "no permission to write to topic t, nor to any other (Write on topic t)"


def test_the_log_says_it_without_a_topic(caplog: pytest.LogCaptureFixture) -> None:
    Settlements().failures.fail_for_good(FatalFailure(no_producer_id()))
    (line,) = caplog.messages
    assert line.endswith("who sends more: no permission to write to any topic (Write on a topic)")


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "late"])
def test_one_that_comes_without_its_name_is_logged_in_librdkafkas_words(
    caplog: pytest.LogCaptureFixture, *, is_late: bool
) -> None:
    failures = Settlements().failures
    for note in (False, True) if is_late else (True, False):
        if note:
            failures.note_fatal_line("Fatal error: fenced by another")
        else:
            failures.fail_for_good(FatalFailure(None))
    failures.note_fatal_line("Fatal error: fenced by another")
    assert len([line for line in caplog.messages if line.endswith(": Fatal error: fenced by another")]) == 1


def test_one_that_has_its_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = Settlements().failures
    for _ in range(2):
        failures.note_fatal_line("Fatal error: Cluster authorization failed")
        failures.fail_for_good(FatalFailure(no_producer_id()))
    (line,) = caplog.messages
    assert line.endswith("(Write on a topic)")


def test_a_topic_that_may_not_be_written_is_named() -> None:
    delivery = Delivery(Settlements(), "t", None)
    delivery(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), Message())
    assert str(delivery.exception()) == "no permission to write to topic t (Write on topic t)"


def test_records_that_were_given_up_wait_for_the_reason_that_comes_after_them() -> None:
    settlements = Settlements()
    delivery = Delivery(settlements, "t", None)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    assert not delivery.done()
    told: list[str] = []

    def flush() -> None:
        settlements.failures.await_reason(30)
        told.append(str(delivery.exception()))

    flushing = threading.Thread(target=flush)
    flushing.start()
    settlements.failures.fail_for_good(FatalFailure(no_producer_id()))
    flushing.join(30)
    assert told == ["no permission to write to topic t, nor to any other (Write on topic t)"]


def test_they_do_not_wait_for_one_that_does_not_come() -> None:
    settlements = Settlements()
    delivery = Delivery(settlements, "t", None)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    settlements.failures.await_reason(0)
    with pytest.raises(NotDelivered, match="it was still in the buffer when it was given up"):
        settlements.failures.raise_any()


def test_records_that_we_give_up_ourselves_wait_for_nothing() -> None:
    settlements = Settlements()
    settlements.failures.hold_no_more()
    delivery = Delivery(settlements, "t", None)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    assert isinstance(delivery.exception(), ClientFailed)


def test_a_record_that_is_held_is_not_taken_for_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason does not come, and its outcome was told: it was given up."""
    monkeypatch.setattr(delivery_module, "LOOK_SECONDS", 0.05)
    settlements = Settlements()
    told: list[Delivery] = []
    delivery = Delivery(settlements, "t", told.append)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    with pytest.raises(ClientFailed, match="it was still in the buffer when it was given up") as caught:
        delivery.result(30)
    settlements.failures.hold_no_more()
    assert delivery.exception() is caught.value
    assert told == [delivery]


async def test_nor_is_it_in_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio_producer, "LOOK_SECONDS", 0.01)
    delivery = async_delivery(Settlements())
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    with pytest.raises(ClientFailed, match="it was still in the buffer when it was given up"):
        await asyncio.wait_for(delivery, 30)


async def test_in_asyncio_they_wait_as_well() -> None:
    settlements = Settlements()
    delivery = AsyncDelivery()
    delivery.topic, delivery.collector = "t", OutcomeCollector(asyncio.get_running_loop(), settlements)
    delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    await asyncio.sleep(0)
    assert not delivery.done()
    settlements.failures.fail_for_good(FatalFailure(no_producer_id()))
    with pytest.raises(RequestRefused, match="nor to any other"):
        await delivery


def test_a_callback_that_ends_the_program_leaves_no_record_without_its_reason() -> None:
    settlements = Settlements()
    ending = Delivery(settlements, "t", lambda _: sys.exit(3))
    other = Delivery(settlements, "t", None)
    for delivery in (ending, other):
        delivery(KafkaError(KafkaError._PURGE_QUEUE), Message())
    with pytest.raises(SystemExit):
        settlements.failures.fail_for_good(FatalFailure(no_producer_id()))
    assert isinstance(other.exception(0), RequestRefused)
    settlements.failures.await_reason(0)
