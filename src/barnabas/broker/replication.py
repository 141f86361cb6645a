"""Replication of one broker: fetchers for what it follows, and the in-sync replicas of what it leads.

A leader watches its followers. One that has not been caught up for replica.lag.time.max.ms is to leave the ISR, one
that has caught up is to join; both are asked of the controller (AlterPartition), one change per partition at a time.
Whoever is to join counts at once, whoever is to leave counts until the controller has agreed (`machines/partition`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.model.errors import ApiError, BarnabasError
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from concurrent.futures import Executor
    from uuid import UUID

    from barnabas.broker.fetcher import ReplicaFetcher
    from barnabas.broker.follower import Follower
    from barnabas.broker.partition import Partition
    from barnabas.broker.peers import Peers
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.broker.replication_throttle import ReplicationThrottle
    from barnabas.broker.settings import Settings
    from barnabas.metadata.cache import Delta
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)

_FEW: Final = 10
"""Changes that are logged one by one."""
_GATHERING: Final = 0.01
"""Seconds in which more followers may catch up, to be proposed together."""
_LONGEST_CHECK: Final = 10.0
"""Seconds between two looks at the followers, at most."""


class IsrProposal(NamedTuple):
    """What a leader wants the ISR of its partition to be."""

    topic_id: UUID
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """With which registration each of them fetched last."""


class IsrDecision(NamedTuple):
    """What the controller made of it."""

    isr: tuple[int, ...]
    partition_epoch: int


class IsrAuthority(Protocol):
    """Who decides: the controller, wherever it is."""

    async def alter_isr(self, proposals: Sequence[IsrProposal]) -> list[IsrDecision | ApiError]:
        """Decide each proposal. Raises BarnabasError when the controller cannot be asked."""
        ...


class Replication:
    """Fetches what this broker follows, and keeps the ISR of what it leads."""

    def __init__(
        self,
        broker_id: int,
        replicas: ReplicaManager,
        peers: Peers,
        authority: IsrAuthority,
        settings: Settings,
        clock: Clock,
        broker_epoch: Callable[[], int],
        executor: Executor,
        throttle: ReplicationThrottle,
    ) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._peers = peers
        self._authority = authority
        self._settings = settings
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._executor = executor
        self._throttle = throttle
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._unreachable: dict[Follower, None] = {}
        """Followed partitions whose leader was not known to be up."""
        self._growing: dict[Partition, None] = {}
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._asking: set[Partition] = set()
        """Partitions with a proposal under way."""

    def start(self) -> None:
        """Begin to look after followers."""
        self._tasks.add(asyncio.get_running_loop().create_task(self._keep_isrs(), name="in-sync replicas"))

    async def stop(self) -> None:
        """Fetch no more, propose no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers.values()))
        self._fetchers.clear()

    # Following

    def follow(self, follower: Follower) -> None:
        """Fetch a partition from its leader."""
        key = follower.leader_id, hash(follower.tp) % self._settings.number("num.replica.fetchers")
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            try:
                channel = self._peers.open(follower.leader_id, f"fetcher-{key[1]}")
            except ChannelBroken:
                self._unreachable[follower] = None
                return
            from barnabas.broker.fetcher import ReplicaFetcher  # here: a broker that follows nobody starts without it

            fetcher = self._fetchers[key] = ReplicaFetcher(
                follower.leader_id,
                channel,
                broker_id=self._broker_id,
                broker_epoch=self._broker_epoch,
                settings=self._settings,
                clock=self._clock,
                executor=self._executor,
                throttle=self._throttle,
                flush_through=self._replicas.flush_through,
                cut=self._replicas.cut,
                start_anew=self._replicas.start_anew,
            )
        fetcher.add(follower)

    def unfollow(self, follower: Follower) -> None:
        """Fetch a partition no more."""
        self._unreachable.pop(follower, None)
        for key, fetcher in list(self._fetchers.items()):
            if key[0] == follower.leader_id:
                fetcher.remove(follower)
                if not len(fetcher):
                    self._end(key, fetcher)

    def on_change(self, delta: Delta) -> None:
        """Brokers came, went or moved: fetch from where they are now."""
        if delta.before.brokers is delta.after.brokers:
            return
        moved = {
            broker_id
            for broker_id in delta.before.brokers.keys() | delta.after.brokers.keys()
            if delta.before.brokers.get(broker_id) != delta.after.brokers.get(broker_id)
        }
        for key, fetcher in list(self._fetchers.items()):
            if key[0] in moved:
                self._end(key, fetcher)
        again = [follower for follower in self._replicas.followers() if follower.leader_id in moved]
        for follower in again:
            self._unreachable.pop(follower, None)
            self.follow(follower)

    def _end(self, key: tuple[int, int], fetcher: ReplicaFetcher) -> None:
        del self._fetchers[key]
        self._run(fetcher.stop())

    # In-sync replicas

    def isr_may_grow(self, partition: Partition) -> None:
        """A follower has caught up: propose it soon."""
        if partition not in self._asking:
            self._growing[partition] = None
            self._changed.set()

    async def _keep_isrs(self) -> None:
        loop = asyncio.get_running_loop()
        next_look = 0.0
        while True:
            lag_ms = self._settings.number("replica.lag.time.max.ms")
            if loop.time() >= next_look:
                next_look = loop.time() + min(lag_ms / 2000, _LONGEST_CHECK)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(next_look):
                    await self._changed.wait()
                    await asyncio.sleep(_GATHERING)
            self._changed.clear()
            partitions = [each for each in self._growing if self._replicas.get(*each.tp) is each]
            self._growing.clear()
            if loop.time() >= next_look:
                partitions = list(self._replicas.all())
            try:
                await self._propose(partitions, lag_ms / 1000)
            except BarnabasError as error:
                logger.info("the controller cannot be asked about in-sync replicas, trying again: %s", error)
            except Exception:
                logger.exception("looking after in-sync replicas failed, trying again")

    async def _propose(self, partitions: Iterable[Partition], max_lag: float) -> None:
        """Ask for every change that is due, in one request."""
        now = asyncio.get_running_loop().time()
        max_messages = self._settings.number_or_none("replica.lag.max.messages")
        up = self._replicas.brokers_up()
        wanted: list[tuple[Partition, tuple[int, ...]]] = []
        for partition in partitions:
            leader = partition.leader
            if len(leader.replicas) == 1:
                continue
            isr = leader.next_isr(now, max_lag, max_messages)
            if isr is None:
                continue
            isr = tuple(each for each in isr if each in leader.isr or each in up)
            if frozenset(isr) != leader.isr or leader.maximal_isr != leader.isr:
                wanted.append((partition, isr))
        if not wanted:
            return
        proposals = []
        for partition, isr in wanted:
            leader = partition.leader
            leader.propose(isr)
            self._asking.add(partition)
            proposals.append(
                IsrProposal(
                    partition.topic_id,
                    partition.tp.partition,
                    leader.leader_epoch,
                    leader.partition_epoch,
                    isr,
                    leader.broker_epochs(isr),
                )
            )
        try:
            decisions = await self._authority.alter_isr(proposals)
        finally:
            self._asking.difference_update(partition for partition, _ in wanted)
        for (partition, isr), decision in zip(wanted, decisions, strict=True):
            if isinstance(decision, ApiError):
                logger.info("%s: the controller refused the ISR %s: %s", partition.tp, isr, decision)
                partition.leader.refused(decision.code)
            else:
                level = logging.INFO if len(wanted) <= _FEW else logging.DEBUG
                logger.log(level, "%s: in sync are %s now", partition.tp, decision.isr)
                partition.commit_isr(decision.isr, decision.partition_epoch)
        if len(wanted) > _FEW:
            logger.info("the in-sync replicas of %d partitions were to change", len(wanted))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
