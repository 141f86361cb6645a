"""`python -m bench.semantics`: what each delivery semantics costs with our own clients, on a broker of its own.

One partition is filled with records; a loop reads them and writes each to another topic, in each of the ways of
docs/delivery-semantics.md. Shown is the median rate of three runs; that of a loop which never commits is what the
others are to be held against. Clients and broker share this machine.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.brokers import Barnabas

from barnabas import Consumer, Producer
from barnabas.clients import at_least_once, at_most_once
from bench.clients import rdkafka

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.clients.records import ConsumerRecord

SIZE: Final = 100
RUNS: Final = 3
FULL, FEW = 50_000, 500
"""Records of a run; fewer where each takes an answer of the broker."""


class Loop:
    """Copies records from one topic to another; the clock starts when the first has come."""

    def __init__(self, bootstrap: str, run: int) -> None:
        self._bootstrap = bootstrap
        self._name = f"copier-{run}"

    def _consumer(self) -> Consumer[bytes]:
        return Consumer(self._bootstrap, "source", group_id=self._name, auto_offset_reset="earliest", auto_commit=False)

    def copy(self, count: int, read: Callable[[Consumer[bytes]], Iterator[ConsumerRecord[bytes]]]) -> float:
        """Copy what `read` gives."""
        with self._consumer() as consumer, Producer(self._bootstrap) as producer:
            records = read(consumer)
            producer.send("target", next(records).value)
            started = time.perf_counter()
            for record in islice(records, count):
                producer.send("target", record.value)
            producer.flush()
            return time.perf_counter() - started

    def copy_in_transactions(self, count: int, together: int) -> float:
        """Copy so many records in each transaction."""
        with self._consumer() as consumer, Producer(self._bootstrap, transactional_id=self._name) as producer:
            started, done = 0.0, -1
            while done < count:
                records = consumer.poll(timeout=30, max_records=1 if done < 0 else min(together, count - done))
                with producer.transaction(consumer):
                    for record in records:
                        producer.send("target", record.value)
                started = started or time.perf_counter()
                done += len(records)
            return time.perf_counter() - started


def _a_hundred_at_a_time(consumer: Consumer[bytes]) -> Iterator[ConsumerRecord[bytes]]:
    return at_most_once(consumer, max_records=100)


def main() -> None:
    """Measure and print."""
    ways: list[tuple[str, int, Callable[[Loop, int], float]]] = [
        ("no commits at all", FULL, lambda loop, count: loop.copy(count, iter)),
        ("at least once, a commit every second", FULL, lambda loop, count: loop.copy(count, at_least_once)),
        ("at most once, a commit per 100 records", FULL, lambda loop, count: loop.copy(count, _a_hundred_at_a_time)),
        ("at most once, a commit per record", FEW, lambda loop, count: loop.copy(count, at_most_once)),
        ("exactly once, 1,000 records a transaction", FULL, lambda loop, count: loop.copy_in_transactions(count, 1000)),
        ("exactly once, 100 records a transaction", FULL, lambda loop, count: loop.copy_in_transactions(count, 100)),
        ("exactly once, 1 record a transaction", FEW, lambda loop, count: loop.copy_in_transactions(count, 1)),
    ]
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with (
        tempfile.TemporaryDirectory(prefix="barnabas-semantics-") as folder,
        Barnabas(Path(folder), settings) as broker,
    ):
        for topic in ("source", "target"):
            rdkafka.create_topics(broker.port, [topic], 1)
        with Producer(broker.bootstrap) as producer:
            for _ in range(FULL + 1):
                producer.send("source", b"x" * SIZE)
        for number, (name, count, way) in enumerate(ways):
            rates = [count / way(Loop(broker.bootstrap, number * RUNS + run), count) for run in range(RUNS)]
            print(f"{name:45} {statistics.median(rates):10,.0f} records/s", flush=True)


if __name__ == "__main__":
    main()
