"""The transaction indexes of a partition, held against the markers in its batches.

Readers of committed records believe the index: an entry that is missing, or begins too late, gives them aborted records
as if they had been committed. Of a transaction whose first batches were removed, the index knows an earlier beginning
than the batches do. Where offsets are missing, compaction may have removed batches and markers: of what was open before
such a gap, nothing is known behind it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.check.report import Report

_ENTRY: Final = struct.Struct(">hqqqq")
_ABORT: Final = 0
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class _Aborted(NamedTuple):
    """A transaction whose marker says that it was aborted."""

    first: int | None
    """The offset of its first batch that is left; None where there is none."""
    after: int
    """The offset of the marker before it of the same producer; -1 where there is none."""
    open_from: int
    """Where the earliest transaction begins that is open after it, or the offset after its marker."""


class TransactionsCheck:
    """Follows the transactional batches of a partition, segment by segment.

    From offset `unread` on, the next start makes the indexes anew, so that what is missing there is only a warning.
    """

    def __init__(self, report: Report, *, unread: int | None) -> None:
        self._report = report
        self._unread = unread
        self._end: int | None = None
        self._has_gap = False
        """Whether offsets are missing in this segment."""
        self._ended: dict[int, int] = {}
        """The offset of the last marker of each producer."""
        self._open: dict[int, int] = {}
        self._aborted: dict[tuple[int, int], _Aborted] = {}
        """By producer and offset of the marker: those of this segment."""

    def follow(self, attributes: int, producer: int, base_offset: int, last_offset: int, records: bytes) -> None:
        """Take the next batch into account; `records` are wanted of markers only."""
        if self._end is not None and base_offset > self._end:
            self._has_gap = True
            self._open.clear()
        self._end = last_offset + 1
        if not attributes & _TRANSACTIONAL:
            return
        if not attributes & _CONTROL:
            self._open.setdefault(producer, base_offset)
            return
        first = self._open.pop(producer, None)
        if _kind(records) == _ABORT:
            open_from = min(self._open.values(), default=last_offset + 1)
            self._aborted[producer, last_offset] = _Aborted(first, self._ended.get(producer, -1), open_from)
        self._ended[producer] = last_offset

    def check(self, path: Path, base: int, end: int) -> None:
        """Compare the index of the segment from `base` to `end` with the transactions that ended in it."""
        aborted, self._aborted = self._aborted, {}
        has_gap, self._has_gap = self._has_gap, False
        data = path.read_bytes() if path.exists() else b""
        if len(data) % _ENTRY.size:
            self._report.error(path, None, f"{len(data)} bytes are not whole entries of {_ENTRY.size}")
        before = -1
        for number, entry in enumerate(_ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size])):
            version, producer, first, last, stable = entry
            position = number * _ENTRY.size
            if version != 0:
                self._report.error(path, position, f"has version {version}")
            elif not (before <= last and 0 <= first <= last and base <= last < end and stable <= end):
                what = f"offsets {first} to {last}, stable {stable}, do not fit the segment"
                self._report.error(path, position, what)
            else:
                found = aborted.pop((producer, last), None)
                if found is not None:
                    self._check_entry(path, position, (producer, first, last, stable), found)
                elif not has_gap:
                    what = f"producer {producer} has no transaction that was aborted at offset {last}"
                    self._report.error(path, position, what)
            before = last
        for (producer, last), transaction in aborted.items():
            if transaction.first is not None:
                say = self._report.error if self._unread is None or last < self._unread else self._report.warn
                say(path, None, f"lacks the transaction of producer {producer} that was aborted at offset {last}")

    def _check_entry(self, path: Path, position: int, entry: tuple[int, int, int, int], aborted: _Aborted) -> None:
        producer, first, _, stable = entry
        if aborted.first is not None and first > aborted.first:
            what = f"the transaction of producer {producer} begins at offset {aborted.first}, not at {first}"
            self._report.error(path, position, what)
        if first <= aborted.after:
            what = (
                f"the transaction of producer {producer} begins at {first}, before the last one ended: {aborted.after}"
            )
            self._report.error(path, position, what)
        if stable > aborted.open_from:
            what = f"everything before offset {stable} was decided, it says, but at {aborted.open_from} it was not"
            self._report.error(path, position, what)


def _kind(records: bytes) -> int | None:
    """What a control record decides: its key, a version and a type, follows five numbers in front."""
    position = 0
    for number in range(5):  # length, attributes (always one byte), times, offsets, length of the key
        while number != 1 and position < len(records) and records[position] & 0x80:
            position += 1
        position += 1
    key = records[position : position + 4]
    return int.from_bytes(key[2:], "big") if len(key) == 4 else None
