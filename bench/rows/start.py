"""Starting: exec to the first metadata answer, with no topic and with very many partitions.

These brokers are not the warm ones but their own, stopped cleanly and started again on the same folder.
"""

from __future__ import annotations

import resource
import shutil
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.brokers import BROKERS, Barnabas
from bench.clients import rdkafka
from bench.lab import say, show, show_logs
from bench.measure import memory_mb, open_files
from bench.results import IDLE_MEMORY, START, Better, Kind, Metric
from bench.rows.row import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kio.schema.metadata.v12.response import MetadataResponse

    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale

_PER_TOPIC: Final = 100
_TOPICS_AT_ONCE: Final = 10
"""Kafka refuses a request that makes more than ten thousand metadata records."""
_SECONDS: Final = Metric("seconds", "exec to first answer", "s", Kind.START, Better.LOWER, START, "start")


class StartRow(Row):
    """A broker without topics."""

    name = "start"
    title = "start"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """How long it takes, and what it holds when nothing happens."""
        return (_SECONDS, Metric("idle", "idle memory", "MB", Kind.MEMORY, Better.LOWER, IDLE_MEMORY, "idle"))

    def measure(self, lab: Lab) -> Samples:
        """Start and stop by turns; the first start, which makes the folder, does not count."""
        with _fresh(lab, "start") as brokers:
            for broker in brokers:
                broker.start()
                broker.stop()
            samples: Samples = {broker.name: [] for broker in brokers}
            for repetition in range(lab.scale.repetitions):
                for broker in brokers:
                    seconds = broker.start()
                    time.sleep(lab.scale.idle)
                    values = {"seconds": seconds, "idle": memory_mb(broker.pid)}
                    broker.stop()
                    samples[broker.name].append(values)
                    show(self.name, broker.name, repetition, values, self.metrics(lab.scale), counts=True)
            return samples


class PartitionsRow(Row):
    """A broker with many partitions, a record in each; Barnabas may open fewer files than it has partitions."""

    name = "partitions"
    title = "start with many partitions"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """How long until every partition has a leader, and what it holds then."""
        many = f"{scale.partitions:,} partitions"
        return (
            replace(_SECONDS, label=many, caption=f"start with {many}"),
            Metric("memory", "memory", "MB", Kind.MEMORY, Better.LOWER, caption=f"with {many}"),
            Metric("files", "open files", "", Kind.MEMORY, Better.LOWER, detail=True),
        )

    def measure(self, lab: Lab) -> Samples:
        """Make the partitions, then start and stop by turns."""
        wanted = lab.scale.partitions
        topics = [f"many-{number:03}" for number in range(wanted // _PER_TOPIC)]
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with _fresh(lab, "partitions", lab.scale.open_files) as brokers:
            for broker in brokers:
                say(f"  creating {wanted:,} partitions in {broker.name}")
                broker.start()
                for first in range(0, len(topics), _TOPICS_AT_ONCE):
                    rdkafka.create_topics(broker.port, topics[first : first + _TOPICS_AT_ONCE], _PER_TOPIC)
                rdkafka.produce_one_each(broker.port, topics, _PER_TOPIC)
                broker.stop()
            samples: Samples = {broker.name: [] for broker in brokers}
            for repetition in range(lab.scale.repetitions):
                for broker in brokers:
                    seconds = broker.start(lambda answer: _leaders(answer) >= wanted)
                    values = {
                        "seconds": seconds,
                        "memory": memory_mb(broker.pid),
                        "files": float(open_files(broker.pid)),
                    }
                    lab.expect_records(broker, topics[-1], _PER_TOPIC, _PER_TOPIC)
                    broker.stop()
                    samples[broker.name].append(values)
                    show(self.name, broker.name, repetition, values, self.metrics(lab.scale), counts=True)
        kafka, barnabas = (max(values["files"] for values in samples[kind.name]) for kind in BROKERS)
        lab.note(
            f"Start with {wanted:,} partitions: Barnabas under a limit of {lab.scale.open_files:,} open files (it held "
            f"{barnabas:,.0f}), Kafka, which keeps every segment open, under {hard:,} (it held {kafka:,.0f})."
        )
        return samples


@contextmanager
def _fresh(lab: Lab, name: str, barnabas_files: int | None = None) -> Iterator[list[Broker]]:
    """Brokers of their own, removed with their data at the end."""
    folder = lab.folder / name
    limits: dict[type[Broker], int | None] = {Barnabas: barnabas_files}
    brokers = [kind(folder / kind.name.lower(), limits.get(kind)) for kind in BROKERS]
    try:
        yield brokers
    except Exception:
        show_logs(brokers)
        raise
    finally:
        for broker in brokers:
            broker.kill()
        shutil.rmtree(folder)


def _leaders(answer: MetadataResponse) -> int:
    return sum(partition.leader_id >= 0 for topic in answer.topics for partition in topic.partitions)


EMPTY = StartRow()
MANY_PARTITIONS = PartitionsRow()
