"""The transaction index: which aborted transactions end in a segment.

The file `.txnindex` has 34 bytes an entry (version 0, producer id, first offset, last offset, last stable offset) and
exists only where a transaction was aborted. It is small and read as a whole.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from barnabas.storage.files import FileSystem

_ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted; its records are skipped by readers of committed data."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions whose marker lies in one segment."""

    __slots__ = ("_files", "path")

    def __init__(self, files: FileSystem, path: str) -> None:
        self._files = files
        self.path = path

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in the order of their markers."""
        try:
            data = self._files.read_file(self.path)
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % _ENTRY.size
        return [AbortedTransaction._make(fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry."""
        fd = self._files.open(self.path, create=True)
        try:
            self._files.append_all(fd, _ENTRY.pack(_VERSION, *aborted))
        finally:
            self._files.close(fd)

    def truncate_to(self, offset: int) -> None:
        """Drop the transactions that ended at `offset` or later."""
        entries = self.entries()
        kept = sum(1 for entry in entries if entry.last_offset < offset)
        if kept == 0:
            self._files.remove(self.path)
        elif kept < len(entries):
            self._files.truncate_file(self.path, kept * _ENTRY.size)

    def reset(self) -> None:
        """Forget all entries."""
        self._files.remove(self.path)
