"""The coordinators of an internal topic: a machine for each of its partitions that this broker leads.

    leading  the partition's log is replayed in a thread into a new machine, one log after the other, because threads
             that work on Python objects only hold each other up; until then LOAD_IN_PROGRESS is answered
    lost     whoever waits is told NOT_COORDINATOR, and the machine is dropped: the log has everything that counts

How a machine is asked, and how its decisions come true, is in `shard`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Generic

from barnabas.broker import collector, coordinator_log
from barnabas.broker.shard import RETRY_MS, M, Shard
from barnabas.model.errors import CoordinatorLoadInProgress, CoordinatorNotAvailable, NotCoordinator
from barnabas.model.ids import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor

    from barnabas.broker.partition import Partition
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)


class Runtime(Generic[M]):
    """The coordinators of one internal topic, as far as this broker leads its partitions."""

    def __init__(
        self,
        topic: str,
        make_machine: Callable[[], M],
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        clock: Clock,
        executor: Executor,
        load_buffer_bytes: int,
        compression: int,
        catch_up: Callable[[M], None] = lambda machine: None,
        send: Callable[[Shard[M], Any], None] = lambda shard, message: None,
    ) -> None:
        """`catch_up` tells a machine, when it begins to serve, what changed while its log was read.

        `send` brings the messages of decisions to whoever they are for.
        """
        self.topic = topic
        self.catch_up = catch_up
        self.send = send
        self.clock = clock
        self.compression = compression
        self._make_machine = make_machine
        self._metadata = metadata
        self._executor = executor
        self._load_buffer_bytes = load_buffer_bytes
        self._shards: dict[int, Shard[M]] = {}
        self._loading: set[asyncio.Task[None]] = set()
        self._one_load = asyncio.Lock()
        """Held by the one that reads its log."""
        self._resigned = asyncio.Event()
        replicas.watch(topic, self._led, self._lost)

    def partition_for(self, key: str) -> int | None:
        """Which partition coordinates a key; None while the topic does not exist."""
        topic = self._metadata.topic(self.topic)
        if topic is None:
            return None
        number = abs(java_hash(key))
        return 0 if number == 1 << 31 else number % len(topic.partitions)  # Java's abs has no such number

    def find(self, key: str) -> Shard[M]:
        """The coordinator of a key. Raises the error that says why it is not here."""
        number = self.partition_for(key)
        if number is None:
            raise CoordinatorNotAvailable(f"{self.topic} does not exist yet: ask FindCoordinator, which makes it")
        return self.shard(number)

    def shard(self, number: int) -> Shard[M]:
        """The coordinator on a partition. Raises NotCoordinator."""
        shard = self._shards.get(number)
        if shard is None:
            raise NotCoordinator(f"{self.topic}-{number} is not led by this broker: ask FindCoordinator")
        return shard

    def shards(self) -> Iterator[Shard[M]]:
        """All coordinators here."""
        return iter(list(self._shards.values()))

    def machines(self) -> Iterator[tuple[Shard[M], M]]:
        """All coordinators that are ready to be asked."""
        return ((shard, shard.machine) for shard in self.shards() if shard.machine is not None)

    async def loaded(self) -> None:
        """Wait until everything that is being loaded is there."""
        while self._loading:
            await asyncio.wait(self._loading)

    def resign(self) -> None:
        """Serve no more (the broker stops)."""
        self._resigned.set()
        for shard in self.shards():
            self._end(shard)
        self._shards.clear()

    def load(self, shard: Shard[M], after_ms: int = 0) -> None:
        """Build the shard's machine from its log, now or after a pause."""
        log = shard.partition.log
        shard.failure = CoordinatorLoadInProgress(f"{shard.partition.tp} is being loaded: try again")
        if log.log_start_offset == log.log_end_offset and log.is_ready and not log.is_failed and not after_ms:
            shard.begin(self._make_machine())
            return
        task = asyncio.get_running_loop().create_task(self._load(shard, after_ms))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load(self, shard: Shard[M], after_ms: int) -> None:
        """Read the log into a new machine; what fails is tried again, for as long as the shard is this broker's."""
        log, tp = shard.partition.log, shard.partition.tp

        def is_wanted() -> bool:
            return self._shards.get(tp.partition) is shard

        if after_ms:
            await self._pause(after_ms)
        while is_wanted():
            if log.is_failed:
                shard.failure = CoordinatorNotAvailable(f"the log directory of {tp} has failed")
                await self._pause(RETRY_MS)
                continue
            machine = self._make_machine()

            def read(machine: M = machine) -> int:
                log.prepare()
                return coordinator_log.replay_log(log, machine, self._load_buffer_bytes, is_wanted)

            try:
                async with self._one_load:
                    with collector.loading():
                        count = await asyncio.get_running_loop().run_in_executor(self._executor, read)
                if is_wanted():
                    shard.begin(machine)
            except Exception as error:
                logger.exception("cannot load %s: what it coordinates is not available", tp)
                shard.failure = CoordinatorNotAvailable(f"{tp} cannot be loaded: {error}")
            else:
                if count:
                    logger.info("loaded %s: %d records", tp, count)
                return
            await self._pause(RETRY_MS)

    async def _pause(self, ms: int) -> None:
        """Until it is worth another try, or the broker stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._resigned.wait(), ms / 1000)

    def _led(self, partition: Partition) -> None:
        shard = self._shards[partition.tp.partition] = Shard(self, partition)
        self.load(shard)

    def _lost(self, partition: Partition) -> None:
        shard = self._shards.get(partition.tp.partition)
        if shard is not None and shard.partition is partition:
            del self._shards[partition.tp.partition]
            self._end(shard)

    def _end(self, shard: Shard[M]) -> None:
        shard.end(NotCoordinator(f"{shard.partition.tp} is not led by this broker any more: ask FindCoordinator"))
