"""The replicas of this broker: it leads some partitions, follows others, and keeps the logs of both.

The cluster's image says what to do, while the broker is unfenced (`controller/fencing`). Partitions whose logs are
there are led or followed at once; very many of them, some in each turn of the event loop. Missing logs are created
first, and logs that have records which their leader lacks are truncated first, both in threads (`log_changes`). A log
that the image does not give this broker is set aside. The image does not say whether it may be removed: the metadata
tree does (`strays`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.fetching.fetch_batching import FetchBatching
from barnabas.broker.replication.follower_partition import FollowerPartition
from barnabas.broker.replication.hosted_partitions import HostedPartitions
from barnabas.broker.replication.leader_partition import LeaderPartition
from barnabas.broker.replication.log_changes import HANDED_OVER_TOGETHER, LogChanges, MissingLog
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.partition import PartitionLeader
from barnabas.model.errors import ApiError, NotLeaderOrFollower, UnknownTopicOrPartition
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable
    from concurrent.futures import Executor, Future
    from uuid import UUID

    from barnabas.broker.replication.strays import Strays
    from barnabas.broker.settings import Changed, Settings
    from barnabas.metadata.images.cache import ClusterImage, Delta, MetadataCache, PartitionImage, TopicImage
    from barnabas.storage.log.log import Log
    from barnabas.storage.manager import LogManager
    from barnabas.storage.strays import Stray

logger = logging.getLogger(__name__)

_CREATE_AGAIN_SECONDS: Final = 5.0
"""How long to wait before logs that could not be created are created again."""


class LeadershipListener(NamedTuple):
    """Acts on the leadership of a topic's partitions. Both are called on the event loop, at once."""

    led: Callable[[LeaderPartition], None]
    lost: Callable[[LeaderPartition], None]


class Fetchers(Protocol):
    """Fetch followed partitions from their leaders."""

    def follow(self, follower: FollowerPartition) -> None:
        """Begin to fetch."""
        ...

    def unfollow(self, follower: FollowerPartition) -> None:
        """Stop fetching."""
        ...


class IsrProposer(Protocol):
    """Proposes changes of in-sync replicas to the controller."""

    def isr_may_grow(self, partition: LeaderPartition) -> None:
        """A follower has caught up."""
        ...


