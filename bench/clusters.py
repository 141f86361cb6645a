"""Two clusters behind one face: three brokers over a ZooKeeper, Apache Kafka's or ours.

Apache Kafka has ZooKeeper mode up to 3.9, so it is that one here. Both clusters have one ZooKeeper of the same kind,
the same session timeout and the same settings. A cluster cannot be paused, as its sessions would end: the one that has
not its turn lives on without work.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, ClassVar, Final, Self

from tests.support import java
from tests.support.zookeeper import ZooKeeper

from bench.brokers import SETTINGS, Barnabas, Broker, Kafka
from bench.clients import rdkafka, wire
from bench.measure import Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kio.schema.metadata.v12.response import MetadataResponse
    from kio.schema.metadata.v12.response import MetadataResponsePartition as Partition

OLD_KAFKA: Final = "3.9.1"
SIZE: Final = 3
SESSION_MS: Final = 6_000
_DEADLINE: Final = 300.0


def _settings(broker_id: int, zookeeper: str) -> dict[str, str]:
    return {
        "broker.id": str(broker_id),
        "zookeeper.connect": zookeeper,
        "zookeeper.session.timeout.ms": str(SESSION_MS),
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": str(SIZE),
        # Who leads is to change only when something is killed.
        "auto.leader.rebalance.enable": "false",
        **SETTINGS,
    }


class Member(Broker):
    """One broker of a cluster."""

    def __init__(self, folder: Path, broker_id: int, zookeeper: str) -> None:
        self.settings = _settings(broker_id, zookeeper)
        super().__init__(folder)


class KafkaMember(Member, Kafka):
    """Apache Kafka in ZooKeeper mode."""

    def prepare(self) -> None:
        """Write the properties."""
        places = {"listeners": f"PLAINTEXT://127.0.0.1:{self.port}", "log.dirs": str(self.data)}
        lines = (f"{key}={value}\n" for key, value in {**self.settings, **places}.items())
        self.properties.write_text("".join(lines))

    def command(self) -> list[str]:
        """What kafka-server-start.sh of that version runs."""
        return [*java.command(OLD_KAFKA, "kafka.Kafka", *self.HEAP, *self.FLAGS), str(self.properties)]


class BarnabasMember(Member, Barnabas):
    """Barnabas with `zookeeper.connect`."""


class Cluster(ABC):
    """Three brokers and their ZooKeeper; as a context manager all are killed at the end."""

    name: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._topics = 0
        self._zookeeper = ZooKeeper(folder)
        self.members: dict[int, Member] = {}
        try:
            for broker_id in range(1, SIZE + 1):
                self.members[broker_id] = self.member(folder / str(broker_id), broker_id, self._zookeeper.connect)
                self.members[broker_id].start()
            self.wait_until(lambda told: len(told.brokers) == SIZE, "three brokers")
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @staticmethod
    @abstractmethod
    def member(folder: Path, broker_id: int, zookeeper: str) -> Member:
        """One broker of this kind."""

    def kill(self) -> None:
        """End everything."""
        for member in self.members.values():
            member.kill()
        self._zookeeper.kill()

    def tail(self) -> str:
        """The ends of all logs."""
        return "\n".join(member.tail() for member in self.members.values())

    @property
    def pids(self) -> list[int]:
        """The running brokers, without the ZooKeeper."""
        return [member.pid for member in self.members.values() if member.running]

    @property
    def port(self) -> int:
        """Where a running broker listens."""
        return next(member.port for member in self.members.values() if member.running)

    @property
    def ports(self) -> list[int]:
        """Where the running brokers listen."""
        return [member.port for member in self.members.values() if member.running]

    def meter(self) -> Meter:
        """A meter for what the three brokers use from now on."""
        return Meter(*self.pids)

    def metadata(self, port: int | None = None) -> MetadataResponse:
        """What a broker says of the cluster."""
        with wire.connect(port or self.port) as connection:
            return wire.metadata(connection)

    def wait_until(self, settled: Callable[[MetadataResponse], bool], what: str, *, every: float = 0.02) -> None:
        """Wait until all running brokers say so."""
        deadline = time.monotonic() + _DEADLINE
        for port in self.ports:
            while True:
                with suppress(ConnectionError, TimeoutError):
                    if settled(self.metadata(port)):
                        break
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.name} did not come to {what} within {_DEADLINE:.0f} seconds")
                time.sleep(every)

    def partitions(self, topic: str) -> list[Partition]:
        """Those of a topic, in order."""
        found = next(each for each in self.metadata().topics if each.name == topic)
        return sorted(found.partitions, key=lambda each: each.partition_index)

    def restart(self, broker_id: int) -> None:
        """Start a broker that was killed, and wait until every partition has all its replicas in sync."""
        self.members[broker_id].start()
        self.wait_until(lambda told: len(told.brokers) == SIZE and _all_in_sync(told), "full replicas", every=0.1)

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A topic with three replicas that lives as long as the block."""
        self._topics += 1
        name = f"bench-{self._topics:04}"
        rdkafka.create_topics(self.port, [name], partitions, SIZE)
        self.wait_until(lambda told: _knows(told, name, partitions) and _all_in_sync(told), "a new topic's replicas")
        try:
            yield name
        finally:
            rdkafka.delete_topic(self.port, name)
            for member in self.members.values():
                member.wait_until_gone(name)


class KafkaCluster(Cluster):
    """Apache Kafka."""

    name = "Kafka"
    member = KafkaMember


class BarnabasCluster(Cluster):
    """Ours."""

    name = "Barnabas"
    member = BarnabasMember


CLUSTERS: Final[tuple[type[Cluster], ...]] = (KafkaCluster, BarnabasCluster)


def _knows(told: MetadataResponse, name: str, partitions: int) -> bool:
    return any(topic.name == name and len(topic.partitions) == partitions for topic in told.topics)


def _all_in_sync(told: MetadataResponse) -> bool:
    return all(
        len(partition.isr_nodes) == len(partition.replica_nodes)
        for topic in told.topics
        for partition in topic.partitions
    )
