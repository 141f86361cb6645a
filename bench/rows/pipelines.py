"""Topics to tables by Spark: the load beside Spark's own connector with Spark's Parquet writer, on the same broker.

In these rows "Kafka" stands for Spark's Kafka connector. Both sides are warm Spark processes with two cores that take
turns; memory is that of the whole family, JVM and Python workers.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.brokers import Barnabas
from bench.clients.java import DISTINCT_BYTES, Produce
from bench.clients.spark import SparkSide
from bench.lab import PARTITIONS, show
from bench.results import Better, Kind, Metric, Target
from bench.rows.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.lab import Lab, Samples, Scale

JSON_BYTES: Final = 120
SIDES: Final = {"Kafka": "connector", "Barnabas": "barnabas"}
MEMORY: Final = Metric("family", "memory of Spark", "MB", Kind.MEMORY, Better.LOWER, Target(1.2))


@dataclass(frozen=True)
class PipelineRow(Row):
    """One topic, read and written whole by each side in its turn."""

    name: str
    title: str
    what: str
    """`count`, or the table's format; the connector always writes Parquet."""
    size: int | None
    """Bytes of a record; None for JSON of about 120. No value comes often, or Spark would write it once."""
    records: Callable[[Scale], int]
    target: float = 1.2
    partitions: int = PARTITIONS

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The rate, and the highest memory."""
        rate = Metric("throughput", "throughput", "records/s", Kind.THROUGHPUT, Better.HIGHER, Target(self.target))
        return (rate, MEMORY)

    def measure(self, lab: Lab) -> Samples:
        """A broker of its own with one topic; then the two take turns."""
        records = self.records(lab.scale)
        with ExitStack() as stack:
            broker = Barnabas(lab.folder / self.name)
            broker.start()
            stack.callback(broker.kill)
            topic = lab.create_topic(broker, self.partitions)
            produce = Produce(topic, records, self.size or 0, payloads=DISTINCT_BYTES // (self.size or JSON_BYTES))
            produce.run(broker.port, lab.folder)
            decode = "bytes" if self.size else "json"
            sides = {
                name: stack.enter_context(
                    SparkSide(who, broker.port, topic, self.what, decode, lab.folder / f"{self.name}-{who}")
                )
                for name, who in SIDES.items()
            }
            samples: Samples = {name: [] for name in sides}
            warming = 1 + lab.scale.discarded
            for repetition in range(warming + lab.scale.loads):
                for name in sides if repetition % 2 == 0 else reversed(sides):
                    ran = sides[name].run()
                    if ran.records != records:
                        raise RuntimeError(f"{name} had {ran.records} of {records} records")
                    values = {"throughput": records / ran.seconds, "family": ran.peak_mb}
                    if repetition >= warming:
                        samples[name].append(values)
                    show(self.name, name, repetition, values, self.metrics(lab.scale), counts=repetition >= warming)
        return samples


@dataclass(frozen=True)
class TriggerRow(Row):
    """A stream that starts its next batch at once, in which each batch has one record."""

    name: str
    title: str

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The median of a repetition's triggers."""
        label = "trigger to commit, p50"
        return (Metric("trigger", label, "ms", Kind.LATENCY, Better.LOWER, Target(0.8), caption=self.title),)

    def measure(self, lab: Lab) -> Samples:
        """A broker of its own with one topic; then the two take turns."""
        with ExitStack() as stack:
            broker = Barnabas(lab.folder / self.name)
            broker.start()
            stack.callback(broker.kill)
            sides = {}
            for name, who in SIDES.items():
                topic = lab.create_topic(broker, PARTITIONS)
                side = SparkSide(who, broker.port, topic, "latency", "bytes", lab.folder / f"{self.name}-{who}")
                sides[name] = stack.enter_context(side)
            samples: Samples = {name: [] for name in sides}
            warming = 1 + lab.scale.discarded
            for repetition in range(warming + lab.scale.loads):
                for name in sides if repetition % 2 == 0 else reversed(sides):
                    values = {"trigger": sides[name].run().seconds * 1000}
                    if repetition >= warming:
                        samples[name].append(values)
                    show(self.name, name, repetition, values, self.metrics(lab.scale), counts=repetition >= warming)
        return samples


def _of_1k(scale: Scale) -> int:
    return scale.records_1k


def _of_100(scale: Scale) -> int:
    return scale.records_100 * 2 // 5


def _many_of_100(scale: Scale) -> int:
    return _of_100(scale) * 4


PIPELINES: Final = (
    PipelineRow("spark-count-1k", "Spark: topic → count, 1 KB", "count", 1024, _of_1k),
    PipelineRow("spark-parquet-1k", "Spark: topic → Parquet, 1 KB", "parquet", 1024, _of_1k, 1.8),
    PipelineRow("spark-delta-1k", "Spark: topic → Delta, 1 KB", "delta", 1024, _of_1k, 1.8),
    PipelineRow("spark-iceberg-1k", "Spark: topic → Iceberg, 1 KB", "iceberg", 1024, _of_1k, 3.0),
    PipelineRow("spark-count-100", "Spark: topic → count, 100 B", "count", 100, _of_100),
    PipelineRow("spark-parquet-100", "Spark: topic → Parquet, 100 B", "parquet", 100, _of_100),
    PipelineRow("spark-delta-100", "Spark: topic → Delta, 100 B", "delta", 100, _of_100),
    PipelineRow("spark-iceberg-100", "Spark: topic → Iceberg, 100 B", "iceberg", 100, _of_100),
    PipelineRow("spark-json", "Spark: topic of JSON → Parquet", "parquet", None, _of_1k),
    PipelineRow("spark-partitions", "Spark: 60 partitions → Parquet, 100 B", "parquet", 100, _of_100, partitions=60),
    TriggerRow("spark-trigger", "Spark: a batch of a stream, one record"),
    PipelineRow("spark-rows", "Spark: four times the rows → Parquet, 100 B", "parquet", 100, _many_of_100),
)
