"""A light load that goes on beside tests: somebody writes, and a group reads, until the block ends."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, Producer

if TYPE_CHECKING:
    from collections.abc import Iterator

TOPIC: Final = "traffic"
GROUP: Final = "traffic-readers"
EACH_SECOND: Final = 20
MOST_SECONDS: Final = 900.0
"""When it ends in any case."""


class SteadyLoad:
    """What has passed so far."""

    def __init__(self) -> None:
        self.written = 0
        self.read = 0
        self.failures: list[str] = []

    def note(self, error: KafkaError | None, message: object) -> None:
        """A record was acknowledged, or not."""
        if error is None:
            self.written += 1
        else:
            self.failures.append(str(error))


@contextmanager
def steady_load(bootstrap_servers: str) -> Iterator[SteadyLoad]:
    """Write and read for as long as the block lasts; fails if a record could not be written."""
    load, over = SteadyLoad(), threading.Event()
    threads = [threading.Thread(target=run, args=(bootstrap_servers, load, over)) for run in (_write, _read)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not load.failures, load.failures[:3]


def _write(bootstrap_servers: str, load: SteadyLoad, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0})
    until = time.monotonic() + MOST_SECONDS
    while not over.wait(1 / EACH_SECOND) and time.monotonic() < until:
        producer.produce(TOPIC, b"x" * 100, on_delivery=load.note)
        producer.poll(0)
    producer.flush(30)


def _read(bootstrap_servers: str, load: SteadyLoad, over: threading.Event) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    until = time.monotonic() + MOST_SECONDS
    while not over.is_set() and time.monotonic() < until:
        message = consumer.poll(0.2)
        load.read += message is not None and message.error() is None
    consumer.close()
