"""The records of a share partition between its start and its end, as runs in order of their offsets.

Runs do not overlap. Gaps between them, and before them, are there only after loading. A run is split where records part
ways, and neighbours that are done with in the same way become one run again. What is found or changed costs as much as
the records that it is about, and a search: never a look at everything that is in flight, which may be thousands of
runs for each acknowledgement.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from barnabas.machines.shares.records import NOBODY, RecordRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from barnabas.machines.shares.state_batches import DeliveryState

_CLOSE: Final = 8
"""So many records further on, a look at the runs between two spans costs less than another search."""


class RecordRuns:
    """The runs, where they begin and end, and what is counted over all of them."""

    def __init__(self) -> None:
        self.start_offset = 0
        """Records before it are done with."""
        self.end_offset = 0
        """The first record that was never looked at."""
        self.complete_count = 0
        """Records from the start on that are done with, or will be when what is being written is stored."""
        self._runs: list[RecordRun] = []
        self._firsts: list[int] = []
        """The first offset of each run: bisect finds a number among numbers without calling anything."""
        self._free_from = 0
        """No record before this offset can be delivered."""

    def load(self, runs: list[RecordRun], start_offset: int) -> None:
        """Begin with these runs, which are in order and without overlaps."""
        self._runs, self._firsts = runs, [run.first for run in runs]
        self.start_offset = self._free_from = start_offset
        self.end_offset = runs[-1].last + 1 if runs else start_offset
        self.complete_count = sum(run.size for run in runs if run.is_complete)
        self._pass_done()

    # Finding

    def __iter__(self) -> Iterator[RecordRun]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def in_flight(self) -> int:
        """Records between start and end."""
        return self.end_offset - self.start_offset

    def first_free(self) -> int:
        """The first record that can be delivered, or is in a gap; the end if there is none."""
        at = max(self._free_from, self.start_offset)
        for index in range(self._first_from(at), len(self._runs)):
            run = self._runs[index]
            if run.first > at or run.is_free:
                self._free_from = at
                return at
            at = run.last + 1
        self._free_from = self.end_offset
        return self.end_offset

    def _first_from(self, offset: int) -> int:
        """Where the first run is that does not end before an offset."""
        place = bisect_right(self._firsts, offset)
        return place - 1 if place and self._runs[place - 1].last >= offset else place

    def within(self, first: int, last: int) -> list[RecordRun]:
        """The runs that have records of these offsets."""
        begin = self._first_from(first)
        return self._runs[begin : bisect_right(self._firsts, last, lo=begin)]

    def around(self, at: int) -> tuple[RecordRun | None, RecordRun | None]:
        """The run that has this record, and the next one after it."""
        place = self._first_from(at)
        found = self._runs[place] if place < len(self._runs) else None
        if found is None or found.first > at:
            return None, found
        return found, self._runs[place + 1] if place + 1 < len(self._runs) else None

    # Dividing and adding

    def part(self, first: int, last: int) -> RecordRun:
        """The run of just these offsets, which are in one run; it is split where they end."""
        place = bisect_right(self._firsts, first) - 1
        run = self._runs[place]
        if run.first < first:
            run, place = run.cut_off(first), place + 1
            self._insert(place, run)
        if last < run.last:
            self._insert(place + 1, run.cut_off(last + 1))
        return run

    def add(self, first: int, last: int, state: DeliveryState) -> RecordRun:
        """Records that were never looked at, in a gap or from the end on."""
        run = RecordRun(first, last, state, 0, (first, last - first + 1))
        self._insert(bisect_left(self._firsts, first), run)
        self.end_offset = max(self.end_offset, last + 1)
        self.complete_count += run.size if run.is_complete else 0
        return run

    def _insert(self, place: int, run: RecordRun) -> None:
        self._runs.insert(place, run)
        self._firsts.insert(place, run.first)

    # Changing

    def change(self, run: RecordRun, state: DeliveryState) -> None:
        """Let records have another state, which nobody holds."""
        was_complete = run.is_complete
        run.state, run.member, run.write = state, NOBODY, 0
        self._changed(run, was_complete)

    def begin_write(self, run: RecordRun, write: int, state: DeliveryState) -> None:
        """Let a write decide whether records, of which something can become, get another state."""
        run.write, run.next_state = write, state
        if state.is_final:
            self.complete_count += run.size

    def finish_write(self, run: RecordRun) -> None:
        """Let records have the state that was written."""
        run.state, run.member, run.write = run.next_state, NOBODY, 0
        if run.is_free and run.first < self._free_from:
            self._free_from = run.first

    def give_up_write(self, run: RecordRun) -> None:
        """Let records be as they were."""
        was_complete = run.is_complete
        run.write = 0
        self._changed(run, was_complete)

    def _changed(self, run: RecordRun, was_complete: bool) -> None:
        self.complete_count += (run.is_complete - was_complete) * run.size
        if run.is_free and run.first < self._free_from:
            self._free_from = run.first

    def settle(self, first: int, last: int) -> None:
        """After changes of these offsets: neighbours that are done with become one run, and the start passes them."""
        self._merge(first, last)
        self._pass_done()

    def settle_all(self, spans: Iterable[tuple[int, int]]) -> None:
        """The same for changes of several spans, of which those that are close to each other count as one."""
        first, last = 0, -1
        for begin, end in spans:
            if last < first or not last < begin <= last + _CLOSE:
                if first <= last:
                    self._merge(first, last)
                first = begin
            last = end
        if first <= last:
            self._merge(first, last)
        self._pass_done()

    def _merge(self, first: int, last: int) -> None:
        begin = self._first_from(first - 1)
        end = bisect_right(self._firsts, last + 1, lo=begin)
        merged = _merged(self._runs[begin:end])
        if len(merged) < end - begin:
            self._runs[begin:end] = merged
            self._firsts[begin:end] = [run.first for run in merged]

    def drop_before(self, offset: int) -> None:
        """Forget records before this offset, whatever became of them, and let the start be there.

        A write that is under way has its runs: they are shortened, and no write decides about those that are gone.
        """
        gone = bisect_left(self._firsts, offset)
        if gone and self._runs[gone - 1].last >= offset:
            gone -= 1
            rest = self._runs[gone]
            self.complete_count -= offset - rest.first if rest.is_complete else 0
            rest.first = self._firsts[gone] = offset
        for run in self._runs[:gone]:
            self.complete_count -= run.size if run.is_complete else 0
            run.write = 0
        del self._runs[:gone], self._firsts[:gone]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        self._pass_done()

    def _pass_done(self) -> None:
        runs, gone = self._runs, 0
        while gone < len(runs) and runs[gone].is_done and runs[gone].first <= self.start_offset:
            self.start_offset = runs[gone].last + 1
            self.complete_count -= runs[gone].size
            gone += 1
        if gone:
            del runs[:gone], self._firsts[:gone]


def _merged(runs: Sequence[RecordRun]) -> list[RecordRun]:
    """Neighbours that are done with in the same way become one run."""
    merged: list[RecordRun] = []
    before: RecordRun | None = None
    for run in runs:
        if (
            before is not None
            and before.state is run.state
            and before.last + 1 == run.first
            and before.is_done
            and run.is_done
        ):
            before.last = run.last
        else:
            merged.append(run)
            before = run
    return merged
