"""The newest snapshots of a cluster in one user's name, taken when they are asked for and old.

However many pages ask, one snapshot is taken at a time, and all who wait get it. Rates come from two snapshots: the one
before the newest is kept.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, RequestRefused
from barnabas.console.cluster.cached_answer import CachedAnswer, begun
from barnabas.console.cluster.group_lags import CoordinatedGroups, GroupStates, group_question, join_groups
from barnabas.console.cluster.group_looks import GroupLook, GroupLooks
from barnabas.console.cluster.lines import PATIENCE_SECONDS, BrokerLines
from barnabas.console.cluster.pipelines import Reports, read_reports
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
from barnabas.console.cluster.transactions import ListedTransactions, join_transactions, transaction_question
from barnabas.model.base_error import BarnabasError
from barnabas.model.internal_topics import PIPELINE_METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.replicas import Reassignment
    from barnabas.clients.wire.connection import Node
    from barnabas.console.cluster.connections import Connections
    from barnabas.console.cluster.group_lags import GroupState
    from barnabas.console.cluster.retention import RetentionSettings
    from barnabas.console.cluster.snapshot import ClusterSnapshot, Disks
    from barnabas.model.ids import TopicPartition

T = TypeVar("T")

SNAPSHOT_SECONDS: Final = 1.0
GROUPS_SECONDS: Final = 1.0
DISKS_SECONDS: Final = 1.5
QUEUE_SECONDS: Final = 0.5
RETENTION_SECONDS: Final = 1.5
"""How old an answer may be that a page gets."""
SHARE_OF_DISKS: Final = 10
"""A look at disks is kept for this many times as long as it took: it is work for brokers with many logs."""
MOST_QUEUES: Final = 16
"""Queues that somebody looks at, of which answers are kept."""
REFUSED_SECONDS: Final = 60.0
"""How long a queue is not asked for again that the user may not see: brokers note each refusal."""
TOPOLOGY_PATIENCE_SECONDS: Final = 0.5
"""How long a broker may take to tell of the cluster before another one is asked, too."""
LOOK_SECONDS: Final = 0.3
"""How often it is looked whether a broker hangs, while something is waited for that any broker can answer."""
DISK_PATIENCE_SECONDS: Final = 3.0
"""How long a broker may take to look at its disks."""
LEAST_SPAN: Final = 1.0
"""Seconds between two snapshots that a rate is made of."""


class Observer:
    """What one user sees of a cluster."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self._before: ClusterSnapshot | None = None
        self._refusal: tuple[float, str] | None = None
        """Until when queues are not asked for, and why."""
        self._topologies = BrokerLines[Topology](connections, TOPOLOGY_PATIENCE_SECONDS)
        self._ends = BrokerLines[Offsets](connections)
        self._disk_lines = BrokerLines[DiskAnswer](connections, DISK_PATIENCE_SECONDS)
        self._registrations = BrokerLines[Brokers](connections)
        self._group_lines = BrokerLines[CoordinatedGroups](connections)
        self._transaction_lines = BrokerLines[ListedTransactions](connections)
        self._lines = (
            self._topologies,
            self._ends,
            self._disk_lines,
            self._registrations,
            self._group_lines,
            self._transaction_lines,
        )
        self._looks = GroupLooks(connections)
        self._queues: dict[str, CachedAnswer[QueueState]] = {}
        self._snapshots = CachedAnswer(self._take, SNAPSHOT_SECONDS, is_whole=lambda taken: not taken.silent)
        self._groups = CachedAnswer(
            self._look_at_groups,
            GROUPS_SECONDS,
            PATIENCE_SECONDS + LOOK_SECONDS,
            is_whole=lambda found: self._is_quiet(found) and not any(each.is_old for each in found.groups.values()),
        )
        self._disks = CachedAnswer(
            self._look_at_disks, DISKS_SECONDS, PATIENCE_SECONDS, SHARE_OF_DISKS, is_whole=lambda disks: disks.is_whole
        )
        self._retention = CachedAnswer(self._look_at_retention, RETENTION_SECONDS, is_whole=self._is_quiet)
        self._moves = CachedAnswer(self._look_at_moves, GROUPS_SECONDS, PATIENCE_SECONDS, is_whole=self._is_quiet)
        self._transactions = CachedAnswer(
            self._look_at_transactions, GROUPS_SECONDS, is_whole=lambda listed: not listed.silent
        )
        self._reports = CachedAnswer(self._look_at_reports, GROUPS_SECONDS, PATIENCE_SECONDS, is_whole=self._is_quiet)

    def _is_quiet(self, _: object) -> bool:
        """Whether no broker hangs, for which somebody may have waited until another one was asked."""
        return not self.connections.avoids_some

    async def snapshot(self, *, fresh: bool = False) -> ClusterSnapshot:
        """The cluster now."""
        return await self._snapshots.get(fresh=fresh)

    async def groups(self, *, fresh: bool = False) -> GroupStates:
        """The groups now."""
        return await self._groups.get(fresh=fresh)

    async def disks(self, *, fresh: bool = False) -> Disks:
        """The disks now, of brokers that are up and answer."""
        return await self._of_answering(await self._disks.get(fresh=fresh))

    async def disks_while_moving(self) -> Disks:
        """The disks now, asked for more often: somebody watches how much was copied."""
        return await self._of_answering(await self._disks.get(fresh=self._disks.age > SNAPSHOT_SECONDS))

    async def _of_answering(self, disks: Disks) -> Disks:
        """Without brokers that have gone since they were asked."""
        _, nodes = await self._answering()
        return replace(
            disks, directories={each: dirs for each, dirs in disks.directories.items() if each in nodes.values()}
        )

    async def moves(self, *, fresh: bool = False) -> dict[TopicPartition, Reassignment]:
        """Reassignments that are under way; none where the user may not see them."""
        return await self._moves.get(fresh=fresh)

    async def retention(self) -> RetentionSettings:
        """What topics have set about retention; of a topic that is new, asked for now."""
        snapshot, known = await self.snapshot(), self._retention.newest
        is_new = known is not None and not snapshot.topics.keys() <= known.keys()
        return await self._retention.get(fresh=is_new)

    async def group(self, group: GroupState) -> tuple[GroupLook | None, str | None]:
        """A group in full, as its coordinator tells it, and why that is not how it is now, if it is not."""
        return await self._looks.get(group, await self.snapshot())

    async def queue(self, group_id: str) -> QueueState:
        """The state of a queue now; without what is in flight where those who keep it do not answer."""
        asked = self._queues.pop(group_id, None)
        if asked is None:
            asked = CachedAnswer(
                lambda: self._look_at_queue(group_id), QUEUE_SECONDS, PATIENCE_SECONDS, is_whole=self._is_quiet
            )
        self._queues[group_id] = asked
        while len(self._queues) > MOST_QUEUES:
            del self._queues[next(iter(self._queues))]
        try:
            found, late = await self._soon(asked)
        except BrokerUnreachable as error:
            return QueueState.silent(str(error))
        return found if late is None else QueueState.silent(late)

    async def transactions(self) -> ListedTransactions:
        """Transactional ids of all coordinators that answer, and which do not."""
        return await self._transactions.get()

    async def reports(self) -> tuple[Reports, str | None]:
        """What pipelines and loads have reported, and why that is not how it is now, if it is not."""
        try:
            return await self._soon(self._reports)
        except BrokerUnreachable as error:
            return self._reports.newest or {}, str(error)

    async def _soon(self, cached: CachedAnswer[T]) -> tuple[T, str | None]:
        """An answer, and why it is old, if it is; raises BrokerSilent where there is none because a broker hangs.

        One that is long in coming while no broker hangs is waited for: there may be much to tell.
        """
        try:
            found = await cached.get_soon()
        except BrokerSilent:
            await self.snapshot()
            if self.connections.avoids_some:
                raise
            return await cached.get(), None
        is_late = cached.late is not None and self.connections.avoids_some
        return found, f"there was no answer for {cached.late:.1f} s" if is_late else None

    async def ask(self, question: Callable[[ClusterAdmin], T]) -> T:
        """What any broker answers: if the first one hangs, another one."""
        first = begun(self.connections.ask(question))
        asked = time.monotonic()
        try:
            while not (self.connections.avoids_some and time.monotonic() - asked >= PATIENCE_SECONDS):
                looking = begun(self.snapshot())  # which finds out who hangs, and has others asked from then on
                await asyncio.wait((first, looking), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.wait((first,), timeout=LOOK_SECONDS)
                if first.done():
                    return first.result()
            return await _first_answer(first, begun(self.connections.ask(question)))
        finally:
            first.cancel()

    async def ask_broker(self, number: int, question: Callable[[ClusterAdmin], T]) -> T:
        """What only one broker can answer; raises BrokerSilent soon if it hangs."""
        reason = (await self.snapshot()).silent.get(number)
        asking = None if reason is not None else begun(self.connections.ask(question))
        if asking is not None:
            await asyncio.wait((asking,), timeout=PATIENCE_SECONDS)
            if asking.done():
                return asking.result()
            asking.cancel()
            reason = f"there was no answer for {PATIENCE_SECONDS:g} s"
        raise BrokerSilent(f"Broker {number} does not answer: {reason}.")

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
        down = [broker.node.address for broker in taken.brokers.values() if not broker.up]
        for lines in self._lines:
            lines.keep(nodes.values())
        silent = [nodes[each].address for each in taken.silent if each in nodes]
        self.connections.avoid([each.address for each in nodes.values()], silent, down)
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
        self._looks.close()
        self.connections.close()

    async def _answering(self) -> tuple[ClusterSnapshot, dict[Node, int]]:
        """The cluster, and the brokers that are up and have just answered."""
        snapshot = await self.snapshot()
        up = [broker for broker in snapshot.brokers.values() if broker.up and broker.id not in snapshot.silent]
        return snapshot, {broker.node: broker.id for broker in up}

    async def _look_at_groups(self) -> GroupStates:
        snapshot, nodes = await self._answering()
        answers = await self._group_lines.ask({node: group_question(node, snapshot.ends) for node in nodes})
        return join_groups(self._groups.newest, answers, snapshot.silent)

    async def _look_at_queue(self, group_id: str) -> QueueState:
        known = self._refusal[1] if self._refusal is not None and time.monotonic() < self._refusal[0] else None
        found = await self.connections.ask(lambda cluster: describe_queue(cluster, group_id, known))
        if found.is_forbidden and found.refusal is not None and known is None:
            self._refusal = time.monotonic() + REFUSED_SECONDS, found.refusal
        return found

    async def _look_at_transactions(self) -> ListedTransactions:
        snapshot, nodes = await self._answering()
        answers = await self._transaction_lines.ask({node: transaction_question(node) for node in nodes})
        return join_transactions(answers, snapshot.silent)

    async def _look_at_reports(self) -> Reports:
        topic = (await self.snapshot()).topics.get(PIPELINE_METRICS)
        if topic is None:
            return {}
        numbers = [each.number for each in topic.partitions]
        return await self.connections.ask(lambda cluster: read_reports(cluster, PIPELINE_METRICS, numbers))

    async def _look_at_disks(self) -> Disks:
        snapshot = await self.snapshot()
        return join_disks(await self._disk_lines.ask(disk_questions(snapshot)), snapshot.silent)

    async def _look_at_retention(self) -> RetentionSettings:
        topics = list((await self.snapshot()).topics)
        return await self.ask(lambda cluster: describe_retention(cluster, topics))

    async def _look_at_moves(self) -> dict[TopicPartition, Reassignment]:
        try:
            return await self.ask(lambda cluster: cluster.replicas.reassignments())
        except (RequestRefused, BrokerUnreachable):
            return {}


async def _first_answer(*asked: asyncio.Task[T]) -> T:
    """What comes first, if it is no failure to reach a broker; one of those if all fail."""
    left = set(asked)
    while True:
        done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for task in sorted(done, key=lambda task: task.exception() is not None):
            if not left or not isinstance(task.exception(), BrokerUnreachable):
                return task.result()
