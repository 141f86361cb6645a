"""The shell around coordinators: pure machines, each over one partition of an internal topic that this broker leads.

    asked    machine.handle → machine.replay of its records → timers; then, when the turn of the event loop is over,
             the records of everything that was decided in it are appended as one batch, and replies leave
    leading  the partition's log is replayed in a thread into a new machine; until then LOAD_IN_PROGRESS is answered
    lost     whoever waits is told NOT_COORDINATOR, and the machine is dropped: the log has everything that counts

A reply, even to a question that changes nothing, is released when the high watermark reaches the log end that its
machine saw: nobody is told what a failover could take back.

If records cannot be appended, the machine has decided what did not come true. Whoever waits for it is told, and the
machine is built again from the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from barnabas.broker import coordinator_log
from barnabas.broker.timers import Timers
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerEpoch,
    NotCoordinator,
    NotLeaderOrFollower,
    RecordListTooLarge,
    StorageFailed,
    UnknownServerError,
)
from barnabas.model.ids import java_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from concurrent.futures import Executor

    from barnabas.broker.partition import Partition
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.machines.outcome import Outcome
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)


MAX_BATCH: Final = 512 * 1024
"""Bytes of records that are not held back any longer."""
RETRY_MS: Final = 1000
"""How long to wait before something that failed is tried again."""


class Call:
    """One question to a coordinator, and where its answer goes. It is what machines know as the asker."""

    __slots__ = ("_failure", "_future", "_response", "client_host", "client_id", "version")

    def __init__(self, client_id: str, client_host: str, version: int, failure: Callable[[ApiError], Any]) -> None:
        self.client_id = client_id
        self.client_host = client_host
        self.version = version
        self._failure = failure
        """Makes the response that says an error."""
        self._response: Any = None
        self._future: asyncio.Future[Any] | None = None

    def answer(self, response: Any) -> None:
        """Give the answer; an error is told as the API tells it."""
        if isinstance(response, ApiError):
            response = self._failure(response)
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def fail(self, error: ApiError) -> None:
        """Give an error for an answer."""
        self.answer(error)

    def result(self) -> Any:
        """The response, or a future of it."""
        if self._response is not None:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class Outgoing:
    """Stands among those who wait for an answer for the messages of a decision: they too leave when it is safe."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def answer(self, message: Any) -> None:
        """Let a message out."""
        self._send(message)

    def fail(self, error: ApiError) -> None:
        """The decision did not come true: there is nothing to send."""


class Machine(coordinator_log.Replayed, Protocol):
    """What the runtime asks of a coordinator's machine."""

    def encode(self, record: Any) -> tuple[bytes, bytes | None]:
        """Key and value of a record."""
        ...

    def replay(self, record: Any) -> None:
        """A record was stored."""
        ...

    def expire(self, key: Any, now_ms: int) -> Outcome[Any, Any, Any]:
        """A timer is due."""
        ...

    def loaded(self, now_ms: int) -> Outcome[Any, Any, Any]:
        """The whole log was replayed."""
        ...

    def abandon(self, code: ErrorCode) -> Outcome[Any, Any, Any]:
        """The machine's end: tell everyone who waits."""
        ...


M = TypeVar("M", bound=Machine)


