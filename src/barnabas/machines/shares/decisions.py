"""What members say of the records that they hold, and what becomes of these records once it is stored.

A decision marks its runs as being written. The shell stores it and calls `stored`, or `refused`, which leaves
everything as it was. Runs that are being written are not delivered, acknowledged or timed out meanwhile.

Records that are given up are archived, or archiving where the group has dead letters (`archiving`).

A write has its runs: nothing divides them while it is under way, but retention may shorten them or take them away
(`RecordRuns.drop_before`).
"""

from __future__ import annotations

from itertools import count, pairwise
from typing import TYPE_CHECKING, Final

from barnabas.machines.shares.records import LetterProgress
from barnabas.machines.shares.state_batches import ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, DeliveryState
from barnabas.model.errors import ApiError, InvalidRecordState, InvalidRequest
from barnabas.protocol.acknowledgements import Acknowledgement
from barnabas.protocol.coordinator_records.share_state import StateBatch
from barnabas.protocol.dead_letters import GivenUp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.machines.shares.archiving import Archiving
    from barnabas.machines.shares.locks import Locks
    from barnabas.machines.shares.records import AcknowledgementBatch, RecordRun, SharePartitionSettings
    from barnabas.machines.shares.runs import RecordRuns


STATE_AFTER: Final = {
    Acknowledgement.GAP: ARCHIVED,
    Acknowledgement.ACCEPT: DeliveryState.ACKNOWLEDGED,
    Acknowledgement.RELEASE: AVAILABLE,
    Acknowledgement.REJECT: ARCHIVING,
}
"""A record that is not in the log has no dead letter, whoever says so."""


class Decisions:
    """The writes that are under way, by number."""

    def __init__(self, runs: RecordRuns, locks: Locks, archiving: Archiving) -> None:
        self._runs = runs
        self._locks = locks
        self._archiving = archiving
        self._numbers = count(1)
        self._writes: dict[int, list[RecordRun]] = {}
        """The runs that a write is about, or was: those that are gone do not have its number any more."""

    # What is decided

    def acknowledge(
        self, member: str, batches: Iterable[AcknowledgementBatch], settings: SharePartitionSettings
    ) -> tuple[int, list[RecordRun]]:
        """Do what a member says, with all of it or nothing: the write, and the runs to renew. Raises ApiError."""
        write = next(self._numbers)
        renewed: list[RecordRun] = []
        try:
            for batch in batches:
                self._acknowledge(member, batch, write, renewed, settings)
        except ApiError:
            self.refused(write)
            raise
        return write, renewed

    def _acknowledge(
        self,
        member: str,
        batch: AcknowledgementBatch,
        write: int,
        renewed: list[RecordRun],
        settings: SharePartitionSettings,
    ) -> None:
        first = max(batch.first_offset, self._runs.start_offset)
        if batch.last_offset < first:
            return  # they are done with, whatever is said of them
        if batch.last_offset >= self._runs.end_offset:
            raise InvalidRequest(
                f"Records up to {batch.last_offset} were not delivered, only before {self._runs.end_offset}."
            )
        decided = self._writes.setdefault(write, [])
        at = first
        for begin, end, kind in _same_type(batch, first):
            for run in self._runs.within(begin, end):
                if run.first > at:
                    break
                _check_held(run, member)
                part = run
                if run.first < begin or run.last > end:
                    part = self._runs.part(max(run.first, begin), min(run.last, end))
                at = part.last + 1
                if kind is Acknowledgement.RENEW:
                    renewed.append(part)
                else:
                    self._runs.begin_write(part, write, next_state(part, STATE_AFTER[kind], settings))
                    decided.append(part)
        if at <= batch.last_offset:
            raise InvalidRecordState(f"The record at offset {at} is not acquired.")

    def release(self, member: str, settings: SharePartitionSettings) -> int:
        """Take back everything that a member has acquired; gives the write."""
        held = [run for run in self._runs if run.state is ACQUIRED and run.member == member and not run.write]
        return self.begin((run, next_state(run, AVAILABLE, settings)) for run in held)

    def begin(self, changes: Iterable[tuple[RecordRun, DeliveryState]]) -> int:
        """Let a write decide whether runs get these states; gives the write."""
        write = next(self._numbers)
        decided = self._writes[write] = []
        for run, state in changes:
            self._runs.begin_write(run, write, state)
            decided.append(run)
        return write

    # What becomes of it

    def batches(self, write: int) -> tuple[StateBatch, ...]:
        """What a write has to store. Neighbours of which the same is decided are one batch."""
        found: list[StateBatch] = []
        for run in self._of(write):
            first, state = run.first, run.next_state
            if found:
                before = found[-1]
                if (
                    before.last_offset == first - 1
                    and before.delivery_state == state
                    and before.delivery_count == run.deliveries
                ):
                    first = found.pop().first_offset
            found.append(StateBatch(first, run.last, state, run.deliveries))
        return tuple(found)

    def stored(self, write: int) -> None:
        """What was decided is stored: it is so now."""
        spans = []
        for run in self._of(write):
            if run.state is ARCHIVING:
                run.progress = LetterProgress.NOTED
            elif run.next_state is ARCHIVING:
                self._archiving.add(run, LetterProgress.NOTED)
            self._runs.finish_write(run)
            spans.append((run.first, run.last))
        self._writes.pop(write, None)
        self._runs.settle_all(spans)

    def refused(self, write: int) -> None:
        """What was decided could not be stored: it is as it was."""
        for run in self._of(write):
            self._runs.give_up_write(run)
            if run.state is ACQUIRED:
                self._locks.watch(run)
        self._writes.pop(write, None)

    def _of(self, write: int) -> list[RecordRun]:
        """The runs that a write is about, as far as they are still there."""
        return [run for run in self._writes.get(write, ()) if run.write == write]


def next_state(run: RecordRun, state: DeliveryState, settings: SharePartitionSettings) -> DeliveryState:
    """What becomes of records whose member says so, or is not heard: they may be given up, and for which reason."""
    if state is AVAILABLE and run.deliveries >= settings.max_deliveries:
        state, run.reason = ARCHIVING, GivenUp.DELIVERIES_USED_UP
    elif state is ARCHIVING:
        run.reason = GivenUp.REJECTED
    return ARCHIVED if state is ARCHIVING and not settings.has_dead_letters else state


def _check_held(run: RecordRun, member: str) -> None:
    if run.state is not ACQUIRED or run.write:
        raise InvalidRecordState(f"The record at offset {run.first} is not acquired.")
    if run.member != member:
        raise InvalidRecordState(f"The record at offset {run.first} is acquired by another member.")


def _same_type(batch: AcknowledgementBatch, first: int) -> Iterator[tuple[int, int, Acknowledgement]]:
    """The records of a batch from `first` on, in runs of which the same is said."""
    if len(batch.types) == 1:
        yield first, batch.last_offset, batch.type_of(first)
        return
    types = batch.types[first - batch.first_offset :]
    begin = first
    for offset, (before, kind) in enumerate(pairwise(types), first + 1):
        if kind != before:
            yield begin, offset - 1, Acknowledgement(before)
            begin = offset
    yield begin, batch.last_offset, Acknowledgement(types[-1])
