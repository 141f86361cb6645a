"""The future of one record: what became of it, once that is known.

A `Delivery` behaves like a `concurrent.futures.Future`, but all deliveries of a producer share one condition: a future
with a lock of its own takes longer to make and to settle (5 µs) than librdkafka takes for the whole record (2 µs).

A failure that nobody looks at is not lost: it is kept until `flush` or `close`, which raise it as NotDelivered. It
counts as looked at when `result` or `exception` has been called, or a callback was given.
"""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas.clients.config import log
from barnabas.clients.errors import ClientClosed, ClientFailed, NotDelivered, translated
from barnabas.clients.records import RecordMetadata
from barnabas.model.permissions import begin_to_write, write_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.clients.producer.serving import FatalFailure
    from barnabas.model.base_error import BarnabasError

fatal_log: Final = log.getChild("fatal")
"""Says once that a producer is of no more use. Its records say so, too."""

LOOK_SECONDS: Final = 1.0
"""How often it is checked, for deliveries that somebody waits for, whether librdkafka still owes an outcome."""
REMEMBERED: Final = 100
"""How many unseen failures are kept with their reasons; of the others only the number is."""


class FailedDelivery(Protocol):
    """A delivery, as far as `Failures` knows it."""

    counted_in: int
    """In which round it was counted as a failure whose reason is not kept; not there if it was not."""

    def __call__(self, error: Any, message: Any) -> None:
        """Settle it with what librdkafka says."""


