"""A signal handler that raises while brokers are asked costs no answer: a program with many signals gets on."""

from __future__ import annotations

import hashlib
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.consumer.native import NativeConsumer
from barnabas.clients.consumer.seeking import BEGINNING, Positions
from barnabas.clients.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTITION = TopicPartition("t", 0)


class Interrupted(Exception):
    """What the signal handler raises."""


@pytest.fixture
def alarm() -> Iterator[None]:
    """A signal in a moment."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("alarm")
def test_an_answer_that_comes_with_a_signal_is_kept() -> None:
    """The question is a call of C that takes a while, as those of librdkafka are."""
    native = NativeConsumer(SimpleNamespace(KafkaException=OSError), None, group_id="group")
    question = ("sha256", b"password", b"salt", 1_000_000)
    kept: list[Any] = []
    with pytest.raises(Interrupted):
        native.ask(kept, "ask", hashlib.pbkdf2_hmac, *question)
    assert len(kept) == 1
    assert native.ask(kept, "ask", hashlib.pbkdf2_hmac, *question) is kept[0]


class Native:
    """Brokers whose every answer comes with a signal."""

    group_id = "group"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sought: list[tuple[TopicPartition, int]] = []

    def positions(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 50)

    def assignment(self) -> list[TopicPartition]:
        return [PARTITION]

    def committed(self, _: object, kept: list[Any]) -> dict[TopicPartition, int | None]:
        self._answer("committed", kept)
        return {PARTITION: None}

    def ends(self, _: object, kept: list[Any]) -> tuple[int, int]:
        self._answer("ends", kept)
        return 7, 100

    def _answer(self, what: str, kept: list[Any]) -> None:
        if not kept:
            self.asked.append(what)
            kept.append(what)
            raise Interrupted

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.sought.append((partition, offset))


def test_lost_messages_are_found_though_every_answer_comes_with_a_signal() -> None:
    native: Any = Native()
    fetched: Any = SimpleNamespace(last_offset=lambda _: None)
    handed_out: Any = SimpleNamespace(following={}, refuse_transaction=lambda _: None, drop=lambda *_: None)
    positions = Positions(native, fetched, handed_out, reset=BEGINNING)
    positions._suspects = {PARTITION: 0.0}
    for _ in range(2):
        with pytest.raises(Interrupted):
            positions.find_lost()
    positions.find_lost()
    assert native.asked == ["committed", "ends"]
    assert native.sought == [(PARTITION, 7)]
