"""A cluster of one's own: real brokers on free ports, which agree over a file in a temporary directory.

    with Cluster(brokers=3) as cluster:
        cluster.leader("orders").kill()

All brokers are there, and know of each other, when the block begins, and gone when it ends. Each is a `Broker`, whose
place in `brokers` is its id: it can be stopped, killed, started again, and have faults of its own. What concerns the
cluster as a whole (who leads, who coordinates a group) is asked and done here, over the wire as any tool does it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.clients.admin.replicas import Election, Replicas
from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, RequestRefused
from barnabas.clients.wire.connection import WireClient
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.protocol.faults import InvalidFault
from barnabas.testing.broker import Broker
from barnabas.testing.faults import BrokerFailed, Faults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.clients.admin.replicas import Leadership
    from barnabas.testing.faults import BrokerFaults, PrivateSocket

T = TypeVar("T")

COPIES: Final = 3
WAIT_SECONDS: Final = 30.0
CHANGE_SECONDS: Final = 10.0
LOOK_AGAIN_SECONDS: Final = 0.01
CHANGING: Final = frozenset(
    {
        ErrorCode.not_controller,
        ErrorCode.leader_not_available,
        ErrorCode.broker_not_available,
        ErrorCode.preferred_leader_not_available,
        ErrorCode.request_timed_out,
    }
)
"""Answers of a cluster that is about to change: it is asked again."""


class Cluster:
    """Brokers that are this program's alone; use it in a `with` or an `async with`."""

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        brokers: int = 3,
        data: Path | str | None = None,
        client_config: Mapping[str, object] | None = None,
        start_timeout: float = WAIT_SECONDS,
    ) -> None:
        """Describe a cluster; `start()` or a `with` starts it.

        - `config`: Kafka's settings for all brokers, as `{"num.partitions": 3}`. Topics have three replicas, two of
          which have to take a record, unless it says otherwise.
        - `brokers`: how many. Their ids are 0, 1, 2 and so on.
        - `data`: a directory to keep data in; without it a temporary one, which is removed at the end.
        - `client_config`: properties that its clients need, as `{"security.protocol": "SSL"}`.
        """
        self.client_config: dict[str, object] = dict(client_config or {})
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers: there should be one at least")
        self._start_timeout = start_timeout
        self._kept = data is not None
        self._folder = None if data is None else Path(data).absolute()
        self._config = {**_copies(brokers), **(config or {})}
        self._size = brokers
        self._brokers: tuple[Broker, ...] = ()
        self.faults = ClusterFaults(self)
        """What can go wrong on it. What goes wrong on one broker alone is in that broker's `faults`."""

    def __repr__(self) -> str:
        return f"<Cluster {', '.join(map(repr, self._brokers)) or 'not started'}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    @property
    def brokers(self) -> tuple[Broker, ...]:
        """All brokers, each at the place of its id. Raises BrokerFailed before the first start."""
        if not self._brokers:
            raise BrokerFailed("the cluster was not started yet, or is closed: it has no brokers")
        return self._brokers

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: the addresses of all brokers, whether they run or not."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def running(self) -> bool:
        """Whether any broker is there."""
        return any(broker.running for broker in self._brokers)

    def start(self) -> None:
        """Start all brokers that do not run, and return when every broker knows of all. Raises BrokerFailed."""
        is_new = not self._brokers
        if is_new:
            self._prepare()
        elif all(broker.running for broker in self._brokers):
            return
        try:
            with ThreadPoolExecutor(self._size) as pool:
                for started in [pool.submit(broker.start) for broker in self._brokers]:
                    started.result()
            self._await_whole()
        except BaseException:
            if is_new:
                self.close()
            raise

    def close(self) -> None:
        """End all brokers and remove what is temporary. Closing twice does nothing.

        Brokers are stopped cleanly if their data is kept; otherwise nobody will see whether they were.
        """
        brokers, self._brokers = self._brokers, ()
        try:
            for broker in brokers:
                if not self._kept:
                    broker.kill()
                broker.close()
        finally:
            if self._folder is not None and not self._kept:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    # Who does what

    def leader(self, topic: str, partition: int = 0) -> Broker:
        """The broker that leads a partition; waits while none that runs does. Raises RequestRefused, TimeoutError."""

        def running() -> Broker | None:
            return self._running(self.leadership(topic, partition).leader)

        return self._until(running, f"a leader of {topic}-{partition}")

    def followers(self, topic: str, partition: int = 0) -> tuple[Broker, ...]:
        """The brokers that have a copy of a partition and do not lead it. Raises RequestRefused, TimeoutError."""
        leader = self.leader(topic, partition)
        copies = (self.brokers[number] for number in self.leadership(topic, partition).replicas)
        return tuple(broker for broker in copies if broker is not leader)

    def coordinator(self, group: str) -> Broker:
        """The broker that coordinates a group; waits until there is one. Raises TimeoutError."""

        def running() -> Broker | None:
            with self._ask() as asked:
                (node,) = asked.coordinators([group], asked.deadline())
            return self._running(node.id)

        return self._until(running, f"a coordinator of group {group}")

    def controller(self) -> Broker:
        """The broker that decides who leads; waits while there is none. Raises TimeoutError."""

        def running() -> Broker | None:
            with self._ask() as asked:
                return self._running(Replicas(asked).controller_id())

        return self._until(running, "a controller")

    def leadership(self, topic: str, partition: int = 0, *, at: Broker | None = None) -> Leadership:
        """Who leads a partition, and who is in sync, as one broker or any knows it now. Raises RequestRefused."""
        with self._ask(at) as asked:
            found = Replicas(asked).leaderships(topic)
        if partition not in found:
            raise RequestRefused(ErrorCode.unknown_topic_or_partition, f"there is no partition {partition} of {topic}")
        return found[partition]

    def wait_until_in_sync(self, topic: str, timeout: float = WAIT_SECONDS) -> None:
        """Wait until every replica of a topic is in sync, as after a broker's return. Raises TimeoutError."""

        def in_sync() -> bool | None:
            with self._ask() as asked:
                found = Replicas(asked).leaderships(topic).values()
            return all(each.leader is not None and set(each.isr) == set(each.replicas) for each in found) or None

        self._until(in_sync, f"all replicas of {topic} to be in sync", timeout)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> Broker:
        """Let another broker lead a partition, and return that broker once every running broker knows.

        `to` is its id, or without it the next replica in sync. It becomes the preferred leader and is elected: what
        `barnabas reassign-partitions` and `barnabas leader-election` do. Raises InvalidFault if no other one can lead.
        """
        place = TopicPartition(topic, partition)
        target = self._until(
            lambda: self._next_leader(place, to), f"a replica of {place} that can lead", CHANGE_SECONDS
        )

        def moved() -> bool | None:
            now = self.leadership(topic, partition)
            if now.leader == target:
                return True
            order = (target, *(number for number in now.replicas if number != target))
            with self._ask() as asked:
                refused = Replicas(asked).reassign({place: order}).get(place)
                refused = refused or Replicas(asked).elect_leaders(Election.PREFERRED, [place]).get(place)
            if refused is not None and refused.code not in CHANGING:
                raise refused
            return None

        def known() -> bool | None:
            running = (broker for broker in self.brokers if broker.running)
            return all(self.leadership(topic, partition, at=each).leader == target for each in running) or None

        self._until(moved, f"broker {target} to lead {place}")
        self._until(known, f"every broker to know that {target} leads {place}")
        return self.brokers[target]

    # How it is done

    def _next_leader(self, place: TopicPartition, to: int | None) -> int | None:
        """Who is to lead; None while it is not in sync."""
        found = self.leadership(place.topic, place.partition)
        if to is not None and to not in found.replicas:
            raise InvalidFault(f"broker {to} cannot lead {place}: its replicas are on {_join(found.replicas)}")
        if to is None and len(found.replicas) < 2:
            raise InvalidFault(f"the leader of {place} cannot be moved: broker {found.leader} has the only replica")
        after = (found.replicas.index(found.leader) if found.leader in found.replicas else 0) + 1
        order = (*found.replicas[after:], *found.replicas[:after]) if to is None else (to,)
        able = (number for number in order if number in found.isr and self.brokers[number].running)
        return next((number for number in able if number != found.leader or number == to), None)

    def _prepare(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="barnabas-"))
        together = {"metadata.store": self._folder / "metadata", **self._config}
        self._brokers = tuple(
            Broker({**together, "node.id": number}, data=self._folder / str(number), start_timeout=self._start_timeout)
            for number in range(self._size)
        )

    def _await_whole(self) -> None:
        everyone = set(range(self._size))

        def whole() -> bool | None:
            for broker in self.brokers:
                with self._ask(broker) as asked:
                    if {node.id for node in asked.nodes()} != everyone or Replicas(asked).controller_id() is None:
                        return None
            return True

        self._until(whole, "all brokers to know of each other", self._start_timeout)

    def _running(self, number: int | None) -> Broker | None:
        """A broker that runs; None for one that died and is still taken for alive."""
        return self.brokers[number] if number is not None and self.brokers[number].running else None

    def _ask(self, broker: Broker | None = None) -> WireClient:
        """A connection to one broker, or to any that runs. Raises BrokerFailed if there is none."""
        if broker is None:
            broker = next((each for each in self.brokers if each.running), None)
        if broker is None:
            raise BrokerFailed("no broker of the cluster is running: start one")
        security = {name: str(value) for name, value in self.client_config.items()}
        return WireClient(broker.bootstrap_servers, properties=security, timeout=WAIT_SECONDS)

    def _until(self, ask: Callable[[], T | None], what: str, timeout: float = WAIT_SECONDS) -> T:
        """Ask until there is an answer; brokers may come and go meanwhile. Raises TimeoutError."""
        deadline = time.monotonic() + timeout
        while True:
            with suppress(BrokerUnreachable, BrokerSilent):
                found = ask()
                if found is not None:
                    return found
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout:g} s in vain for {what}")
            time.sleep(LOOK_AGAIN_SECONDS)


