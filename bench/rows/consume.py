"""Throughput of a librdkafka consumer with assigned partitions, alone and behind a running producer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.clients import rdkafka
from bench.clients.java import Produce
from bench.lab import PARTITIONS
from bench.results import CPU_CONSUME, OF_THE_CLIENT, PEAK, Metric, cpu, throughput
from bench.rows.row import Row, TurnRow

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale


@dataclass(frozen=True)
class ConsumeRow(Row):
    """Read a topic that is in the page cache, from the beginning, in several passes."""

    name: str
    title: str
    size: int
    records: Callable[[Scale], int]
    passes: int = 2

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The consumer's rate, and what it cost the broker."""
        return (throughput(target=OF_THE_CLIENT), cpu(CPU_CONSUME), PEAK)

    def measure(self, lab: Lab) -> Samples:
        """Fill one topic per broker, then alternate."""
        with ExitStack() as stack:
            topics = {}
            for broker in lab.brokers():
                with lab.turn(broker):
                    topics[broker.name] = self._fill(lab, broker)
                stack.callback(self._drop, lab, broker, topics[broker.name])
            return lab.alternate(
                self.name, lambda broker: self._read(lab, broker, topics[broker.name]), self.metrics(lab.scale)
            )

    def _fill(self, lab: Lab, broker: Broker) -> str:
        topic = lab.create_topic(broker, PARTITIONS)
        Produce(topic, self.records(lab.scale), self.size).run(broker.port, lab.folder)
        return topic

    def _read(self, lab: Lab, broker: Broker, topic: str) -> dict[str, float]:
        records = self.records(lab.scale)
        with broker.meter() as meter:
            passes = [rdkafka.consume(broker.port, topic, PARTITIONS, records) for _ in range(self.passes)]
        timed = sum(consumed.records for consumed in passes)
        return {
            "throughput": timed / sum(consumed.seconds for consumed in passes),
            "cpu": meter.cpu / (self.passes * records * self.size / 1e9),
            "peak": meter.peak_mb,
        }

    def _drop(self, lab: Lab, broker: Broker, topic: str) -> None:
        with lab.turn(broker):
            lab.delete_topic(broker, topic)


class TogetherRow(TurnRow):
    """Java's producer at full speed and a consumer at its heels, on one partition."""

    name = "together"
    title = "produce and consume 1 KB × 1 partition"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The consumer's rate, which the producer's bounds; the cost is that of both."""
        return (throughput(), cpu(None), PEAK)

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Run both until the consumer has everything."""
        records = lab.scale.records_1k
        with lab.topic(broker, 1) as topic:
            produce = Produce(topic, records, 1024)
            with broker.meter() as meter:
                producer = produce.start(broker.port, lab.folder)
                try:
                    consumed = rdkafka.consume(broker.port, topic, 1, records)
                finally:
                    produce.rate(producer)
        return {"throughput": consumed.rate, "cpu": meter.cpu / (records * 1024 / 1e9), "peak": meter.peak_mb}


CONSUME = (
    ConsumeRow("consume-1k", "consume 1 KB × 6 partitions", 1024, lambda scale: scale.records_1k),
    ConsumeRow("consume-100", "consume 100 B × 6 partitions", 100, lambda scale: scale.records_100),
)
TOGETHER = TogetherRow()
