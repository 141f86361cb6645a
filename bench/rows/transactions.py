"""What transactions cost: Java's producer that commits now and then, and how long a commit takes.

Java's producer speaks transaction.version 2: a batch makes its partition part of the transaction, and each commit
brings a new epoch. librdkafka asks the coordinator for each partition first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.clients import rdkafka
from bench.clients.java import Produce
from bench.clients.transactions import commit_latencies
from bench.lab import PARTITIONS
from bench.results import PEAK, Better, Kind, Metric, Target, cpu, percentile, throughput
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Scale

_SIZE: Final = 1024
_SHARE: Final = 4
"""A fourth of the records of other rows: with a commit every 10 ms a producer waits more than it sends."""
_NOT_SLOWER: Final = Target(1.0)
_UNTIMED: Final = 50
"""Transactions with which the client connects and settles."""


@dataclass(frozen=True)
class TransactionsRow(TurnRow):
    """kafka-producer-perf-test without a limit, with a commit every so often."""

    interval_ms: int

    @property
    def name(self) -> str:  # type: ignore[override]  # made of the interval
        """For the command line."""
        return f"transactions-{self.interval_ms}ms"

    @property
    def title(self) -> str:  # type: ignore[override]  # made of the interval
        """For the table."""
        return f"transactions, 1 KB × 6 partitions, a commit every {self.interval_ms} ms"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tool's own rate, and what it cost the broker."""
        return (throughput(), cpu(None), PEAK)

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Fill a new topic; everything in it must be committed."""
        records = lab.scale.records_1k // _SHARE
        name = f"{self.name}-{time.monotonic_ns()}"
        settings = ("--transactional-id", name, "--transaction-duration-ms", str(self.interval_ms))
        with lab.topic(broker, PARTITIONS) as topic:
            with broker.meter() as meter:
                rate = Produce(topic, records, _SIZE, "all", settings).run(broker.port, lab.folder)
            rdkafka.consume(broker.port, topic, PARTITIONS, records)
        return {"throughput": rate, "cpu": meter.cpu / (records * _SIZE / 1e9), "peak": meter.peak_mb}


class CommitLatencyRow(TurnRow):
    """librdkafka's producer, one record to each of three partitions in a transaction, one transaction at a time."""

    name = "commit-latency"
    title = "commit of a transaction, 3 partitions"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The middle and the tail."""
        return tuple(
            Metric(key, key, "µs", Kind.LATENCY, Better.LOWER, _NOT_SLOWER, f"commit of a transaction, {key}")
            for key in ("p50", "p99")
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Commit one after the other."""
        name = f"{self.name}-{time.monotonic_ns()}"
        with lab.topic(broker, 3) as topic:
            samples = commit_latencies(broker.port, topic, 3, b"x" * 100, lab.scale.latencies // 4 + _UNTIMED, name)
        timed = samples[_UNTIMED:]
        return {"p50": percentile(timed, 0.50) * 1e6, "p99": percentile(timed, 0.99) * 1e6}


TRANSACTIONS = (TransactionsRow(100), TransactionsRow(10), CommitLatencyRow())
