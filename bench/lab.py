"""The place where rows are measured: two warm brokers of which only one runs at a time, topics, a tidy disk.

Every repetition gives each broker one turn, and who goes first changes from one to the next. Before a turn the files
of deleted topics are gone and the disk is in sync, so that no one pays for what another wrote.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench.brokers import BROKERS
from bench.clients import rdkafka
from bench.clients.java import Produce

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.brokers import Broker
    from bench.results import Metric

    Once = Callable[[Broker], dict[str, float]]
    Samples = dict[str, list[dict[str, float]]]

PARTITIONS: Final = 6


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything; the short form shows the same things with less certainty."""

    form: str
    repetitions: int
    discarded: int
    """Repetitions at the start of a row that only warm it up."""
    warmup: int
    """Records that each broker takes in and gives out before anything is measured."""
    seconds: float
    """How long a row that ends by time is measured."""
    records_1k: int
    records_100: int
    unbatched: int
    single_records: int
    latencies: int
    seeks: int
    idle: float
    """Seconds after the start at which a broker counts as idle."""
    sizes_gb: tuple[float, float]
    rebalances: int
    """Rebalances of one group in a repetition."""
    commits: int
    cleaned: int
    """Records that the cleaner gets, five of each key."""
    partitions: int
    """Partitions of the broker that starts with many, and of the cluster of which a broker is killed."""
    open_files: int
    replicated: int
    """Records that a cluster takes in."""
    failovers: int
    loads: int
    """Repetitions of a row in which Spark reads a topic, or brokers are started anew."""
    queued: int
    """Messages of a queue that workers empty."""
    single_messages: int
    """Messages that workers take one at a time."""
    heartbeats: int
    guests: int
    """Members that come and go, one after the other."""
    pinned_seconds: float
    """How long a broker on one core is kept busy."""
    pinned_warmup: int
    """Turns of that length in which it may warm up, at most."""


FULL: Final = Scale(
    form="full", repetitions=7, discarded=1, warmup=2_000_000, seconds=15, records_1k=800_000, records_100=5_000_000,
    unbatched=400_000, single_records=300_000, latencies=2_000, seeks=2_000, idle=5, sizes_gb=(1, 10),
    rebalances=50, commits=200_000, cleaned=1_000_000, partitions=10_000, open_files=4_096,
    replicated=100_000, failovers=3, loads=5, queued=900_000, single_messages=20_000, heartbeats=20_000, guests=5,
    pinned_seconds=3, pinned_warmup=20,
)  # fmt: skip
QUICK: Final = Scale(
    form="quick", repetitions=2, discarded=0, warmup=500_000, seconds=3, records_1k=150_000, records_100=1_000_000,
    unbatched=20_000, single_records=30_000, latencies=400, seeks=300, idle=2, sizes_gb=(0.1, 0.5),
    rebalances=10, commits=20_000, cleaned=200_000, partitions=1_000, open_files=410,
    replicated=50_000, failovers=1, loads=2, queued=180_000, single_messages=2_000, heartbeats=4_000, guests=2,
    pinned_seconds=0.5, pinned_warmup=6,
)  # fmt: skip


def say(line: str) -> None:
    """Tell the one who waits."""
    print(line, file=sys.stderr, flush=True)


