"""The leader epochs of a log: for each, the offset at which it began.

A partition's leader writes its epoch into every batch. When logs have parted, the epoch and its end tell a follower
where to cut. Epochs and start offsets both grow; the file `leader-epoch-checkpoint` holds them as text.

The file may lag behind the log: it is written before the recovery point moves, and what lies after the recovery point
is read again after a crash.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.ids import UNDEFINED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

logger = logging.getLogger(__name__)


class EpochStart(NamedTuple):
    """A leader epoch and its first offset."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """A leader epoch and the offset after its last record; both are -1 when the log knows nothing of it."""

    epoch: int
    end_offset: int


class LeaderEpochs:
    """The epochs of one log, oldest first."""

    __slots__ = ("_entries", "_path", "changes", "latest")

    def __init__(self, entries: Iterable[EpochStart] = (), path: str = "") -> None:
        """`path` is the partition's directory, for the broker's log."""
        self._path = path
        self._entries: list[EpochStart] = []
        self.changes = 0
        self.latest = UNDEFINED
        """The newest epoch, or -1."""
        for entry in entries:
            self.assign(*entry)
        self.changes = 0
        """Grows with every change, so that a writer knows whether the file is up to date."""

    @property
    def entries(self) -> Sequence[EpochStart]:
        """The epochs and where they start."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` starts at `start_offset`; entries that contradict it are dropped."""
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return
        dropped = []
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            dropped.append(entries.pop())
        if any(entry.start_offset != start_offset for entry in dropped):
            logger.warning(
                "%s: leader epoch %d at offset %d replaces the conflicting epochs %s.",
                self._path,
                epoch,
                start_offset,
                dropped,
            )
        entries.append(EpochStart(epoch, start_offset))
        self._count_change()

    def end_offset(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Where `epoch`, or the last one before it that the log has, ends."""
        if epoch == UNDEFINED or not self._entries or epoch > self.latest:
            return EpochEnd(UNDEFINED, UNDEFINED)
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        after = bisect_right(self._entries, epoch, key=_epoch)
        found = self._entries[after - 1].epoch if after else epoch
        return EpochEnd(found, self._entries[after].start_offset)

    def epoch_at(self, offset: int) -> int:
        """The epoch that `offset` was written in, or -1."""
        after = bisect_right(self._entries, offset, key=_start_offset)
        return self._entries[after - 1].epoch if after else UNDEFINED

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop epochs that start at `end_offset` or later."""
        if self._entries and self._entries[-1].start_offset >= end_offset:
            while self._entries and self._entries[-1].start_offset >= end_offset:
                self._entries.pop()
            self._count_change()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop epochs that ended before `start_offset`; the one it lies in now starts there."""
        after = bisect_right(self._entries, start_offset, key=_start_offset)
        if after and (after > 1 or self._entries[0].start_offset < start_offset):
            self._entries[:after] = [EpochStart(self._entries[after - 1].epoch, start_offset)]
            self._count_change()

    def clear(self) -> None:
        """Forget all epochs."""
        if self._entries:
            self._entries.clear()
            self._count_change()

    def _count_change(self) -> None:
        self.latest = self._entries[-1].epoch if self._entries else UNDEFINED
        self.changes += 1


def _epoch(entry: EpochStart) -> int:
    return entry.epoch


def _start_offset(entry: EpochStart) -> int:
    return entry.start_offset
