"""One coordinator: a machine over one partition of an internal topic, and what makes its decisions come true.

    asked    machine.handle → machine.replay of its records → timers; then, when the turn of the event loop is over,
             the records of everything that was decided in it are appended as one batch, and replies leave

A reply, even to a question that changes nothing, is released when the high watermark reaches the log end that its
machine saw: nobody is told what a failover could take back.

The log is right, and a machine that cannot be what the log says is not:

    raises   while it decides: it may be half changed. What it decided before is stored, whoever waits is told, and it
             is built again from the log; whoever asks meanwhile is told LOAD_IN_PROGRESS
    cannot   be appended: it has decided what did not come true. Whoever waits is told, and it is built again; after a
             pause, if too few replicas are in sync, and not before its log directory takes writes again
    again    soon after it was built again: there may be a request that it always fails at, so each time it pauses for
             twice as long before it reads its log
    too much for one batch of the partition: nothing was replayed yet, so the machine may say what it decides instead
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from barnabas.broker import coordinator_log
from barnabas.broker.calls import Outgoing
from barnabas.broker.timers import Timers
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordListTooLarge,
    StorageFailed,
    UnknownServerError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from barnabas.broker.calls import Call
    from barnabas.broker.partition import Partition
    from barnabas.broker.runtime import Runtime
    from barnabas.machines.outcome import Outcome
    from barnabas.model.log_config import LogConfig

    Encoded = tuple[bytes, bytes | None]
    """Key and value of a record."""

logger = logging.getLogger(__name__)


MAX_BATCH: Final = 512 * 1024
"""Bytes of records that are not held back any longer."""
RETRY_MS: Final = 1000
"""How long to wait before something that failed is tried again."""
LONGEST_RETRY_MS: Final = 8000
"""How long at most, if it failed again and again; what did not fail for twice as long starts anew. Meanwhile all groups
of a partition wait, so it only keeps a broker from reading a log all the time."""


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
        self._unwritten: list[Encoded] = []
        """Records that were decided in this turn of the event loop."""
        self._unwritten_bytes = 0
        self._config: LogConfig | None = None
        """What the partition's settings were when `_room` was worked out from them."""
        self._room = 0
        """Bytes of records that fit into one batch."""
        self._waiting: list[tuple[Any, Any]] = []
        """Replies that wait for them."""
        self._parked: set[Call] = set()
        """Those who wait for a later decision: the machine knows them too, unless it lost them when it failed."""
        self._failed_at = -inf
        self._paused_ms = 0
        """When it failed last, and how long it paused then before it was built again."""
        self._outgoing = Outgoing(lambda message: runtime.send(self, message))

    def begin(self, machine: M) -> None:
        """Serve from now on."""
        self._runtime.catch_up(machine)
        outcome = machine.loaded(self._runtime.clock.now_ms())
        self.machine = machine
        self.apply(machine, outcome)

    # What the machine decides.

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
            self._distrust(machine, "failed to decide")
            call.fail(UnknownServerError("the coordinator failed; its log says why"))
            return
        replies = outcome.replies
        if not replies or (replies[0][0] is not call and all(asker is not call for asker, _ in replies)):
            self._parked.add(call)
        self.apply(machine, outcome)

    def read(self, look: Callable[[M, int], Outcome[Any, Any, Any]], call: Call) -> None:
        """Let the machine answer a question that changes nothing, even if nothing could be stored now.

        If it raises it is as it was: only this question fails.
        """
        machine = self.machine
        if machine is None:
            call.fail(self.failure)
            return
        try:
            outcome = look(machine, self._runtime.clock.now_ms())
        except Exception:
            logger.exception("the coordinator of %s failed to answer a question", self.partition.tp)
            call.fail(UnknownServerError("the coordinator failed; its log says why"))
            return
        self.apply(machine, outcome)

    def tell(self, decide: Callable[[M, int], Outcome[Any, Any, Any]]) -> None:
        """Let the machine, if there is one, decide about what nobody asked."""
        machine = self.machine
        if machine is None:
            return
        try:
            outcome = decide(machine, self._runtime.clock.now_ms())
        except Exception:
            self._distrust(machine, "failed at what it was told")
            return
        self.apply(machine, outcome)

    def _expire(self, key: Hashable) -> None:
        if self.partition.too_few_in_sync() is not None:
            self._timers.set(key, self._runtime.clock.now_ms() + RETRY_MS)
            return
        self.tell(lambda machine, now_ms: machine.expire(key, now_ms))

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
        try:
            outcome = decide(machine, self._runtime.clock.now_ms())
            if outcome.changes:
                try:
                    self._append([machine.encode(record) for record in outcome.changes], producer)
                except ApiError as error:
                    call.fail(error if isinstance(error, InvalidProducerEpoch) else _told(error))
                    return
                for record in outcome.changes:
                    replay(machine, record)
        except Exception:
            self._distrust(machine, "failed to decide in a transaction")
            call.fail(UnknownServerError("the coordinator failed; its log says why"))
            return
        self.apply(machine, replace(outcome, changes=()))

    def end_transaction(self, append: Callable[[], object], producer_id: int, commit: bool) -> None:
        """`append` stores the marker that ends a producer's transaction; the machine is told. Raises ApiError."""
        self._write()
        machine = self.machine
        if machine is None:
            raise self.failure
        append()
        try:
            machine.end_transaction(producer_id, commit)
        except Exception:
            self._distrust(machine, "failed to end a transaction")

    # What becomes of it.

    def apply(self, machine: M, outcome: Outcome[Any, Any, Any]) -> None:
        """Make a decision come true, unless its machine has been replaced."""
        if machine is not self.machine:
            return
        replies = outcome.replies
        if self._parked:
            self._parked.difference_update(call for call, _ in replies)
        if outcome.sends:
            replies = (*replies, *((self._outgoing, message) for message in outcome.sends))
        if outcome.changes:
            try:
                self._store(machine, outcome)
            except (MessageTooLarge, RecordListTooLarge) as error:
                self._refuse(outcome, replies, error)
                return
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
        elif self._waiting:
            self._waiting += replies
            self._write()
        elif replies:
            self._release(replies)

    def _store(self, machine: M, outcome: Outcome[Any, Any, Any]) -> None:
        """Have the changes of a decision written when the turn of the event loop is over, and tell the machine."""
        changes = outcome.changes
        records = [machine.encode(record) for record in changes]
        size = coordinator_log.size_of(records)
        if self.partition.log.config is not self._config:
            self._config = self.partition.log.config
            self._room = coordinator_log.room(self._config)
        if self._unwritten_bytes + size > self._room:
            self._store_in_parts(machine, outcome, records)
            return
        self._note(records, size)
        replay = machine.replay
        for record in changes:
            replay(record)

    def _store_in_parts(self, machine: M, outcome: Outcome[Any, Any, Any], records: list[Encoded]) -> None:
        """The same for what does not fit into the batch of this turn.

        What may not fit into any batch is written at once and alone, so that nobody else's decisions fail with it, and
        before the machine is told. Raises if it does not fit. Replies wait until the machine is up to date: what leaves
        may come back as a question.
        """
        changes = iter(outcome.changes)
        for part in coordinator_log.divided(records, self._room) if outcome.is_divisible else [records]:
            self._append_unwritten()
            size = coordinator_log.size_of(part)
            if size > self._room:
                self._append(part)
            else:
                self._note(part, size)
            for record in islice(changes, len(part)):
                machine.replay(record)

    def _refuse(self, outcome: Outcome[Any, Any, Any], replies: Iterable[tuple[Any, Any]], error: ApiError) -> None:
        """What was decided is too large: let the machine decide something else, or take it from the log.

        What others wait for was stored before it, unless that is what failed.
        """
        otherwise = outcome.otherwise
        if otherwise is None:
            stored, self._waiting = ([], self._waiting) if self._unwritten else (self._waiting, [])
            self._waiting += replies
            self._fail(error)
            if stored:
                self._release(stored)
            return
        logger.warning("%s: a decision of the coordinator is too large to be stored: %s", self.partition.tp, error)
        for call, _ in replies:
            call.fail(_told(error))
        self.tell(lambda machine, now_ms: otherwise())

    def _note(self, records: list[Encoded], size: int) -> None:
        """Have these records written when the turn of the event loop is over."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write)
        self._unwritten += records
        self._unwritten_bytes += size

    def _write(self) -> None:
        """Append what was decided, and let replies go."""
        try:
            self._append_unwritten()
        except Exception as error:
            self._fail(error)
            return
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._release(waiting)

    def _append_unwritten(self) -> None:
        """Append what was decided. Raises if that cannot be."""
        if self._unwritten:
            self._append(self._unwritten)
            self._unwritten, self._unwritten_bytes = [], 0

    def _append(self, records: list[Encoded], producer: tuple[int, int] | None = None) -> None:
        now_ms = self._runtime.clock.now_ms()
        coordinator_log.append(self.partition, records, now_ms, self._runtime.compression, producer)

    def _release(self, replies: Iterable[tuple[Any, Any]]) -> None:
        def committed(error: ApiError | None) -> None:
            for call, response in replies:
                if error is None:
                    call.answer(response)
                else:
                    call.fail(_told(error))

        self.partition.when_committed(self.partition.log.log_end_offset, committed)

    # The machine's end.

    def end(self, error: ApiError) -> None:
        """Serve no more; whoever waits, and whoever asks from now on, is told why."""
        machine, self.machine, self.failure = self.machine, None, error
        self._timers.clear()
        waiting, self._waiting = self._waiting, []
        self._unwritten, self._unwritten_bytes = [], 0
        parked, self._parked = self._parked, set()
        for call, _ in waiting:
            call.fail(error)
        if machine is None:
            return
        try:
            replies = machine.abandon(error.code).replies
        except Exception:  # of a machine that is half changed
            logger.exception("the coordinator of %s cannot tell who waits for it", self.partition.tp)
            replies = ()
        for call, response in replies:
            call.answer(response)
        for call in parked.difference(call for call, _ in replies):
            call.fail(error)

    def _distrust(self, machine: M, what: str) -> None:
        """The machine raised, and is perhaps half changed: keep what it decided before, and build it again."""
        logger.exception("the coordinator of %s %s, and is loaded again", self.partition.tp, what)
        if machine is not self.machine:
            return
        try:
            self._append_unwritten()
        except Exception as error:
            self._fail(error)
            return
        stored, self._waiting = self._waiting, []
        self.end(CoordinatorNotAvailable(f"the coordinator of {self.partition.tp} {what}: try again"))
        self._rebuild()
        if stored:
            self._release(stored)

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
        if isinstance(error, MessageTooLarge | RecordListTooLarge | UnknownServerError | StorageFailed):
            self._rebuild()
        else:
            # Where too few replicas are in sync, a machine that goes on with what it finds would only fail again.
            self._runtime.load(self, RETRY_MS if isinstance(error, NotEnoughReplicas) else 0)

    def _rebuild(self) -> None:
        """Have the machine built again after a fault of its own: at once, or after a pause if there was one lately."""
        now, after_ms = self._runtime.clock.monotonic(), 0
        if now - self._failed_at < 2 * LONGEST_RETRY_MS / 1000:
            after_ms = min(max(2 * self._paused_ms, RETRY_MS), LONGEST_RETRY_MS)
        self._failed_at, self._paused_ms = now, after_ms
        self._runtime.load(self, after_ms)


def _told(error: ApiError) -> ApiError:
    """What clients are told when records cannot be stored, in Kafka's words."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge | UnknownServerError):
        return UnknownServerError(str(error))
    if isinstance(error, StorageFailed | NotLeaderOrFollower):
        return NotCoordinator(str(error))
    return CoordinatorNotAvailable(str(error))