class Shard(Generic[M]):
    """One partition's coordinator."""

    def __init__(self, runtime: Runtime[M], partition: Partition) -> None:
        self.partition = partition
        self.machine: M | None = None
        """None while it is loaded, and after it has failed."""
        self.failure: ApiError = CoordinatorLoadInProgress(f"{partition.tp} is being loaded: try again")
        self._runtime = runtime
        self._timers = Timers(runtime.clock, self._expire)
        self._unwritten: list[tuple[bytes, bytes | None]] = []
        """Records that were decided in this turn of the event loop."""
        self._unwritten_bytes = 0
        self._waiting: list[tuple[Any, Any]] = []
        """Replies that wait for them."""
        self._outgoing = Outgoing(lambda message: runtime.send(self, message))

    def begin(self, machine: M) -> None:
        """Serve from now on."""
        self._runtime.catch_up(machine)
        self.machine = machine
        self.apply(machine, machine.loaded(self._runtime.clock.now_ms()))

    def ask(self, decide: Callable[[M, int], Outcome[Any, Any, Any]], call: Call) -> None:
        """Let the machine decide, and do what it decided."""
        machine = self.machine
        if machine is None:
            call.fail(self.failure)
            return
        if (too_few := self.partition.too_few_in_sync()) is not None:
            call.fail(CoordinatorNotAvailable(str(too_few)))
            return
        try:
            outcome = decide(machine, self._runtime.clock.now_ms())
        except Exception:
            logger.exception("the coordinator of %s failed to decide", self.partition.tp)
            call.fail(UnknownServerError("the coordinator failed; its log says why"))
            return
        self.apply(machine, outcome)

    def apply(self, machine: M, outcome: Outcome[Any, Any, Any]) -> None:
        """Make a decision come true, unless its machine has been replaced."""
        if machine is not self.machine:
            return
        changes, replies = outcome.changes, outcome.replies
        if outcome.sends:
            replies = (*replies, *((self._outgoing, message) for message in outcome.sends))
        if changes:
            try:
                self._note([machine.encode(record) for record in changes])
                replay = machine.replay
                for record in changes:
                    replay(record)
            except Exception as error:
                self._waiting += replies
                self._fail(error)
                return
        for timer in outcome.timers:
            if timer.at_ms is None:
                self._timers.cancel(timer.key)
            else:
                self._timers.set(timer.key, timer.at_ms)
        if self._unwritten:
            self._waiting += replies
            if self._unwritten_bytes > MAX_BATCH:
                self._write()
        elif replies:
            self._release(replies)

    def ask_in_transaction(
        self,
        decide: Callable[[M, int], Outcome[Any, Any, Any]],
        call: Call,
        producer: tuple[int, int],
        replay: Callable[[M, Any], None],
    ) -> None:
        """As `ask`, where what is decided is part of a client's transaction, under its producer id and epoch.

        It counts only when the transaction ends, and so `replay` tells the machine of it in another way.
        """
        self._write()
        machine = self.machine
        if machine is None:
            call.fail(self.failure)
            return
        outcome = decide(machine, self._runtime.clock.now_ms())
        if outcome.changes:
            records = [machine.encode(record) for record in outcome.changes]
            now_ms = self._runtime.clock.now_ms()
            try:
                coordinator_log.append(self.partition, records, now_ms, self._runtime.compression, producer)
            except ApiError as error:
                call.fail(error if isinstance(error, InvalidProducerEpoch) else _told(error))
                return
            for record in outcome.changes:
                replay(machine, record)
        self.apply(machine, replace(outcome, changes=()))

    def end_transaction(self, append: Callable[[], object], producer_id: int, commit: bool) -> None:
        """`append` stores the marker that ends a producer's transaction; the machine is told. Raises ApiError."""
        self._write()
        machine = self.machine
        if machine is None:
            raise self.failure
        append()
        machine.end_transaction(producer_id, commit)

    def _note(self, records: list[tuple[bytes, bytes | None]]) -> None:
        """Have these records written when the turn of the event loop is over."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten += records
        self._unwritten_bytes += sum(len(key) + len(value or b"") for key, value in records)

    def _write(self) -> None:
        """Append what was decided, and let replies go."""
        records, waiting = self._unwritten, self._waiting
        if not records:
            return
        try:
            coordinator_log.append(self.partition, records, self._runtime.clock.now_ms(), self._runtime.compression)
        except Exception as error:
            self._fail(error)
            return
        self._unwritten, self._unwritten_bytes, self._waiting = [], 0, []
        self._release(waiting)

    def end(self, error: ApiError) -> None:
        """Serve no more; whoever waits, and whoever asks from now on, is told why."""
        machine, self.machine, self.failure = self.machine, None, error
        self._timers.clear()
        waiting, self._waiting = self._waiting, []
        self._unwritten, self._unwritten_bytes = [], 0
        for call, _ in waiting:
            call.fail(error)
        if machine is not None:
            for call, response in machine.abandon(error.code).replies:
                call.answer(response)

    def _release(self, replies: Iterable[tuple[Any, Any]]) -> None:
        def committed(error: ApiError | None) -> None:
            for call, response in replies:
                if error is None:
                    call.answer(response)
                else:
                    call.fail(_told(error))

        self.partition.when_committed(self.partition.log.log_end_offset, committed)

    def _expire(self, key: Hashable) -> None:
        machine = self.machine
        if machine is None:
            return
        now_ms = self._runtime.clock.now_ms()
        if self.partition.too_few_in_sync() is not None:
            self._timers.set(key, now_ms + RETRY_MS)
            return
        try:
            outcome = machine.expire(key, now_ms)
        except Exception:
            logger.exception("the coordinator of %s failed at %s", self.partition.tp, key)
            return
        self.apply(machine, outcome)

    def _fail(self, failure: Exception) -> None:
        """What was decided cannot be stored: the log is right, and the machine is not any more."""
        if isinstance(failure, ApiError):
            error = failure
            logger.error("%s: a decision of the coordinator cannot be stored: %s", self.partition.tp, error)
        else:
            error = UnknownServerError(f"the coordinator failed: {failure}")
            logger.error("%s: the coordinator failed to store a decision", self.partition.tp, exc_info=failure)
        waiting, self._waiting = self._waiting, []
        for call, _ in waiting:
            call.fail(_told(error))
        self.end(CoordinatorNotAvailable(str(error)))
        if not isinstance(error, StorageFailed):
            self._runtime.load(self)


def _told(error: ApiError) -> ApiError:
    """What clients are told when records cannot be stored, in Kafka's words."""
    if isinstance(error, RecordListTooLarge | UnknownServerError):
        return UnknownServerError(str(error))
    if isinstance(error, StorageFailed | NotLeaderOrFollower):
        return NotCoordinator(str(error))
    return CoordinatorNotAvailable(str(error))


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

    def load(self, shard: Shard[M]) -> None:
        """Build the shard's machine from its log."""
        log = shard.partition.log
        shard.failure = CoordinatorLoadInProgress(f"{shard.partition.tp} is being loaded: try again")
        if log.log_start_offset == log.log_end_offset and log.is_ready:
            shard.begin(self._make_machine())
            return
        task = asyncio.get_running_loop().create_task(self._load(shard))
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load(self, shard: Shard[M]) -> None:
        """Read the log into a new machine; what fails is tried again, for as long as the shard is this broker's."""
        log, tp = shard.partition.log, shard.partition.tp

        def is_wanted() -> bool:
            return self._shards.get(tp.partition) is shard

        while is_wanted():
            machine = self._make_machine()

            def read(machine: M = machine) -> int:
                log.prepare()
                return coordinator_log.replay_log(log, machine, self._load_buffer_bytes, is_wanted)

            try:
                count = await asyncio.get_running_loop().run_in_executor(self._executor, read)
            except Exception as error:
                logger.exception("cannot load %s: what it coordinates is not available", tp)
                shard.failure = CoordinatorNotAvailable(f"{tp} cannot be loaded: {error}")
            else:
                if is_wanted():
                    if count:
                        logger.info("loaded %s: %d records", tp, count)
                    shard.begin(machine)
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._resigned.wait(), RETRY_MS / 1000)

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
