"""The two indexes of a segment, followed along its batches.

A broker that maps its index files leaves zeros behind the entries while the segment is the newest one, and may not have
made the files at all as long as there is nothing to put in; a segment that is done has both, cut to size.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.check.report import Report

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ENTRIES_AT_ONCE: Final = 8192


class Batch(NamedTuple):
    """What the indexes and the epochs must agree with."""

    position: int
    base_offset: int
    last_offset: int
    max_timestamp: int
    leader_epoch: int


class OffsetIndex:
    """Follows the offset index.

    An entry (relative offset, position) must lead a reader right: a batch starts at the position, it does not start
    after the offset, and the offset is the last of some batch from there on (of that very batch on a leader; a follower
    writes one entry for several batches).
    """

    def __init__(self, path: Path, base: int, report: Report, *, done: bool) -> None:
        self._path = path
        self._base = base
        self._report = report
        self._offsets, self._positions = _read(path, _OFFSET_ENTRY, report, done=done)
        self._next_position = 0
        self._next_offset = 0
        for i in range(1, len(self._offsets)):
            if self._offsets[i] <= self._offsets[i - 1] or self._positions[i] <= self._positions[i - 1]:
                self._error(i, "does not rise above the entry before it")

    def follow(self, batch: Batch) -> None:
        """Compare the entries up to this batch with it; batches come in order."""
        while (i := self._next_position) < len(self._positions) and self._positions[i] <= batch.position:
            self._next_position += 1
            if self._positions[i] < batch.position:
                self._error(i, f"points at byte {self._positions[i]}, where no batch starts")
            elif self._base + self._offsets[i] < batch.base_offset:
                self._error(i, f"has an offset before that of the batch at byte {batch.position}")
        while (i := self._next_offset) < len(self._offsets) and self._base + self._offsets[i] <= batch.last_offset:
            self._next_offset += 1
            if self._base + self._offsets[i] < batch.last_offset:
                self._error(i, f"has offset {self._base + self._offsets[i]}, which is no batch's last")

    def finish(self, size: int) -> None:
        """Report the entries that are left after the segment's last batch."""
        for i in range(min(self._next_position, self._next_offset), len(self._positions)):
            offset = self._base + self._offsets[i]
            self._error(i, f"leads to offset {offset} at byte {self._positions[i]} of {size}, behind the last batch")

    def _error(self, number: int, what: str) -> None:
        self._report.error(self._path, number * _OFFSET_ENTRY.size, f"the entry {what}")


class TimeIndex:
    """Follows the time index.

    An entry (timestamp, relative offset) says that up to the batch with that offset nothing is later than the
    timestamp, and that this batch is as late. Timestamps rise; offsets never fall.
    """

    def __init__(self, path: Path, base: int, report: Report, *, done: bool) -> None:
        self._path = path
        self._base = base
        self._report = report
        self._times, self._offsets = _read(path, _TIME_ENTRY, report, done=done)
        self._next = 0
        self._latest = -1
        for i in range(1, len(self._times)):
            if self._times[i] <= self._times[i - 1] or self._offsets[i] < self._offsets[i - 1]:
                self._error(i, "does not rise above the entry before it")

    def follow(self, batch: Batch) -> None:
        """Compare the entries up to this batch with it; batches come in order."""
        self._latest = max(self._latest, batch.max_timestamp)
        while (i := self._next) < len(self._times) and self._base + self._offsets[i] <= batch.last_offset:
            self._next += 1
            offset, time = self._base + self._offsets[i], self._times[i]
            if offset < batch.base_offset:
                self._error(i, f"has offset {offset}, which is in no batch")
            elif time != batch.max_timestamp:
                self._error(i, f"has time {time}, the batch with offset {offset} has {batch.max_timestamp}")
            elif time < self._latest:
                self._error(i, f"has time {time}, but a batch before offset {offset} has {self._latest}")

    def finish(self) -> None:
        """Report the entries that are left after the segment's last batch."""
        for i in range(self._next, len(self._times)):
            self._error(i, f"has offset {self._base + self._offsets[i]}, behind the last batch")

    def _error(self, number: int, what: str) -> None:
        self._report.error(self._path, number * _TIME_ENTRY.size, f"the entry {what}")


def _read(path: Path, entry: struct.Struct, report: Report, *, done: bool) -> tuple[array[int], array[int]]:
    """The entries up to the first that is all zeros."""
    first, second = array("q"), array("q")
    if not path.exists():
        if done:
            report.warn(path, None, "is missing; it is built again at the next start")
        return first, second
    size = path.stat().st_size
    if size % entry.size:
        report.error(path, None, f"{size} bytes are not whole entries of {entry.size}")
    with path.open("rb") as file:
        while data := file.read(entry.size * _ENTRIES_AT_ONCE):
            for one, two in entry.iter_unpack(data[: len(data) // entry.size * entry.size]):
                if one == two == 0:
                    if done:
                        report.warn(path, len(first) * entry.size, "zeros follow the entries of a segment that is done")
                    return first, second
                first.append(one)
                second.append(two)
    return first, second
