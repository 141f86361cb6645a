"""A share partition: the records of one partition as one share group sees them, between start and end. A pure machine.

    available      may be delivered: it was released, its lock timed out, or it was read from the log and not acquired
    acquired       delivered to one member, which holds a lock on it until a deadline
    acknowledged   done
    archived       given up: rejected, delivered too often, or not in the log any more

Records before the start are done with, records from the end on were never looked at. Between them there are runs of
records with one state, one delivery count, one member and one lock. A run is split where records part ways, and records
that are done with become one run again.

What a member decides is stored before it is answered. A decision (`acknowledge`, `release`) marks its runs as being
written and returns the state batches as the outcome's changes; the shell stores them and calls `stored`, or `refused`,
which leaves everything as it was. Runs that are being written are not delivered, acknowledged or timed out meanwhile.

Acquired records are not stored: whoever loads the state (`load`) finds a gap where they were, and where records were
never acquired as well. Both are found by reading the log from the first gap on.

A record that was delivered often may be the reason why its members fail. So it is delivered with fewer and fewer others
and the last time alone.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.outcome import Outcome, Timer
from barnabas.machines.shares.state_batches import DeliveryState, combine
from barnabas.model.errors import ApiError, InvalidRecordState, InvalidRequest
from barnabas.protocol.acknowledgements import Acknowledgement
from barnabas.protocol.coordinator_records.share_state import StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.machines.shares.coordinator import StoredState

    ShareOutcome = Outcome[StateBatch, object, object]

AVAILABLE: Final = DeliveryState.AVAILABLE
ACQUIRED: Final = DeliveryState.ACQUIRED
ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
ARCHIVED: Final = DeliveryState.ARCHIVED

LOCKS: Final = "locks"
"""The one timer: the next lock that ends."""
NOBODY: Final = ""
FEWEST_THROTTLED: Final = 2
"""Deliveries from which on records may be delivered with fewer others, at the least."""


STATE_AFTER: Final = {
    Acknowledgement.GAP: ARCHIVED,
    Acknowledgement.ACCEPT: ACKNOWLEDGED,
    Acknowledgement.RELEASE: AVAILABLE,
    Acknowledgement.REJECT: ARCHIVED,
}
"""Dead letters come between: a record that is given up would be ARCHIVING until its letter is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionSettings:
    """What holds for a share partition: of its group, or of the broker where the group says nothing."""

    lock_ms: int = 30_000
    """share.record.lock.duration.ms"""
    max_deliveries: int = 5
    """share.delivery.count.limit"""
    max_locks: int = 2000
    """share.partition.max.record.locks"""

    @property
    def throttled_from(self) -> int:
        """The delivery count from which on a record is delivered with fewer others."""
        return max(FEWEST_THROTTLED, -(-self.max_deliveries // 2))


class AcknowledgementBatch(NamedTuple):
    """Records and what a member says of them: one type for all, or one for each."""

    first_offset: int
    last_offset: int
    types: tuple[int, ...]

    def type_of(self, offset: int) -> Acknowledgement:
        """What is said of one record."""
        return Acknowledgement(self.types[0] if len(self.types) == 1 else self.types[offset - self.first_offset])


class LogBatch(NamedTuple):
    """A batch that was read from the log."""

    first_offset: int
    last_offset: int
    is_aborted: bool = False
    """Whether its transaction was aborted, and the group reads only what is committed."""


class AcquireLimits(NamedTuple):
    """How much a fetch may acquire."""

    max_records: int
    batch_size: int = 500
    """How many records the member likes to have in a batch that it acknowledges."""
    strict: bool = False
    """Whether `max_records` holds for every record (record_limit); otherwise batches of the log are not divided."""


class Acquired(NamedTuple):
    """Records that were acquired, with the number of their deliveries."""

    first_offset: int
    last_offset: int
    delivery_count: int


@dataclass(slots=True)
class RecordRun:
    """Records from the first offset to the last (inclusive) that have everything in common."""

    first: int
    last: int
    state: DeliveryState
    deliveries: int
    batch_size: int
    """Records that were acquired together with these when they were first delivered."""
    member: str = NOBODY
    deadline_ms: int = 0
    """When the lock ends, in monotonic time."""
    write: int = 0
    """The number of the write that is to change it; 0 if there is none."""
    next_state: DeliveryState = AVAILABLE
    next_deliveries: int = 0
    """What that write makes of it."""

    @property
    def is_free(self) -> bool:
        """Whether it can be delivered."""
        return self.state is AVAILABLE and not self.write

    @property
    def is_done(self) -> bool:
        """Whether nothing can become of it any more."""
        return self.state.is_final and not self.write


class SharePartition:
    """The records of one partition, for one group."""

    def __init__(self, settings: SharePartitionSettings) -> None:
        self.settings = settings
        self.start_offset = 0
        self.end_offset = 0
        """The first record that was never looked at."""
        self._runs: list[RecordRun] = []
        """In order and without overlaps. Gaps between them, and before them, are only there after loading."""
        self._may_be_free = False
        """Whether there may be something to deliver before the end."""
        self._writes = count(1)

    # What is there

    @property
    def runs(self) -> Sequence[RecordRun]:
        """All runs, for those who only look."""
        return self._runs

    @property
    def in_flight(self) -> int:
        """Records between start and end."""
        return self.end_offset - self.start_offset

    @property
    def complete_count(self) -> int:
        """Records from the start on that are done with, or will be when what is being written is stored."""
        return sum(
            run.last - run.first + 1 for run in self._runs if (run.next_state if run.write else run.state).is_final
        )

    def next_fetch_offset(self) -> int:
        """Where the log is to be read: at the first record that may be delivered, or in a gap, or else at the end."""
        if self._may_be_free:
            at = self.start_offset
            for run in self._runs:
                if run.first > at or run.is_free:
                    return at if run.first > at else run.first
                at = run.last + 1
            self._may_be_free = False
        return self.end_offset

    def can_acquire(self) -> bool:
        """Whether a fetch could get anything if the log has it."""
        return self.in_flight < self.settings.max_locks or self.next_fetch_offset() < self.end_offset

    # Loading

    def load(self, state: StoredState, start_offset: int) -> None:
        """Go on with a stored state, from its start offset, or from this one where it has none."""
        self.start_offset = start_offset
        self._runs = [
            RecordRun(first, last, DeliveryState(known), deliveries, last - first + 1)
            for first, last, known, deliveries in combine(state.batches, (), start_offset)
        ]
        self.end_offset = self._runs[-1].last + 1 if self._runs else start_offset
        self._may_be_free = bool(self._runs)
        for run in self._runs:
            if not run.state.is_final:
                run.state = AVAILABLE
        self._move_start()

    # Delivery

    def acquire(
        self, member: str, found: Sequence[LogBatch], limits: AcquireLimits, fetch_offset: int, now_ms: int
    ) -> tuple[list[Acquired], ShareOutcome]:
        """Lock what can be delivered of the batches that were read from `fetch_offset` on."""
        last, most = self._room(found, limits, fetch_offset)
        if most <= 0:
            return [], Outcome()
        at = max(fetch_offset, self.start_offset)
        if at < found[0].first_offset:
            self._archive_missing(at, min(found[0].first_offset - 1, last))
            at = max(found[0].first_offset, self.start_offset)
        deadline_ms = now_ms + self.settings.lock_ms
        taken: list[RecordRun] = []
        for run in self._deliverable(at, last, most, limits, found):
            run.state, run.member, run.deadline_ms = ACQUIRED, member, deadline_ms
            run.deliveries += 1
            taken.append(run)
        acquired = self._without_aborted(taken, found)
        self._move_start()
        return acquired, Outcome(timers=(Timer(LOCKS, self._next_deadline()),) if acquired else ())

    def _room(self, found: Sequence[LogBatch], limits: AcquireLimits, fetch_offset: int) -> tuple[int, int]:
        """The last record that may be acquired, and how many."""
        if not found or found[-1].last_offset < self.start_offset:
            return 0, 0
        last = found[-1].last_offset
        most = min(limits.max_records, self.settings.max_locks - self.in_flight)
        if most <= 0 and limits.max_records > 0 and fetch_offset < self.end_offset:
            # No more records may be in flight, but some that are can be delivered again.
            return min(last, self.end_offset - 1), min(limits.max_records, self.end_offset - fetch_offset)
        return last, most

    def _deliverable(
        self, at: int, last: int, most: int, limits: AcquireLimits, found: Sequence[LogBatch]
    ) -> Iterator[RecordRun]:
        """The runs that are delivered, in order: new ones where there was a gap or the end."""
        total = 0
        while at <= last and total < most:
            place = bisect_right(self._runs, at, key=_first) - 1
            run = self._runs[place] if place >= 0 else None
            if run is None or run.last < at:
                gap_end = self._runs[place + 1].first - 1 if place + 1 < len(self._runs) else last
                for new in self._new_runs(at, min(last, gap_end), most - total, limits, found):
                    total += new.last - new.first + 1
                    at = new.last + 1
                    yield new
                continue
            if not run.is_free:
                at = run.last + 1
                continue
            size = min(run.last, last) - at + 1
            alone = self._most_together(run)
            if alone is not None:
                if total:
                    return
                size, most = min(size, alone, most if limits.strict else size), 0
            elif limits.strict:
                size = min(size, most - total)
            run = self._part(at, at + size - 1)
            total += size
            at = run.last + 1
            yield run

    def _most_together(self, run: RecordRun) -> int | None:
        """How many records of a run that was delivered often are delivered together; None if any number."""
        settings = self.settings
        beyond = run.deliveries - settings.throttled_from
        if beyond < 0:
            return None
        if settings.max_deliveries > FEWEST_THROTTLED and run.deliveries >= settings.max_deliveries - 1:
            return 1
        return max(1, run.batch_size >> (beyond + 1))

    def _new_runs(
        self, first: int, last: int, most: int, limits: AcquireLimits, found: Sequence[LogBatch]
    ) -> Iterator[RecordRun]:
        """Runs for records that were never acquired, cut where batches of the log begin if there are many."""
        if last - first + 1 > most:
            wanted = first + most - 1
            last = wanted if limits.strict else min(last, _end_of_batch(found, wanted))
        begins = [first]
        if not limits.strict and last - first + 1 > limits.batch_size:
            for batch in found:
                if begins[-1] + limits.batch_size <= batch.first_offset <= last:
                    begins.append(batch.first_offset)
        for begin, end in zip(begins, [*(each - 1 for each in begins[1:]), last], strict=True):
            run = RecordRun(begin, end, AVAILABLE, 0, end - begin + 1)
            self._runs.insert(bisect_left(self._runs, begin, key=_first), run)
            self.end_offset = max(self.end_offset, end + 1)
            yield run

    def _archive_missing(self, first: int, last: int) -> None:
        """Give up records that the log does not have: what is available or was never acquired."""
        at = first
        for run in list(self._within(first, last)):
            if run.first > at:
                self._insert(RecordRun(at, run.first - 1, ARCHIVED, 0, run.first - at))
            if run.is_free:
                part = self._part(max(run.first, first), min(run.last, last))
                part.state = ARCHIVED
            at = run.last + 1
        if at <= last:
            self._insert(RecordRun(at, last, ARCHIVED, 0, last - at + 1))
            self.end_offset = max(self.end_offset, last + 1)

    def _without_aborted(self, taken: Sequence[RecordRun], found: Sequence[LogBatch]) -> list[Acquired]:
        """What was acquired, without records of aborted transactions: they are given up, and nobody sees them."""
        aborted = [batch for batch in found if batch.is_aborted]
        acquired: list[Acquired] = []
        for run in taken:
            first, last = run.first, run.last
            for batch in aborted:
                if batch.first_offset <= last and batch.last_offset >= first:
                    part = self._part(max(first, batch.first_offset), min(last, batch.last_offset))
                    part.state, part.member = ARCHIVED, NOBODY
            acquired += [
                Acquired(part.first, part.last, part.deliveries)
                for part in self._within(first, last)
                if part.state is ACQUIRED
            ]
        return acquired

    # Decisions of members

    def acknowledge(self, member: str, batches: Iterable[AcknowledgementBatch], now_ms: int) -> ShareOutcome:
        """Do what a member says of records that it has acquired: of all of them, or of none. Raises ApiError."""
        write = next(self._writes)
        renewed: list[RecordRun] = []
        try:
            for batch in batches:
                self._acknowledge(member, batch, write, renewed)
        except ApiError:
            self.refused(write)
            raise
        for run in renewed:
            run.deadline_ms = now_ms + self.settings.lock_ms
        timers = (Timer(LOCKS, self._next_deadline()),) if renewed else ()
        return Outcome(changes=self._written_by(write), sends=(write,), timers=timers)

    def _acknowledge(self, member: str, batch: AcknowledgementBatch, write: int, renewed: list[RecordRun]) -> None:
        first = max(batch.first_offset, self.start_offset)
        if batch.last_offset < self.start_offset:
            return  # they are done with, whatever is said of them
        if batch.last_offset >= self.end_offset:
            raise InvalidRequest(
                f"Records up to {batch.last_offset} were not delivered, only before {self.end_offset}."
            )
        at = first
        for begin, end, kind in _same_type(batch, first):
            for run in list(self._within(begin, end)):
                if run.first > at:
                    break
                self._check_held(run, member)
                part = self._part(max(run.first, begin), min(run.last, end))
                at = part.last + 1
                if kind is Acknowledgement.RENEW:
                    renewed.append(part)
                else:
                    self._begin_write(part, write, STATE_AFTER[kind])
        if at <= batch.last_offset:
            raise InvalidRecordState(f"The record at offset {at} is not acquired.")

    @staticmethod
    def _check_held(run: RecordRun, member: str) -> None:
        if run.state is not ACQUIRED or run.write:
            raise InvalidRecordState(f"The record at offset {run.first} is not acquired.")
        if run.member != member:
            raise InvalidRecordState(f"The record at offset {run.first} is acquired by another member.")

    def _begin_write(self, run: RecordRun, write: int, state: DeliveryState) -> None:
        if state is AVAILABLE and run.deliveries >= self.settings.max_deliveries:
            state = ARCHIVED
        run.write, run.next_state, run.next_deliveries = write, state, run.deliveries

    def release(self, member: str) -> ShareOutcome:
        """Take back everything that a member has acquired. These deliveries count, as if it had released them."""
        write = next(self._writes)
        for run in self._runs:
            if run.state is ACQUIRED and run.member == member and not run.write:
                self._begin_write(run, write, AVAILABLE)
        return Outcome(changes=self._written_by(write), sends=(write,))

    def _written_by(self, write: int) -> tuple[StateBatch, ...]:
        return tuple(
            StateBatch(run.first, run.last, run.next_state, run.next_deliveries)
            for run in self._runs
            if run.write == write
        )

    def stored(self, write: int) -> None:
        """What was decided is stored: it is so now."""
        for run in self._runs:
            if run.write == write:
                run.state, run.deliveries = run.next_state, run.next_deliveries
                run.member, run.write = NOBODY, 0
                self._may_be_free = self._may_be_free or run.state is AVAILABLE
        self._move_start()

    def refused(self, write: int) -> ShareOutcome:
        """What was decided could not be stored: it is as it was. Locks that have ended meanwhile end now."""
        for run in self._runs:
            if run.write == write:
                run.write = 0
        deadline_ms = self._next_deadline()
        return Outcome(timers=(Timer(LOCKS, deadline_ms),) if deadline_ms is not None else ())

    # Locks

    def expire(self, key: object, now_ms: int) -> ShareOutcome:
        """Take back records whose locks have ended. They can be delivered at once, before this is stored."""
        changes = []
        for run in self._runs:
            if run.state is ACQUIRED and not run.write and run.deadline_ms <= now_ms:
                run.state = ARCHIVED if run.deliveries >= self.settings.max_deliveries else AVAILABLE
                run.member = NOBODY
                self._may_be_free = self._may_be_free or run.state is AVAILABLE
                changes.append(StateBatch(run.first, run.last, run.state, run.deliveries))
        self._move_start()
        return Outcome(changes=tuple(changes), timers=(Timer(LOCKS, self._next_deadline()),))

    def _next_deadline(self) -> int | None:
        return min((run.deadline_ms for run in self._runs if run.state is ACQUIRED and not run.write), default=None)

    # The start

    def log_start_moved(self, log_start: int) -> None:
        """The log does not have the records before this offset any more: they are done with, acquired or not."""
        if log_start <= self.start_offset:
            return
        self._split(log_start)
        del self._runs[: bisect_left(self._runs, log_start, key=_first)]
        self.start_offset = log_start
        self.end_offset = max(self.end_offset, log_start)
        self._may_be_free = bool(self._runs)
        self._move_start()

    def _move_start(self) -> None:
        """Let the start pass what is done with, and make one run of neighbours that are done with."""
        runs, gone = self._runs, 0
        while gone < len(runs) and runs[gone].is_done and runs[gone].first <= self.start_offset:
            self.start_offset = max(self.start_offset, runs[gone].last + 1)
            gone += 1
        kept = runs[gone:]
        if len(kept) > 1:
            kept = _merged(kept)
        self._runs = kept

    # Runs

    def _within(self, first: int, last: int) -> Iterable[RecordRun]:
        """The runs that have records of these offsets."""
        begin = bisect_left(self._runs, first, key=_last)
        return self._runs[begin : bisect_right(self._runs, last, lo=begin, key=_first)]

    def _part(self, first: int, last: int) -> RecordRun:
        """The run of just these offsets, which are in one run; it is split where they end."""
        self._split(first)
        self._split(last + 1)
        return self._runs[bisect_left(self._runs, first, key=_first)]

    def _split(self, at: int) -> None:
        """Let a run begin at this offset if one goes over it."""
        place = bisect_right(self._runs, at, key=_first) - 1
        if place < 0:
            return
        run = self._runs[place]
        if run.first < at <= run.last:
            rest = RecordRun(
                at,
                run.last,
                run.state,
                run.deliveries,
                run.batch_size,
                run.member,
                run.deadline_ms,
                run.write,
                run.next_state,
                run.next_deliveries,
            )
            run.last = at - 1
            self._runs.insert(place + 1, rest)

    def _insert(self, run: RecordRun) -> None:
        self._runs.insert(bisect_left(self._runs, run.first, key=_first), run)


def _merged(runs: Sequence[RecordRun]) -> list[RecordRun]:
    """Neighbours that are done with in the same way become one run."""
    merged: list[RecordRun] = []
    for run in runs:
        before = merged[-1] if merged else None
        if (
            before is not None
            and run.state.is_final
            and before.state is run.state
            and before.last + 1 == run.first
            and not (run.write or before.write)
        ):
            before.last = run.last
        else:
            merged.append(run)
    return merged


def _same_type(batch: AcknowledgementBatch, first: int) -> Iterator[tuple[int, int, Acknowledgement]]:
    """The records of a batch from `first` on, in runs of which the same is said."""
    if len(batch.types) == 1:
        yield first, batch.last_offset, batch.type_of(first)
        return
    begin = first
    for offset in range(first + 1, batch.last_offset + 1):
        if batch.type_of(offset) is not batch.type_of(begin):
            yield begin, offset - 1, batch.type_of(begin)
            begin = offset
    yield begin, batch.last_offset, batch.type_of(begin)


def _end_of_batch(found: Sequence[LogBatch], offset: int) -> int:
    """The last offset of the batch that a record is in, or of the next one if it is in none."""
    place = bisect_left(found, offset, key=lambda batch: batch.last_offset)
    return found[min(place, len(found) - 1)].last_offset


def _first(run: RecordRun) -> int:
    return run.first


def _last(run: RecordRun) -> int:
    return run.last
