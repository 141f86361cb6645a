"""The clients of a run: producers and consumers that work through every fault, and note what they did and saw.

Each is librdkafka's, in a thread of its own. A producer that ends with a fatal error is replaced: its successor counts
as another producer, for whose records nothing is promised about the order with those before.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)

from barnabas.clients.producer.serving import FatalFailure, serve
from tests.history.checker import Fate, Placed, Poll, Record, Reset, Send

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from confluent_kafka import Message

COMMON: Final[dict[str, Any]] = {
    "socket.timeout.ms": 5000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2000,
    "log_level": 0,
}
NO_LOGIN: Final[Mapping[str, Any]] = {}
"""The settings of clients that need not log in."""
SAFE: Final[dict[str, Any]] = {"acks": "all", "enable.idempotence": True}
"""How a producer is to be set so that nothing is lost or repeated."""
TRANSACTION_MS: Final = 150_000
"""Longer than a store is ever lost: a transaction that takes longer than this ends its producer, as it should."""
EXPIRY_MS: Final = 140_000
"""How long a producer tries to send a record; less than a transaction may take. When one expires, librdkafka begins a
new epoch and sends again what it had no answer for, which may be there already: no broker can help that, and what was
without an answer then may be repeated (`tests/history/expiry` shows it, with Apache Kafka too)."""
REFUSALS: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_MSG}
"""Answers which say that a record was not written; after all others nobody knows."""
NOT_THERE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}
COORDINATOR_MOVED: Final = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE}
"""As errors of a member: librdkafka asked for committed offsets while the coordinator moved. It asks no second time,
stays a member and reads nothing, with Apache Kafka too. The program is told, and has to subscribe again."""


class _Worker:
    """A thread that takes steps until it is told to end; what it fails with is raised where it is joined."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._ending = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def end(self) -> None:
        """Ask it to end."""
        self._ending.set()

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(seconds)
        self.check()
        if self._thread.is_alive():
            raise AssertionError(f"{self.name} did not end within {seconds:g} s; it is at\n{self._place()}")

    def _place(self) -> str:
        """The calls that its thread is in: a client library that never returns is told from a broker that is silent."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame is not None else "its end"

    def check(self) -> None:
        """Raise what it failed with."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self.step()
            self.finish()
        except BaseException as error:
            self._failure = error

    def step(self) -> None:
        """What it does again and again."""
        raise NotImplementedError

    def finish(self) -> None:
        """What it does at the end."""
        raise NotImplementedError


def is_fatal(error: KafkaError) -> bool:
    """Whether the producer is of no more use: what `produce` raises then has the code of it, and no mark."""
    return error.fatal() or error.code() == KafkaError._FATAL


