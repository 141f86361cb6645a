"""The fetchers of this broker: num.replica.fetchers for each leader that it follows partitions of, or more.

Both ends of a fetch look at every partition of it that is not at rest, and sometimes at all of them: when a session
begins, or the start of a log has moved. So a fetcher has a bounded number of partitions, and where there are more,
there are more fetchers. Together the fetchers of a leader may be answered with as many bytes as num.replica.fetchers of
them.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from zlib import crc32

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


MOST_PARTITIONS: Final = 250
"""Of a fetcher. Fewer would cost more where many partitions are written to: each fetch has a price of its own."""


class FollowerLogs(Protocol):
    """What a fetcher has done to the logs of the partitions that it fetches, in threads."""

    @property
    def log_start_moves(self) -> int:
        """How often the start of any log has moved: retention moves it, and tells nobody."""
        ...

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Sync a log up to an offset."""
        ...

    def truncate(self, follower: FollowerPartition, offset: int) -> None:
        """Remove what a follower's leader does not have, and follow the partition anew."""
        ...

    def truncate_fully(self, follower: FollowerPartition, start_offset: int) -> None:
        """Empty a follower's log, let it start at an offset, and follow the partition anew."""
        ...

    def start_within(self, follower: FollowerPartition, batches: memoryview, now_ms: int) -> None:
        """Let a follower's log begin anew within the first of these batches, and follow the partition anew."""
        ...


class FetcherContext(NamedTuple):
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
        self._assigned: dict[FollowerPartition, tuple[int, int]] = {}
        """Which of them fetches a partition."""
        self._of_leader: Counter[int] = Counter()
        """How many fetchers a leader has."""
        self._step = 0
        """num.replica.fetchers as `_with_room` has it."""
        self._with_room: dict[tuple[int, int], int] = {}
        """By leader and the fetcher that a name stands for: the first of its fetchers that may have room."""
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
        key = self._choose(follower)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            try:
                channel = self._peers.open(follower.leader_id, f"fetcher-{key[1]}")
            except ChannelBroken:
                self._unreachable[follower] = None
                return
            from barnabas.broker.replication.fetcher import (
                ReplicaFetcher,  # here: a broker that follows nobody starts without it
            )

            fetcher = self._fetchers[key] = ReplicaFetcher(
                follower.leader_id, channel, self._context, partial(self._share, follower.leader_id)
            )
            self._of_leader[follower.leader_id] += 1
        self._assigned[follower] = key
        fetcher.add(follower)

    def _choose(self, follower: FollowerPartition) -> tuple[int, int]:
        """The fetcher for a partition: by its name one of num.replica.fetchers, or the next after it that has room.

        The same after every start, and partitions of one topic are shared out evenly.
        """
        step = self._context.settings.number("num.replica.fetchers")
        if step != self._step:
            self._step, self._with_room = step, {}
        named = (crc32(follower.tp.topic.encode()) + follower.tp.partition) % step
        place = follower.leader_id, named
        number = self._with_room.get(place, named)
        while (found := self._fetchers.get((follower.leader_id, number))) is not None and len(found) >= MOST_PARTITIONS:
            number += step
        self._with_room[place] = number
        return follower.leader_id, number

    def _note_room(self, key: tuple[int, int]) -> None:
        """A fetcher has room again, or is no more."""
        leader_id, number = key
        place = leader_id, number % max(1, self._step)
        if number < self._with_room.get(place, 0):
            self._with_room[place] = number

    def _share(self, leader_id: int) -> float:
        """The part of replica.fetch.response.max.bytes that each fetcher of a leader may be answered with."""
        wanted = self._context.settings.number("num.replica.fetchers")
        return min(1.0, wanted / max(1, self._of_leader[leader_id]))

    def unfollow(self, follower: FollowerPartition) -> None:
        """Stop fetching a partition."""
        self._unreachable.pop(follower, None)
        key = self._assigned.pop(follower, None)
        fetcher = None if key is None else self._fetchers.get(key)
        if key is not None and fetcher is not None:
            fetcher.remove(follower)
            self._note_room(key)
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
        self._note_room(key)
        self._of_leader[key[0]] -= 1
        self._stopping.spawn(fetcher.stop())
