"""Changes to the logs of this broker's replicas that wait for the disk: creating, truncating and setting aside.

Each runs in a thread. Logs are created and set aside one change after the other, since a topic may be deleted and
created again meanwhile. While its log changes, a partition is `pending` and has no leader or follower role here. When
the change is done the replica manager does with the log what the cluster's image says by then. If that raises, nobody
leads or follows the partition, although the image says so: the replica manager is told.

Very many logs that are there already are handed to the replica manager in slices (`hand_over`). Between two slices the
event loop serves others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from barnabas.broker.tasks import TaskSet
from barnabas.model.errors import ApiError, StorageFailed
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Executor
    from uuid import UUID

    from barnabas.broker.replication.follower_partition import FollowerPartition
    from barnabas.broker.settings import Settings
    from barnabas.metadata.images.cache import PartitionImage, TopicImage
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.log.log import Log
    from barnabas.storage.manager import LogManager
    from barnabas.storage.strays import Stray

logger = logging.getLogger(__name__)

_CREATED_TOGETHER: Final = 100
"""Logs that are created before the first of them is led or followed."""
HANDED_OVER_TOGETHER: Final = 1000
"""Logs that are led or followed in one turn of the event loop."""


class MissingLog(NamedTuple):
    """A partition whose log has to be created; a new partition has never had a log."""

    topic: TopicImage
    partition: PartitionImage
    is_new: bool

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic.name, self.partition.index)


class LogUser(Protocol):
    """Uses the logs that were changed. Its methods are called on the event loop."""

    def use_log(self, log: Log, topic_id: UUID) -> None:
        """A log was created or truncated, or it is its turn."""
        ...

    def logs_were_created(self) -> None:
        """A creation is done, whether or not all logs could be created."""
        ...

    def log_was_set_aside(self, log: Log, stray: Stray | None, *, moved: bool) -> None:
        """A log was set aside; `moved` if its partition moved to other brokers."""
        ...

    def change_failed(self, error: Exception) -> None:
        """A change, or what the user did after it, ended with an error that nobody expected."""
        ...


class LogChanges:
    """Changes logs in threads, and knows which partitions have to wait for that."""

    def __init__(self, user: LogUser, logs: LogManager, settings: Settings, executor: Executor) -> None:
        self._user = user
        self._logs = logs
        self._settings = settings
        self._executor = executor
        self._tasks = TaskSet()
        self._one_at_a_time = asyncio.Lock()
        self.pending: dict[tuple[str, int], UUID] = {}
        """The partitions whose logs are being created, truncated, set aside or handed over, with their topic ids."""
        self.not_created: dict[tuple[str, int], MissingLog] = {}
        """Partitions whose logs could not be created."""

    async def done(self, seconds: float | None = None) -> None:
        """Wait until no log changes, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._tasks.wait()

    def _spawn(self, change: Coroutine[None, None, None]) -> None:
        self._tasks.spawn(self._run(change))

    async def _run(self, change: Coroutine[None, None, None]) -> None:
        try:
            await change
        except Exception as error:
            self._user.change_failed(error)

    # Creating

    def create(self, missing: list[MissingLog]) -> None:
        """Create logs, and hand them to the user."""
        for each in missing:
            self.pending[each.tp] = each.topic.topic_id
        for first in range(0, len(missing), _CREATED_TOGETHER):
            self._spawn(self._create(missing[first : first + _CREATED_TOGETHER]))

    async def _create(self, missing: list[MissingLog]) -> None:
        async with self._one_at_a_time:
            configs = {each.topic.name: self._settings.log_config(each.topic.name) for each in missing}

            def create_all() -> list[Log | ApiError]:
                return [self._create_one(each, configs[each.topic.name]) for each in missing]

            try:
                created = await asyncio.get_running_loop().run_in_executor(self._executor, create_all)
            finally:
                for each in missing:
                    self._end(each.tp, each.topic.topic_id)
            for each, log in zip(missing, created, strict=True):
                if isinstance(log, ApiError):
                    logger.error("Could not create the log of %s. It is tried again: %s", each.tp, log)
                    self.not_created[each.tp] = each
                else:
                    self._user.use_log(log, each.topic.topic_id)
            self._user.logs_were_created()

    def _create_one(self, missing: MissingLog, config: LogConfig) -> Log | ApiError:
        try:
            return self._logs.create(missing.tp, missing.topic.topic_id, config, is_new=missing.is_new)
        except ApiError as error:
            return error
        except OSError as error:
            return StorageFailed(str(error))

    # Handing over

    def hand_over(self, logs: list[Log]) -> None:
        """Hand logs to the user that nobody uses yet, some in each of the next turns of the event loop."""
        if logs:
            for log in logs:
                self.pending[log.tp] = log.topic_id
            self._spawn(self._hand_over(logs))

    async def _hand_over(self, logs: list[Log]) -> None:
        handed_over = 0
        try:
            for log in logs:
                if handed_over % HANDED_OVER_TOGETHER == 0:
                    await asyncio.sleep(0)
                handed_over += 1
                self._end(log.tp, log.topic_id)
                self._user.use_log(log, log.topic_id)
        finally:
            for log in logs[handed_over:]:
                self._end(log.tp, log.topic_id)

    # Truncating

    def truncate(self, follower: FollowerPartition, truncate_log: Callable[[], None]) -> None:
        """Truncate the log of a partition that is not followed meanwhile, and hand it to the user."""
        self.pending[follower.tp] = follower.topic_id
        self._spawn(self._truncate(follower, truncate_log))

    async def _truncate(self, follower: FollowerPartition, truncate_log: Callable[[], None]) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, truncate_log)
        except Exception as error:
            pause = self._settings.number("replica.fetch.backoff.ms") / 1000
            unexpected = None if isinstance(error, ApiError) else error
            logger.error(
                "Could not truncate the log of %s. It is tried again in %g s: %s",
                follower,
                pause,
                error,
                exc_info=unexpected,
            )
            await asyncio.sleep(pause)
        finally:
            self._end(follower.tp, follower.topic_id)
        self._user.use_log(follower.log, follower.topic_id)

    # Setting aside

    def set_aside(self, log: Log, *, moved: bool = False) -> None:
        """Take a log away. One that is being created or truncated is looked at when that is done."""
        if self.pending.get(log.tp) != log.topic_id:
            self.pending[log.tp] = log.topic_id
            self._spawn(self._set_aside(log, moved))

    def set_aside_if_deleted(
        self, logs: list[Log], deleted: Awaitable[set[UUID]], is_used: Callable[[Log], bool]
    ) -> None:
        """Take those logs away whose topics turn out to be deleted, unless they are used by then."""
        self._spawn(self._set_aside_if_deleted(logs, deleted, is_used))

    async def _set_aside_if_deleted(
        self, logs: list[Log], deleted: Awaitable[set[UUID]], is_used: Callable[[Log], bool]
    ) -> None:
        topic_ids = await deleted
        for log in logs:
            if log.topic_id in topic_ids and log.tp not in self.pending and not is_used(log):
                self.set_aside(log)

    async def _set_aside(self, log: Log, moved: bool) -> None:
        try:
            async with self._one_at_a_time:
                stray = await asyncio.get_running_loop().run_in_executor(self._executor, self._logs.set_aside, log)
        finally:
            self._end(log.tp, log.topic_id)
        self._user.log_was_set_aside(log, stray, moved=moved)

    def _end(self, tp: TopicPartition, topic_id: UUID) -> None:
        if self.pending.get(tp) == topic_id:  # and not that of a later topic with the same name
            del self.pending[tp]