class Failures:
    """Failures that nobody has looked at yet, as a producer keeps them for its `flush` and `close`.

    They are kept with their deliveries: a program may have dropped those, and nothing else is theirs alone.

    After a fatal error librdkafka gives up all records, and tells that of each; what the error was may be told after
    that, at the end of the same call. So records that were given up, and not by us, are held until then: not those of
    transactions, which librdkafka gives up with each transaction that is aborted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reason_known = threading.Condition(self._lock)
        self._held: list[tuple[FailedDelivery, Any]] = []
        """Records that were given up for a reason that is not known yet, with their KafkaErrors."""
        self._holds = True
        self._settling = 0
        """How many threads settle records that were held."""
        self._kept: dict[FailedDelivery, BarnabasError] = {}
        self._more = 0
        self._round = 0
        self._ignoring = False
        self._failed_for_good = False
        self._fatal_line = ""
        """What librdkafka has logged of that."""
        self._named = False
        """Whether it was logged here why."""
        self.fatal: Any = None
        """The KafkaError after which the producer is of no more use, if there was one that came with its name."""

    def add(self, delivery: FailedDelivery, error: BarnabasError) -> None:
        """Keep a failure until somebody sees it."""
        with self._lock:
            if self._ignoring:
                return
            if len(self._kept) < REMEMBERED:
                self._kept[delivery] = error
            else:
                self._more += 1
                delivery.counted_in = self._round

    def mark_seen(self, delivery: FailedDelivery) -> None:
        """Forget a failure that somebody has looked at."""
        with self._lock:
            self._kept.pop(delivery, None)
            if getattr(delivery, "counted_in", None) == self._round:
                self._more -= 1
                del delivery.counted_in

    def fail_for_good(self, failure: FatalFailure) -> None:
        """Keep why the producer is of no more use, for its records and for who sends more; the first time is logged."""
        with self._lock:
            is_first = not self._failed_for_good
            self._failed_for_good, self.fatal = True, self.fatal or failure.error
            reason = self._fatal_line or failure if failure.error is None else writing_error(failure.error)
            if is_first:
                self._named = reason is not failure
        self.hold_no_more()
        if is_first:
            fatal_log.error(
                "The producer failed for good. Its records get an error, and so does who sends more: %s", reason
            )

    def note_fatal_line(self, line: str) -> None:
        """Keep what librdkafka logs of a fatal error, for one that comes without its name.

        It does so before it tells the error; two threads that poll may hear of it the other way round.
        """
        with self._lock:
            self._fatal_line = line
            is_late = self._failed_for_good and not self._named
            self._named = self._named or is_late
        if is_late:
            fatal_log.error("The producer failed for good: %s", line)

    def hold(self, delivery: FailedDelivery, error: Any) -> bool:
        """Keep a record that was given up until it is known why; False if nothing more will be known."""
        with self._lock:
            if self._holds and error.code() == error._PURGE_QUEUE:
                self._held.append((delivery, error))
                return True
        return False

    def hold_no_more(self) -> None:
        """Settle the records that are held, and hold none from here on: it is known why they were given up.

        What ends a program may come out of their callbacks: it is raised when all are settled.
        """
        with self._lock:
            self._holds = False
            held, self._held = self._held, []
            self._settling += 1
        ending: BaseException | None = None
        for delivery, error in held:
            try:
                delivery(error, None)
            except BaseException as raised:
                ending = ending or raised
        with self._lock:
            self._settling -= 1
            self._reason_known.notify_all()
        if ending is not None:
            raise ending

    def await_reason(self, seconds: float) -> None:
        """Wait until no record is held: another thread may be about to learn why; after that time, without a reason."""
        with self._lock:
            if self._reason_known.wait_for(lambda: not (self._held or self._settling), seconds):
                return
        self.hold_no_more()

    def release(self) -> bool:
        """Settle records that are held, without a reason; whether there were any, or another thread settles some."""
        with self._lock:
            found = bool(self._held or self._settling)
        if found:
            self.hold_no_more()
        return found

    def forget(self) -> tuple[int, list[BarnabasError]]:
        """Start anew; returns how many there were, and the reasons of the first."""
        with self._lock:
            kept, more = list(self._kept.values()), self._more
            self._kept.clear()
            self._more = 0
            self._round += 1
        return len(kept) + more, kept

    def ignore_all(self) -> None:
        """Keep none any more: the program knows that nothing of this producer will arrive."""
        self.forget()
        with self._lock:
            self._ignoring = True

    def raise_any(self) -> None:
        """Raise NotDelivered for what is there, and forget it."""
        count, errors = self.forget()
        if count:
            raise NotDelivered(count, errors)


class Settlements:
    """What all deliveries of one producer share: a condition to wait on, and the failures."""

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.waiters = 0
        self.failures = Failures()
        self.on_their_way: Callable[[], int] = int
        """How many records have no outcome from librdkafka yet."""
        self.orphaned = False
        """Whether this process is a child of the one that sent the records, and will never hear of them."""

    def forked(self) -> None:
        """In a child: the condition and its waiters belong to threads that are not here."""
        self.condition = threading.Condition()
        self.waiters = 0
        self.failures = Failures()
        self.orphaned = True


class _CallbackDepth(threading.local):
    """How many callbacks of records this thread is running."""

    depth = 0


_running_callbacks = _CallbackDepth()


def in_callback() -> bool:
    """Whether this thread runs a callback of a record."""
    return _running_callbacks.depth > 0


def refuse_in_callback(doing: str) -> None:
    """Raise ClientFailed where waiting would never end: callbacks run in the thread that tells of deliveries."""
    if _running_callbacks.depth:
        raise ClientFailed(
            "_STATE",
            f"{doing}: a callback may not wait, because it runs in the thread that learns the outcomes of records",
        )


class Delivery:
    """A record on its way. `result()` waits and gives its RecordMetadata, or raises what went wrong."""

    __slots__ = ("__weakref__", "_callbacks", "_outcome", "_shared", "counted_in", "topic")

    def __init__(self, shared: Settlements, topic: str, callback: Callable[[Delivery], object] | None) -> None:
        self.topic = topic
        self.counted_in: int
        self._shared = shared
        self._callbacks = None if callback is None else [callback]
        self._outcome: tuple[int, int, int] | BarnabasError | None = None
        """Partition, offset and timestamp, or why the record did not arrive; None as long as nobody knows."""

    def done(self) -> bool:
        """Whether it is known what became of the record."""
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record went. Raises the error if it did not arrive, TimeoutError if it is not known in time."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        assert isinstance(self._outcome, tuple)
        return RecordMetadata(self.topic, *self._outcome)

    def exception(self, timeout: float | None = None) -> BarnabasError | None:
        """Why the record did not arrive; None if it did. Raises TimeoutError if that is not known in time."""
        if not self.done():
            self._wait(timeout)
        if not isinstance(self._outcome, BaseException):
            return None
        self._shared.failures.mark_seen(self)
        return self._outcome

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call `callback(delivery)` when it is known; at once if it is known already."""
        with self._shared.condition:
            self._callbacks = [*(self._callbacks or ()), callback]
        if self.done():
            if isinstance(self._outcome, BaseException):
                self._shared.failures.mark_seen(self)
            self._notify()

    def fail(self, error: BarnabasError) -> None:
        """Settle it with an error."""
        if self._callbacks is None:
            self._shared.failures.add(self, error)  # before anybody can look at it, which takes it out again
        self._outcome = error
        self._notify()

    def discard(self, error: BarnabasError) -> None:
        """Settle it with an error that the program chose to live with: callbacks run, and `close` does not raise it."""
        self._outcome = error
        self._notify()

    def __call__(self, error: Any, message: Any) -> None:
        """Settle it with what librdkafka says: its KafkaError or its Message.

        The delivery is its own callback: a bound method would be another object for each record on its way, and the
        garbage collector's work grows with their number.
        """
        if error is not None:
            if self._shared.failures.hold(self, error):
                return
            self.fail(delivery_error(error, self.topic, self._shared.failures.fatal))
            return
        self._outcome = (message.partition(), message.offset(), message.timestamp()[1])
        if self._callbacks is not None or self._shared.waiters:
            self._notify()

    def _notify(self) -> None:
        with self._shared.condition:
            callbacks, self._callbacks = self._callbacks or (), None
            if self._shared.waiters:
                self._shared.condition.notify_all()
        for callback in callbacks:
            self._run_callback(callback)

    def _run_callback(self, callback: Callable[[Delivery], object]) -> None:
        _running_callbacks.depth += 1
        try:
            callback(self)
        except Exception:
            log.exception("The callback of a record for topic %s failed.", self.topic)
        finally:
            _running_callbacks.depth -= 1

    def _wait(self, timeout: float | None) -> None:
        shared = self._shared
        refuse_in_callback(f"wait for a record for {self.topic}")
        if shared.orphaned:
            raise ClientClosed(
                f"record for {self.topic}: the parent of this process sent it, and only the parent learns its outcome"
            )
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not self.done():
            self._wait_while_owed(deadline, timeout)
            if not self.done() and not shared.failures.release():  # or else it was held, and has its outcome
                self.fail(outcome_lost(self.topic))

    def _wait_while_owed(self, deadline: float, timeout: float | None) -> None:
        """Wait for the outcome, or until librdkafka owes none any more. Raises TimeoutError."""
        shared = self._shared
        unanswerable = False
        with shared.condition:
            shared.waiters += 1
            try:
                while not self.done() and not unanswerable:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise TimeoutError(f"no answer within {timeout:g} s for a record for {self.topic}")
                    quiet = left > LOOK_SECONDS and not shared.on_their_way()
                    unanswerable = not shared.condition.wait(min(left, LOOK_SECONDS)) and quiet
            finally:
                shared.waiters -= 1

    def __repr__(self) -> str:
        if isinstance(self._outcome, BaseException):
            return f"<Delivery to {self.topic} failed: {self._outcome}>"
        if self._outcome is not None:
            return f"<Delivery to {self.topic}-{self._outcome[0]} at {self._outcome[1]}>"
        return f"<Delivery to {self.topic} pending>"