class ReplicaManager:
    """All replicas of this broker, in the roles that the cluster's image gives them.

    A broker that is alone in its cluster needs neither fetchers nor an ISR proposer.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        settings: Settings,
        metadata: MetadataCache,
        executor: Executor,
        strays: Strays | None = None,
    ) -> None:
        self.logs = logs
        self._broker_id = broker_id
        self._settings = settings
        self._metadata = metadata
        self._executor = executor
        self._changes = LogChanges(self, logs, settings, executor)
        self.partitions = HostedPartitions(broker_id, metadata, self._changes.pending)
        self.get = self.partitions.get
        self.led = self.partitions.led
        self.find = self.partitions.find
        self.followed = self.partitions.followed
        self.current_leader = self.partitions.current_leader
        self.not_led = self.partitions.not_led
        self.all = self.partitions.leaders
        self.followers = self.partitions.followers
        self.settled = self._changes.done
        """Waits, at most so many seconds, until the log of every partition in the image is created and truncated."""
        self._fetchers: Fetchers | None = None
        self._isr_proposer: IsrProposer | None = None
        self.strays = strays
        """Decides about logs that were set aside; None where nothing is ever removed."""
        self._moved_meanwhile: set[tuple[TopicPartition, UUID]] = set()
        """Partitions that the controller has moved to other brokers while their logs were changed here."""
        self._create_again_at = 0.0
        self._to_wake: dict[LeaderPartition, None] = {}
        self.fetch_batching = FetchBatching()
        self.wake_followers_soon = self.fetch_batching.appended
        self._listeners: dict[str, LeadershipListener] = {}
        self._on_failure: list[Callable[[str, Exception], None]] = []

    def attach(self, fetchers: Fetchers, isr_proposer: IsrProposer) -> None:
        """From now on fetch followed partitions with `fetchers`, and propose in-sync replicas to the controller."""
        self._fetchers, self._isr_proposer = fetchers, isr_proposer

    def watch(
        self, topic: str, led: Callable[[LeaderPartition], None], lost: Callable[[LeaderPartition], None]
    ) -> None:
        """Call `led` and `lost` when this broker begins and ceases to lead a partition of `topic`, from now on."""
        self._listeners[topic] = LeadershipListener(led, lost)

    def on_failure(self, callback: Callable[[str, Exception], None]) -> None:
        """Call `callback` when the image could not be applied after a log has changed. Otherwise it is raised there."""
        self._on_failure.append(callback)

    # For the partitions that this broker leads (`LeaderHost`)

    def wake_soon(self, partition: LeaderPartition) -> None:
        """Wake the consumers that wait for the partition when this turn of the event loop is over."""
        if not self._to_wake:
            asyncio.get_running_loop().call_soon(self._wake_consumers)
        self._to_wake[partition] = None

    def _wake_consumers(self) -> None:
        partitions, self._to_wake = self._to_wake, {}
        for partition in partitions:
            partition.wake_consumers()

    def flush_through(self, log: Log, end_offset: int) -> Future[int]:
        """Sync a log up to an offset, in a thread."""
        return self.logs.flush_through(log, end_offset)

    def isr_may_grow(self, partition: LeaderPartition) -> None:
        """A follower has caught up with a partition."""
        if self._isr_proposer is not None:
            self._isr_proposer.isr_may_grow(partition)

    def brokers_up(self) -> Container[int]:
        """The brokers that are registered, as far as this one knows."""
        return self._metadata.image.brokers

    @property
    def log_start_moves(self) -> int:
        """How often the start of any log here has moved: retention moves it in a thread, and tells nobody."""
        return self.logs.start_moves

    def wake_all(self) -> None:
        """Let every waiting request finish with what there is (on shutdown)."""
        for partition in self.partitions.leaders():
            partition.wake_watchers()

    # What the cluster's image says

    def resume(self) -> None:
        """Begin to act on the image."""
        self.partitions.is_active = True
        self._set_strays_aside()
        self.take_all(self._metadata.image.topics.values())

    def resign(self) -> None:
        """Lead and follow nothing until `resume`; the logs stay."""
        self.partitions.is_active = False
        for led in list(self.partitions.leaders()):
            self.partitions.remove_leader(led)
            self._end_leadership(led, NotLeaderOrFollower(f"This broker is fenced and leads {led.tp} no more."))
        for followed in list(self.partitions.followers()):
            self._stop_following(followed.tp)

    def on_change(self, delta: Delta) -> None:
        """Do what a new image says."""
        gone = [topic.name for topic in delta.deleted if topic.name not in delta.after.topics]
        if not self.partitions.is_active:
            self.partitions.forget_traffic(gone)
            return
        for topic in delta.deleted:
            for partition in topic.partitions:
                self.logs.forget_preference(topic.topic_id, partition.index)
                self._drop(TopicPartition(topic.name, partition.index), topic.topic_id)
        self.partitions.forget_traffic(gone)
        self.take_all(delta.created, delta.before)
        self.take_all(delta.changed, delta.before)

    def on_settings(self, changed: Changed) -> None:
        """Give logs the new settings of their topics."""
        for name in changed.topics:
            topic = self._metadata.topic(name)
            for partition in topic.partitions if topic is not None else ():
                log = self.partitions.log(TopicPartition(name, partition.index))
                if log is not None:
                    log.update_config(self._settings.log_config(name))

    def stop(self, topic: str, index: int, leader_epoch: int) -> None:
        """Remove a replica, as the controller says (StopReplica), unless the image is newer.

        The image has to say so, too, before the event loop turns to something else: logs that change are used as the
        image says when that is done.
        """
        image, known = self._metadata.partition(topic, index), self._metadata.topic(topic)
        if image is None or known is None or image.leader_epoch > leader_epoch:
            return
        tp = TopicPartition(topic, index)
        if self._changes.pending.get(tp) == known.topic_id:
            self._moved_meanwhile.add((tp, known.topic_id))
        self._drop(tp, known.topic_id, moved=True)

    def take_all(self, topics: Iterable[TopicImage], before: ClusterImage | None = None) -> None:
        """Lead or follow every partition that the image gives this broker; missing logs are created in a thread.

        A partition that `before`, the image before this one, does not have is new. Without it no partition is new. Of
        very many partitions that are neither led nor followed, as at a start, most are taken in later turns.
        """
        missing: list[MissingLog] = []
        later: list[Log] = []
        taken = 0
        pending = self._changes.pending
        for topic in topics:
            for partition in topic.partitions:
                if self._broker_id not in partition.replicas:
                    self._give_up(topic, partition, before)
                    continue
                tp = TopicPartition(topic.name, partition.index)
                if pending.get(tp) == topic.topic_id:
                    continue  # `use_log` does what the newest image says
                log = self.logs.get(tp)
                if log is None or log.topic_id != topic.topic_id or tp in pending:
                    is_new = before is not None and before.partition(*tp) is None
                    missing.append(MissingLog(topic, partition, is_new))
                elif taken < HANDED_OVER_TOGETHER or tp in self.partitions:
                    self._take(topic, partition, log)
                    taken += 1
                else:
                    later.append(log)
        self._changes.create(missing)
        self._changes.hand_over(later)

    def _take(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        """Do what the image says of a partition whose log is there."""
        config = self._settings.log_config(topic.name)
        if log.config is not config:
            log.update_config(config)
        if image.leader == self._broker_id:
            self._lead(topic, image, log)
        else:
            self._follow(topic, image, log)

    # Leading

    def _lead(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        tp = TopicPartition(topic.name, image.index)
        known = self.get(*tp)
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
        partition = LeaderPartition(self, tp, log, leader)
        if unsynced:
            partition.sync()
        self.partitions.add_leader(partition)
        listener = self._listeners.get(topic.name)
        if known is not None:  # after the new one is in its place: fetches that are woken go on waiting there
            partition.traffic.note_isr(len(known.leader.isr), len(leader.isr))
            if listener is None and known.log is log:  # a coordinator begins anew with each leadership
                partition.take_over(known)
            self._end_leadership(known, NotLeaderOrFollower(f"{tp} has a new leader epoch. Refresh the metadata."))
        if listener is not None:
            listener.led(partition)

    def _renew(self, partition: LeaderPartition) -> None:
        """Go on leading in the same leadership, which knows how far the followers are and who may be in sync."""
        renewed = partition.renewed()
        self.partitions.add_leader(renewed)
        listener = self._listeners.get(partition.tp.topic)
        if listener is None:
            renewed.take_over(partition)
        self._end_leadership(
            partition, NotLeaderOrFollower(f"The log directory of {partition.tp} takes writes again. Try again.")
        )
        if listener is not None:
            listener.led(renewed)

    def _end_leadership(self, partition: LeaderPartition, reason: ApiError) -> None:
        try:
            if (listener := self._listeners.get(partition.tp.topic)) is not None:
                listener.lost(partition)
        finally:
            partition.fail(reason)  # no request finds the partition any more, so nobody else would answer those here

    # Following

    def _follow(self, topic: TopicImage, image: PartitionImage, log: Log) -> None:
        tp = TopicPartition(topic.name, image.index)
        led = self.get(*tp)
        if led is not None:
            self.partitions.remove_leader(led)
            self._end_leadership(led, NotLeaderOrFollower(f"Broker {image.leader} leads {tp} now."))
        known = self.partitions.follower(tp)
        if known is not None:
            if (known.leader_id, known.leader_epoch) == (image.leader, image.leader_epoch):
                return
            self._stop_following(tp)
        self._begin_to_follow(FollowerPartition(tp, topic.topic_id, log, image.leader, image.leader_epoch))

    def _begin_to_follow(self, follower: FollowerPartition) -> None:
        self.partitions.add_follower(follower)
        if self._fetchers is not None and follower.leader_id != NO_LEADER and not follower.log.is_failed:
            self._fetchers.follow(follower)

    def _stop_following(self, tp: TopicPartition) -> None:
        follower = self.partitions.follower(tp)
        if follower is not None:
            if self._fetchers is not None:
                self._fetchers.unfollow(follower)  # first: a fetcher must not go on with what is not followed here
            self.partitions.remove_follower(tp)
            follower.wake_watchers()

    def truncate(self, follower: FollowerPartition, offset: int) -> None:
        """Remove what a follower's leader does not have, in a thread, and follow the partition anew."""
        self._truncate(follower, lambda: follower.log.truncate_to(offset))

    def truncate_fully(self, follower: FollowerPartition, start_offset: int) -> None:
        """Empty a follower's log and let it start at an offset, in a thread, and follow the partition anew."""
        self._truncate(follower, lambda: follower.log.truncate_fully(start_offset))

    def start_within(self, follower: FollowerPartition, batches: memoryview, now_ms: int) -> None:
        """Let a follower's log begin anew within the first of these batches, in a thread, and follow it anew."""
        self._truncate(follower, lambda: follower.log.start_within(batches, now_ms=now_ms))

    def _truncate(self, follower: FollowerPartition, truncate_log: Callable[[], None]) -> None:
        if self.partitions.follower(follower.tp) is follower:
            self._stop_following(follower.tp)
            self._changes.truncate(follower, truncate_log)

    # Neither

    def _give_up(self, topic: TopicImage, image: PartitionImage, before: ClusterImage | None) -> None:
        """This broker is no replica of the partition: if it was one, its log is set aside.

        The controller tells other brokers beforehand to remove it (`stop`); on its own broker it has decided so itself.
        A directory that was chosen for the log is forgotten when the replicas are chosen anew without this broker.
        """
        tp = TopicPartition(topic.name, image.index)
        known = None if before is None else before.partition(*tp)
        if known is not None and known.replicas != image.replicas:
            self.logs.forget_preference(topic.topic_id, tp.partition)
        if tp in self.partitions:
            self._drop(tp, topic.topic_id, moved=self._is_controller())

    def _is_controller(self) -> bool:
        """Whether this broker itself decided what the image says."""
        return self.strays is not None and self.strays.is_controller()

    def _drop(self, tp: TopicPartition, topic_id: UUID, *, moved: bool = False) -> None:
        """Lead or follow a partition no more. Its log is set aside, to be removed if the metadata tree says so."""
        led, followed = self.get(*tp), self.partitions.follower(tp)
        if led is not None and led.topic_id == topic_id:
            self.partitions.remove_leader(led)
            is_known = self._metadata.topic_by_id(topic_id) is not None
            gone = UnknownTopicOrPartition(f"{tp} was deleted.")
            self._end_leadership(led, NotLeaderOrFollower(f"{tp} has moved to other brokers.") if is_known else gone)
            self._changes.set_aside(led.log, moved=moved)
        elif followed is not None and followed.topic_id == topic_id:
            self._stop_following(tp)
            self._changes.set_aside(followed.log, moved=moved)

    def _set_strays_aside(self) -> None:
        """Set aside the logs of topics that were deleted or moved to other brokers while this one was away.

        A broker that is alone leaves logs of unknown topics where they are, unless the metadata tree records that the
        topics were deleted: somebody may have put the logs there, and add the topics later.
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
                deleted = self.strays.recorded_as_deleted({log.topic_id for log in unknown})
                self._changes.set_aside_if_deleted(unknown, deleted, lambda log: log.tp in self.partitions)
        for log in strays:
            self._changes.set_aside(log)
        if self.strays is not None:
            self.strays.look()

    # When a log has changed (`LogUser`)

    def use_log(self, log: Log, topic_id: UUID) -> None:
        """Do with a log that was created or truncated, or had to wait for its turn, what the image says by now."""
        tp = log.tp
        topic, image = self._metadata.topic_by_id(topic_id), self._metadata.partition(*tp)
        moved = (tp, topic_id) in self._moved_meanwhile or self._is_controller()
        self._moved_meanwhile.discard((tp, topic_id))
        if not self.partitions.is_active or self.logs.get(tp) is not log:
            return
        if topic is None or image is None or self._broker_id not in image.replicas:
            self._changes.set_aside(log, moved=moved)  # the topic was deleted, or its replicas moved, meanwhile
        else:
            self._take(topic, image, log)

    def logs_were_created(self) -> None:
        """Decide about the logs of earlier topics with the same names."""
        if self.strays is not None:
            self.strays.look()

    def log_was_set_aside(self, log: Log, stray: Stray | None, *, moved: bool) -> None:
        """Decide about the log. If the image gives the partition back by now, lead or follow it."""
        self._moved_meanwhile.discard((log.tp, log.topic_id))
        if self.strays is not None:
            self.strays.add(stray, moved=moved)
        if self.partitions.is_active and (topic := self._metadata.topic_by_id(log.topic_id)) is not None:
            self.take_all([topic])

    def change_failed(self, error: Exception) -> None:
        """Report that the image is applied in part only."""
        if not self._on_failure:
            raise error
        for callback in self._on_failure:
            callback(type(self).__qualname__, error)

    # Failed logs

    def unusable(self) -> frozenset[tuple[str, int]]:
        """The partitions that this broker has a replica of, but whose log or log directory has failed.

        This is called again and again, so it looks only at what has failed, and not at all partitions.
        """
        failed = {*self.logs.failed_logs(), *self._changes.not_created}
        return frozenset(
            (topic, index)
            for topic, index in failed
            if (image := self._metadata.partition(topic, index)) is not None
            and self._broker_id in image.replicas
            and self.is_unusable(topic, index)
        )

    def is_unusable(self, topic: str, index: int) -> bool:
        """Whether the log of this broker's replica of a partition, or its log directory, has failed."""
        log = self.logs.get(TopicPartition(topic, index))
        return (log is None or log.is_failed) and (topic, index) not in self._changes.pending

    async def retry_failed(self) -> None:
        """Use log directories again that were full and have room now, and create logs that could not be created."""
        if self.logs.failed_directories:
            loop = asyncio.get_running_loop()
            logs = await loop.run_in_executor(self._executor, self.logs.try_failed_directories)
            try:
                self._take_again(logs)
            except Exception as error:  # these logs are not tried again
                self.change_failed(error)
        now = asyncio.get_running_loop().time()
        not_created = self._changes.not_created
        if not_created and self.partitions.is_active and now >= self._create_again_at and self.logs.can_make_logs:
            self._create_again_at = now + _CREATE_AGAIN_SECONDS
            self._create_missing()

    def _take_again(self, logs: Iterable[Log]) -> None:
        """Lead and follow the partitions of these logs anew: each may have given up when its log took no writes."""
        for log in logs:
            tp = log.tp
            if (led := self.get(*tp)) is not None and led.log is log:
                self._renew(led)
            elif (followed := self.partitions.follower(tp)) is not None and followed.log is log:
                self._stop_following(tp)
                self._begin_to_follow(
                    FollowerPartition(tp, followed.topic_id, log, followed.leader_id, followed.leader_epoch)
                )

    def _create_missing(self) -> None:
        """Create logs that could not be created before, as far as the image still wants them."""
        missing = []
        for tp, (topic, _, is_new) in self._changes.not_created.items():
            image, known = self._metadata.partition(*tp), self._metadata.topic_by_id(topic.topic_id)
            if image is None or known is None or self._broker_id not in image.replicas or tp in self._changes.pending:
                continue
            missing.append(MissingLog(known, image, is_new))
        self._changes.not_created.clear()
        self._changes.create(missing)
