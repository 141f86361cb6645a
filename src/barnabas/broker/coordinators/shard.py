"""One coordinator: a machine over one partition of an internal topic, and what makes its decisions durable.

    request    the machine decides, then replays its own records, then timers are set; when the turn of the event loop
               is over, the records of all decisions of the turn are appended as one batch. Where the last turn had no
               more than one, there is nothing to wait for: the first decision of this turn is appended at once. Nor do
               the first of many decisions wait for all others of the turn where an append alone commits them
    reply      is sent when the high watermark reaches the log end that the machine saw, also to a request that changes
               nothing: no client sees what a failover could undo

The log is right. A machine that is not in the state that the log describes is thrown away and loaded again:

    an exception while it decides      it may be half changed. Its earlier decisions are appended, and those who wait
                                       get an error. Until it is loaded, requests get COORDINATOR_LOAD_IN_PROGRESS
    an append that fails               it has decided what was not stored. Those who wait get an error. It is loaded
                                       after a pause if too few replicas are in sync, and not before its log directory
                                       takes writes again
    a failure soon after a reload      some request may always make it fail, so each pause before a reload is twice as
                                       long as the last

Records that are too large for one batch of the partition have not been replayed yet, so the machine may decide
something else instead (`Outcome.otherwise`).
"""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, Never, TypeVar

from barnabas.broker.coordinators import record_log
from barnabas.broker.coordinators.calls import MessageSender
from barnabas.broker.coordinators.timers import Timers
from barnabas.machines.outcome import Asker, Machine, OneRecord, Outcome
from barnabas.model.errors import (
    ApiError,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    MessageTooLarge,
    NotCoordinator,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    RecordListTooLarge,
    StorageFailed,
    UnknownServerError,
)
from barnabas.protocol.records.records import RECORD_OVERHEAD

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    from barnabas.broker.coordinators.calls import Call
    from barnabas.broker.coordinators.runtime import Runtime
    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.machines.outcome import CoordinatorOutcome, Response
    from barnabas.model.log_config import LogConfig

    Encoded = tuple[bytes, bytes | None]
    """Key and value of a record."""
    Reply = tuple[Asker[Never], object]
    """An asker and the response that it waits for."""

logger = logging.getLogger(__name__)


MAX_BATCH: Final = 512 * 1024
"""Bytes of records after which a batch is appended before the turn of the event loop is over."""
MOST_WAITING: Final = 32
"""Replies that wait for an append after which the end of the turn is not waited for.

Where they would have to wait for other replicas or for a sync all the same, it is.
"""
RETRY_MS: Final = 1000
"""How long to wait before something that failed is tried again."""
LONGEST_RETRY_MS: Final = 8000
"""The longest pause after repeated failures. A coordinator that did not fail for twice as long starts with no pause.

All groups of the partition wait meanwhile, so the pause only keeps a broker from reading a log all the time.
"""

Record = TypeVar("Record")
A = TypeVar("A", bound=Asker[Any])
M = TypeVar("M", bound=Machine[Any, Any])
"""A machine. Its records and timer keys are its own: the shell hands back only what the same machine gave it."""


