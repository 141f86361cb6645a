"""A share partition: the records of one partition as one share group sees them, between start and end. A pure machine.

    available      may be delivered: it was released, its lock timed out, or it was read from the log and not acquired
    acquired       delivered to one member, which holds a lock on it until a deadline
    acknowledged   done
    archiving      given up: rejected, or delivered too often, while its dead letter is being stored
    archived       given up, with its dead letter if the group has them, or not in the log any more

Records before the start are done with, records from the end on were never looked at. Between them there are runs of
records with one state, one delivery count, one member and one lock (`runs`). What a fetch gets of them is the rule of
`acquisition`, what members say of them that of `decisions`, when they have to give them back that of `locks`, and when
they are archived that of `archiving`.

What a member decides is stored before it is answered: the state batches are the outcome's changes, and the shell says
what became of the write that the outcome sends (`stored`, `refused`). The end of a lock counts at once, stored or not.

Acquired records are not stored: whoever loads the state (`load`) finds a gap where they were, and where records were
never acquired as well. Both are found by reading the log from the first gap on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.outcome import Outcome
from barnabas.machines.shares.acquisition import Acquisition
from barnabas.machines.shares.archiving import Archiving
from barnabas.machines.shares.decisions import Decisions, next_state
from barnabas.machines.shares.locks import Locks
from barnabas.machines.shares.records import LetterProgress, RecordRun
from barnabas.machines.shares.runs import RecordRuns
from barnabas.machines.shares.state_batches import ARCHIVED, ARCHIVING, AVAILABLE, DeliveryState, combine
from barnabas.protocol.coordinator_records.share_state import StateBatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.machines.shares.coordinator import StoredState
    from barnabas.machines.shares.records import (
        AcknowledgementBatch,
        Acquired,
        AcquireLimits,
        DeadLetters,
        LogBatch,
        SharePartitionSettings,
    )

    ShareOutcome = Outcome[StateBatch, object, object]


class SharePartition:
    """The records of one partition, for one group."""

    def __init__(self, settings: SharePartitionSettings) -> None:
        self.settings = settings
        self.runs = RecordRuns()
        self._locks = Locks(self.runs)
        self._archiving = Archiving(self.runs)
        self._decisions = Decisions(self.runs, self._locks, self._archiving)

    @property
    def start_offset(self) -> int:
        """The first record that is not done with."""
        return self.runs.start_offset

    @property
    def end_offset(self) -> int:
        """The first record that was never looked at."""
        return self.runs.end_offset

    @property
    def in_flight(self) -> int:
        """Records between start and end."""
        return self.runs.in_flight

    @property
    def complete_count(self) -> int:
        """Records from the start on that are done with, or will be when what is being written is stored."""
        return self.runs.complete_count

    def next_fetch_offset(self) -> int:
        """Where the log is to be read: at the first record that may be delivered, or in a gap, or else at the end."""
        return self.runs.first_free()

    def can_acquire(self) -> bool:
        """Whether a fetch could get anything if the log has it."""
        return self.in_flight < self.settings.max_locks or self.next_fetch_offset() < self.end_offset

    def load(self, state: StoredState, start_offset: int) -> None:
        """Go on with a stored state, from its start offset, or from this one where it has none."""
        runs = [
            RecordRun(first, last, DeliveryState(known), deliveries, (first, last - first + 1))
            for first, last, known, deliveries in combine(state.batches, (), start_offset)
        ]
        for run in runs:
            if run.state is ARCHIVING:
                self._archiving.add_loaded(run, self.settings)
            elif not run.state.is_final:
                run.state = AVAILABLE
        self.runs.load(runs, start_offset)

    def log_start_moved(self, log_start: int) -> None:
        """The log does not have the records before this offset any more: they are done with, acquired or not."""
        if log_start > self.start_offset:
            self.runs.drop_before(log_start)

    # Deliveries

    def acquire(
        self, member: str, found: Sequence[LogBatch], limits: AcquireLimits, fetch_offset: int, now_ms: int
    ) -> tuple[list[Acquired], ShareOutcome]:
        """Lock what can be delivered of the batches that were read from `fetch_offset` on."""
        fetch = Acquisition(self.runs, self.settings, found, limits, fetch_offset)
        acquired = fetch.acquire(member, self._locks, now_ms)
        return acquired, Outcome(timers=(self._locks.timer(),) if acquired else ())

    def expire(self, key: object, now_ms: int) -> ShareOutcome:
        """Take back records whose locks have ended. They can be delivered at once, before this is stored.

        Archiving records are an exception: the write that the outcome sends is about them.
        """
        changes, archiving = [], []
        for run in self._locks.ended(now_ms):
            self.runs.change(run, next_state(run, AVAILABLE, self.settings))
            changes.append(StateBatch(run.first, run.last, run.state, run.deliveries))
            if run.state is ARCHIVING:
                self._archiving.add(run, LetterProgress.DECIDED)
                archiving.append((run, ARCHIVING))
        for first, last, *_ in changes:
            self.runs.settle(first, last)
        sends = (self._decisions.begin(archiving),) if archiving else ()
        return Outcome(changes=tuple(changes), sends=sends, timers=(self._locks.timer(),))

    # Decisions of members

    def acknowledge(self, member: str, batches: Iterable[AcknowledgementBatch], now_ms: int) -> ShareOutcome:
        """Do what a member says of records that it has acquired: of all of them, or of none. Raises ApiError."""
        write, renewed = self._decisions.acknowledge(member, batches, self.settings)
        for run in renewed:
            self._locks.lock(run, now_ms + self.settings.lock_ms)
        return self._written(write)

    def release(self, member: str) -> ShareOutcome:
        """Take back everything that a member has acquired. These deliveries count, as if it had released them."""
        return self._written(self._decisions.release(member, self.settings))

    # Dead letters

    def next_letters(self, most: int) -> list[DeadLetters]:
        """The first records that are archiving and wait for the shell, at most so many."""
        return self._archiving.next(most)

    def note(self, letters: Iterable[DeadLetters]) -> ShareOutcome:
        """Store that records are archiving, of which this could not be stored when it was decided."""
        return self._written(self._decisions.begin((run, ARCHIVING) for run in self._archiving.parts(letters)))

    def archive(self, letters: Iterable[DeadLetters]) -> ShareOutcome:
        """Archive records whose dead letters are stored, or which need none."""
        parts = list(self._archiving.parts(letters))
        for run in parts:
            run.progress = LetterProgress.WRITTEN
        return self._written(self._decisions.begin((run, ARCHIVED) for run in parts))

    # What becomes of decisions

    def _written(self, write: int) -> ShareOutcome:
        """A write to be stored, unless it is about nothing."""
        changes = self._decisions.batches(write)
        if not changes:
            self._decisions.refused(write)
        return Outcome(changes=changes, sends=(write,))

    def stored(self, write: int) -> None:
        """What was decided is stored: it is so now."""
        self._decisions.stored(write)

    def refused(self, write: int) -> ShareOutcome:
        """What was decided could not be stored: it is as it was. Locks that have ended meanwhile end now."""
        self._decisions.refused(write)
        return Outcome(timers=(self._locks.timer(),))
