"""A load that goes on beside tests: somebody writes, and a group reads, until the block ends.

Then whatever was acknowledged has to have been read: a writer or reader that has stopped meanwhile does not pass for
one that is at work.
"""

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
ROUND_SECONDS: Final = 0.1
EACH_ROUND: Final = 20
"""Records that are written in one go: 200 a second, until the machine is too busy for that."""
CATCH_UP_SECONDS: Final = 60.0


class SteadyLoad:
    """What has passed so far."""

    def __init__(self) -> None:
        self.written = 0
        self.read = 0
        self.rounds = 0
        self.failures: list[str] = []

    def note(self, error: KafkaError | None, message: object) -> None:
        """A record was acknowledged, or not."""
        if error is None:
            self.written += 1
        else:
            self.failures.append(str(error))


@contextmanager
def steady_load(bootstrap_servers: str) -> Iterator[SteadyLoad]:
    """Write and read for as long as the block lasts; fails if something was not written, or not read."""
    load, over, written = SteadyLoad(), threading.Event(), threading.Event()
    writer = threading.Thread(target=_write, args=(bootstrap_servers, load, over), daemon=True)
    reader = threading.Thread(target=_read, args=(bootstrap_servers, load, written), daemon=True)
    for thread in (writer, reader):
        thread.start()
    try:
        yield load
    finally:
        over.set()
        writer.join()
        written.set()
        reader.join()
    assert not load.failures, load.failures[:3]
    assert load.written == load.rounds * EACH_ROUND, f"{load.written} of {load.rounds * EACH_ROUND} were acknowledged"
    assert load.read >= load.written, f"{load.read} of {load.written} were read"


def _write(bootstrap_servers: str, load: SteadyLoad, over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 5})
    while not over.wait(ROUND_SECONDS):
        for _ in range(EACH_ROUND):
            producer.produce(TOPIC, b"x" * 100, on_delivery=load.note)
        load.rounds += 1
        producer.poll(0)
    producer.flush(CATCH_UP_SECONDS)


def _read(bootstrap_servers: str, load: SteadyLoad, written: threading.Event) -> None:
    """Read until all is read that was written; a broker's death may bring some of it twice."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": GROUP, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    until: float | None = None
    while until is None or (load.read < load.written and time.monotonic() < until):
        load.read += sum(message.error() is None for message in consumer.consume(500, 0.2))
        if until is None and written.is_set():
            until = time.monotonic() + CATCH_UP_SECONDS
    consumer.close()
