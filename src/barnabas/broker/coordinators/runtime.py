"""The coordinators of an internal topic: a machine for each of its partitions that this broker leads.

When the broker begins to lead a partition, the log is replayed into a new machine in a thread. Logs are replayed one
after the other, because threads that work on Python objects only hold each other up. Until then requests get
COORDINATOR_LOAD_IN_PROGRESS.

When the broker leads the partition no more, those who wait get NOT_COORDINATOR and the machine is dropped: the log has
everything that counts.

How a machine is asked, and how its decisions become durable, is in `shard`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from barnabas.broker import collector
from barnabas.broker.coordinators import record_log
from barnabas.broker.coordinators.shard import RETRY_MS, M, Shard, loading_error
from barnabas.broker.tasks import TaskSet
from barnabas.broker.thread_imports import IMPORTING
from barnabas.model.errors import BarnabasError, CoordinatorNotAvailable, NotCoordinator
from barnabas.model.ids import LONGEST_REMEMBERED, java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)


class CoordinatorLog(NamedTuple):
    """Where coordinators keep their state: an internal topic, and how its records are read and written."""

    topic: str
    load_buffer_bytes: int
    """Bytes that are read at once when a log is loaded."""
    compression: int = 0
    """The codec of batches."""


class CoordinatorParts(NamedTuple):
    """The parts of a broker that all its coordinators use."""

    replicas: ReplicaManager
    metadata: MetadataCache
    clock: Clock
    executor: Executor


class _Partitions(dict[tuple[str, int], int]):
    """Which of so many partitions coordinates a key, as Kafka counts.

    It is asked for with every request of a group or of a transaction: where the answer is there, nothing is called.
    """

    def __missing__(self, asked: tuple[str, int]) -> int:
        key, count = asked
        number = abs(java_hash(key))
        number = 0 if number == 1 << 31 else number % count  # Java's abs has no such number
        if len(key) <= LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[asked] = number
        return number


_MOST_REMEMBERED: Final = 4096
_PARTITIONS: Final = _Partitions()


def partition_of(key: str, count: int) -> int:
    """Which of so many partitions coordinates a key."""
    return _PARTITIONS[key, count]


class Runtime(Generic[M]):
    """The coordinators of one internal topic, as far as this broker leads its partitions."""

    def __init__(
        self,
        log: CoordinatorLog,
        make_machine: Callable[[], M],
        parts: CoordinatorParts,
        *,
        catch_up: Callable[[M], None] = lambda machine: None,
        send: Callable[[Shard[M], object], None] = lambda shard, message: None,
    ) -> None:
        """`catch_up` gives a machine, when it begins to serve, what changed while its log was read.

        `send` sends the messages of decisions.
        """
        self.topic = log.topic
        self.catch_up = catch_up
        self.send = send
        self.clock = parts.clock
        self.compression = log.compression
        self._make_machine = make_machine
        self._has_made_one = False
        """Whether the machine's modules are imported. The first is made in a thread: that takes a tenth of a second."""
        self._metadata = parts.metadata
        self._executor = parts.executor
        self._load_buffer_bytes = log.load_buffer_bytes
        self._shards: dict[int, Shard[M]] = {}
        self._loading = TaskSet()
        self._load_lock = asyncio.Lock()
        self._resigned = asyncio.Event()
        self.loaded = self._loading.wait
        """Waits until all coordinators are loaded."""
        parts.replicas.watch(self.topic, self._begin, self._lose)

    def partition_for(self, key: str) -> int | None:
        """The partition that coordinates a key; None while the topic does not exist."""
        topic = self._metadata.topic(self.topic)
        if topic is None:
            return None
        return partition_of(key, len(topic.partitions))

    def find(self, key: str) -> Shard[M]:
        """The coordinator of a key. Raises the error that says why it is not here."""
        topic = self._metadata.topic(self.topic)
        if topic is None:
            raise CoordinatorNotAvailable(f"{self.topic} does not exist yet. Send FindCoordinator, which creates it.")
        number = _PARTITIONS[key, len(topic.partitions)]
        return self._shards.get(number) or self.shard(number)

    def shard(self, number: int) -> Shard[M]:
        """The coordinator on a partition. Raises NotCoordinator."""
        shard = self._shards.get(number)
        if shard is None:
            raise NotCoordinator(f"This broker does not lead {self.topic}-{number}. Send FindCoordinator.")
        return shard

    def shards(self) -> Iterator[Shard[M]]:
        """All coordinators here."""
        return iter(list(self._shards.values()))

    def machines(self) -> Iterator[tuple[Shard[M], M]]:
        """All coordinators that are loaded."""
        return ((shard, shard.machine) for shard in self.shards() if shard.machine is not None)

    def resign(self) -> None:
        """Stop serving (the broker stops)."""
        self._resigned.set()
        for shard in self.shards():
            self._end(shard)
        self._shards.clear()

    def load(self, shard: Shard[M], after_ms: int = 0) -> None:
        """Load the shard's machine from its log, now or after a pause."""
        log = shard.partition.log
        shard.failure = loading_error(shard.partition)
        is_empty = log.log_start_offset == log.log_end_offset and log.is_ready and not log.is_failed
        if is_empty and self._has_made_one and not after_ms:
            shard.begin(self._make_machine())
            return
        self._loading.spawn(self._load(shard, after_ms))

    async def _load(self, shard: Shard[M], after_ms: int) -> None:
        """Replay the log into a new machine. A failure is tried again, as long as this broker leads the partition."""
        log, tp = shard.partition.log, shard.partition.tp

        def is_wanted() -> bool:
            return self._shards.get(tp.partition) is shard

        if after_ms:
            await self._pause(after_ms)
        while is_wanted():
            if log.is_failed:
                shard.failure = CoordinatorNotAvailable(f"The log directory of {tp} has failed.")
                await self._pause(RETRY_MS)
                continue

            def read() -> tuple[M, int]:
                with IMPORTING:
                    machine = self._make_machine()
                log.prepare()
                return machine, record_log.replay_log(log, machine, self._load_buffer_bytes, is_wanted)

            try:
                async with self._load_lock:
                    with collector.loading():
                        machine, count = await asyncio.get_running_loop().run_in_executor(self._executor, read)
                self._has_made_one = True
                if is_wanted():
                    shard.begin(machine)
            except Exception as error:
                if not is_wanted():
                    return  # leadership moved, or the topic was deleted and its log closed under the reader
                logger.error(
                    "Could not load the coordinator of %s: its groups or transactions are not available. It is tried "
                    "again in %g s. %s",
                    tp,
                    RETRY_MS / 1000,
                    error,
                    exc_info=not isinstance(error, BarnabasError),  # what a full disk refuses is no riddle
                )
                shard.failure = CoordinatorNotAvailable(f"The coordinator of {tp} cannot be loaded: {error}")
            else:
                if count:
                    logger.info("Loaded the coordinator of %s from %d records.", tp, count)
                return
            await self._pause(RETRY_MS)

    async def _pause(self, ms: int) -> None:
        """Wait before the next try, or until the broker stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._resigned.wait(), ms / 1000)

    def _begin(self, partition: LeaderPartition) -> None:
        shard = self._shards[partition.tp.partition] = Shard(self, partition)
        self.load(shard)

    def _lose(self, partition: LeaderPartition) -> None:
        shard = self._shards.get(partition.tp.partition)
        if shard is not None and shard.partition is partition:
            del self._shards[partition.tp.partition]
            self._end(shard)

    def _end(self, shard: Shard[M]) -> None:
        shard.end(NotCoordinator(f"This broker does not lead {shard.partition.tp} any more. Send FindCoordinator."))