class Shard(Generic[M]):
    """The coordinator of one partition."""

    def __init__(self, runtime: Runtime[M], partition: LeaderPartition) -> None:
        self.partition = partition
        self.machine: M | None = None
        """None while it is loaded, and after it has failed."""
        self.failure: ApiError = loading_error(partition)
        """What requests get while there is no machine."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._call_soon = asyncio.get_running_loop().call_soon
        self._timers = Timers(runtime.clock, self._expire)
        self.set_timer = self._timers.set
        """For a request that only moves a timer (`is_settled`)."""
        self._unwritten: list[Encoded] = []
        """Records that were decided in this turn of the event loop."""
        self._unwritten_bytes = 0
        self._decisions = 0
        """Decisions with records in this turn of the event loop."""
        self._is_quiet = True
        """Whether the last turn that had such a decision had no other."""
        self._config: LogConfig | None = None
        """The partition's settings that `_room` was computed from."""
        self._room = 0
        """Bytes of records that fit into one batch."""
        self._waiting: list[Reply] = []
        """Replies that wait for the append of `_unwritten`."""
        self._is_releasing = False
        """Whether replies that waited are being given: whoever gets one may ask again before the next is given."""
        self._parked: dict[Asker[Never], None] = {}
        """Askers that wait for a later decision: the machine knows them too, unless it lost them when it failed."""
        self._failed_at = -inf
        self._paused_ms = 0
        """When it failed last, and how long it paused then before it was loaded."""
        self._outgoing = MessageSender(lambda message: runtime.send(self, message))

    def begin(self, machine: M) -> None:
        """Begin to serve requests."""
        self._runtime.catch_up(machine)
        now_ms = self._clock.now_ms()
        outcome = machine.loaded(now_ms)
        self.machine = machine
        self.apply(machine, outcome, now_ms)

    # Decisions of the machine

    def ask(self, decide: Callable[[M, A, int], CoordinatorOutcome[object] | OneRecord], call: A) -> None:
        """Let the machine decide a request, and make the decision durable."""
        machine = self.machine
        if machine is None:
            call.fail(self.failure)
            return
        if (too_few := self.partition.too_few_in_sync()) is not None:
            call.fail(CoordinatorNotAvailable(str(too_few)))
            return
        now_ms = self._clock.now_ms()
        try:
            outcome = decide(machine, call, now_ms)
        except Exception:
            self._reload(machine, "failed to decide a request")
            call.fail(_failed(self.partition))
            return
        if isinstance(outcome, OneRecord):
            self._enter(machine, outcome, call, now_ms)
            return
        replies = outcome.replies
        if not replies or (replies[0][0] is not call and all(asker is not call for asker, _ in replies)):
            self._parked[call] = None
        self.apply(machine, outcome, now_ms)

    def is_settled(self) -> bool:
        """Whether a request that only moves a timer is answered at once: nothing is undecided, unstored or uncommitted.

        Otherwise `ask` has the request wait, or fail, as all do.
        """
        partition = self.partition
        return not (
            self._unwritten
            or self._waiting
            or partition.log.log_end_offset > partition.leader.high_watermark
            or partition.too_few_in_sync() is not None
        )

    def read(self, look: Callable[[M, Call[Response], int], CoordinatorOutcome[object]], call: Call[Response]) -> None:
        """Let the machine answer a request that changes nothing, even if nothing could be stored now.

        If it raises it is unchanged: only this request fails.
        """
        machine = self.machine
        if machine is None:
            call.fail(self.failure)
            return
        now_ms = self._clock.now_ms()
        try:
            outcome = look(machine, call, now_ms)
        except Exception:
            logger.exception("The coordinator of %s failed to answer a request.", self.partition.tp)
            call.fail(_failed(self.partition))
            return
        self.apply(machine, outcome, now_ms)

    def decide_event(self, decide: Callable[[M, int], CoordinatorOutcome[object]]) -> None:
        """Let the machine, if there is one, decide about an event that no client asked for."""
        machine = self.machine
        if machine is None:
            return
        now_ms = self._clock.now_ms()
        try:
            outcome = decide(machine, now_ms)
        except Exception:
            self._reload(machine, "failed to decide about an event")
            return
        self.apply(machine, outcome, now_ms)

    def _expire(self, key: Hashable) -> None:
        if self.partition.too_few_in_sync() is not None:
            now_ms = self._clock.now_ms()
            self._timers.set(key, now_ms + RETRY_MS, now_ms)
            return
        self.decide_event(lambda machine, now_ms: machine.expire(key, now_ms))

    def ask_in_transaction(
        self,
        decide: Callable[[M, Call[Response], int], CoordinatorOutcome[Record]],
        call: Call[Response],
        producer: tuple[int, int],
        replay: Callable[[M, Record], None],
    ) -> None:
        """As `ask`, for records that are part of a client's transaction, under its producer id and epoch.

        They count only when the transaction is committed, so `replay` applies them as pending ones.
        """
        self._write_all()
        machine = self.machine
        if machine is None:
            call.fail(self.failure)
            return
        now_ms = self._clock.now_ms()
        try:
            outcome = decide(machine, call, now_ms)
            if outcome.changes:
                try:
                    self._append([machine.encode(record) for record in outcome.changes], producer)
                except ApiError as error:
                    call.fail(error if isinstance(error, InvalidProducerEpoch) else _client_error(error))
                    return
                for record in outcome.changes:
                    replay(machine, record)
        except Exception:
            self._reload(machine, "failed to decide a request in a transaction")
            call.fail(_failed(self.partition))
            return
        self.apply(machine, Outcome(replies=outcome.replies, sends=outcome.sends, timers=outcome.timers), now_ms)

    def end_transaction(self, append: Callable[[], object], producer_id: int, commit: bool) -> None:
        """Store the marker that ends a producer's transaction by `append`, and apply it. Raises ApiError."""
        self._write_all()
        machine = self.machine
        if machine is None:
            raise self.failure
        append()
        try:
            machine.end_transaction(producer_id, commit)
        except Exception:
            self._reload(machine, "failed to end a transaction")

    # Making decisions durable

    def apply(self, machine: M, outcome: CoordinatorOutcome[object], now_ms: int) -> None:
        """Make a decision of this time durable, unless its machine has been replaced."""
        if machine is not self.machine:
            return
        replies = outcome.replies
        if self._parked:
            for asker, _ in replies:
                self._parked.pop(asker, None)
        if outcome.sends:
            replies = (*replies, *((self._outgoing, message) for message in outcome.sends))
        if outcome.changes:
            try:
                self._store(machine, outcome)
            except (MessageTooLarge, RecordListTooLarge) as error:
                self._decide_otherwise(outcome, replies, error)
                return
            except Exception as error:
                self._waiting += replies
                self._fail(error)
                return
        for timer in outcome.timers:
            if timer.at_ms is None:
                self._timers.cancel(timer.key)
            else:
                self._timers.set(timer.key, timer.at_ms, now_ms)
        if self._unwritten:
            self._waiting += replies
            if self._is_to_be_written():
                self._write()
        elif self._waiting:
            self._waiting += replies
            self._write()
        elif replies:
            self._release(replies)

    def _enter(self, machine: M, decided: OneRecord, call: Asker[Never], now_ms: int) -> None:
        """As `apply`, for a decision of one record, if the batch of this turn has room for it."""
        key, value = decided.pair
        size = self._unwritten_bytes + RECORD_OVERHEAD + len(key) + len(value)
        if size > self._room or self.partition.log.config is not self._config:
            self.apply(machine, decided.outcome(call), now_ms)
            return
        if not self._decisions:
            self._call_soon(self._end_turn)
        self._decisions += 1
        self._unwritten.append(decided.pair)
        self._unwritten_bytes = size
        self._waiting.append((call, decided.response))
        try:
            decided.replay(decided.change)
        except Exception as error:
            self._fail(error)
            return
        timer = decided.timer
        if timer is not None and timer.at_ms is not None:
            self._timers.set(timer.key, timer.at_ms, now_ms)
        if self._is_to_be_written():
            self._write()

    def _is_to_be_written(self) -> bool:
        """Whether the end of the turn is not waited for."""
        return (
            (self._is_quiet and self._decisions == 1)
            or (len(self._waiting) >= MOST_WAITING and self._tells_early())
            or self._unwritten_bytes > MAX_BATCH
        )

    def _store(self, machine: M, outcome: CoordinatorOutcome[object]) -> None:
        """Queue the records of a decision to be appended when the turn of the event loop is over, and replay them."""
        changes = outcome.changes
        records = list(map(machine.encode, changes))
        size = record_log.size_of(records)
        if self.partition.log.config is not self._config:
            self._config = self.partition.log.config
            self._room = record_log.room(self._config)
        if self._unwritten_bytes + size > self._room:
            self._store_in_parts(machine, outcome, records)
            return
        self._queue(records, size)
        replay = machine.replay
        for record in changes:
            replay(record)

    def _store_in_parts(self, machine: M, outcome: CoordinatorOutcome[object], records: list[Encoded]) -> None:
        """As `_store`, for records that do not fit into the batch of this turn.

        Records that may not fit into any batch are appended at once and alone, before they are replayed, so that no
        other decision fails with them. Raises if they do not fit. Replies wait until the machine is up to date: a
        message that is sent may come back as a request.
        """
        changes = iter(outcome.changes)
        for part in record_log.divided(records, self._room) if outcome.is_divisible else [records]:
            self._append_unwritten()
            size = record_log.size_of(part)
            if size > self._room:
                self._append(part)
            else:
                self._queue(part, size)
            for record in islice(changes, len(part)):
                machine.replay(record)

    def _decide_otherwise(self, outcome: CoordinatorOutcome[object], replies: Iterable[Reply], error: ApiError) -> None:
        """A decision is too large: let the machine decide something else, or load it again.

        Earlier decisions, which others wait for, were appended before it, unless their append is what failed.
        """
        otherwise = outcome.otherwise
        if otherwise is None:
            stored, self._waiting = ([], self._waiting) if self._unwritten else (self._waiting, [])
            self._waiting += replies
            self._fail(error)
            if stored:
                self._release(stored)
            return
        logger.warning("A decision of the coordinator of %s is too large for its log: %s", self.partition.tp, error)
        self.decide_event(lambda machine, now_ms: otherwise())
        for asker, _ in replies:
            asker.fail(_client_error(error))

    def _queue(self, records: list[Encoded], size: int) -> None:
        """Append these records when the turn of the event loop is over, or before."""
        if not self._decisions:
            self._call_soon(self._end_turn)
        self._decisions += 1
        self._unwritten += records
        self._unwritten_bytes += size

    def _end_turn(self) -> None:
        """The turn of the event loop is over: append what was decided in it.

        Whoever is answered may ask again at once. What is decided then belongs to the next turn, and waits for its end.
        """
        decisions = self._decisions
        try:
            if self._unwritten or self._waiting:
                self._write()
        finally:
            self._is_quiet = decisions == 1
            self._decisions = left = self._decisions - decisions
            if left:
                self._call_soon(self._end_turn)

    def _write(self) -> None:
        """Append queued records, and release the replies that wait for them."""
        waiting, self._waiting = self._waiting, []  # before the append: it may answer somebody who asks again
        try:
            self._append_unwritten()
        except Exception as error:
            self._waiting[:0] = waiting
            self._fail(error)
            return
        if waiting:
            was_releasing, self._is_releasing = self._is_releasing, True
            try:
                self._release(waiting)
            finally:
                self._is_releasing = was_releasing

    def _write_all(self) -> None:
        """Append queued records until there are none: whoever is answered may ask again at once.

        What is appended next then has the place in the log that it has among the decisions of the machine.
        """
        self._write()
        while self._unwritten:
            self._write()

    def _append_unwritten(self) -> None:
        """Append queued records. Raises if they cannot be appended; they are still queued then."""
        if records := self._unwritten:
            size, self._unwritten, self._unwritten_bytes = self._unwritten_bytes, [], 0
            try:
                record_log.append(self.partition, records, self._clock.now_ms(), self._runtime.compression)
            except BaseException:
                self._unwritten[:0], self._unwritten_bytes = records, size + self._unwritten_bytes
                raise

    def _append(self, records: list[Encoded], producer: tuple[int, int] | None = None) -> None:
        record_log.append(self.partition, records, self._clock.now_ms(), self._runtime.compression, producer)

    def _tells_early(self) -> bool:
        """Whether an append now lets replies leave now, and those who get them ask again in no deeper call."""
        return not self._is_releasing and self.partition.commits_at_once

    def _release(self, replies: Iterable[Reply]) -> None:
        """Give replies when everything in the log is committed."""
        partition = self.partition
        end_offset = partition.log.log_end_offset
        if end_offset <= partition.leader.high_watermark:  # as always where there are no other replicas
            for asker, response in replies:
                asker.answer(response)
            return

        def committed(error: ApiError | None) -> None:
            for asker, response in replies:
                if error is None:
                    asker.answer(response)
                else:
                    asker.fail(_client_error(error))

        partition.when_committed(end_offset, committed)

    # The end of the machine

    def end(self, error: ApiError) -> None:
        """Stop serving. Those who wait, and requests from now on, get the error."""
        machine, self.machine, self.failure = self.machine, None, error
        self._timers.clear()
        waiting, self._waiting = self._waiting, []
        self._unwritten, self._unwritten_bytes = [], 0
        parked, self._parked = self._parked, {}
        for asker, _ in waiting:
            asker.fail(error)
        if machine is None:
            return
        try:
            replies = machine.abandon(error.code).replies
        except Exception:  # of a machine that is half changed
            logger.exception(
                "The coordinator of %s failed while it was given up. Requests that wait get an error.",
                self.partition.tp,
            )
            replies = ()
        for asker, response in replies:
            parked.pop(asker, None)
            asker.answer(response)
        for asker in parked:
            asker.fail(error)

    def _reload(self, machine: M, what: str) -> None:
        """The machine raised and may be half changed: keep its earlier decisions, and load it from its log."""
        logger.exception("The coordinator of %s %s. It is loaded again.", self.partition.tp, what)
        if machine is not self.machine:
            return
        try:
            self._append_unwritten()
        except Exception as error:
            self._fail(error)
            return
        stored, self._waiting = self._waiting, []
        self.end(CoordinatorNotAvailable(f"The coordinator of {self.partition.tp} {what}. Try again."))
        self._load_again()
        if stored:
            self._release(stored)

    def _fail(self, failure: Exception) -> None:
        """A decision could not be stored: the machine is ahead of its log, and is loaded from it."""
        tp = self.partition.tp
        if isinstance(failure, ApiError):
            error = failure
            logger.error("Could not store a decision of the coordinator of %s. It is loaded again: %s", tp, error)
        else:
            error = UnknownServerError(f"The coordinator of {tp} failed: {failure}")
            logger.error("The coordinator of %s failed to store a decision. It is loaded again.", tp, exc_info=failure)
        waiting, self._waiting = self._waiting, []
        self.end(CoordinatorNotAvailable(str(error)))
        for asker, _ in waiting:  # whose next requests must not reach this machine any more
            asker.fail(_client_error(error))
        if isinstance(error, MessageTooLarge | RecordListTooLarge | UnknownServerError | StorageFailed):
            self._load_again()
        else:
            # Where too few replicas are in sync, a machine that goes on with what it finds would only fail again.
            self._runtime.load(self, RETRY_MS if isinstance(error, NotEnoughReplicas) else 0)

    def _load_again(self) -> None:
        """Load the machine after a fault of its own: at once, or after a pause if it failed lately."""
        now, after_ms = self._clock.monotonic(), 0
        if now - self._failed_at < 2 * LONGEST_RETRY_MS / 1000:
            after_ms = min(max(2 * self._paused_ms, RETRY_MS), LONGEST_RETRY_MS)
        self._failed_at, self._paused_ms = now, after_ms
        self._runtime.load(self, after_ms)


def loading_error(partition: LeaderPartition) -> ApiError:
    """What requests get while a coordinator is loaded."""
    return CoordinatorLoadInProgress(f"The coordinator of {partition.tp} is being loaded. Try again.")


def _failed(partition: LeaderPartition) -> ApiError:
    return UnknownServerError(f"The coordinator of {partition.tp} failed. The broker's log has the reason.")


def _client_error(error: ApiError) -> ApiError:
    """The error that clients get when records cannot be stored, as Kafka chooses it."""
    if isinstance(error, MessageTooLarge | RecordListTooLarge | UnknownServerError):
        return UnknownServerError(str(error))
    if isinstance(error, StorageFailed | NotLeaderOrFollower):
        return NotCoordinator(str(error))
    return CoordinatorNotAvailable(str(error))
