"""The partitions that this broker leads: each joins a log with the rules of leadership, and knows who waits for it.

Two kinds of waiting. A Produce waits until its records are committed (`when_committed`): until the high watermark has
passed them, which with flush.messages needs a sync first. A Fetch waits for records (`add_watcher`). Watchers are told
once per turn of the event loop, however many batches were appended in it; they register in the same callback in which
they found the log too short, so no append is missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from barnabas.machines.controller.image import INTERNAL_TOPICS
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import (
    ApiError,
    InvalidTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    StorageFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import TopicPartition, uuid_to_text
from barnabas.storage import validation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from concurrent.futures import Executor, Future

    from barnabas.broker.settings import Changed, Settings
    from barnabas.metadata.cache import ClusterImage, Delta, MetadataCache, PartitionImage, TopicImage
    from barnabas.model.log_config import LogConfig
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.log import AppendInfo, Log
    from barnabas.storage.manager import LogManager

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1
NEVER: Final = 2**63 - 1
"""flush.messages when the operating system decides."""


class Watcher(Protocol):
    """Somebody who wants to know that a partition has more to read."""

    def wake(self) -> None:
        """Look again."""
        ...


class CommitWaiter(NamedTuple):
    """A callback for the moment when everything before `end_offset` is committed, or cannot be any more."""

    end_offset: int
    done: Callable[[ApiError | None], None]


class LeadershipWatcher(NamedTuple):
    """Who acts on the leadership of a topic's partitions: both are called on the event loop, at once."""

    led: Callable[[Partition], None]
    lost: Callable[[Partition], None]


class Wanted(NamedTuple):
    """A partition to be led whose log is not there yet; a new one has never had a log."""

    topic: TopicImage
    partition: PartitionImage
    is_new: bool


class Partition:
    """One partition that this broker leads."""

    __slots__ = ("_commit_waiters", "_manager", "_watchers", "is_internal", "leader", "log", "topic_id", "tp")

    def __init__(self, manager: ReplicaManager, tp: TopicPartition, log: Log, leader: PartitionLeader) -> None:
        self.tp = tp
        self.log = log
        self.leader = leader
        self.topic_id = log.topic_id
        self.is_internal = tp.topic in INTERNAL_TOPICS
        self._manager = manager
        self._commit_waiters: deque[CommitWaiter] = deque()
        self._watchers: set[Watcher] = set()
        log.high_watermark = leader.high_watermark

    def check(self, batch: bytes | memoryview, now_ms: int, version: int) -> BatchHeader:
        """Refuse a client's batch that must not be stored; returns its header."""
        if self.is_internal:
            raise InvalidTopic(f"Cannot append to internal topic {self.tp.topic}: only brokers write there")
        return validation.check(batch, self.log.config, now_ms, version)

    def check_enough_replicas(self) -> None:
        """Refuse acks=all when too few replicas are in sync."""
        needed = self.log.config.min_insync_replicas
        if len(self.leader.isr) < needed:
            raise NotEnoughReplicas(
                f"{len(self.leader.isr)} replicas of {self.tp} are in sync, min.insync.replicas is {needed}"
            )

    def append(self, batch: bytes | memoryview, header: BatchHeader, now_ms: int) -> AppendInfo:
        """Store a batch that `check` let pass."""
        log, leader = self.log, self.leader
        info = log.append(batch, header, leader_epoch=leader.leader_epoch, now_ms=now_ms)
        if log.flush_required:
            self._flush(log.log_end_offset)
        elif not info.duplicate and leader.appended(log.log_end_offset):
            self._committed()
        return info

    def must_wait(self, acks: int) -> bool:
        """Whether a client with these acks waits for records that are not committed: for replicas, or for a sync."""
        return acks == ACKS_ALL or self.log.config.flush_messages != NEVER

    def when_committed(self, end_offset: int, done: Callable[[ApiError | None], None]) -> None:
        """Call `done` once everything before `end_offset` is committed, or with the error that prevents it."""
        self._commit_waiters.append(CommitWaiter(end_offset, done))

    def add_watcher(self, watcher: Watcher) -> None:
        """Wake `watcher` when there is more to read."""
        self._watchers.add(watcher)

    def remove_watcher(self, watcher: Watcher) -> None:
        """Forget `watcher`."""
        self._watchers.discard(watcher)

    def wake_watchers(self) -> None:
        """Let everyone look again: there is more, or it is over."""
        for watcher in list(self._watchers):
            watcher.wake()

    def _flush(self, end_offset: int) -> None:
        loop = asyncio.get_running_loop()
        future = self._manager.logs.flush_through(self.log, end_offset)
        future.add_done_callback(lambda done: loop.call_soon_threadsafe(self._flushed, end_offset, done))

    def _flushed(self, end_offset: int, done: Future[int]) -> None:
        error = done.exception()
        if error is not None:
            self.fail(error if isinstance(error, ApiError) else StorageFailed(str(error)))
        elif self.leader.appended(max(end_offset, self.leader.high_watermark)):
            self._committed()

    def _committed(self) -> None:
        high_watermark = self.log.high_watermark = self.leader.high_watermark
        waiters = self._commit_waiters
        while waiters and waiters[0].end_offset <= high_watermark:
            waiters.popleft().done(None)
        if self._watchers:
            self._manager.wake_soon(self)

    def fail(self, error: ApiError) -> None:
        """Nothing that waits will be committed: tell everyone."""
        while self._commit_waiters:
            self._commit_waiters.popleft().done(error)
        self.wake_watchers()


