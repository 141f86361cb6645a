"""Records that are given up, and archived only after their dead letters are stored (KIP-1191).

    decided    a lock ended, and the deliveries are used up: this is not stored yet
    noted      it is stored that the records are archiving; they are never delivered again, whoever leads
    written    their dead letters are stored, with acks=all; that they are archived is not stored yet

The shell takes the next records (`next`), does what is missing, and says so. Whoever loads the state finds archiving
records as noted, so that their dead letters may be written twice, and never not at all. Why they were given up is not
stored, but follows from the delivery count: a record that was rejected when its deliveries were used up looks as if
these had been the reason.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from barnabas.machines.shares.records import DeadLetters, LetterProgress
from barnabas.machines.shares.state_batches import ARCHIVING
from barnabas.protocol.dead_letters import GivenUp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.machines.shares.records import RecordRun, SharePartitionSettings
    from barnabas.machines.shares.runs import RecordRuns


class Archiving:
    """Where records are archiving, the oldest first."""

    def __init__(self, runs: RecordRuns) -> None:
        self._runs = runs
        self._spans: deque[tuple[int, int]] = deque()
        """First and last offset of records that were given up together. Some may be archived, or gone."""

    def add(self, run: RecordRun, progress: LetterProgress) -> None:
        """Records are archiving from now on."""
        run.progress = progress
        self._spans.append((run.first, run.last))

    def add_loaded(self, run: RecordRun, settings: SharePartitionSettings) -> None:
        """Records were archiving when somebody else led."""
        is_used_up = run.deliveries >= settings.max_deliveries
        run.reason = GivenUp.DELIVERIES_USED_UP if is_used_up else GivenUp.REJECTED
        self.add(run, LetterProgress.NOTED)

    def next(self, most: int) -> list[DeadLetters]:
        """The first records that no write decides about, at most so many."""
        while self._spans and not any(run.state is ARCHIVING for run in self._runs.within(*self._spans[0])):
            self._spans.popleft()
        found: list[DeadLetters] = []
        for span in self._spans:
            for run in self._within(*span):
                last = min(run.last, run.first + most - 1)
                found.append(DeadLetters(run.first, last, run.deliveries, run.reason, run.progress))
                most -= last - run.first + 1
                if not most:
                    return found
        return found

    def parts(self, letters: Iterable[DeadLetters]) -> Iterator[RecordRun]:
        """The runs of records that `next` gave, as far as they are still there."""
        for first, last, *_ in letters:
            for run in self._within(first, last):
                yield self._runs.part(max(run.first, first), min(run.last, last))

    def _within(self, first: int, last: int) -> Iterator[RecordRun]:
        for run in self._runs.within(first, last):
            if run.state is ARCHIVING and not run.write:
                yield run
