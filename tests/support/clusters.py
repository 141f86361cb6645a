"""Clusters of real broker processes on this host, over a shared SQLite file or a ZooKeeper."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from confluent_kafka.admin import ClusterMetadata, PartitionMetadata

QUICK: Final = {
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.backoff.ms": "100",
    "controlled.shutdown.retry.backoff.ms": "200",
}
"""Settings for tests that do not want to wait as long as production does."""
PATIENT: Final = {"operation_timeout": 30, "request_timeout": 40}
"""For what an administrator asks and a busy machine may take its time for: he gives up sooner by himself, so that he
turns to another broker when one hangs."""
LONG_LAG_TIME: Final = {"replica.lag.time.max.ms": "30000"}
"""For tests in which nobody may leave the ISR because the machine is busy."""
_METADATA: Final = 3


class Node(Process):
    """One broker of a cluster."""

    def __init__(
        self, folder: Path, broker_id: int, address: str, settings: Mapping[str, str], inside: Sequence[str] = ()
    ) -> None:
        self.broker_id = broker_id
        self.data = folder / f"data-{broker_id}"
        words = [*inside, sys.executable, "-m", "barnabas.cli.main", "start"]
        words += ["--listen", address, "--data", str(self.data)]
        for key, value in {"node.id": str(broker_id), **settings}.items():
            words += ["--set", f"{key}={value}"]
        super().__init__(f"broker {broker_id}", words, folder / f"broker-{broker_id}.log")

    def wait_ready(self) -> None:
        """Wait until it serves."""
        self.wait_for_output(r"\bis ready on\b")


class Cluster:
    """Brokers 1 to `size`; as a context manager all are killed at the end."""

    login: Mapping[str, str] = {}
    """What the administrator logs in with."""

    def __init__(
        self, folder: Path, size: int = 3, settings: Mapping[str, str] | None = None, zookeeper: str | None = None
    ) -> None:
        self.folder = folder
        where = {"metadata.store": str(folder / "metadata")} if zookeeper is None else {"zookeeper.connect": zookeeper}
        self._settings = {**where, **QUICK, **(settings or {})}
        self._ports = {broker_id: free_port() for broker_id in range(1, size + 1)}
        self.nodes: dict[int, Node] = {}
        try:
            for broker_id in self._ports:
                self.start(broker_id, wait=False)
            for node in self.nodes.values():
                node.wait_ready()
            self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "socket.timeout.ms": 3000, **self.login})
            wait_until(lambda: len(self.metadata().brokers) == size, "all brokers to be known")
        except BaseException:
            self.kill_all()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        del self.admin  # which would look for the brokers for as long as it lives
        self.kill_all()

    @property
    def bootstrap(self) -> str:
        """All brokers, for clients."""
        return ",".join(self.address(broker_id) for broker_id in self._ports)

    def address(self, broker_id: int) -> str:
        """Where one broker listens."""
        return f"127.0.0.1:{self._ports[broker_id]}"

    def inside(self, broker_id: int) -> Sequence[str]:
        """The words before the command of one broker; none where all share this host's network."""
        return ()

    def start(self, broker_id: int, *, wait: bool = True, settings: Mapping[str, str] | None = None) -> Node:
        """Start a broker, for the first time or again."""
        wanted = {**self._settings, **(settings or {})}
        node = Node(self.folder, broker_id, self.address(broker_id), wanted, self.inside(broker_id))
        self.nodes[broker_id] = node
        if wait:
            node.wait_ready()
        return node

    def add(self) -> int:
        """Start one broker more, and give its id."""
        broker_id = max(self._ports) + 1
        self._ports[broker_id] = free_port()
        self.start(broker_id)
        return broker_id

    def kill_all(self) -> None:
        """End everything."""
        for node in self.nodes.values():
            with suppress(ProcessLookupError):
                node.kill()

    def metadata(self, topic: str | None = None) -> ClusterMetadata:
        """What some broker says of the cluster; another one is asked when one hangs."""

        def settled_metadata() -> ClusterMetadata | None:
            with suppress(KafkaException):
                return self.admin.list_topics(topic, timeout=4)
            return None

        return wait_until(settled_metadata, "a broker to tell of the cluster", 60)

    def create(self, topic: str, partitions: int = 1, replicas: int = 3, **config: str) -> None:
        """Make a topic that every running broker then knows; configuration keys are written with underscores."""
        settings = {key.replace("_", "."): value for key, value in config.items()}
        new = NewTopic(topic, partitions, replicas, config=settings)

        def made() -> bool:
            try:
                self.admin.create_topics([new], **PATIENT)[topic].result(45)
            except KafkaException as refused:
                if refused.args[0].code() != KafkaError.INVALID_REPLICATION_FACTOR:
                    raise
                return False  # a broker that lost its session has not registered again yet
            return True

        wait_until(made, f"{replicas} brokers for {topic}")
        running = [broker_id for broker_id, node in self.nodes.items() if node.alive]
        wait_until(lambda: all(self._knows(each, topic, partitions) for each in running), f"all to know {topic}")

    def _knows(self, broker_id: int, topic: str, partitions: int) -> bool:
        """Whether a broker tells of this topic, with a leader for each of its partitions."""
        with self.connection(broker_id) as wire:
            [told] = wire.ask(_METADATA, 9, {"topics": [{"name": topic}]}).topics
        return len(told.partitions) == partitions and all(each.leader_id >= 0 for each in told.partitions)

    def connection(self, broker_id: int) -> Connection:
        """A connection to one broker, on which requests are answered."""
        return Connection(self.address(broker_id))

    def partition(self, topic: str, index: int = 0) -> PartitionMetadata:
        """One partition as some broker sees it."""
        return self.metadata(topic).topics[topic].partitions[index]

    def leader(self, topic: str, index: int = 0, *, other_than: int | None = None, seconds: float = 60) -> int:
        """Wait for a leader, and give its id."""

        def found() -> int | None:
            leader: int = self.partition(topic, index).leader
            return leader if leader > 0 and leader != other_than else None

        return wait_until(found, f"a leader of {topic}-{index} other than {other_than}", seconds)

    def wait_for_isr(self, topic: str, members: set[int], index: int = 0, seconds: float = 60) -> None:
        """Wait until exactly these are in sync."""
        seen: list[object] = []

        def matches() -> bool:
            seen[:] = [self.partition(topic, index)]
            return set(self.partition(topic, index).isrs) == members

        wait_until(matches, f"the ISR of {topic}-{index} to be {members}", seconds, every=0.05)

    def controller(self) -> int:
        """The controller's id, as some broker says."""
        controller: int = self.metadata().controller_id
        return controller
