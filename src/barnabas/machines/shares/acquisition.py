"""What a fetch gets of a share partition: which records are delivered, how many together, and which are given up.

Batches of the log are not divided, unless the member wants so many records and no more. Records that the log does not
have, and those of aborted transactions, are given up: nobody ever sees them.

A record that was delivered often may be the reason why its members fail. So it is delivered with fewer and fewer of
those with which it came first, and with no others, and the last time alone. Those are the records that one fetch has
acquired; with a strict limit Kafka counts all of their batch of the log, and as in flight.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from barnabas.machines.shares.records import FEWEST_THROTTLED, Acquired
from barnabas.machines.shares.state_batches import ACQUIRED, ARCHIVED, AVAILABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.machines.shares.locks import Locks
    from barnabas.machines.shares.records import AcquireLimits, LogBatch, RecordRun, SharePartitionSettings
    from barnabas.machines.shares.runs import RecordRuns


class Acquisition:
    """One fetch: the batches that it has read, and what it may have of them."""

    def __init__(
        self,
        runs: RecordRuns,
        settings: SharePartitionSettings,
        found: Sequence[LogBatch],
        limits: AcquireLimits,
        fetch_offset: int,
    ) -> None:
        self._runs = runs
        self._settings = settings
        self._found = found
        self._limits = limits
        self._fetch_offset = fetch_offset

    def acquire(self, member: str, locks: Locks, now_ms: int) -> list[Acquired]:
        """Lock what can be delivered."""
        last, most = self._room()
        if most <= 0:
            return []
        at, first = max(self._fetch_offset, self._runs.start_offset), self._found[0].first_offset
        if at < first:
            self._archive_missing(at, min(first - 1, last))
            at = max(first, self._runs.start_offset)
        taken: list[RecordRun] = []
        for run in self._deliverable(at, last, most):
            run.state, run.member = ACQUIRED, member
            run.deliveries += 1
            locks.lock(run, now_ms + self._settings.lock_ms)
            taken.append(run)
        acquired = self._without_aborted(taken)
        self._runs.settle(self._fetch_offset, last)
        return acquired

    def _room(self) -> tuple[int, int]:
        """The last record that may be acquired, and how many."""
        runs, limits = self._runs, self._limits
        if not self._found or self._found[-1].last_offset < runs.start_offset:
            return 0, 0
        last = self._found[-1].last_offset
        most = min(limits.max_records, self._settings.max_locks - runs.in_flight)
        if most <= 0 and limits.max_records > 0 and self._fetch_offset < runs.end_offset:
            # No more records may be in flight, but some that are can be delivered again.
            return min(last, runs.end_offset - 1), min(limits.max_records, runs.end_offset - self._fetch_offset)
        return last, most

    def _deliverable(self, at: int, last: int, most: int) -> Iterator[RecordRun]:
        """The runs that are delivered, in order: new ones where there was a gap or the end."""
        total = 0
        looked_at: tuple[int, int] | None = None
        while at <= last and total < most:
            run, after = self._runs.around(at)
            if run is None:
                gap_end = last if after is None else after.first - 1
                for new in self._new_runs(at, min(last, gap_end), most - total):
                    total += new.size
                    at = new.last + 1
                    yield new
                continue
            if not run.is_free:
                at = run.last + 1
                continue
            if run.batch != looked_at:
                looked_at = run.batch
                if self._is_throttled(run, last):
                    if not total:
                        yield from self._few(run, at, last, most)
                    return
            size = min(run.last, last) - at + 1
            if self._limits.strict:
                size = min(size, most - total)
            run = self._runs.part(at, at + size - 1)
            total += size
            at = run.last + 1
            yield run

    def _is_throttled(self, run: RecordRun, last: int) -> bool:
        """Whether a record that can be delivered, of this one's batch and not before it, was delivered often."""
        often = self._settings.throttled_from
        end = min(run.batch[0] + run.batch[1] - 1, last)
        if run.last >= end:
            return run.deliveries >= often
        return any(each.deliveries >= often for each in self._runs.within(run.first, end) if each.is_free)

    def _few(self, run: RecordRun, at: int, last: int, most: int) -> Iterator[RecordRun]:
        """The runs that are delivered of a batch with records that were delivered often.

        Half of the batch, a quarter and so on, by the deliveries of the first of these records; and one whose last
        delivery this is, alone.
        """
        settings = self._settings
        first, size = run.batch
        if not self._limits.strict:
            most = size
        total = 0
        is_counted = False
        for each in self._runs.within(run.first, min(first + size - 1, last)):
            if not each.is_free:
                continue
            beyond = each.deliveries - settings.throttled_from
            is_last = settings.max_deliveries > FEWEST_THROTTLED and each.deliveries >= settings.max_deliveries - 1
            if is_last and total:
                return
            if beyond >= 0 and not is_counted:
                is_counted, few = True, max(1, size >> (beyond + 1))
                most = min(most, few) if few > total else most
            begin = max(each.first, at)
            part = self._runs.part(begin, min(each.last, last, begin + (1 if is_last else most - total) - 1))
            total += part.size
            yield part
            if is_last or total >= most:
                return

    def _new_runs(self, first: int, last: int, most: int) -> Iterator[RecordRun]:
        """Runs for records that were never acquired, cut where batches of the log begin if there are many."""
        limits = self._limits
        if last - first + 1 > most:
            wanted = first + most - 1
            last = wanted if limits.strict else min(last, _end_of_batch(self._found, wanted))
        begins = [first]
        if not limits.strict and last - first + 1 > limits.batch_size:
            for batch in self._found:
                if begins[-1] + limits.batch_size <= batch.first_offset <= last:
                    begins.append(batch.first_offset)
        for begin, end in zip(begins, [*(each - 1 for each in begins[1:]), last], strict=True):
            yield self._runs.add(begin, end, AVAILABLE)

    def _archive_missing(self, first: int, last: int) -> None:
        """Give up records that the log does not have: what is available or was never acquired."""
        at = first
        for run in self._runs.within(first, last):
            if run.first > at:
                self._runs.add(at, run.first - 1, ARCHIVED)
            if run.is_free:
                self._runs.change(self._runs.part(max(run.first, first), min(run.last, last)), ARCHIVED)
            at = run.last + 1
        if at <= last:
            self._runs.add(at, last, ARCHIVED)

    def _without_aborted(self, taken: Sequence[RecordRun]) -> list[Acquired]:
        """What was acquired, without records of aborted transactions."""
        aborted = [batch for batch in self._found if batch.is_aborted]
        acquired: list[Acquired] = []
        for run in taken:
            first, last = run.first, run.last
            for batch in aborted:
                if batch.first_offset <= last and batch.last_offset >= first:
                    part = self._runs.part(max(first, batch.first_offset), min(last, batch.last_offset))
                    self._runs.change(part, ARCHIVED)
            acquired += [
                Acquired(part.first, part.last, part.deliveries)
                for part in self._runs.within(first, last)
                if part.state is ACQUIRED
            ]
        return acquired


def _end_of_batch(found: Sequence[LogBatch], offset: int) -> int:
    """The last offset of the batch that a record is in, or of the next one if it is in none."""
    place = bisect_left(found, offset, key=lambda batch: batch.last_offset)
    return found[min(place, len(found) - 1)].last_offset
