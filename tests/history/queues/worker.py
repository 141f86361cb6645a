"""A worker of a queue as a program of its own, which writes down what it sees and says, line by line.

    python -m tests.history.queues.worker CLIENT BOOTSTRAP TOPIC GROUP NAME SEED

Clients are `queue` (barnabas.Queue), `eager` (the same, and accepts everything at once) and `confluent`
(confluent-kafka's ShareConsumer). A line is written before anything is said, so that a worker which is killed leaves
behind what it may have said. Times are of CLOCK_MONOTONIC, which all processes of a host share.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tests.history.queues.events import Fate, Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from confluent_kafka import ShareConsumer

    from barnabas.clients.queue.message import QueueMessage

KINDS: Final = (*[Kind.ACCEPT] * 12, *[Kind.RELEASE] * 4, Kind.REJECT, None)
"""What a worker says of a message; None says nothing until the lock is over."""
UNSENT: Final = "its lock was lost before"
"""What the queue says of an acknowledgement that never left."""
COMMIT_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.5
UNKNOWN_AT: Final = -1.0
"""When librdkafka asks for messages is its own affair."""


class Order(NamedTuple):
    """What the program was started with."""

    client: str
    bootstrap: str
    topic: str
    group: str
    name: str
    seed: str


class Notebook:
    """Writes lines that stay when the process is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._numbers = count(1)

    def came(
        self, place: tuple[int, int], value: str, deliveries: int, asked_at: float, leader: int = -1, session: str = ""
    ) -> None:
        """A message came."""
        self._write("came", self.name, *place, value, deliveries, asked_at, time.monotonic(), leader, session)

    def says(self, place: tuple[int, int], kind: Kind, deliveries: int) -> int:
        """Something is about to be said."""
        number = next(self._numbers)
        self._write("says", self.name, number, *place, kind.value, deliveries, time.monotonic())
        return number

    def told(self, number: int, fate: Fate) -> None:
        """It was answered."""
        self._write("told", self.name, number, fate.value, time.monotonic())

    @staticmethod
    def _write(*event: object) -> None:
        os.write(1, (json.dumps(event) + "\n").encode())


def main() -> None:
    """Work until a signal comes."""
    order = Order(*sys.argv[1:])
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    programs: dict[str, Callable[[Order, Notebook, threading.Event], None]] = {
        "queue": _work_on_queue,
        "eager": _work_on_queue,
        "confluent": _work_with_confluent,
    }
    programs[order.client](order, Notebook(order.name), ending)


# barnabas.Queue


def _note_sessions() -> None:
    """Let every message know in which share session it came."""
    from barnabas.clients.queue import leader
    from barnabas.clients.queue.session import LeaderSession

    numbers = count(1)

    class Numbered(LeaderSession):
        """A session that has a number until it ends."""

        def __init__(self, *others: Any) -> None:
            super().__init__(*others)
            self.number = next(numbers)

        def reset(self) -> None:
            super().reset()
            self.number = next(numbers)

    class Held(leader.HeldRecord):
        """A message that knows it."""

        __slots__ = ("session",)

        def __init__(self, owner: Any, *others: Any) -> None:
            super().__init__(owner, *others)
            self.session = f"{os.getpid()}-{owner._session.number}"

    leader.LeaderSession = Numbered  # type: ignore[attr-defined, assignment]
    leader.HeldRecord = Held  # type: ignore[misc, assignment]


def _work_on_queue(order: Order, notes: Notebook, ending: threading.Event) -> None:
    from barnabas.clients import Queue
    from barnabas.model.base_error import BarnabasError

    _note_sessions()
    chance = random.Random(order.seed)
    eager = order.client == "eager"
    settings = {"fetch.max.wait.ms": "100", "request.timeout.ms": "5000"}
    while not ending.is_set():
        try:
            with Queue(
                order.bootstrap,
                order.topic,
                order.group,
                prefetch=10 if eager else chance.choice((1, 5)),
                longest_work=0 if eager else chance.choice((0, 4)),
                config=settings,
            ) as queue:
                while not ending.is_set():
                    message = queue.get(timeout=POLL_SECONDS)
                    if message is not None:
                        _handle(message, notes, Kind.ACCEPT if eager else chance.choice(KINDS))
                    if message is not None and not eager:
                        ending.wait(chance.choice((0, 0.01, 0.05, 0.3)) * chance.random())
        except BarnabasError as error:
            print(f"again: {error}", file=sys.stderr, flush=True)
            ending.wait(0.2)


def _handle(message: QueueMessage[bytes, bytes], notes: Notebook, kind: Kind | None) -> None:
    record = message.record
    place = record.partition, record.offset
    held: Any = message._held
    value = (record.value or b"").decode()
    notes.came(place, value, message.deliveries, held.acquired_at, held.leader.node.id, held.session)
    if kind is None:
        return
    number = notes.says(place, kind, message.deliveries)
    say = {Kind.ACCEPT: message.done, Kind.RELEASE: message.retry, Kind.REJECT: message.reject}[kind]
    say().add_done_callback(lambda told: notes.told(number, _fate(told)))


def _fate(told: Future[None]) -> Fate:
    error = told.exception()
    if error is None:
        return Fate.STORED
    return Fate.REFUSED if UNSENT in str(error) else Fate.UNKNOWN


# confluent-kafka


def _work_with_confluent(order: Order, notes: Notebook, ending: threading.Event) -> None:
    from confluent_kafka import KafkaException, ShareConsumer

    chance = random.Random(order.seed)
    consumer: ShareConsumer = ShareConsumer(
        {
            "bootstrap.servers": order.bootstrap,
            "group.id": order.group,
            "share.acknowledgement.mode": "explicit",
            "socket.timeout.ms": 5000,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2000,
            "log_level": 0,
        }
    )
    consumer.subscribe([order.topic])
    while not ending.is_set():
        try:
            _poll(consumer, notes, chance)
        except KafkaException as error:
            print(f"again: {error}", file=sys.stderr, flush=True)
            ending.wait(0.2)
    consumer.close()


def _poll(consumer: ShareConsumer, notes: Notebook, chance: random.Random) -> None:
    """Take what there is, and say what became of all of it: librdkafka wants to hear that before the next poll."""
    from confluent_kafka import AcknowledgeType

    types = {
        Kind.ACCEPT: AcknowledgeType.ACCEPT,
        Kind.RELEASE: AcknowledgeType.RELEASE,
        Kind.REJECT: AcknowledgeType.REJECT,
    }
    said: dict[int, list[int]] = {}
    for message in consumer.poll(POLL_SECONDS):
        if message.error() is not None:
            continue
        partition, offset, deliveries = message.partition(), message.offset(), message.delivery_count()
        assert partition is not None
        assert offset is not None
        assert deliveries is not None
        notes.came((partition, offset), (message.value() or b"").decode(), deliveries, UNKNOWN_AT)
        kind = chance.choice(KINDS) or Kind.RELEASE
        said.setdefault(partition, []).append(notes.says((partition, offset), kind, deliveries))
        consumer.acknowledge(message, types[kind])
    for answered, error in consumer.commit_sync(COMMIT_SECONDS).items() if said else ():
        for number in said.pop(answered.partition, ()):
            notes.told(number, Fate.STORED if error is None else Fate.UNKNOWN)


if __name__ == "__main__":
    main()