def outcome_lost(topic: str) -> ClientFailed:
    """librdkafka has told the outcome of a record, and nobody heard of it."""
    return ClientFailed(
        "_INTR",
        f"record for {topic}: a signal handler raised while its outcome was reported, and it is not known whether it "
        "arrived",
    )


def delivery_error(error: Any, topic: str, fatal: Any = None) -> BarnabasError:
    """Why a record did not arrive, from librdkafka's KafkaError; `fatal` is the one after which it gave up."""
    if fatal is not None and error.code() in (error._PURGE_QUEUE, error._FATAL):
        error = fatal
    if error.code() in (error._PURGE_QUEUE, error._PURGE_INFLIGHT):
        where = "was still in the buffer" if error.code() == error._PURGE_QUEUE else "had no answer yet"
        return ClientFailed(error.name(), f"record for {topic}: it {where} when it was given up")
    return writing_error(error, topic)


def writing_error(error: Any, topic: str = "") -> BarnabasError:
    """An error of a producer, from librdkafka's KafkaError; of all its records if it is of no topic.

    A producer that is idempotent begins with a producer id. Who may write to no topic does not get one, and is told
    that something about the cluster is forbidden.
    """
    has_begun = error.code() != error.CLUSTER_AUTHORIZATION_FAILED
    action = write_to(topic) if has_begun else begin_to_write(topic)
    return translated(error, f"record for {topic}" if topic else "", action)
