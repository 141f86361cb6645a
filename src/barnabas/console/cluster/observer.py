"""The newest snapshots of a cluster in one user's name, taken when they are asked for and old.

However many pages ask, one snapshot is taken at a time, and all who wait get it. Rates come from two snapshots: the one
before the newest is kept.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from barnabas.clients.errors import BrokerUnreachable, LoginFailed, RequestRefused
from barnabas.console.cluster.group_lags import GroupStates, describe_groups
from barnabas.console.cluster.lines import PATIENCE_SECONDS, BrokerLines
from barnabas.console.cluster.queues import QueueState, describe_queue
from barnabas.console.cluster.retention import describe_retention
from barnabas.console.cluster.snapshot import (
    Brokers,
    DiskAnswer,
    Offsets,
    Topology,
    describe_registered,
    describe_topology,
    disk_questions,
    end_questions,
    join_disks,
    join_ends,
)
from barnabas.model.base_error import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.clients.admin.replicas import Reassignment
    from barnabas.console.cluster.connections import Connections
    from barnabas.console.cluster.retention import RetentionSettings
    from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks
    from barnabas.model.ids import TopicPartition

T = TypeVar("T")

SNAPSHOT_SECONDS: Final = 1.0
GROUPS_SECONDS: Final = 1.5
DISKS_SECONDS: Final = 8.0
RETENTION_SECONDS: Final = 9.0
"""How old an answer may be that a page gets."""
SHARE_OF_TIME: Final = 2
"""A snapshot is kept for this many times as long as it took: a large cluster is not asked without end."""
REFUSED_SECONDS: Final = 60.0
"""How long a queue is not asked for again that the user may not see: brokers note each refusal."""
DISK_PATIENCE_SECONDS: Final = 3.0
"""How long a broker may take to look at its disks."""
LEAST_SPAN: Final = 1.0
"""Seconds between two snapshots that a rate is made of."""


class CachedAnswer(Generic[T]):
    """An answer that is kept for a while. One that is long in coming does not keep those waiting who got one before."""

    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float, patience: float | None = None) -> None:
        self._ask = ask
        self._seconds = seconds
        self._patience = patience
        self._task: asyncio.Task[None] | None = None
        self._until = 0.0
        self._began = 0.0
        self.newest: T | None = None

    @property
    def age(self) -> float:
        """Seconds since the newest answer was asked for."""
        return time.monotonic() - self._began

    async def get(self, *, fresh: bool = False) -> T:
        """The answer, asked for if it is old; `fresh`: asked for in any case, and waited for."""
        asked = time.monotonic()
        while True:
            good = self._began >= asked or (not fresh and time.monotonic() < self._until)
            if self.newest is not None and good:
                return self.newest
            if self._task is None:
                self._task = asyncio.create_task(self._run())
                self._task.add_done_callback(_look_at_failure)
            task = self._task
            can_wait = fresh or self.newest is None
            done, _ = await asyncio.wait((task,), timeout=None if can_wait else self._patience)
            if done:
                task.result()
            elif self.newest is not None:
                return self.newest

    async def _run(self) -> None:
        began = time.monotonic()
        try:
            self.newest = await self._ask()
        finally:
            self._task = None
        self._began = began
        took = time.monotonic() - began
        self._until = time.monotonic() + max(self._seconds, took * SHARE_OF_TIME)


def _look_at_failure(task: asyncio.Task[None]) -> None:
    """Those who wait get it; there may be nobody any more."""
    if not task.cancelled():
        task.exception()


class Observer:
    """What one user sees of a cluster."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._before: ClusterSnapshot | None = None
        self._refusal: tuple[float, str] | None = None
        """Until when queues are not asked for, and why."""
        self._topologies = BrokerLines[Topology](connections)
        self._ends = BrokerLines[Offsets](connections)
        self._disk_lines = BrokerLines[DiskAnswer](connections, DISK_PATIENCE_SECONDS)
        self._registrations = BrokerLines[Brokers](connections)
        self._lines = (self._topologies, self._ends, self._disk_lines, self._registrations)
        self._snapshots = CachedAnswer(self._take, SNAPSHOT_SECONDS)
        self._groups = CachedAnswer(self._look_at_groups, GROUPS_SECONDS, PATIENCE_SECONDS)
        self._disks = CachedAnswer(self._look_at_disks, DISKS_SECONDS, PATIENCE_SECONDS)
        self._retention = CachedAnswer(self._look_at_retention, RETENTION_SECONDS)
        self._moves = CachedAnswer(self._look_at_moves, GROUPS_SECONDS, PATIENCE_SECONDS)

    async def snapshot(self, *, fresh: bool = False) -> ClusterSnapshot:
        """The cluster now."""
        return await self._snapshots.get(fresh=fresh)

    async def groups(self, *, fresh: bool = False) -> GroupStates:
        """The groups now."""
        return await self._groups.get(fresh=fresh)

    async def disks(self, *, fresh: bool = False) -> Disks:
        """The disks now."""
        return await self._disks.get(fresh=fresh)

    async def disks_while_moving(self) -> Disks:
        """The disks now, asked for more often: somebody watches how much was copied."""
        return await self._disks.get(fresh=self._disks.age > SNAPSHOT_SECONDS)

    async def moves(self, *, fresh: bool = False) -> dict[TopicPartition, Reassignment]:
        """Reassignments that are under way; none where the user may not see them."""
        return await self._moves.get(fresh=fresh)

    async def retention(self) -> RetentionSettings:
        """What topics have set about retention; of a topic that is new, asked for now."""
        snapshot, known = await self.snapshot(), self._retention.newest
        is_new = known is not None and not snapshot.topics.keys() <= known.keys()
        return await self._retention.get(fresh=is_new)

    async def queue(self, group_id: str) -> QueueState:
        """The state of a queue now."""
        known = self._refusal[1] if self._refusal is not None and time.monotonic() < self._refusal[0] else None
        found = await self.connections.ask(lambda cluster: describe_queue(cluster, group_id, known))
        if found.is_forbidden and found.refusal is not None and known is None:
            self._refusal = time.monotonic() + REFUSED_SECONDS, found.refusal
        return found

    def rates(self) -> dict[TopicPartition, float]:
        """Records a second by partition, between the last two snapshots."""
        newest, before = self._snapshots.newest, self._before
        if newest is None or before is None:
            return {}
        seconds = max(newest.at - before.at, 0.001)
        return {
            place: max(0.0, (end - before.ends[place]) / seconds)
            for place, end in newest.ends.items()
            if place in before.ends
        }

    async def _take(self) -> ClusterSnapshot:
        topology = await self._ask_topology()
        answers, registered = await asyncio.gather(
            self._ends.ask(end_questions(topology)), self._ask_registered(topology)
        )
        taken = join_ends(topology, registered, answers)
        nodes = {broker.id: broker.node for broker in taken.brokers.values() if broker.up}
        for lines in self._lines:
            lines.keep(nodes.values())
        silent = [nodes[each].address for each in taken.silent if each in nodes]
        self.connections.avoid_silent((each.address for each in nodes.values()), silent)
        last = self._snapshots.newest
        if last is not None and (self._before is None or taken.at - last.at >= LEAST_SPAN):
            self._before = last
        return taken

    async def _ask_topology(self) -> Topology:
        """Ask a broker that has answered, then another one, and at last whoever is there."""
        last = self._snapshots.newest
        nodes = [] if last is None else [broker.node for broker in last.brokers.values() if broker.up]
        nodes = [node for node in nodes if not self._ends.is_late(node)]
        for node in sorted(nodes, key=self._topologies.is_late):
            answer = (await self._topologies.ask({node: describe_topology}))[node]
            if isinstance(answer, RequestRefused):
                raise answer
            if not isinstance(answer, BarnabasError):
                return answer
        return await self.connections.ask(describe_topology)

    async def _ask_registered(self, topology: Topology) -> Brokers:
        """All brokers that were not unregistered; those that are known while nobody tells."""
        nodes = [broker.node for broker in topology.brokers.values() if not self._ends.is_late(broker.node)]
        for node in sorted(nodes, key=self._registrations.is_late)[:1]:
            answer = (await self._registrations.ask({node: describe_registered}))[node]
            if not isinstance(answer, BarnabasError):
                return answer
        return {} if self._snapshots.newest is None else dict(self._snapshots.newest.brokers)

    def close(self) -> None:
        """Ask nothing more."""
        for lines in self._lines:
            lines.close()
        self.connections.close()

    async def _look_at_groups(self) -> GroupStates:
        snapshot = await self.snapshot()
        try:
            return await self.connections.ask(lambda cluster: describe_groups(cluster, snapshot))
        except LoginFailed:
            raise
        except BrokerUnreachable as error:  # one that hangs: what is known of groups stays
            return replace(self._groups.newest or GroupStates(time.time(), {}), error=str(error))

    async def _look_at_disks(self) -> Disks:
        snapshot = await self.snapshot()
        return join_disks(await self._disk_lines.ask(disk_questions(snapshot)))

    async def _look_at_retention(self) -> RetentionSettings:
        topics = list((await self.snapshot()).topics)
        return await self.connections.ask(lambda cluster: describe_retention(cluster, topics))

    async def _look_at_moves(self) -> dict[TopicPartition, Reassignment]:
        try:
            return await self.connections.ask(lambda cluster: cluster.replicas.reassignments())
        except (RequestRefused, BrokerUnreachable):
            return {}
