"""The transaction index: which aborted transactions end in a segment.

The file `.txnindex` has 34 bytes an entry (version 0, producer id, first offset, last offset, last stable offset) and
exists only where a transaction was aborted. It is small, so it is read as a whole, and kept in memory from then on.
Entries stand in the order of their markers: last offsets rise, first offsets need not.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.storage.files import ColdRead

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.storage.files import FileSystem

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted; its records are skipped by readers of committed data."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose marker lies in one segment."""

    __slots__ = ("_data", "_files", "_is_torn", "_size", "_synced_size", "path")

    def __init__(self, files: FileSystem, path: str, size: int = 0) -> None:
        """`size` is the file's length; 0 when there is none."""
        self._files = files
        self.path = path
        self._size = size - size % ENTRY.size
        self._is_torn = size % ENTRY.size != 0
        self._synced_size = 0
        self._data = b""

    @property
    def is_empty(self) -> bool:
        """Whether no transaction was aborted."""
        return self._size == 0

    @property
    def size(self) -> int:
        """The file's length."""
        return self._size

    def is_sound(self, base_offset: int) -> bool:
        """Whether the file can be the index of the segment that begins at `base_offset`. Reads it, if there is one."""
        if self._is_torn or self._size == 0:
            return not self._is_torn
        before = base_offset
        for version, _, first_offset, last_offset, _ in ENTRY.iter_unpack(self._read(self._size)):
            if version != _VERSION or last_offset < before or not 0 <= first_offset < last_offset:
                return False
            before = last_offset
        return True

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in the order of their markers. Reads the file the first time."""
        return self.ended_since(0)

    def ended_since(self, offset: int, *, cached: bool = False) -> list[AbortedTransaction]:
        """The transactions that ended at `offset` or later; with `cached`, ColdRead where the file must be read."""
        data, size = self._data, self._size
        if len(data) < size:
            if cached:
                raise ColdRead(self.path)
            data = self._data = self._read(size)
        first = bisect_left(range(len(data) // ENTRY.size), offset, key=lambda at: _entry(data, at).last_offset)
        return [_entry(data, at) for at in range(first, len(data) // ENTRY.size)]

    def _read(self, expected: int) -> bytes:
        path = ""
        while path != self.path:  # renamed meanwhile: what was read may be another segment's, which has the name now
            path = self.path
            try:
                data = self._files.read_file(path)
            except FileNotFoundError:
                if path != self.path:
                    continue
                data = self._data  # whoever replaces the segment has read it before the name goes
                if len(data) < expected:
                    raise
        if len(data) < expected:
            raise CorruptMessage(f"{self.path} has {len(data)} bytes instead of {expected}").with_remedy(
                Remedy(RemedyKind.CHECK_LOG, str(Path(self.path).parent))
            )
        return data[:expected]  # what is added meanwhile may be taken back

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry. After an OSError the index is what it was before, unless that is UnknownState."""
        entry = ENTRY.pack(_VERSION, *aborted)
        fd = self._files.open(self.path, create=True)
        try:
            if self._files.size(fd) > self._size:  # half an entry, which a crash left
                self._files.truncate(fd, self._size)
            self._files.append_all(fd, entry)
        except BaseException:
            self._files.cut_back(fd, self._size)
            raise
        finally:
            self._files.close(fd)
        if len(self._data) == self._size:
            self._data += entry
        self._size += len(entry)

    def sync(self) -> None:
        """Bring the file to the disk, the first time with its name. Runs in a thread, while entries may be added."""
        size = self._size
        if size != self._synced_size:
            self._files.sync_file(self.path)
            if self._synced_size == 0:
                self._files.sync_dir(str(Path(self.path).parent))
            self._synced_size = size

    def truncate_to(self, offset: int) -> TransactionIndex:
        """Drop the transactions that ended at `offset` or later; whoever still reads this index reads the old one."""
        entries = self.entries()
        size = sum(ENTRY.size for entry in entries if entry.last_offset < offset)
        if size == 0:
            self._files.remove(self.path)
        elif size < self._size:
            self._files.truncate_file(self.path, size)
        return TransactionIndex(self._files, self.path, size)

    def reset(self) -> None:
        """Forget all entries."""
        self._files.remove(self.path)
        self._size, self._synced_size, self._data, self._is_torn = 0, 0, b"", False


def _entry(data: bytes, at: int) -> AbortedTransaction:
    return AbortedTransaction._make(ENTRY.unpack_from(data, at * ENTRY.size)[1:])


def aborted_between(
    indexes: Iterable[TransactionIndex], first_offset: int, end_offset: int, *, cached: bool
) -> list[AbortedTransaction]:
    """The transactions with records from `first_offset` to before `end_offset`.

    `indexes` are those of the segment that holds `first_offset` and of all after it: a transaction is noted where it
    ends. Once an entry says that everything before `end_offset` was decided, later ones have nothing to add.
    """
    found: list[AbortedTransaction] = []
    for index in indexes:
        if index.is_empty:
            continue
        for aborted in index.ended_since(first_offset, cached=cached):
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                return found
    return found