class Lab:
    """Owns the brokers and the folder that all data is in."""

    def __init__(self, scale: Scale, folder: Path) -> None:
        self.scale = scale
        self.folder = folder
        self.notes: list[str] = []
        self._brokers: dict[tuple[type[Broker], ...], list[Broker]] = {}
        self._topics = 0

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def note(self, text: str) -> None:
        """Add a remark to the report."""
        if text not in self.notes:
            self.notes.append(text)
            say(f"  note: {text}")

    @contextmanager
    def turn(self, broker: Broker) -> Iterator[None]:
        """Let this broker run while the block does; afterwards it is paused again."""
        os.sync()
        broker.resume()
        try:
            yield
        finally:
            broker.pause()

    def create_topic(self, broker: Broker, partitions: int) -> str:
        """A new topic; the broker must have its turn."""
        self._topics += 1
        name = f"bench-{self._topics:04}"
        rdkafka.create_topics(broker.port, [name], partitions)
        # A leader that metadata names may not know it yet.
        self.expect_records(broker, name, partitions, 0)
        return name

    def delete_topic(self, broker: Broker, name: str) -> None:
        """Delete a topic and wait until its files are gone; the broker must have its turn."""
        rdkafka.delete_topic(broker.port, name)
        broker.wait_until_gone(name)

    @contextmanager
    def topic(self, broker: Broker, partitions: int) -> Iterator[str]:
        """A topic that lives as long as the block; the broker must have its turn."""
        name = self.create_topic(broker, partitions)
        try:
            yield name
        finally:
            self.delete_topic(broker, name)

    def show_logs(self) -> None:
        """Tell what the brokers had to say; their folders will be gone."""
        show_logs(self._all_brokers())

    def abandon(self) -> None:
        """Give the brokers up, with all their data; whoever asks next gets new ones."""
        for broker in self._all_brokers():
            broker.kill()
            shutil.rmtree(broker.folder)
        self._brokers.clear()

    def _all_brokers(self) -> list[Broker]:
        return [broker for pair in self._brokers.values() for broker in pair]

    def brokers(self, kinds: tuple[type[Broker], ...] = BROKERS) -> list[Broker]:
        """Both brokers, warm and paused; started when first asked for."""
        pair = self._brokers.setdefault(kinds, [])
        for kind in kinds[len(pair) :]:
            say(f"starting and warming {kind.name}")
            broker = kind(self.folder / kind.__name__.lower())
            pair.append(broker)
            broker.start()
            with self.turn(broker):
                self._warm(broker)
        return pair

    def alternate(
        self, row: str, once: Once, metrics: tuple[Metric, ...], kinds: tuple[type[Broker], ...] = BROKERS
    ) -> Samples:
        """Measure both warm brokers by turns."""
        brokers = self.brokers(kinds)
        samples: Samples = {broker.name: [] for broker in brokers}
        for repetition in range(self.scale.discarded + self.scale.repetitions):
            counts = repetition >= self.scale.discarded
            for broker in brokers if repetition % 2 == 0 else reversed(brokers):
                with self.turn(broker):
                    values = once(broker)
                if counts:
                    samples[broker.name].append(values)
                show(row, broker.name, repetition, values, metrics, counts=counts)
        return samples

    def expect_records(self, broker: Broker, topic: str, partitions: int, records: int) -> None:
        """Fail when the topic does not hold exactly so many records."""
        found = rdkafka.count_records(broker.port, topic, partitions)
        if found != records:
            raise RuntimeError(f"{broker.name} holds {found} records of {topic}, {records} were acknowledged")

    def _warm(self, broker: Broker) -> None:
        records = self.scale.warmup
        with self.topic(broker, PARTITIONS) as topic:
            for size in (100, 1024):
                Produce(topic, records // 2, size).run(broker.port, self.folder)
            rdkafka.consume(broker.port, topic, PARTITIONS, records)
            self.expect_records(broker, topic, PARTITIONS, records)


def show(
    row: str, who: str, repetition: int, values: dict[str, float], metrics: tuple[Metric, ...], *, counts: bool
) -> None:
    """Tell what one turn measured."""
    figures = [
        f"{values[metric.key]:.4g} {metric.unit}" for metric in metrics if metric.key in values and not metric.detail
    ]
    say(f"  {row} {repetition + 1:2} {who:8}  {'  '.join(figures)}{'' if counts else '  (warm-up)'}")


def show_logs(brokers: list[Broker]) -> None:
    """Tell what these brokers had to say."""
    for broker in brokers:
        say(f"the log of {broker.name} ends with:\n{broker.tail()}")
