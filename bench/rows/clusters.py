"""Clusters: three brokers of this machine over a ZooKeeper, every record on all of them.

Here "Kafka" is 3.9.1, the last that runs over ZooKeeper. What is measured: how fast a cluster takes records in, what it
holds in memory, and for how long nobody is served when a broker is killed.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from bench.clients import rdkafka
from bench.clients.java import Produce
from bench.clients.pulse import Pulse
from bench.clusters import CLUSTERS, OLD_KAFKA, SESSION_MS, SIZE
from bench.lab import PARTITIONS, say, show
from bench.results import Better, Kind, Metric, Target
from bench.rows.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kio.schema.metadata.v12.response import MetadataResponse

    from bench.clusters import Cluster
    from bench.lab import Lab, Samples, Scale

_RECORD: Final = 1024
_THROUGHPUT: Final = Target(1.5)
_GAP: Final = Target(2.0, relative=False)
_REPLICATION_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_PER_TOPIC: Final = 100
_TOPICS_AT_ONCE: Final = 10
_AROUND: Final = 200
"""Acknowledgements before a broker is killed, and after another one has taken over."""


class ReplicatedRow(Row):
    """Throughput with acks of all replicas and of the leader alone."""

    name = "cluster"
    title = "three brokers, 1 KB × 6 partitions × 3 replicas"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """The tool's own rates; and what the three brokers used together, with acks=all."""
        return (
            *(
                Metric(
                    acks, f"acks={acks}", "records/s", Kind.THROUGHPUT, Better.HIGHER, _THROUGHPUT,
                    f"three brokers, acks={acks}",
                )
                for acks in ("all", "1")
            ),
            Metric("cpu", "CPU of all brokers", "s/GB", Kind.CPU, Better.LOWER, caption="three brokers, acks=all"),
            Metric("memory", "memory of all brokers", "MB", Kind.MEMORY, Better.LOWER, caption="three brokers"),
        )  # fmt: skip

    def measure(self, lab: Lab) -> Samples:
        """Start and warm both clusters, then alternate."""
        with _fresh(lab, self.name, CLUSTERS) as clusters:
            for cluster in clusters:
                say(f"  warming {cluster.name}")
                self._fill(lab, cluster, "all", lab.scale.warmup // 10)
            return _alternate(self, lab, lab.scale.repetitions, clusters, lambda cluster: self._once(lab, cluster))

    def _once(self, lab: Lab, cluster: Cluster) -> dict[str, float]:
        records = lab.scale.replicated
        with cluster.meter() as meter:
            rate = self._fill(lab, cluster, "all", records)
        return {
            "all": rate,
            "1": self._fill(lab, cluster, "1", records),
            "cpu": meter.cpu / (records * _RECORD / 1e9),
            "memory": meter.peak_mb,
        }

    def _fill(self, lab: Lab, cluster: Cluster, acks: str, records: int) -> float:
        with cluster.topic(PARTITIONS) as topic:
            rate = Produce(topic, records, _RECORD, acks).run(cluster.port, lab.folder)
            _expect_records(cluster, topic, records)
        return rate


def _expect_records(cluster: Cluster, topic: str, records: int) -> None:
    """Check that nothing got lost. With acks=1 the last records may be acknowledged before the others have them."""
    deadline = time.monotonic() + _REPLICATION_SECONDS
    while (found := rdkafka.count_records(cluster.port, topic, PARTITIONS)) != records:
        if found > records or time.monotonic() > deadline:
            raise RuntimeError(f"{cluster.name} holds {found} records of {topic}, {records} were acknowledged")
        time.sleep(_LOOK_SECONDS)


class FailoverRow(Row):
    """kill -9 of a leader, and of the controller."""

    name = "failover"
    title = f"kill -9 of one of three brokers, {SESSION_MS / 1000:g} s session"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """For how long a producer waits, and how long it takes until topics can be made again."""
        gap = "longest gap between acks, a leader killed"
        made = "controller killed, until a topic is made"
        return (
            Metric("gap", gap, "s", Kind.LATENCY, Better.LOWER, _GAP, gap),
            Metric("controller", made, "s", Kind.LATENCY, Better.LOWER, caption=made),
        )

    def measure(self, lab: Lab) -> Samples:
        """Kill, look, start again; by turns."""
        with _fresh(lab, self.name, CLUSTERS) as clusters:
            return _alternate(self, lab, lab.scale.failovers, clusters, self._once)

    def _once(self, cluster: Cluster) -> dict[str, float]:
        return {"gap": self._leader(cluster), "controller": self._controller(cluster)}

    def _leader(self, cluster: Cluster) -> float:
        with cluster.topic(SIZE) as topic:
            controller = cluster.metadata().controller_id
            victim = next(each for each in cluster.partitions(topic) if each.leader_id != controller)
            with Pulse(cluster.ports, topic, victim.partition_index) as pulse:
                pulse.expect(_AROUND)
                cluster.members[victim.leader_id].kill()
                pulse.expect(_AROUND)
            cluster.restart(victim.leader_id)
        return pulse.longest_gap()

    def _controller(self, cluster: Cluster) -> float:
        controller = cluster.metadata().controller_id
        topic = f"made-{time.monotonic_ns()}"
        killed = time.monotonic()
        cluster.members[controller].kill()
        cluster.wait_until(lambda told: told.controller_id not in {-1, controller}, "another controller")
        rdkafka.create_topics(cluster.port, [topic], 1, SIZE - 1)
        seconds = time.monotonic() - killed
        cluster.restart(controller)
        return seconds


class ManyPartitionsFailoverRow(Row):
    """kill -9 of the controller, which leads a third of very many partitions; one cluster after the other."""

    name = "failover-many"
    title = "kill -9 of the controller with many partitions"

    def metrics(self, scale: Scale) -> tuple[Metric, ...]:
        """How long it takes until every partition has a living leader."""
        many = f"{scale.partitions:,} partitions × {SIZE} replicas"
        return (
            Metric("seconds", f"{many} led again", "s", Kind.LATENCY, Better.LOWER, caption=f"failover of {many}"),
            Metric("memory", "memory of all brokers", "MB", Kind.MEMORY, Better.LOWER, caption=f"with {many}"),
        )

    def measure(self, lab: Lab) -> Samples:
        """Once for each: what the row needs to begin takes minutes."""
        samples: Samples = {}
        for kind in CLUSTERS:
            with _fresh(lab, self.name, [kind]) as clusters:
                samples |= _alternate(self, lab, 1, clusters, lambda cluster: self._once(lab, cluster))
        return samples

    def _once(self, lab: Lab, cluster: Cluster) -> dict[str, float]:
        wanted = lab.scale.partitions
        topics = [f"many-{number:03}" for number in range(wanted // _PER_TOPIC)]
        say(f"  creating {wanted:,} partitions in {cluster.name}")
        for first in range(0, len(topics), _TOPICS_AT_ONCE):
            rdkafka.create_topics(cluster.port, topics[first : first + _TOPICS_AT_ONCE], _PER_TOPIC, SIZE)
        cluster.wait_until(lambda told: _led_by(told, set(cluster.members)) >= wanted, "leaders", every=0.2)
        with cluster.meter() as meter:
            time.sleep(lab.scale.idle)
        controller = cluster.metadata().controller_id
        living = set(cluster.members) - {controller}
        killed = time.monotonic()
        cluster.members[controller].kill()
        cluster.wait_until(lambda told: _led_by(told, living) >= wanted, "living leaders", every=0.2)
        return {"seconds": time.monotonic() - killed, "memory": meter.peak_mb}


@contextmanager
def _fresh(lab: Lab, name: str, kinds: Sequence[type[Cluster]]) -> Iterator[list[Cluster]]:
    """Clusters of their own, removed with their data at the end."""
    folder = lab.folder / name
    clusters: list[Cluster] = []
    try:
        with ExitStack() as stack:
            for kind in kinds:
                say(f"  starting three brokers of {kind.name}")
                clusters.append(stack.enter_context(kind(folder / kind.name.lower())))
            yield clusters
    except Exception:
        for cluster in clusters:
            say(f"the logs of {cluster.name} end with:\n{cluster.tail()}")
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    lab.note(f"In clusters, Kafka is {OLD_KAFKA} in ZooKeeper mode; both have one ZooKeeper and min.insync.replicas=2.")


def _alternate(
    row: Row, lab: Lab, repetitions: int, clusters: Sequence[Cluster], once: Callable[[Cluster], dict[str, float]]
) -> Samples:
    """Measure by turns; a cluster that has not its turn lives on, as its sessions would end if it was paused."""
    samples: Samples = {cluster.name: [] for cluster in clusters}
    for repetition in range(repetitions):
        for cluster in clusters if repetition % 2 == 0 else reversed(clusters):
            os.sync()
            values = once(cluster)
            samples[cluster.name].append(values)
            show(row.name, cluster.name, repetition, values, row.metrics(lab.scale), counts=True)
    return samples


def _led_by(told: MetadataResponse, brokers: set[int]) -> int:
    return sum(partition.leader_id in brokers for topic in told.topics for partition in topic.partitions)


CLUSTER_ROWS: Final = (ReplicatedRow(), FailoverRow(), ManyPartitionsFailoverRow())
