"""Groups: how long a rebalance takes, how many commits there are in a second, and Java's consumer in a group."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.clients import groups
from bench.clients.java import Produce, consume_in_group
from bench.clients.sockets import Connections
from bench.lab import PARTITIONS
from bench.results import CPU_CONSUME, PEAK, Better, Kind, Metric, cpu, throughput
from bench.rows.row import Row, TurnRow

if TYPE_CHECKING:
    from bench.brokers import Broker
    from bench.lab import Lab, Samples, Scale

_SIZES: Final = (1, 10, 100, 1_000)
_FEWEST_PARTITIONS: Final = 100
"""Of a topic that is read; larger groups read one with a partition for each member."""
_LARGE: Final = 100
"""Members of a group from which on fewer rebalances are measured, the more it has, but three."""
_FEWEST: Final = 3
_COMMITTERS: Final = 50


@dataclass(frozen=True)
class RebalanceRow(TurnRow):
    """Groups of one, ten, a hundred and a thousand members: the time until every member has its partitions again."""

    name: str
    title: str
    kind: type[groups.ClassicGroup] | type[groups.ConsumerGroup]

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Milliseconds for each size."""
        return tuple(
            Metric(
                f"members-{size}",
                f"{size:,} member{'s' if size > 1 else ''}",
                "ms",
                Kind.LATENCY,
                Better.LOWER,
                caption=f"{self.title}, {size:,}",
            )
            for size in _SIZES
        )

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """A new group of each size, and its rebalances; the middle one counts."""
        values = {}
        for size in _SIZES:
            name = f"{self.name}-{size}-{time.monotonic_ns()}"
            with lab.topic(broker, max(size, _FEWEST_PARTITIONS)) as topic:
                groups.wait_for_coordinator(broker.port, name)
                with closing(self.kind(broker.port, name, topic, size)) as group:
                    group.rebalance()
                    times = max(lab.scale.rebalances * _LARGE // max(size, _LARGE), _FEWEST)
                    values[f"members-{size}"] = median(group.rebalance() for _ in range(times)) * 1e3
        return values


class CommitsRow(TurnRow):
    """Fifty clients, each of which commits one offset after the other."""

    name = "commits"
    title = "50 clients that commit offsets"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """Commits per second, and what they cost."""
        return (throughput("commits/s"), cpu(None, "s/million"), PEAK)

    def once(self, lab: Lab, broker: Broker) -> dict[str, float]:
        """Commit to as many groups as there are clients."""
        total = lab.scale.commits
        with lab.topic(broker, 1) as topic:
            requests = groups.commit_requests(topic, _COMMITTERS)
            for number in range(_COMMITTERS):
                groups.wait_for_coordinator(broker.port, f"commits-{number}")
            with Connections(broker.port, _COMMITTERS) as clients, broker.meter() as meter:
                load = clients.exchange(requests, groups.commit_error_at(topic), total)
        return {
            "throughput": load.requests / load.seconds,
            "cpu": meter.cpu / (load.requests / 1e6),
            "peak": meter.peak_mb,
        }


class GroupConsumeRow(Row):
    """kafka-consumer-perf-test: a Java consumer that subscribes, reads a topic from its beginning and commits."""

    name = "group-consume"
    title = "consume 1 KB × 6 partitions in a group, Java"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tool's own rate after its group has formed, and what it cost the broker."""
        return (throughput(), cpu(CPU_CONSUME), PEAK)

    def measure(self, lab: Lab) -> Samples:
        """Fill one topic per broker, then alternate."""
        records = lab.scale.records_1k
        with ExitStack() as stack:
            topics = {}
            for broker in lab.brokers():
                with lab.turn(broker):
                    topics[broker.name] = lab.create_topic(broker, PARTITIONS)
                    Produce(topics[broker.name], records, 1024).run(broker.port, lab.folder)
                stack.callback(self._drop, lab, broker, topics[broker.name])
            return lab.alternate(
                self.name, lambda broker: self._read(broker, topics[broker.name], records), self.metrics(lab.scale)
            )

    def _read(self, broker: Broker, topic: str, records: int) -> dict[str, float]:
        with broker.meter() as meter:
            rate = consume_in_group(broker.port, topic, records, f"{self.name}-{time.monotonic_ns()}")
        return {"throughput": rate, "cpu": meter.cpu / (records * 1024 / 1e9), "peak": meter.peak_mb}

    def _drop(self, lab: Lab, broker: Broker, topic: str) -> None:
        with lab.turn(broker):
            lab.delete_topic(broker, topic)


REBALANCES = (
    RebalanceRow("rebalance-classic", "rebalance, classic protocol", groups.ClassicGroup),
    RebalanceRow("rebalance-consumer", "rebalance, consumer protocol", groups.ConsumerGroup),
)
COMMITS = CommitsRow()
GROUP_CONSUME = GroupConsumeRow()