class Sending(_Worker):
    """A producer, at a steady rate."""

    TIMEOUT_SECONDS: Final = 60.0
    """Seconds for which it waits for answers at the end."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, rate: float, config: Mapping[str, Any]
    ) -> None:
        super().__init__(name)
        self.sent: list[Send] = []
        self.fatal: list[str] = []
        self._repeatable = 0
        """Of so many records it is noted whether they may be repeated."""
        self.transaction = ""
        """The one that is open, if any."""
        self._offsets: dict[int, int] = {}
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause = 1 / rate
        self._config = config
        self._lives = 0
        self._producer = self._made()

    def change_password(self, user: str, password: str) -> None:
        """Log in with another password from now on, in this life and the next."""
        self._config = {**self._config, "sasl.password": password}
        self._producer.set_sasl_credentials(user, password)

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged."""
        return sum(send.fate is Fate.ACKNOWLEDGED for send in list(self.sent))

    def _made(self) -> Producer:
        self._lives += 1
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                **COMMON,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 500,
                "request.timeout.ms": 5000,
                "message.timeout.ms": EXPIRY_MS,
                **self._config,
            }
        )

    def step(self) -> None:
        """Send one record, and listen for answers until the next is due."""
        try:
            self._send()
            due = time.monotonic() + self._pause
            while (left := due - time.monotonic()) > 0 and not self._ending.is_set():
                self._serve(self._producer.poll, left)
        except KafkaException as failed:
            if not is_fatal(failed.args[0]):
                raise
            self._replace(failed.args[0])

    def _serve(self, call: Callable[[float], object], seconds: float) -> None:
        """Poll or flush."""
        try:
            serve(call, seconds)
        except FatalFailure as failure:
            raise KafkaException(KafkaError(KafkaError._FATAL, str(failure), fatal=True)) from failure

    def _send(self) -> None:
        index = len(self.sent)
        partition = index % self._partitions
        value = f"{self.name}.{index}"
        self.sent.append(
            Send(f"{self.name}/{self._lives}", partition, value, Fate.UNKNOWN, transaction=self.transaction)
        )
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._noting(index))
        except BufferError:
            self._record_fate(index, Fate.REFUSED, -1)
            self._producer.poll(0.1)

    def _replace(self, error: KafkaError) -> None:
        self.fatal.append(f"{self.name}/{self._lives}: {error.str()}")
        with suppress(KafkaException):
            self._serve(self._producer.flush, 5)
        self._producer = self._made()

    def finish(self) -> None:
        """Wait for the last answers; what is not answered stays unknown."""
        try:
            self._serve(self._producer.flush, self.TIMEOUT_SECONDS)
        except KafkaException as failed:
            self._replace(failed.args[0])

    def _noting(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                self._record_fate(index, Fate.ACKNOWLEDGED, -1 if offset is None else offset)
                return
            if error.code() in REFUSALS:
                self._record_fate(index, Fate.REFUSED, -1)
            elif error.code() == KafkaError._MSG_TIMED_OUT:
                self._expect_repetitions()

        return delivered

    def _expect_repetitions(self) -> None:
        """A record has expired: what has no answer yet may be sent in two epochs."""
        life = f"{self.name}/{self._lives}"
        for index in range(self._repeatable, len(self.sent)):
            send = self.sent[index]
            if send.fate is Fate.UNKNOWN and send.producer == life:
                self.sent[index] = send._replace(is_repeatable=True)
        self._repeatable = len(self.sent)

    def _record_fate(self, index: int, fate: Fate, offset: int) -> None:
        self.sent[index] = self.sent[index]._replace(fate=fate, offset=offset)


class Transacting(Sending):
    """A producer that sends a few records in each transaction, and aborts every fourth."""

    SIZE: Final = 4
    TRY: Final = 10.0

    def _made(self) -> Producer:
        producer = super()._made()
        self._prepared = False
        return producer

    def step(self) -> None:
        """One transaction, from its beginning to its end."""
        first = len(self.sent)
        try:
            if not self._prepared:
                self._producer.init_transactions(self.TRY)
                self._prepared = True
            self._producer.begin_transaction()
            self.transaction = f"{self.name}#{first}"
            for _ in range(self.SIZE):
                self._send()
                self._producer.poll(self._pause)
            if first // self.SIZE % 4 == 3:
                self._abort(first)
            else:
                self._commit(first)
        except KafkaException as failed:
            self._go_on_after(failed.args[0], first)

    def _go_on_after(self, error: KafkaError, first: int) -> None:
        try:
            if error.txn_requires_abort():
                self._abort(first)
            elif not error.retriable():
                self._replace(error)
        except KafkaException as failed:
            self._replace(failed.args[0])

    def finish(self) -> None:
        """Every transaction has ended, or nobody knows how."""

    def _commit(self, first: int) -> None:
        self._again(self._producer.commit_transaction)
        for index in range(first, len(self.sent)):
            self._record_fate(index, Fate.ACKNOWLEDGED, self._offsets.get(index, -1))

    def _abort(self, first: int) -> None:
        """Abort, after what is on its way has arrived.

        librdkafka ends for good if the coordinator has refused to add a partition and it aborts before it has asked
        again: it then aborts a transaction of which the coordinator does not know.
        """
        self._producer.flush(self.TIMEOUT_SECONDS)
        self._again(self._producer.abort_transaction)
        for index in range(first, len(self.sent)):
            self._record_fate(index, Fate.REFUSED, -1)

    def _again(self, end: Callable[[float], None]) -> None:
        """Try to end a transaction until it is ended, or can never be; a repetition is always safe."""
        while True:
            try:
                return end(self.TRY)
            except KafkaException as failed:
                if not failed.args[0].retriable():
                    raise

    def _noting(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            offset = message.offset()
            if error is None and offset is not None:
                self._offsets[index] = offset

        return delivered


class Reading(_Worker):
    """A consumer, of all partitions or as a member of a group."""

    BATCH: Final = 200
    COMMIT_EVERY: Final = 1.0

    def __init__(
        self,
        name: str,
        bootstrap: str,
        topic: str,
        partitions: int,
        group: str = "",
        login: Mapping[str, Any] = NO_LOGIN,
    ) -> None:
        super().__init__(name)
        self.events: list[Poll | Placed | Reset] = []
        self._topic = topic
        self._group = group
        self._statistics = ""
        self._new_login: tuple[str, str] | None = None
        self._last_commit = time.monotonic()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                **COMMON,
                "group.id": group or name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest" if group else "error",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 1000,
                "fetch.wait.max.ms": 100,
                "fetch.error.backoff.ms": 50,
                "statistics.interval.ms": 2000,
                "stats_cb": self._note,
                **login,
            }
        )
        if group:
            self._subscribe()
        else:
            self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])

    def _subscribe(self) -> None:
        placed = self._placed
        self._consumer.subscribe([self._topic], on_assign=placed, on_revoke=placed, on_lost=placed)

    def change_password(self, user: str, password: str) -> None:
        """Log in with another password from the next step on.

        The thread that polls sets it: a consumer takes one call at a time, and others hardly ever get in between.
        """
        self._new_login = user, password

    def _note(self, statistics: str) -> None:
        self._statistics = statistics

    def state(self) -> dict[str, dict[str, Any]]:
        """What librdkafka last said of its group and of each partition, for a consumer that gets no further."""
        told = json.loads(self._statistics or "{}")
        found = told.get("topics", {}).get(self._topic, {}).get("partitions", {})
        shown = ("fetch_state", "broker", "leader", "leader_epoch", "app_offset", "ls_offset", "hi_offset")
        states = {
            index: {key: partition.get(key) for key in shown} for index, partition in found.items() if index != "-1"
        }
        return {"group": told.get("cgrp", {}), **states}

    @property
    def read(self) -> int:
        """How many records it was given."""
        return sum(len(event.records) for event in list(self.events) if isinstance(event, Poll))

    def step(self) -> None:
        """Poll once; as a member of a group, commit now and then."""
        if self._new_login is not None:
            (user, password), self._new_login = self._new_login, None
            self._consumer.set_sasl_credentials(user, password)
        found, is_left_out = [], False
        for message in self._consumer.consume(self.BATCH, 0.2):
            error = message.error()
            if error is None:
                found.append(record_of(message))
            elif error.code() in NOT_THERE:
                self.events.append(Reset(self.name, error.str()))
            elif self._group and error.code() in COORDINATOR_MOVED:
                is_left_out = True
        if found:
            self.events.append(Poll(self.name, tuple(found), self._group))
        if is_left_out:
            self._consumer.unsubscribe()
            self._placed()
            self._subscribe()
        if self._group and time.monotonic() - self._last_commit > self.COMMIT_EVERY:
            self._last_commit = time.monotonic()
            with suppress(KafkaException):  # nothing to commit, or between two generations
                self._consumer.commit(asynchronous=True)

    def finish(self) -> None:
        """Leave."""
        self._consumer.close()

    def _placed(self, *_: object) -> None:
        self.events.append(Placed(self.name))


def record_of(message: Message) -> Record:
    """A message as the checker has it."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(partition, offset, (message.value() or b"").decode())
