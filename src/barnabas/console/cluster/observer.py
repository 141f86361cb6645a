"""The newest snapshots of a cluster in one user's name, taken when they are asked for and old.

However many pages ask, one snapshot is taken at a time, and all who wait get it. Rates come from two snapshots: the one
before the newest is kept.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import anyio

from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.console.cluster.group_lags import describe_groups
from barnabas.console.cluster.snapshot import describe_disks, take_snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.clients.admin.replicas import Reassignment
    from barnabas.console.cluster.connections import Connections
    from barnabas.console.cluster.group_lags import GroupStates
    from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks
    from barnabas.model.ids import TopicPartition

T = TypeVar("T")

SNAPSHOT_SECONDS: Final = 1.0
GROUPS_SECONDS: Final = 1.5
DISKS_SECONDS: Final = 8.0
"""How old an answer may be that a page gets."""
SHARE_OF_TIME: Final = 2
"""A snapshot is kept for this many times as long as it took: a large cluster is not asked without end."""
LEAST_SPAN: Final = 1.0
"""Seconds between two snapshots that a rate is made of."""


class CachedAnswer(Generic[T]):
    """An answer that is kept for a while."""

    def __init__(self, ask: Callable[[], Awaitable[T]], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._lock = anyio.Lock()
        self._until = 0.0
        self._began = 0.0
        self.newest: T | None = None

    @property
    def age(self) -> float:
        """Seconds since the newest answer was asked for."""
        return time.monotonic() - self._began

    async def get(self, *, fresh: bool = False) -> T:
        """The answer, asked for if it is old; `fresh`: asked for in any case."""
        asked = time.monotonic()
        async with self._lock:
            good = self._began >= asked or (not fresh and time.monotonic() < self._until)
            if self.newest is not None and good:
                return self.newest
            began = time.monotonic()
            self.newest = await self._ask()
            self._began = began
            took = time.monotonic() - began
            self._until = time.monotonic() + max(self._seconds, took * SHARE_OF_TIME)
            return self.newest


class Observer:
    """What one user sees of a cluster."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._before: ClusterSnapshot | None = None
        self._snapshots = CachedAnswer(self._take, SNAPSHOT_SECONDS)
        self._groups = CachedAnswer(self._look_at_groups, GROUPS_SECONDS)
        self._disks = CachedAnswer(self._look_at_disks, DISKS_SECONDS)
        self._moves = CachedAnswer(self._look_at_moves, GROUPS_SECONDS)

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
        taken = await self.connections.ask(take_snapshot)
        last = self._snapshots.newest
        if last is not None and (self._before is None or taken.at - last.at >= LEAST_SPAN):
            self._before = last
        return taken

    async def _look_at_groups(self) -> GroupStates:
        snapshot = await self.snapshot()
        return await self.connections.ask(lambda cluster: describe_groups(cluster, snapshot))

    async def _look_at_disks(self) -> Disks:
        snapshot = await self.snapshot()
        return await self.connections.ask(lambda cluster: describe_disks(cluster, snapshot))

    async def _look_at_moves(self) -> dict[TopicPartition, Reassignment]:
        try:
            return await self.connections.ask(lambda cluster: cluster.replicas.reassignments())
        except (RequestRefused, BrokerUnreachable):
            return {}
