"""The partitions that this broker has a replica of: it leads some, follows others, and keeps the logs of both.

What to do comes from the cluster's image, while the broker stands (`standing`). Logs that are missing are made in a
thread, one change after the other, since a topic may be deleted and made again meanwhile; and what a follower's leader
does not have is cut in a thread. While its log is made or cut a partition is neither led nor followed. After that, what
the image says by then is done. All other partitions are led or followed at once. A log that the image does not give
this broker, now or when it begins to act, is set aside; whether it may be removed is not for the image to say
(`strays`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol
from uuid import UUID

from barnabas.broker.follower import Follower
from barnabas.broker.lull import Lull
from barnabas.broker.partition import Partition
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import (
    ApiError,
    NotLeaderOrFollower,
    StorageFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import TopicPartition, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Iterable
    from concurrent.futures import Executor, Future

    from barnabas.broker.settings import Changed, Settings
    from barnabas.broker.strays import Strays
    from barnabas.metadata.cache import ClusterImage, Delta, MetadataCache, PartitionImage, TopicImage
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.log import Log
    from barnabas.storage.manager import LogManager

logger = logging.getLogger(__name__)

_MADE_TOGETHER: Final = 100
"""Logs that are made before they are led or followed."""
_MAKE_AGAIN: Final = 5.0
"""Seconds between two tries to make logs that could not be made."""


class LeadershipWatcher(NamedTuple):
    """Who acts on the leadership of a topic's partitions: both are called on the event loop, at once."""

    led: Callable[[Partition], None]
    lost: Callable[[Partition], None]


class Wanted(NamedTuple):
    """A partition whose log is not there yet; a new one has never had a log."""

    topic: TopicImage
    partition: PartitionImage
    is_new: bool


class Replication(Protocol):
    """Who fetches from leaders, and keeps in-sync replicas up to date."""

    def follow(self, follower: Follower) -> None:
        """Begin to fetch."""
        ...

    def unfollow(self, follower: Follower) -> None:
        """Fetch no more."""
        ...

    def isr_may_grow(self, partition: Partition) -> None:
        """A follower has caught up."""
        ...


