"""A client that behaves, beside those that do not: all its records are acknowledged, in time, and read in order."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.fuzz.rules import BrokenRule
from tests.support.waiting import wait_until

TOPIC: Final = "canary"
GROUP: Final = "canary-group"
PAUSE: Final = 0.01
TIMEOUT_SECONDS: Final = 60.0


def create_topic(bootstrap: str, name: str = TOPIC, **config: str) -> None:
    """A topic that no generated request names."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
    for future in admin.create_topics([NewTopic(name, 1, 1, config=settings)]).values():
        future.result(TIMEOUT_SECONDS)


def read_values(bootstrap: str, topic: str, count: int, isolation: str = "read_uncommitted") -> list[bytes | None]:
    """The values of the first `count` records of a topic's only partition, as far as they come."""
    return [message.value() for message in read_messages(bootstrap, topic, count, isolation)]


def read_messages(bootstrap: str, topic: str, count: int, isolation: str = "read_uncommitted") -> list[Message]:
    """The first `count` records of a topic's only partition; BrokenRule if the client meets an error."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "group.id": "reader",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_SECONDS
    try:
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise BrokenRule(f"a consumer of {topic} got {error}")
    finally:
        consumer.close()
    return found


class Canary:
    """A producer and a consumer group that go on until `stop`; then everything has to be there."""

    def __init__(self, bootstrap: str) -> None:
        shared: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = Producer({**shared, "enable.idempotence": True, "linger.ms": 0})
        self._consumer = Consumer({**shared, "group.id": GROUP, "auto.offset.reset": "earliest"})
        self._stopping = threading.Event()
        self._sending = threading.Thread(target=self._send, name="canary producer")
        self._reading = threading.Thread(target=self._read, name="canary consumer")
        self.sent = 0
        self.latencies: list[float] = []
        self.quiet = 0
        """How many of these were measured before there was any noise."""
        self.read: list[int] = []
        self.troubles: list[str] = []
        self._sending.start()
        self._reading.start()

    def _send(self) -> None:
        while not self._stopping.is_set():
            started = time.monotonic()

            def on_delivery(error: Any, message: Message, started: float = started) -> None:
                if error is None:
                    self.latencies.append(time.monotonic() - started)
                else:
                    self.troubles.append(f"a record was not stored: {error}")

            self._producer.produce(TOPIC, b"%d" % self.sent, partition=0, on_delivery=on_delivery)
            self.sent += 1
            self._producer.poll(PAUSE)
            self._stopping.wait(PAUSE)
        self._producer.flush(TIMEOUT_SECONDS)

    def _read(self) -> None:
        self._consumer.subscribe([TOPIC])
        deadline = None
        while deadline is None or (len(self.read) < self.sent and time.monotonic() < deadline):
            for message in self._consumer.consume(500, 0.2):
                if message.error() is not None:
                    self.troubles.append(f"the consumer got {message.error()}")
                else:
                    self.read.append(int(message.value() or b"-1"))
            if deadline is None and self._stopping.is_set():
                deadline = time.monotonic() + TIMEOUT_SECONDS
        self._consumer.close()

    def measure_quiet(self, records: int) -> None:
        """Wait until so many records were acknowledged: what comes from now on is measured against them."""
        wait_until(lambda: len(self.latencies) >= records, f"{records} acknowledged records of the canary")
        self.quiet = len(self.latencies)

    def stop(self) -> None:
        """Let both come to their ends."""
        self._stopping.set()
        self._sending.join()
        self._reading.join()

    @property
    def quiet_p99(self) -> float:
        """Seconds in which 99 of 100 records were acknowledged before there was noise: a measure of the machine."""
        return _p99(self.latencies[: self.quiet])

    @property
    def p99(self) -> float:
        """The same since then."""
        return _p99(self.latencies[self.quiet :])

    def check(self, p99: float, times: float) -> None:
        """Raises BrokenRule if a record was not acknowledged and read once, in order, or if that took too long.

        Too long is more than `p99` seconds, and more than so many `times` what it takes without noise.
        """
        if self.troubles:
            raise BrokenRule(f"the canary: {self.troubles[0]}")
        if len(self.latencies) != self.sent:
            raise BrokenRule(f"the canary sent {self.sent} records, {len(self.latencies)} were acknowledged")
        if self.read != list(range(self.sent)):
            raise BrokenRule(
                f"the canary sent {self.sent} records and read {len(self.read)}, or others, or not in order"
            )
        if self.p99 > max(p99, times * self.quiet_p99):
            raise BrokenRule(f"the canary's p99 is {self.p99:.3f} s with noise and {self.quiet_p99:.3f} s without")


def _p99(latencies: list[float]) -> float:
    ordered = sorted(latencies)
    return ordered[int(len(ordered) * 0.99)] if ordered else float("inf")
