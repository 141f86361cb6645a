"""What becomes of acknowledgements: whoever waits for one hears of it, whatever happens."""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from barnabas.clients.errors import BrokerUnreachable, InvalidClientConfig, NotAcknowledged
from barnabas.clients.queue.engine import QueueEngine, QueueSettings
from barnabas.clients.queue.leader import HeldRecord, Leader
from barnabas.clients.queue.queue import Queue
from barnabas.clients.queue.session import SharePartitionId
from barnabas.clients.records import ConsumerRecord
from barnabas.clients.wire.connection import Node
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.acknowledgements import Acknowledgement
from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = SharePartitionId(uuid.uuid4(), 0)


class Part(NamedTuple):
    partition_index: int
    error_code: ErrorCode


class Topic(NamedTuple):
    topic_id: uuid.UUID
    partitions: tuple[Part, ...]


class Answer(NamedTuple):
    responses: tuple[Topic, ...]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class FakeWire:
    """Answers acknowledgements with the given codes, one after the other."""

    def __init__(self, *codes: ErrorCode) -> None:
        self.codes = list(codes)
        self.asked: list[Any] = []

    def ask(self, request: Any, at_least: int) -> Answer:
        self.asked.append(request)
        return Answer((Topic(PLACE.topic_id, (Part(PLACE.partition, self.codes.pop(0)),)),))


def engine() -> QueueEngine:
    return QueueEngine(
        QueueSettings(
            bootstrap_servers="localhost:1",
            properties={},
            topics=("work",),
            group_id="w",
            member_id="m",
            prefetch=1,
            longest_work=0,
            max_wait=timedelta(0),
            max_bytes=1,
            request_timeout=1,
        )
    )


@pytest.fixture
def leader() -> Leader:
    """A leader whose session is open, and whose thread does not run: a test takes its steps."""
    found = Leader(engine(), Node(1, "localhost", 1))
    found.lock_seconds = 30.0
    found._session.epoch = 1
    return found


def hold(leader: Leader, offset: int) -> HeldRecord:
    record = ConsumerRecord("work", 0, offset, 0, 1, None, None, delivery_count=1)
    held = HeldRecord(leader, PLACE, record, time.monotonic())
    leader._held[PLACE, offset] = held
    return held


def connect(leader: Leader, *codes: ErrorCode) -> FakeWire:
    wire = FakeWire(*codes)
    leader._wire = wire  # type: ignore[assignment]  # it answers what a test wants
    return wire


def test_an_acknowledgement_waits_for_a_coordinator_that_moves(leader: Leader) -> None:
    wire = connect(leader, ErrorCode.coordinator_not_available, ErrorCode.none)
    stored = hold(leader, 5).settle(Acknowledgement.ACCEPT)
    leader._step()
    assert not stored.done()
    leader._step()
    assert (stored.result(0), len(wire.asked)) == (None, 2)


def test_an_acknowledgement_whose_lock_is_over_is_not_sent_again(leader: Leader) -> None:
    connect(leader, ErrorCode.coordinator_not_available)
    leader.lock_seconds = 0.0
    stored = hold(leader, 5).settle(Acknowledgement.ACCEPT)
    leader._step()
    with pytest.raises(NotAcknowledged, match="COORDINATOR_NOT_AVAILABLE"):
        stored.result(0)


class Fetched(NamedTuple):
    records: bytes
    acquired_records: tuple[Any, ...]


