"""The fetchers of this broker: up to num.replica.fetchers for each leader that it follows partitions of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.tasks import TaskSet
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.replication.fetcher import ReplicaFetcher
    from barnabas.broker.replication.follower_partition import FollowerPartition
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.broker.replication.throttle import ReplicationThrottle
    from barnabas.metadata.images.cache import Delta
    from barnabas.model.clock import Clock
    from barnabas.model.config.values import Values
    from barnabas.storage.log.log import Log


class FollowerLogs(Protocol):
    """What a fetcher has done to the logs of the partitions that it fetches, in threads."""

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Sync a log up to an offset."""
        ...

    def truncate(self, follower: FollowerPartition, offset: int) -> None:
        """Remove what a follower's leader does not have, and follow the partition anew."""
        ...

    def truncate_fully(self, follower: FollowerPartition, start_offset: int) -> None:
        """Empty a follower's log, let it start at an offset, and follow the partition anew."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    broker_id: int
    broker_epoch: Callable[[], int]
    """The epoch of this broker's present registration."""
    settings: Values
    clock: Clock
    executor: Executor
    """For logs that have to be loaded."""
    throttle: ReplicationThrottle
    logs: FollowerLogs


class FetcherManager:
    """Gives each followed partition to a fetcher of its leader, and ends fetchers that nobody needs."""

    def __init__(self, replicas: ReplicaManager, peers: Peers, context: FetcherContext) -> None:
        self._replicas = replicas
        self._peers = peers
        self._context = context
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        """By the leader's broker id and the number of the fetcher."""
        self._unreachable: dict[FollowerPartition, None] = {}
        """Followed partitions whose leader was not known to be up."""
        self._stopping = TaskSet()
        self._is_stopped = False

    async def stop(self) -> None:
        """Fetch nothing more, whatever the image says from now on: the logs are about to be closed."""
        self._is_stopped = True
        for key, fetcher in list(self._fetchers.items()):
            self._end(key, fetcher)
        await self._stopping.wait()  # not cancelled: a fetcher that nobody stopped would go on appending

    def follow(self, follower: FollowerPartition) -> None:
        """Fetch a partition from its leader."""
        if self._is_stopped:
            return
        number = hash(follower.tp) % self._context.settings.number("num.replica.fetchers")
        key = follower.leader_id, number
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            try:
                channel = self._peers.open(follower.leader_id, f"fetcher-{number}")
            except ChannelBroken:
                self._unreachable[follower] = None
                return
            from barnabas.broker.replication.fetcher import (
                ReplicaFetcher,  # here: a broker that follows nobody starts without it
            )

            fetcher = self._fetchers[key] = ReplicaFetcher(follower.leader_id, channel, self._context)
        fetcher.add(follower)

    def unfollow(self, follower: FollowerPartition) -> None:
        """Stop fetching a partition."""
        self._unreachable.pop(follower, None)
        for key, fetcher in list(self._fetchers.items()):
            if key[0] == follower.leader_id:
                fetcher.remove(follower)
                if not len(fetcher):
                    self._end(key, fetcher)

    def on_change(self, delta: Delta) -> None:
        """Fetch from the new address of brokers that registered, went or moved."""
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
        self._stopping.spawn(fetcher.stop())