class ReplicaManager:
    """All partitions that this broker leads, kept as the cluster's image says."""

    def __init__(
        self, broker_id: int, logs: LogManager, settings: Settings, metadata: MetadataCache, executor: Executor
    ) -> None:
        self.logs = logs
        self._executor = executor
        self._making: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._under_construction: set[tuple[str, int]] = set()
        self._metadata = metadata
        self._broker_id = broker_id
        self._settings = settings
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_wire: dict[tuple[str | bytes, int], Partition] = {}
        """The same, by name and by the bytes of the topic's id: what a Produce or Fetch names is one look-up away."""
        self._to_wake: set[Partition] = set()
        self._leadership: dict[str, LeadershipWatcher] = {}

    def watch(self, topic: str, led: Callable[[Partition], None], lost: Callable[[Partition], None]) -> None:
        """Tell when this broker begins and ceases to lead a partition of `topic`, from now on."""
        self._leadership[topic] = LeadershipWatcher(led, lost)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition, if this broker leads it."""
        return self._partitions.get((topic, index))

    def led(self, topic: str | bytes, index: int) -> Partition | None:
        """The partition that this broker leads, by its topic's name or the bytes of its id; None if it does not."""
        return self._by_wire.get((topic, index))

    def find(self, topic: str | bytes, index: int) -> Partition:
        """As `led`, but raises the error that tells a client why this broker does not lead it."""
        partition = self._by_wire.get((topic, index))
        if partition is None:
            raise self._not_led(topic, index)
        return partition

    def current_leader(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """Id and epoch of the leader that the cluster's image names; None if there is no such partition."""
        found = self._metadata.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else None
        name = topic if isinstance(topic, str) else "" if found is None else found.name
        image = self._metadata.partition(name, index)
        return None if image is None else (image.leader, image.leader_epoch)

    def _not_led(self, topic: str | bytes, index: int) -> ApiError:
        if isinstance(topic, bytes):
            found = self._metadata.topic_by_id(UUID(bytes=topic))
            if found is None:
                return UnknownTopicId(f"no topic has the id {uuid_to_text(UUID(bytes=topic))}")
            topic = found.name
        image = self._metadata.partition(topic, index)
        if image is None:
            return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if (topic, index) in self._under_construction:
            return NotLeaderOrFollower(f"{topic}-{index} is just being made: try again")
        if image.leader == self._broker_id:
            return StorageFailed(f"the log directory of {topic}-{index} has failed")
        return NotLeaderOrFollower(f"{topic}-{index} is led by broker {image.leader}: refresh metadata")

    def all(self) -> Iterable[Partition]:
        """Every partition that this broker leads."""
        return self._partitions.values()

    def wake_soon(self, partition: Partition) -> None:
        """Wake the partition's watchers when this turn of the event loop is over."""
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake)
        self._to_wake.add(partition)

    def _wake(self) -> None:
        partitions, self._to_wake = self._to_wake, set()
        for partition in partitions:
            partition.wake_watchers()

    def lead_all(self, topics: Iterable[TopicImage], before: ClusterImage | None = None) -> None:
        """Take over every partition that the image gives this broker; logs that are missing are made in a thread.

        `before` is the image that did not have the new ones yet; without it, nothing counts as new.
        """
        wanted: list[Wanted] = []
        for topic in topics:
            for partition in topic.partitions:
                if partition.leader != self._broker_id:
                    continue
                log = self.logs.get(TopicPartition(topic.name, partition.index))
                if log is None or log.topic_id != topic.topic_id or self._making:
                    is_new = before is not None and before.partition(topic.name, partition.index) is None
                    wanted.append(Wanted(topic, partition, is_new))
                else:
                    self._lead(topic, partition, log)
        if wanted:
            self._under_construction.update((each.topic.name, each.partition.index) for each in wanted)
            making = asyncio.get_running_loop().create_task(self._make(wanted))
            self._making.add(making)
            making.add_done_callback(self._making.discard)

    async def settled(self) -> None:
        """Wait until the logs of every partition that was announced are there."""
        while self._making:
            await asyncio.wait(self._making)

    async def _make(self, wanted: list[Wanted]) -> None:
        """Make logs and lead them. One call at a time: a topic may be deleted and made again meanwhile."""
        async with self._one_at_a_time:
            configs = {each.topic.name: self._settings.log_config(each.topic.name) for each in wanted}

            def create() -> list[Log | ApiError]:
                return [self._create(each, configs[each.topic.name]) for each in wanted]

            made = await asyncio.get_running_loop().run_in_executor(self._executor, create)
            for (topic, partition, _), log in zip(wanted, made, strict=True):
                self._under_construction.discard((topic.name, partition.index))
                if isinstance(log, ApiError):
                    logger.error("cannot lead %s-%d: %s", topic.name, partition.index, log)
                elif self._metadata.topic_by_id(topic.topic_id) is None:
                    self.logs.delete(log.tp)  # the topic was deleted meanwhile
                else:
                    self._lead(topic, partition, log)

    def _create(self, wanted: Wanted, config: LogConfig) -> Log | ApiError:
        topic, partition, is_new = wanted
        try:
            return self.logs.create(TopicPartition(topic.name, partition.index), topic.topic_id, config, is_new=is_new)
        except ApiError as error:
            return error
        except OSError as error:
            return StorageFailed(str(error))

    def on_change(self, delta: Delta) -> None:
        """Follow the cluster's image."""
        for topic in delta.deleted:
            for partition in topic.partitions:
                self._drop(TopicPartition(topic.name, partition.index), topic.topic_id)
        self.lead_all(delta.created, delta.before)
        self.lead_all(delta.changed, delta.before)

    def on_settings(self, changed: Changed) -> None:
        """Give logs their topic's new settings."""
        for partition in self._partitions.values():
            if partition.tp.topic in changed.topics:
                partition.log.update_config(self._settings.log_config(partition.tp.topic))

    def _lead(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        tp = TopicPartition(topic.name, image.index)
        known = self._partitions.get(tp)
        if known is not None and known.leader.leader_epoch == image.leader_epoch:
            if known.leader.commit_isr(image.isr):
                known.wake_watchers()
            return
        config = self._settings.log_config(topic.name)
        if log.config is not config:
            log.update_config(config)
        if log.is_open:
            log.assign_epoch(image.leader_epoch, log.log_end_offset)  # a log that is not open notes it when it appends
        leader = PartitionLeader(
            broker_id=self._broker_id,
            leader_epoch=image.leader_epoch,
            replicas=image.replicas,
            isr=image.isr,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
        )
        watcher = self._leadership.get(topic.name)
        if known is not None:
            if watcher is not None:
                watcher.lost(known)
            known.fail(NotLeaderOrFollower(f"{tp} has a new leader epoch: refresh metadata"))
        partition = self._partitions[tp] = Partition(self, tp, log, leader)
        self._by_wire[topic.name, image.index] = self._by_wire[topic.topic_id.bytes, image.index] = partition
        if watcher is not None:
            watcher.led(partition)

    def _drop(self, tp: TopicPartition, topic_id: UUID) -> None:
        partition = self._partitions.get(tp)
        if partition is None or partition.topic_id != topic_id:
            return
        del self._partitions[tp], self._by_wire[tp], self._by_wire[topic_id.bytes, tp.partition]
        if (watcher := self._leadership.get(tp.topic)) is not None:
            watcher.lost(partition)
        partition.fail(UnknownTopicOrPartition(f"{tp} was deleted"))
        self.logs.delete(tp)

    def wake_all(self) -> None:
        """Let every waiting request finish with what there is (on shutdown)."""
        for partition in self._partitions.values():
            partition.wake_watchers()