class Range(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


def test_a_message_that_is_locked_again_is_not_given_to_a_program_that_has_said_what_became_of_it(
    leader: Leader,
) -> None:
    """A broker was slow: the lock ended before the acknowledgement was sent, and the same worker got it again."""
    connect(leader, ErrorCode.none)
    said, unsaid = hold(leader, 0), hold(leader, 1)
    stored = said.settle(Acknowledgement.ACCEPT)
    batch = build_batch([Record(number, 0, None, b"job") for number in range(2)], base_timestamp=0)
    leader._take(PLACE, TopicPartition("work", 0), Fetched(batch, (Range(0, 1, 2),)), time.monotonic())
    assert [held.record.offset for held in leader._engine.waiting] == [1]
    leader._step()
    assert stored.result(0) is None
    with pytest.raises(NotAcknowledged, match="lock was lost"):
        unsaid.settle(Acknowledgement.ACCEPT).result(0)


class FetchedPart(NamedTuple):
    partition_index: int
    records: bytes
    acquired_records: tuple[Range, ...]
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None
    acknowledge_error_code: int = 0


class FetchAnswer(NamedTuple):
    responses: tuple[Any, ...]
    acquisition_lock_timeout: timedelta = timedelta(seconds=30)
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


class FetchWire:
    """Answers fetches with the message at offset 0; meanwhile so many seconds pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
        self.asked: list[Any] = []
        self.error = ErrorCode.none
        self._seconds = iter(seconds)
        self._now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self._now)

    def ask(self, request: Any, at_least: int) -> FetchAnswer:
        self.asked.append(request)
        self._now += next(self._seconds)
        batch = build_batch([Record(0, 0, None, b"job")], base_timestamp=0)
        part = FetchedPart(PLACE.partition, batch, (Range(0, 0, 1),), self.error)
        return FetchAnswer((Topic(PLACE.topic_id, (part,)),))  # type: ignore[arg-type]  # a part of a fetch


def fetch(leader: Leader, wire: FetchWire) -> None:
    leader.lead({PLACE: TopicPartition("work", 0)})
    leader._fetch(wire, {}, 1)  # type: ignore[arg-type]  # it answers what a test wants


def test_a_message_whose_answer_waited_while_the_worker_was_stopped_is_not_given_to_the_program(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock ended meanwhile, and another worker may have it."""
    wire = FetchWire(monkeypatch, 30.0, 29.0)
    fetch(leader, wire)
    assert leader._engine.take(0) is None
    fetch(leader, wire)
    taken = leader._engine.take(0)
    assert taken is not None
    assert not taken.is_over()


def test_a_word_for_a_message_that_is_locked_again_counts_from_when_it_was_asked_for(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = FetchWire(monkeypatch, 20.0)
    hold(leader, 0).settle(Acknowledgement.ACCEPT)
    fetch(leader, wire)
    assert leader._pending[PLACE][0].until == 1030.0


def test_a_fetch_waits_for_a_small_part_of_the_time_that_locks_have(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks count from when it was asked: after a long wait they would seem to be over."""
    leader._engine.settings = replace(leader._engine.settings, max_wait=timedelta(seconds=60))
    leader.lock_seconds = 0.0
    wire = FetchWire(monkeypatch, 0.0, 0.0)
    fetch(leader, wire)
    fetch(leader, wire)
    assert [request.max_wait.total_seconds() for request in wire.asked] == [0.25, 7.5]


def test_a_refusal_is_logged_when_it_begins_and_not_with_each_fetch(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wire = FetchWire(monkeypatch, *[0.0] * 6)
    monkeypatch.setattr(leader, "_pause", lambda: None)
    codes = [ErrorCode.coordinator_not_available] * 3 + [ErrorCode.none, ErrorCode.coordinator_not_available]
    for wire.error in (*codes, ErrorCode.unknown_server_error):
        fetch(leader, wire)
    assert [record.message for record in caplog.records] == [
        f"Broker 1 refused fetches of work-0 for group w: {name}"
        for name in ("coordinator_not_available", "coordinator_not_available", "unknown_server_error")
    ]


def test_one_lost_lock_does_not_spoil_the_others(leader: Leader) -> None:
    wire = connect(leader, ErrorCode.invalid_record_state, ErrorCode.none, ErrorCode.invalid_record_state)
    first, second = (hold(leader, offset).settle(Acknowledgement.ACCEPT) for offset in (5, 6))
    for _ in range(3):
        leader._step()
    assert first.result(0) is None
    with pytest.raises(NotAcknowledged):
        second.result(0)
    assert wire.codes == []


def test_nobody_waits_for_ever_when_the_broker_cannot_be_reached(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BrokerUnreachable("it is down")

    monkeypatch.setattr(QueueSettings, "connect", refuse)
    stored = hold(leader, 5).settle(Acknowledgement.ACCEPT)
    with pytest.raises(BrokerUnreachable):
        leader._step()
    leader._lose(BrokerUnreachable("it is down"))
    with pytest.raises(NotAcknowledged, match="it is down"):
        stored.result(0)


def test_a_broker_that_is_lost_is_one_line_of_the_log_however_many_messages_it_had(
    leader: Leader, caplog: pytest.LogCaptureFixture
) -> None:
    told = [hold(leader, offset).settle(Acknowledgement.ACCEPT) for offset in (5, 6, 9)]
    leader._lose(BrokerUnreachable("it is down"))
    (line,) = (record.message for record in caplog.records if record.levelno == logging.WARNING)
    assert line == (
        "The acknowledgements of 3 messages of partition 0, from offset 5 to 9, were not stored, so they may be "
        "delivered again: it is down"
    )
    with pytest.raises(NotAcknowledged, match="the acknowledgement of offset 6 of partition 0 was not stored"):
        told[1].result(0)


def test_a_property_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidClientConfig, match=r"no\.such"):
        Queue("localhost:1", "work", "w", config={"no.such": "1"})


def test_an_acknowledgement_on_its_way_cannot_be_cancelled(leader: Leader) -> None:
    connect(leader, ErrorCode.none)
    stored = hold(leader, 5).settle(Acknowledgement.ACCEPT)
    assert not stored.cancel()
    leader._step()
    assert stored.result(0) is None


@pytest.mark.parametrize("take", [lambda queue: queue.get(0), lambda queue: next(iter(queue))], ids=["get", "for"])
def test_a_thread_that_fails_is_told_to_whoever_takes_a_message(
    take: Callable[[Queue[Any, Any]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    queue: Queue[Any, Any] = Queue("localhost:1", "work", "w")
    monkeypatch.setattr(queue, "_join", lambda: None)
    broken = Leader(queue._engine, Node(1, "localhost", 1))
    monkeypatch.setattr(broken, "_step", lambda: 1 / 0)
    broken._run()
    queue._engine.close()
    with pytest.raises(ZeroDivisionError):
        take(queue)
