"""A segment that a cleaning makes: its files end in `.cleaned` until it is swapped in.

    00000000000000000000.log.cleaned        and .index, .timeindex, and .txnindex where transactions were aborted

When `finish` returns, all of them are on disk. The log file keeps the time at which the last segment that went into it
was written, because retention goes by that where records have no timestamps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import CorruptMessage
from barnabas.storage.segments.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from barnabas.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.storage.segments.segment import Timestamped
from barnabas.storage.segments.txn_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.storage.files import FileSystem
    from barnabas.storage.segments.txn_index import AbortedTransaction

CLEANED_SUFFIX: Final = ".cleaned"
SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

_BUFFER: Final = 1 << 20
_MAX_SIZE: Final = 2**31 - 1


class CleanedSegment:
    """Takes batches in their order, and makes a segment of them."""

    def __init__(
        self, files: FileSystem, directory: str, base_offset: int, index_interval: int, spend: Callable[[int], None]
    ) -> None:
        self._files = files
        self._prefix = f"{directory}/{file_name(base_offset, '')}"
        self._base_offset = base_offset
        self._index_interval = index_interval
        self._spend = spend
        discard(files, self._prefix)
        self._fd = files.open(self._path(LOG_SUFFIX), create=True)
        self._pending: list[memoryview] = []
        self._pending_size = 0
        self._size = 0
        self._last_entry = 0
        self._largest = Timestamped(-1, base_offset)
        self._offsets: list[bytes] = []
        self._times: list[bytes] = []
        self._last_time = -1

    def _path(self, suffix: str) -> str:
        return self._prefix + suffix + CLEANED_SUFFIX

    def add(self, data: memoryview, last_offset: int, max_timestamp: int) -> None:
        """Append a batch."""
        position = self._size
        if max_timestamp > self._largest.timestamp:
            self._largest = Timestamped(max_timestamp, last_offset)
        if position - self._last_entry > self._index_interval:
            self._offsets.append(OffsetIndex.ENTRY.pack(last_offset - self._base_offset, position))
            self._add_time()
            self._last_entry = position
        self._size += len(data)
        if self._size > _MAX_SIZE:
            raise CorruptMessage(f"{self._prefix}{LOG_SUFFIX} grows over two gigabytes when it is cleaned")
        self._pending.append(data)
        self._pending_size += len(data)
        if self._pending_size >= _BUFFER:
            self._write()

    def _add_time(self) -> None:
        timestamp, offset = self._largest
        if timestamp > self._last_time and (timestamp or offset != self._base_offset):  # an entry of zeroes is none
            self._times.append(TimeIndex.ENTRY.pack(timestamp, offset - self._base_offset))
            self._last_time = timestamp

    def _write(self) -> None:
        self._spend(self._pending_size)
        self._files.append_all(self._fd, b"".join(self._pending))
        self._pending, self._pending_size = [], 0

    def finish(self, aborted: Sequence[AbortedTransaction], modified_ms: int) -> dict[str, int]:
        """Bring everything to the disk; returns the lengths of the files by suffix."""
        self._add_time()
        try:
            self._write()
            self._files.sync(self._fd)
        finally:
            self._close()
        self._files.set_modified_ms(self._path(LOG_SUFFIX), modified_ms)
        sizes = {LOG_SUFFIX: self._size}
        for suffix, entries in ((INDEX_SUFFIX, self._offsets), (TIME_INDEX_SUFFIX, self._times)):
            sizes[suffix] = self._write_file(self._path(suffix), b"".join(entries))
        if aborted:
            index = TransactionIndex(self._files, self._path(TXN_INDEX_SUFFIX))
            for transaction in aborted:
                index.append(transaction)
            self._files.sync_file(index.path)
            sizes[TXN_INDEX_SUFFIX] = index.size
        return sizes

    def _write_file(self, path: str, data: bytes) -> int:
        fd = self._files.open(path, create=True)
        try:
            self._files.append_all(fd, data)
            self._files.sync(fd)
        finally:
            self._files.close(fd)
        return len(data)

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._files.close(fd)

    def abort(self) -> None:
        """Close and remove what was written."""
        self._close()
        discard(self._files, self._prefix)


def discard(files: FileSystem, prefix: str) -> None:
    """Remove the files that a cleaning of the segment named by `prefix` left."""
    for suffix in SUFFIXES:
        files.remove(prefix + suffix + CLEANED_SUFFIX)
