"""All clients of one run together, and what is read when the faults are over.

Producers send values that are used once, each producer to all partitions in turn; some do so in transactions, of which
they abort a few. One consumer reads everything from the start and is never moved; the members of a group share the
partitions and commit now and then (`tests/history/clients`). At the end, everything is read once more.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.history.checker import History, Poll, Record, Reset
from tests.history.clients import COMMON, NO_LOGIN, SAFE, TRANSACTION_MS, Reading, Sending, Transacting, record_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
                    found.append(record_of(message))
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