class ClusterFaults(Faults):
    """What can go wrong on a cluster. Faults of requests are set on every broker, and `times` counts at each."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def rebalance(self, group: str) -> None:
        """Make a group rebalance now, whichever broker coordinates it."""
        self._cluster.coordinator(group).faults.rebalance(group)

    def move_leader(self, topic: str, partition: int = 0, to: int | None = None) -> Broker:
        """Let another broker lead a partition; returns that broker (see `Cluster.move_leader`)."""
        return self._cluster.move_leader(topic, partition, to)

    def advance_retention_clock(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, topic: str | None = None
    ) -> None:
        """Remove what retention would have removed so much later, in one topic or in all, from every replica.

        A follower may not know yet that its newest records are committed, and keeps these; it removes them when it
        hears that its leader did. That is waited for.
        """
        for faults in self._running():
            faults.advance_retention_clock(days=days, hours=hours, minutes=minutes, seconds=seconds, topic=topic)
        self._cluster._until(lambda: self._is_level(topic), "all replicas to remove what is old")

    def _is_level(self, topic: str | None) -> bool | None:
        """Whether the copies of each log begin at the same offset."""
        starts: dict[str, int] = {}
        for faults in self._running():
            for place, start in faults.log_starts(topic).items():
                if starts.setdefault(place, start) != start:
                    return None
        return True

    def settle(self) -> None:
        """Wait until everything is served that clients had asked for when they were closed."""
        for faults in self._running():
            faults.settle()

    def clear(self) -> None:
        """Remove all faults of all brokers."""
        for faults in self._running():
            faults.clear()

    def _set(self, fault: dict[str, Any]) -> list[tuple[PrivateSocket, int]]:
        return [place for faults in self._running() for place in faults._set(fault)]

    def _running(self) -> list[BrokerFaults]:
        return [broker.faults for broker in self._cluster.brokers if broker.running]


def _copies(brokers: int) -> dict[str, object]:
    """Settings by which everything has as many replicas as production usually has, and survives the loss of one."""
    copies = min(COPIES, brokers)
    enough = max(1, copies - 1)
    return {
        "default.replication.factor": copies,
        "min.insync.replicas": enough,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": enough,
        "transaction.state.log.num.partitions": 1,
        "replica.lag.time.max.ms": 5000,
        "replica.fetch.backoff.ms": 100,
        "controlled.shutdown.retry.backoff.ms": 200,
    }


def _join(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
