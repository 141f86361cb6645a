"""When the locks of members end: the deadlines of a share partition, the first one first.

An entry names offsets, not a run: runs are split, and become one again. It may be out of date, because its records were
acknowledged, or their lock renewed. That is found out when its time has come. So an acknowledgement costs nothing here,
and the timer may fire for nothing. Entries that are out of date are removed when they are more than the others.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from barnabas.machines.outcome import Timer
from barnabas.machines.shares.state_batches import DeliveryState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.machines.shares.records import RecordRun
    from barnabas.machines.shares.runs import RecordRuns

LOCKS: Final = "locks"
"""The one timer: the next lock that may end."""
SPARE_ENTRIES: Final = 64


class Locks:
    """The deadlines of all records that members hold."""

    def __init__(self, runs: RecordRuns) -> None:
        self._runs = runs
        self._entries: list[tuple[int, int, int]] = []
        """Deadline, first and last offset, as a heap. Every record that is acquired has an entry not after its lock,
        unless a write decides about it."""

    def lock(self, run: RecordRun, deadline_ms: int) -> None:
        """Let a member hold records until then."""
        run.deadline_ms = deadline_ms
        self.watch(run)

    def watch(self, run: RecordRun) -> None:
        """Look after a lock, also after a write that did not change it."""
        if len(self._entries) > 2 * len(self._runs) + SPARE_ENTRIES:
            self._entries = [
                (each.deadline_ms, each.first, each.last)
                for each in self._runs
                if each.state is DeliveryState.ACQUIRED and each is not run
            ]
            heapify(self._entries)
        heappush(self._entries, (run.deadline_ms, run.first, run.last))

    def ended(self, now_ms: int) -> Iterator[RecordRun]:
        """The runs whose locks have ended; whoever asks takes the records back."""
        while self._entries and self._entries[0][0] <= now_ms:
            _, first, last = heappop(self._entries)
            for run in self._runs.within(first, last):
                if run.state is DeliveryState.ACQUIRED and not run.write and run.deadline_ms <= now_ms:
                    yield run

    def timer(self) -> Timer:
        """When to ask again: not after the first lock that ends."""
        return Timer(LOCKS, self._entries[0][0] if self._entries else None)
