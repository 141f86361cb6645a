"""Clients that work through every fault, and note what they did and saw.

Producers send values that are used once, each producer to all partitions in turn; some do so in transactions, of which
they abort a few. One consumer reads everything from
the start and is never moved; the members of a group share the partitions and commit now and then. At the end, when the
faults are over, everything is read once more.

The clients are librdkafka's, each in a thread of its own. A producer that ends with a fatal error is replaced: its
successor counts as another producer, for whose records nothing is promised about the order with those before.
"""

from __future__ import annotations

import json
import threading
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.history.checker import Fate, History, Placed, Poll, Record, Reset, Send
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
new epoch and sends again what it had no answer for, which may be there already: no broker can help that."""
REFUSALS: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.INVALID_TIMESTAMP, KafkaError.INVALID_MSG}
"""Answers which say that a record was not written; after all others nobody knows."""
NOT_THERE: Final = {KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION}


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
            raise AssertionError(f"{self.name} did not end within {seconds:g} s")

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
                self._producer.poll(left)
        except KafkaException as failed:
            if not failed.args[0].fatal():
                raise
            self._replace(failed.args[0])

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
            self._producer.flush(5)
        self._producer = self._made()

    def finish(self) -> None:
        """Wait for the last answers; what is not answered stays unknown."""
        try:
            self._producer.flush(self.TIMEOUT_SECONDS)
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

        return delivered

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
            placed = self._placed
            self._consumer.subscribe([topic], on_assign=placed, on_revoke=placed, on_lost=placed)
        else:
            self._consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)])

    def change_password(self, user: str, password: str) -> None:
        """Log in with another password from the next step on.

        The thread that polls sets it: a consumer takes one call at a time, and others hardly ever get in between.
        """
        self._new_login = user, password

    def _note(self, statistics: str) -> None:
        self._statistics = statistics

    def state(self) -> dict[str, dict[str, Any]]:
        """What librdkafka last said of each partition, for a consumer that gets no further."""
        found = json.loads(self._statistics or "{}").get("topics", {}).get(self._topic, {}).get("partitions", {})
        shown = ("fetch_state", "broker", "leader", "leader_epoch", "app_offset", "ls_offset", "hi_offset")
        return {
            index: {key: partition.get(key) for key in shown} for index, partition in found.items() if index != "-1"
        }

    @property
    def read(self) -> int:
        """How many records it was given."""
        return sum(len(event.records) for event in list(self.events) if isinstance(event, Poll))

    def step(self) -> None:
        """Poll once; as a member of a group, commit now and then."""
        if self._new_login is not None:
            (user, password), self._new_login = self._new_login, None
            self._consumer.set_sasl_credentials(user, password)
        found = []
        for message in self._consumer.consume(self.BATCH, 0.2):
            error = message.error()
            if error is None:
                found.append(_record(message))
            elif error.code() in NOT_THERE:
                self.events.append(Reset(self.name, error.str()))
        if found:
            self.events.append(Poll(self.name, tuple(found), self._group))
        if self._group and time.monotonic() - self._last_commit > self.COMMIT_EVERY:
            self._last_commit = time.monotonic()
            with suppress(KafkaException):  # nothing to commit, or between two generations
                self._consumer.commit(asynchronous=True)

    def finish(self) -> None:
        """Leave."""
        self._consumer.close()

    def _placed(self, *_: object) -> None:
        self.events.append(Placed(self.name))


def _record(message: Message) -> Record:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Record(partition, offset, (message.value() or b"").decode())


class Workload:
    """All clients of one run; as a context manager they begin, and are ended at the latest where it ends."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        producers: int = 2,
        transactional: int = 0,
        members: int = 2,
        rate: float = 60,
        config: Mapping[str, Any] = SAFE,
        others: Sequence[Sending] = (),
        login: Mapping[str, Any] = NO_LOGIN,
    ) -> None:
        """`others` are producers that take part and that somebody else has made; `login` is for all clients."""
        self._login = dict(login)
        config = {**config, **login}
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self.producers = [
            Sending(f"p{index}", bootstrap, topic, partitions, rate, config) for index in range(producers)
        ]
        for index in range(transactional):
            name = f"t{index}"
            wanted = {**config, "transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}
            self.producers.append(Transacting(name, bootstrap, topic, partitions, rate, wanted))
        self.producers += others
        self.consumers = [Reading("reader", bootstrap, topic, partitions, login=login)]
        self.consumers += [
            Reading(f"member{i}", bootstrap, topic, partitions, "members", login) for i in range(members)
        ]

    def __enter__(self) -> Workload:
        for worker in (*self.consumers, *self.producers):
            worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        for worker in (*self.producers, *self.consumers):
            worker.end()

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged so far."""
        return sum(producer.acknowledged for producer in self.producers)

    @property
    def fatal(self) -> list[str]:
        """Why producers had to be replaced."""
        return [reason for producer in self.producers for reason in producer.fatal]

    def change_password(self, user: str, password: str) -> None:
        """Have all clients log in with another password from now on."""
        self._login["sasl.password"] = password
        for producer in self.producers:
            producer.change_password(user, password)
        for consumer in self.consumers:
            consumer.change_password(user, password)

    def finish(self, seconds: float = 180) -> History:
        """End all clients, read everything, and give the history."""
        for producer in self.producers:
            producer.end()
        for producer in self.producers:
            producer.join(seconds)
        final = read_all(self._bootstrap, self._topic, self._partitions, seconds, self._login)
        for consumers in (self.consumers[:1], self.consumers[1:]):
            names = ", ".join(consumer.name for consumer in consumers)
            reached = partial(_cover, consumers, final)
            try:
                wait_until(reached, f"{names} to reach the end of {self._topic}", seconds, 0.2)
            except AssertionError as failed:
                states = {consumer.name: consumer.state() for consumer in consumers}
                raise AssertionError(f"{failed}; librdkafka says: {states}") from None
        for consumer in self.consumers:
            consumer.end()
        for consumer in self.consumers:
            consumer.join(seconds)
        sends = [send for producer in self.producers for send in producer.sent]
        return History(sends, [event for consumer in self.consumers for event in consumer.events], final)


def _cover(consumers: Sequence[Reading], records: Sequence[Record]) -> bool:
    """Whether these consumers, together, have come to the end of every partition, or will never (see `Reset`)."""
    for consumer in consumers:
        consumer.check()
    events = [event for consumer in consumers for event in list(consumer.events)]
    if not consumers or any(isinstance(event, Reset) for event in events):
        return True
    reached: dict[int, int] = {}
    for event in events:
        for record in event.records if isinstance(event, Poll) else ():
            reached[record.partition] = max(record.offset, reached.get(record.partition, -1))
    return all(reached.get(record.partition, -1) >= record.offset for record in records)


def read_all(
    bootstrap: str, topic: str, partitions: int, seconds: float, login: Mapping[str, Any] = NO_LOGIN
) -> Sequence[Record]:
    """Every record of a topic, from the start of each partition to its end as it is now."""
    asked = {"group.id": "final", "auto.offset.reset": "error", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **COMMON, **asked, **login})
    deadline = time.monotonic() + seconds
    found: list[Record] = []
    try:
        places = [TopicPartition(topic, index, OFFSET_BEGINNING) for index in range(partitions)]
        ends = _ends(bootstrap, topic, partitions, deadline, login)
        missing = {index for index, end in ends.items() if end > 0}
        consumer.assign(places)
        while missing:
            if time.monotonic() > deadline:
                raise AssertionError(f"{topic} could not be read within {seconds:g} s: {missing} of {ends} are missing")
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    partition, offset = message.partition(), message.offset()
                    if partition is not None and offset is not None and offset >= ends[partition]:
                        missing.discard(partition)
    finally:
        consumer.close()
    return [record for record in found if record.offset < ends[record.partition]]


def _ends(bootstrap: str, topic: str, partitions: int, deadline: float, login: Mapping[str, Any]) -> dict[int, int]:
    """Where each partition ends, once no transaction is open: a commit is answered before its markers are written."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, **login})
    wanted = {TopicPartition(topic, index): OffsetSpec.latest() for index in range(partitions)}
    while True:
        try:
            stable, high = (
                {place.partition: int(found.result(5).offset) for place, found in asked.items()}
                for asked in (
                    admin.list_offsets(wanted, isolation_level=level, request_timeout=5)
                    for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
                )
            )
        except (KafkaException, TimeoutError):
            if time.monotonic() > deadline:
                raise
            continue
        if stable == high:
            return high
        if time.monotonic() > deadline:
            raise AssertionError(f"{topic} has transactions that do not end: {stable} is stable, {high} is there")
        time.sleep(0.05)
