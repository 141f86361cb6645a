"""Throughput of Java's producer: large and small records, one partition and six, batched and not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.clients.java import Produce
from bench.results import CPU_PRODUCE, OF_THE_CLIENT, PEAK, THROUGHPUT, Metric, Target, cpu, throughput
from bench.rows.row import TurnRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker
    from bench.lab import Lab, Scale


@dataclass(frozen=True)
class ProduceRow(TurnRow):
    """kafka-producer-perf-test without a limit."""

    name: str
    title: str
    partitions: int
    size: int
    records: Callable[[Scale], int]
    acks: str = "1"
    unbatched: bool = False
    target: Target = THROUGHPUT

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tool's own rate, and what it cost the broker: per GB, or per record where each is a request."""
        return (throughput(target=self.target), cpu(CPU_PRODUCE, "s/million" if self.unbatched else "s/GB"), PEAK)

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Fill a new topic."""
        records = self.records(lab.scale)
        settings = ("batch.size=0", "linger.ms=0") if self.unbatched else ()
        with lab.topic(broker, self.partitions) as topic:
            with broker.meter() as meter:
                rate = Produce(topic, records, self.size, self.acks, settings).run(broker.port, lab.folder)
            lab.expect_records(broker, topic, self.partitions, records)
        work = records / 1e6 if self.unbatched else records * self.size / 1e9
        return {"throughput": rate, "cpu": meter.cpu / work, "peak": meter.peak_mb}


PRODUCE = (
    ProduceRow("produce-1k", "produce 1 KB × 1 partition, acks=1", 1, 1024, lambda scale: scale.records_1k),
    ProduceRow(
        "produce-1k-all", "produce 1 KB × 6 partitions, acks=all", 6, 1024, lambda scale: scale.records_1k, "all"
    ),
    ProduceRow(
        "produce-100",
        "produce 100 B × 6 partitions, acks=1",
        *(6, 100, lambda scale: scale.records_100),
        target=OF_THE_CLIENT,
    ),
)
UNBATCHED = ProduceRow("unbatched", "produce 100 B, no batching", 1, 100, lambda scale: scale.unbatched, unbatched=True)
