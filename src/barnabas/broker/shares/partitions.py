"""The share partitions that this broker serves, and the sessions of their members.

A share partition is loaded when a member first fetches from it. It goes as soon as this broker leads its partition no
more, or has not led it all the time, and when no member of its group has a session here any more and no dead letter
waits. A session ends with its connection; what its member has acquired is released then.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Final

from barnabas.broker.tasks import TaskSet
from barnabas.machines.controller.image import ConfigResource
from barnabas.metadata.stores.store import StoreError
from barnabas.model.config import group as group_config
from barnabas.model.errors import ApiError, CoordinatorNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.serving.caller import Session
    from barnabas.broker.shares.dead_letters import DeadLetterCounts, DeadLetterWriter
    from barnabas.broker.shares.fetching import ShareFetched, ShareFetching
    from barnabas.broker.shares.hosted import HostedSharePartition
    from barnabas.broker.shares.states import ShareStates
    from barnabas.machines.shares.coordinator import ShareKey
    from barnabas.machines.shares.records import SharePartitionSettings
    from barnabas.machines.shares.sessions import ShareSession, ShareSessions, TopicIdPartition
    from barnabas.metadata.images.cache import Delta
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)

STOP_SECONDS: Final = 3.0
"""How long a stop waits for what is being stored."""
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
DURATION: Final = "by_duration:"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
NO_GROUP: Final = ""
"""Under this the settings of all groups that have none of their own are kept."""


class SharePartitions:
    """All share partitions that this broker serves."""

    def __init__(self, find_broker: Callable[[], BrokerContext]) -> None:
        """`find_broker` gives the broker that this is a part of, once it is put together."""
        self._find_broker = find_broker
        self._hosted: dict[ShareKey, HostedSharePartition] = {}
        self._releasing = Counter[str]()
        """How many sessions of each group are being ended."""
        self._waiting: dict[ShareSession, dict[ShareFetching, None]] = {}
        """Fetches that are under way."""
        self._tasks = TaskSet()
        self._settings: dict[str, tuple[Mapping[str, str], bool, SharePartitionSettings]] = {}

    @property
    def _broker(self) -> BrokerContext:
        return self._find_broker()

    def hosted(self) -> list[HostedSharePartition]:
        """All that are known now."""
        return list(self._hosted.values())

    @property
    def clock(self) -> Clock:
        """The broker's clock."""
        return self._broker.clock

    @cached_property
    def states(self) -> ShareStates:
        """Where states are kept; made when the first is read, as a broker without share groups has no use for it."""
        from barnabas.broker.shares.states import ShareStates

        return ShareStates(self._broker)

    @cached_property
    def dead_letters(self) -> DeadLetterWriter:
        """Where dead letters are written."""
        from barnabas.broker.shares.dead_letter_topics import DeadLetterTopics
        from barnabas.broker.shares.dead_letters import DeadLetterWriter

        return DeadLetterWriter(self._broker, DeadLetterTopics(self._broker))

    def dead_letter_counts(self) -> Mapping[str, DeadLetterCounts]:
        """What became of dead letters so far, by group; nothing is made to be counted."""
        return self.dead_letters.counts if "dead_letters" in vars(self) else {}

    @cached_property
    def sessions(self) -> ShareSessions:
        """The sessions of members."""
        from barnabas.machines.shares.sessions import ShareSessions

        return ShareSessions(self._broker.settings.number("group.share.max.share.sessions"))

    async def stop(self) -> None:
        """Finish what is being stored."""
        for hosted in list(self._hosted.values()):
            hosted.end(NotLeaderOrFollower("This broker stops."))
        await self._tasks.finish(STOP_SECONDS)
        if "states" in vars(self):
            await self.states.stop()

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run work that goes on if nobody waits for it any more."""
        return self._tasks.spawn(work)

    # What the cluster's image says, after the replicas have applied it

    def on_change(self, delta: Delta) -> None:
        """End what this broker leads no more; for the rest, what kept dead letters from being written may be mended."""
        for resource in delta.configs:
            if resource.kind == "groups" and not self.config_of(resource.name):
                self._forget_settings(resource.name)
        touched = {topic.topic_id for topic in (*delta.created, *delta.changed, *delta.deleted)}
        for hosted in self.hosted():
            if hosted.key.topic_id not in touched or self.leads(hosted):
                hosted.archiver.retry()

    def _forget_settings(self, group_id: str) -> None:
        """A group has no settings of its own any more, and with them no dead letters."""
        self._settings.pop(group_id, None)
        if "dead_letters" in vars(self):
            self.dead_letters.counts.pop(group_id, None)

    def resume(self) -> None:
        """This broker leads partitions again: others may have led them meanwhile."""
        self._end_lost()

    def resign(self) -> None:
        """This broker is fenced, and leads nothing."""
        self._end_lost()

    def _end_lost(self) -> None:
        for hosted in self.hosted():
            self.leads(hosted)

    # Share partitions

    def leads(self, hosted: HostedSharePartition) -> bool:
        """Whether a share partition is served here, and its partition was led here all the time; if not, end it."""
        try:
            return self._led(hosted.key)[1] is hosted
        except ApiError:
            return False

    def find(self, key: ShareKey) -> HostedSharePartition:
        """A share partition of which this broker leads the partition; loaded from now on if it was not."""
        partition, hosted = self._led(key)
        if hosted is not None and hosted.is_lingering:
            hosted.end(NotLeaderOrFollower(f"Group {key.group_id} has members again."))
            hosted = None
        if hosted is not None:
            return hosted
        from barnabas.broker.shares.hosted import HostedSharePartition

        hosted = self._hosted[key] = HostedSharePartition(self, key, partition)
        self.spawn(hosted.load())
        return hosted

    def _led(self, key: ShareKey) -> tuple[LeaderPartition, HostedSharePartition | None]:
        """The partition, and what is served of it as long as it is led. Raises ApiError if it is not led."""
        hosted = self._hosted.get(key)
        try:
            partition = self._broker.replicas.find(key.topic_id.bytes, key.partition)
        except ApiError as error:
            if hosted is not None:
                hosted.end(error)
            raise
        if hosted is not None and not hosted.leads_on(partition):
            hosted.end(NotLeaderOrFollower(f"{partition.tp} was led by another broker meanwhile."))
            hosted = None
        return partition, hosted

    def served(self, key: ShareKey) -> HostedSharePartition:
        """A share partition that members have fetched from. Raises ApiError where there is none."""
        partition, hosted = self._led(key)
        if hosted is None:
            raise UnknownTopicOrPartition(f"Nothing of {partition.tp} was delivered here to group {key.group_id}.")
        return hosted

    def forget(self, hosted: HostedSharePartition) -> None:
        """A share partition is over."""
        if self._hosted.get(hosted.key) is hosted:
            del self._hosted[hosted.key]

    def idle(self, hosted: HostedSharePartition) -> None:
        """No dead letters of a share partition wait any more."""
        if hosted.is_lingering:
            hosted.end(NotLeaderOrFollower(f"Group {hosted.key.group_id} has no members here."))

    def settings_of(self, group_id: str) -> SharePartitionSettings:
        """What holds for the share partitions of a group."""
        from barnabas.machines.shares.records import SharePartitionSettings

        own = self.config_of(group_id)
        may_have_letters = self._broker.groups.has_dead_letters
        key = group_id if own else NO_GROUP  # groups that anybody makes up leave nothing here
        known = self._settings.get(key)
        if known is None or known[0] is not own or known[1] is not may_have_letters:
            broker = self._broker.settings
            settings = SharePartitionSettings(
                lock_ms=broker.number("group.share.record.lock.duration.ms"),
                max_deliveries=broker.number("group.share.delivery.count.limit"),
                max_locks=broker.number("group.share.partition.max.record.locks"),
            )
            if own:
                settings = SharePartitionSettings(
                    lock_ms=group_config.number("share.record.lock.duration.ms", own, broker),
                    max_deliveries=group_config.number("share.delivery.count.limit", own, broker),
                    max_locks=group_config.number("share.partition.max.record.locks", own, broker),
                    has_dead_letters=may_have_letters and bool(group_config.value(DEAD_LETTER_TOPIC, own, broker)),
                )
            known = own, may_have_letters, settings
            self._settings[key] = known
        return known[2]

    def config_of(self, group_id: str) -> Mapping[str, str]:
        """The settings that a group has of its own."""
        return self._broker.metadata.image.config(ConfigResource("groups", group_id))

    def reads_committed(self, group_id: str) -> bool:
        """Whether a group sees only records of committed transactions."""
        level = group_config.value("share.isolation.level", self.config_of(group_id), self._broker.settings)
        return level == "read_committed"

    def may_renew(self, group_id: str) -> bool:
        """Whether members of a group may renew their locks."""
        own = self.config_of(group_id)
        return bool(group_config.value("share.renew.acknowledge.enable", own, self._broker.settings))

    async def initial_offset(self, group_id: str, partition: LeaderPartition) -> int:
        """Where a group begins to read a partition, by share.auto.offset.reset.

        This is decided once. A group whose setting was made a moment ago must not begin by the one before, and pass
        over what it was to read. Raises CoordinatorNotAvailable where the settings cannot be known now.
        """
        try:
            await self._broker.membership.catch_up_with_settings()
        except StoreError as error:
            raise CoordinatorNotAvailable(f"The settings of group {group_id} cannot be read now: {error}") from error
        reset = str(group_config.value("share.auto.offset.reset", self.config_of(group_id), self._broker.settings))
        log = partition.log
        if not log.is_open:
            await asyncio.get_running_loop().run_in_executor(self._broker.executor, log.open)
        if reset == EARLIEST:
            return log.log_start_offset
        if reset == LATEST:
            return partition.leader.high_watermark
        since = self.clock.now_ms() - group_config.duration_ms(reset.removeprefix(DURATION))
        found = await asyncio.get_running_loop().run_in_executor(
            self._broker.executor, lambda: log.offset_for_time(since, up_to=partition.leader.high_watermark)
        )
        return partition.leader.high_watermark if found is None else found.offset

    # Sessions

    def bind(self, connection: Session) -> None:
        """End the share sessions of a connection when it ends, or now if it has ended before its request was served."""
        connection.on_end = lambda: self._connection_ended(connection)
        if connection.has_ended:
            connection.on_end()

    async def fetch(
        self, session: ShareSession, fetching: ShareFetching, places: Sequence[TopicIdPartition]
    ) -> dict[TopicIdPartition, ShareFetched]:
        """What partitions have for the member of a session; nothing as soon as the session has ended."""
        self._waiting.setdefault(session, {})[fetching] = None
        try:
            return await fetching.run(places)
        finally:
            del self._waiting[session][fetching]
            if not self._waiting[session]:
                del self._waiting[session]

    def _connection_ended(self, connection: Session) -> None:
        for session in self.sessions.connection_ended(connection):
            self._begin_release(session)

    async def end_session(self, session: ShareSession) -> None:
        """A member is done: release what it has acquired."""
        self.sessions.end(session)
        await self.release(session)

    async def release(self, session: ShareSession) -> None:
        """Release everything that the member of a session has acquired. A failure leaves it to the locks."""
        await asyncio.shield(self._begin_release(session))

    def _begin_release(self, session: ShareSession) -> asyncio.Task[None]:
        """Take back in all partitions, at once, what a member has acquired; the task stores it.

        The next session of the same member may acquire records before all of it is stored. They are not taken back.
        """
        from barnabas.machines.shares.coordinator import ShareKey

        for fetching in list(self._waiting.get(session, ())):
            fetching.wake()
        writes: dict[ShareKey, Coroutine[None, None, None]] = {}
        for place in list(session.partitions):
            key = ShareKey(session.group_id, *place)
            hosted = self._hosted.get(key)
            write = None if hosted is None else hosted.release(session.member_id)
            if write is not None:
                writes[key] = write
        self._releasing[session.group_id] += 1
        return self.spawn(self._release(session, writes))

    async def _release(self, session: ShareSession, writes: Mapping[ShareKey, Coroutine[None, None, None]]) -> None:
        """Store what was taken back.

        After the last session of a group nothing of it is in flight. Its share partitions are forgotten, as in Kafka,
        and read again when somebody comes: its offsets may be reset or deleted meanwhile.
        """
        try:
            errors = await asyncio.gather(*writes.values(), return_exceptions=True)
            for key, error in zip(writes, errors, strict=True):
                if error is not None:
                    logger.warning(
                        "Could not store that member %s of share group %s released records of partition %d of topic id "
                        "%s: %s",
                        session.member_id,
                        session.group_id,
                        key.partition,
                        key.topic_id,
                        error,
                    )
        finally:
            self._releasing[session.group_id] -= 1
            if not self._releasing[session.group_id]:
                del self._releasing[session.group_id]
        if session.group_id not in self._releasing and not self.sessions.has_members(session.group_id):
            for hosted in [one for key, one in self._hosted.items() if key.group_id == session.group_id]:
                hosted.is_lingering = True
                if not hosted.archiver.is_busy:
                    self.idle(hosted)