class ReplicaManager:
    """All replicas of this broker, kept as the cluster's image says. Alone in a cluster it needs no `replication`."""

    def __init__(
        self, broker_id: int, logs: LogManager, settings: Settings, metadata: MetadataCache, executor: Executor
    ) -> None:
        self.logs = logs
        self._executor = executor
        self._making: set[asyncio.Task[None]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._unsettled: dict[tuple[str, int], UUID] = {}
        """The partitions whose logs are being made, cut or set aside, with their topics' ids."""
        self._unmade: dict[tuple[str, int], Wanted] = {}
        """Partitions whose logs could not be made."""
        self._make_again_at = 0.0
        self._metadata = metadata
        self._broker_id = broker_id
        self._settings = settings
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._by_wire: dict[tuple[str | bytes, int], Partition] = {}
        """The same, by name and by the bytes of the topic's id: what a Produce or Fetch names is one look-up away."""
        self._followers: dict[tuple[str, int], Follower] = {}
        self.replication: Replication | None = None
        self.strays: Strays | None = None
        """Who decides about logs that were set aside; None where nothing is ever removed."""
        self._acting = False
        self._to_wake: set[Partition] = set()
        self.lull = Lull()
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
            raise self.not_led(topic, index)
        return partition

    def followed(self, topic: str | bytes, index: int) -> Follower | None:
        """The partition that this broker follows, by its topic's name or the bytes of its id; None if it does not."""
        if isinstance(topic, bytes):
            found = self._metadata.topic_by_id(UUID(bytes=topic))
            return None if found is None else self._followers.get((found.name, index))
        return self._followers.get((topic, index))

    def current_leader(self, topic: str | bytes, index: int) -> tuple[int, int] | None:
        """Id and epoch of the leader that the cluster's image names; None if there is no such partition."""
        found = self._metadata.topic_by_id(UUID(bytes=topic)) if isinstance(topic, bytes) else None
        name = topic if isinstance(topic, str) else "" if found is None else found.name
        image = self._metadata.partition(name, index)
        return None if image is None else (image.leader, image.leader_epoch)

    def not_led(self, topic: str | bytes, index: int) -> ApiError:
        """What a client is told that asks this broker for a partition which it does not lead."""
        if isinstance(topic, bytes):
            found = self._metadata.topic_by_id(UUID(bytes=topic))
            if found is None:
                return UnknownTopicId(f"no topic has the id {uuid_to_text(UUID(bytes=topic))}")
            topic = found.name
        image = self._metadata.partition(topic, index)
        if image is None:
            return UnknownTopicOrPartition(f"there is no partition {topic}-{index}")
        if (topic, index) in self._unsettled:
            return NotLeaderOrFollower(f"the log of {topic}-{index} is not ready: it is made or cut; try again")
        if image.leader == self._broker_id and not self._acting:
            return NotLeaderOrFollower(f"this broker waits to be told whether it leads {topic}-{index}: try again")
        if image.leader == self._broker_id:
            return StorageFailed(f"the log directory of {topic}-{index} has failed")
        return NotLeaderOrFollower(f"{topic}-{index} is led by broker {image.leader}: refresh metadata")

    def all(self) -> Iterable[Partition]:
        """Every partition that this broker leads."""
        return self._partitions.values()

    def wake_soon(self, partition: Partition) -> None:
        """Wake the consumers that watch the partition when this turn of the event loop is over."""
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake)
        self._to_wake.add(partition)

    def _wake(self) -> None:
        partitions, self._to_wake = self._to_wake, set()
        for partition in partitions:
            partition.wake_consumers()

    def wake_followers_soon(self, partition: Partition) -> None:
        """Wake the followers that watch the partition in the next lull."""
        self.lull.appended(partition)

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Sync a log up to here, in a thread."""
        return self.logs.flush_through(log, end_offset)

    def isr_may_grow(self, partition: Partition) -> None:
        """A follower has caught up with a partition."""
        if self.replication is not None:
            self.replication.isr_may_grow(partition)

    def brokers_up(self) -> Container[int]:
        """The brokers that are registered, as far as this one knows."""
        return self._metadata.image.brokers

    def unusable(self) -> frozenset[tuple[str, int]]:
        """The partitions that this broker has a replica of, but whose log, or log directory, has failed."""
        return frozenset(
            (topic.name, partition.index)
            for topic in self._metadata.image.topics.values()
            for partition in topic.partitions
            if self._broker_id in partition.replicas and self.is_unusable(topic.name, partition.index)
        )

    def is_unusable(self, topic: str, index: int) -> bool:
        """Whether this broker's replica of a partition, or the log directory that it lies in, has failed."""
        log = self.logs.get(TopicPartition(topic, index))
        return (log is None or log.is_failed) and (topic, index) not in self._unsettled

    def followers(self) -> Iterable[Follower]:
        """Every partition that this broker follows."""
        return self._followers.values()

    def take_all(self, topics: Iterable[TopicImage], before: ClusterImage | None = None) -> None:
        """Lead or follow every partition that the image gives this broker; missing logs are made in a thread.

        `before` is the image that did not have the new ones yet; without it, nothing counts as new.
        """
        wanted: list[Wanted] = []
        for topic in topics:
            for partition in topic.partitions:
                if self._broker_id not in partition.replicas:
                    self._give_up(topic, partition, before)
                    continue
                tp = TopicPartition(topic.name, partition.index)
                if self._unsettled.get(tp) == topic.topic_id:
                    continue  # when its log is there, the newest image counts
                log = self.logs.get(tp)
                if log is None or log.topic_id != topic.topic_id or tp in self._unsettled:
                    is_new = before is not None and before.partition(*tp) is None
                    wanted.append(Wanted(topic, partition, is_new))
                    self._unsettled[tp] = topic.topic_id
                else:
                    self._take(topic, partition, log)
        for first in range(0, len(wanted), _MADE_TOGETHER):
            self._run(self._make(wanted[first : first + _MADE_TOGETHER]))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._making.add(task)
        task.add_done_callback(self._making.discard)

    async def settled(self, seconds: float | None = None) -> None:
        """Wait, at most so long, until the log of every partition that was announced is there, and none is cut."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._making:
                    await asyncio.wait(self._making)

    async def _make(self, wanted: list[Wanted]) -> None:
        """Make logs and lead them. One call at a time: a topic may be deleted and made again meanwhile."""
        async with self._one_at_a_time:
            configs = {each.topic.name: self._settings.log_config(each.topic.name) for each in wanted}

            def create() -> list[Log | ApiError]:
                return [self._create(each, configs[each.topic.name]) for each in wanted]

            try:
                made = await asyncio.get_running_loop().run_in_executor(self._executor, create)
            finally:
                for topic, partition, _ in wanted:
                    self._is_settled(TopicPartition(topic.name, partition.index), topic.topic_id)
            for (topic, partition, is_new), log in zip(wanted, made, strict=True):
                if isinstance(log, ApiError):
                    logger.error("cannot serve %s-%d: %s", topic.name, partition.index, log)
                    self._unmade[topic.name, partition.index] = Wanted(topic, partition, is_new)
                else:
                    self._settle(log, topic.topic_id)
            if self.strays is not None:
                self.strays.look()  # those of earlier topics with these names

    def _is_settled(self, tp: TopicPartition, topic_id: UUID) -> None:
        if self._unsettled.get(tp) == topic_id:  # and not a later topic's of the same name
            del self._unsettled[tp]

    def _settle(self, log: Log, topic_id: UUID) -> None:
        """A log was made or cut: do with it what the image says by now."""
        tp = log.tp
        topic, image = self._metadata.topic_by_id(topic_id), self._metadata.partition(*tp)
        if not self._acting or self.logs.get(tp) is not log:
            return
        if topic is None or image is None or self._broker_id not in image.replicas:
            self._set_aside(log)  # the topic was deleted, or its replicas moved, meanwhile
        else:
            self._take(topic, image, log)

    def cut(self, follower: Follower, offset: int) -> None:
        """Cut what a follower's leader does not have from its log, in a thread, and follow anew after that."""
        self._unfollow_while(follower, lambda: follower.log.truncate_to(offset))

    def start_anew(self, follower: Follower, offset: int) -> None:
        """Empty a follower's log, in a thread, to go on at `offset`, and follow anew after that."""
        self._unfollow_while(follower, lambda: follower.log.truncate_fully(offset))

    def _unfollow_while(self, follower: Follower, work: Callable[[], None]) -> None:
        if self._followers.get(follower.tp) is follower:
            self._stop_following(follower.tp)
            self._unsettled[follower.tp] = follower.topic_id
            self._run(self._change(follower, work))

    async def _change(self, follower: Follower, work: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except Exception as error:
            pause = self._settings.number("replica.fetch.backoff.ms") / 1000
            surprise = None if isinstance(error, ApiError) else error
            logger.error(
                "%s could not cut its log, trying again in %g s: %s", follower, pause, error, exc_info=surprise
            )
            await asyncio.sleep(pause)
        finally:
            self._is_settled(follower.tp, follower.topic_id)
        self._settle(follower.log, follower.topic_id)

    def _create(self, wanted: Wanted, config: LogConfig) -> Log | ApiError:
        topic, partition, is_new = wanted
        try:
            return self.logs.create(TopicPartition(topic.name, partition.index), topic.topic_id, config, is_new=is_new)
        except ApiError as error:
            return error
        except OSError as error:
            return StorageFailed(str(error))

    async def use_what_came_back(self) -> None:
        """Use log directories again that were full and have room now, and make logs that could not be made."""
        if self.logs.failed_directories:
            loop = asyncio.get_running_loop()
            self._take_again(await loop.run_in_executor(self._executor, self.logs.try_failed_directories))
        now = asyncio.get_running_loop().time()
        if self._unmade and self._acting and now >= self._make_again_at and self.logs.can_make_logs:
            self._make_again_at = now + _MAKE_AGAIN
            self._make_missing()

    def _take_again(self, logs: Iterable[Log]) -> None:
        """Lead and follow the partitions of these logs anew: each may have given up when its log took no writes."""
        for log in logs:
            tp = log.tp
            if (led := self._partitions.get(tp)) is not None and led.log is log:
                self._renew(led)
            elif (followed := self._followers.get(tp)) is not None and followed.log is log:
                self._stop_following(tp)
                self._begin_to_follow(Follower(tp, followed.topic_id, log, followed.leader_id, followed.leader_epoch))

    def _renew(self, partition: Partition) -> None:
        """Go on leading in the same leadership, whose rules know how far the followers are and who may be in sync."""
        renewed = partition.renewed()
        self._enter(renewed)
        watcher = self._leadership.get(partition.tp.topic)
        if watcher is None:
            renewed.take_over(partition)
        self._end_leadership(partition, NotLeaderOrFollower(f"the log directory of {partition.tp} is back: try again"))
        if watcher is not None:
            watcher.led(renewed)
        if partition.log.flush_required:
            renewed.sync()

    def _make_missing(self) -> None:
        """Try again to make logs, as far as they are still wanted."""
        wanted = []
        for tp, (topic, _, is_new) in self._unmade.items():
            image, known = self._metadata.partition(*tp), self._metadata.topic_by_id(topic.topic_id)
            if image is None or known is None or self._broker_id not in image.replicas or tp in self._unsettled:
                continue
            wanted.append(Wanted(known, image, is_new))
            self._unsettled[tp] = topic.topic_id
        self._unmade.clear()
        if wanted:
            self._run(self._make(wanted))

    def resume(self) -> None:
        """From now on, do what the image says."""
        self._acting = True
        self._set_strays_aside()
        self.take_all(self._metadata.image.topics.values())

    def _set_strays_aside(self) -> None:
        """Logs that are this broker's no more: topics were deleted, or moved to other brokers, while it was away.

        A broker that is alone leaves logs of topics that it never heard of where they are, unless the metadata tree
        records that they were deleted: somebody may have put them there, and bring the topics later.
        """
        image = self._metadata.image
        strays = [
            log
            for log in self.logs.logs()
            if self._broker_id not in (() if (known := image.partition(*log.tp)) is None else known.replicas)
        ]
        if image.brokers.keys() <= {self._broker_id}:
            unknown = [log for log in strays if log.tp.topic not in image.topics]
            strays = [log for log in strays if log.tp.topic in image.topics]
            if unknown and self.strays is not None:
                self._run(self._set_deleted_aside(unknown, self.strays))
        for log in strays:
            self._set_aside(log)
        if self.strays is not None:
            self.strays.look()

    async def _set_deleted_aside(self, unknown: list[Log], strays: Strays) -> None:
        deleted = await strays.recorded_as_deleted({log.topic_id for log in unknown})
        for log in unknown:
            is_used = log.tp in self._partitions or log.tp in self._followers or log.tp in self._unsettled
            if log.topic_id in deleted and not is_used:
                self._set_aside(log)

    def _set_aside(self, log: Log, *, told: bool = False) -> None:
        """Take a log away, in a thread; if the image gives the partition back meanwhile, so is its log.

        One that is being made or cut is looked at when that is done.
        """
        if self._unsettled.get(log.tp) != log.topic_id:
            self._unsettled[log.tp] = log.topic_id
            self._run(self._move_aside(log, told))

    async def _move_aside(self, log: Log, told: bool) -> None:
        try:
            async with self._one_at_a_time:
                stray = await asyncio.get_running_loop().run_in_executor(self._executor, self.logs.set_aside, log)
        finally:
            self._is_settled(log.tp, log.topic_id)
        if self.strays is not None:
            self.strays.came(stray, told=told)
        if self._acting and (topic := self._metadata.topic_by_id(log.topic_id)) is not None:
            self.take_all([topic])

    def resign(self) -> None:
        """Lead and follow nothing until further notice; the logs stay."""
        self._acting = False
        for led in list(self._partitions.values()):
            self._forget(led)
            self._end_leadership(led, NotLeaderOrFollower(f"this broker lost its place in the cluster, and {led.tp}"))
        for followed in list(self._followers.values()):
            self._stop_following(followed.tp)

    def stop(self, topic: str, index: int, leader_epoch: int) -> None:
        """The controller says that this replica is to be removed, unless the image is newer."""
        image, known = self._metadata.partition(topic, index), self._metadata.topic(topic)
        if image is not None and known is not None and image.leader_epoch <= leader_epoch:
            self._drop(TopicPartition(topic, index), known.topic_id, told=True)

    def on_change(self, delta: Delta) -> None:
        """Follow the cluster's image."""
        if not self._acting:
            return
        for topic in delta.deleted:
            for partition in topic.partitions:
                self.logs.forget_preference(topic.topic_id, partition.index)
                self._drop(TopicPartition(topic.name, partition.index), topic.topic_id)
        self.take_all(delta.created, delta.before)
        self.take_all(delta.changed, delta.before)

    def on_settings(self, changed: Changed) -> None:
        """Give logs their topic's new settings."""
        logs = [replica.log for replica in self._partitions.values()]
        logs += [replica.log for replica in self._followers.values()]
        for log in logs:
            if log.tp.topic in changed.topics:
                log.update_config(self._settings.log_config(log.tp.topic))

    def _take(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        """Do what the image says of a partition whose log is there."""
        config = self._settings.log_config(topic.name)
        if log.config is not config:
            log.update_config(config)
        if image.leader == self._broker_id:
            self._lead(topic, image, log)
        else:
            self._follow(topic, image, log)

    def _lead(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        tp = TopicPartition(topic.name, image.index)
        known = self._partitions.get(tp)
        if known is not None and known.leader.leader_epoch == image.leader_epoch:
            if known.leader.replicas == image.replicas:
                if image.partition_epoch > known.leader.partition_epoch:
                    known.commit_isr(image.isr, image.partition_epoch)
                return
        elif known is None:
            self._stop_following(tp)
        if log.is_open:
            log.assign_epoch(image.leader_epoch, log.log_end_offset)  # one that is not open notes it later
        unsynced = log.flush_required  # asked once: a thread may sync it meanwhile, and then nobody would count that
        leader = PartitionLeader(
            broker_id=self._broker_id,
            leader_epoch=image.leader_epoch,
            partition_epoch=image.partition_epoch,
            replicas=image.replicas,
            isr=image.isr,
            log_end_offset=log.log_end_offset,
            high_watermark=log.high_watermark,
            now=asyncio.get_running_loop().time(),
            counted=log.recovery_point if unsynced else None,
        )
        partition = Partition(self, tp, log, leader)
        if unsynced:
            partition.sync()
        self._enter(partition)
        watcher = self._leadership.get(topic.name)
        if known is not None:  # after the new one is in its place: fetches that are woken go on waiting there
            if watcher is None and known.log is log:  # a coordinator begins anew with each leadership
                partition.take_over(known)
            self._end_leadership(known, NotLeaderOrFollower(f"{tp} has a new leader epoch: refresh metadata"))
        if watcher is not None:
            watcher.led(partition)

    def _follow(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        tp = TopicPartition(topic.name, image.index)
        led = self._partitions.get(tp)
        if led is not None:
            self._forget(led)
            self._end_leadership(led, NotLeaderOrFollower(f"{tp} is led by broker {image.leader} now"))
        known = self._followers.get(tp)
        if known is not None:
            if (known.leader_id, known.leader_epoch) == (image.leader, image.leader_epoch):
                return
            self._stop_following(tp)
        self._begin_to_follow(Follower(tp, topic.topic_id, log, image.leader, image.leader_epoch))

    def _begin_to_follow(self, follower: Follower) -> None:
        self._followers[follower.tp] = follower
        if self.replication is not None and follower.leader_id != NO_LEADER and not follower.log.is_failed:
            self.replication.follow(follower)

    def _stop_following(self, tp: TopicPartition) -> None:
        follower = self._followers.pop(tp, None)
        if follower is not None:
            if self.replication is not None:
                self.replication.unfollow(follower)
            follower.wake_watchers()

    def _give_up(self, topic: TopicImage, image: PartitionImage, before: ClusterImage | None) -> None:
        """This broker is no replica of the partition: if it was one, its log is set aside.

        Other brokers tell this one beforehand to remove it (`stop`); in office it has decided so itself.
        A directory that was chosen for it is forgotten when its replicas are chosen anew without this broker.
        """
        tp = TopicPartition(topic.name, image.index)
        known = None if before is None else before.partition(*tp)
        if known is not None and known.replicas != image.replicas:
            self.logs.forget_preference(topic.topic_id, tp.partition)
        if tp in self._partitions or tp in self._followers:
            self._drop(tp, topic.topic_id, told=self.strays is not None and self.strays.in_office())

    def _drop(self, tp: TopicPartition, topic_id: UUID, *, told: bool = False) -> None:
        """Lead or follow a partition no more; its log is set aside, to be removed if the metadata tree says so."""
        led, followed = self._partitions.get(tp), self._followers.get(tp)
        if led is not None and led.topic_id == topic_id:
            self._forget(led)
            self._end_leadership(led, UnknownTopicOrPartition(f"{tp} was deleted"))
            self._set_aside(led.log, told=told)
        elif followed is not None and followed.topic_id == topic_id:
            self._stop_following(tp)
            self._set_aside(followed.log, told=told)

    def _enter(self, partition: Partition) -> None:
        tp = partition.tp
        self._partitions[tp] = self._by_wire[tp] = self._by_wire[partition.topic_id.bytes, tp.partition] = partition

    def _forget(self, partition: Partition) -> None:
        tp = partition.tp
        del self._partitions[tp], self._by_wire[tp], self._by_wire[partition.topic_id.bytes, tp.partition]

    def _end_leadership(self, partition: Partition, reason: ApiError) -> None:
        if (watcher := self._leadership.get(partition.tp.topic)) is not None:
            watcher.lost(partition)
        partition.fail(reason)

    def wake_all(self) -> None:
        """Let every waiting request finish with what there is (on shutdown)."""
        for partition in self._partitions.values():
            partition.wake_watchers()
