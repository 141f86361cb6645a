"""A segment: one file of batches, with its indexes.

    00000000000000001000.log         batches as clients sent them, from offset 1000 on
    00000000000000001000.index       offset -> position
    00000000000000001000.timeindex   timestamp -> offset
    00000000000000001000.txnindex    aborted transactions, where there are any

A segment only grows, until a later one is begun; then it is sealed, and from that moment its files do not change until
they are removed. Finding a position takes the offset index and a few batch headers; the newest batches are remembered,
so that a consumer at the tail costs no read at all.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage
from barnabas.protocol.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchHeader
from barnabas.storage.indexes import OffsetIndex, TimeIndex
from barnabas.storage.txn_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.model.log_config import LogConfig
    from barnabas.storage.files import FileHandle, FilePool
    from barnabas.storage.runs import Run
    from barnabas.storage.txn_index import AbortedTransaction

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"

MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Offsets are kept relative to the segment's base, in four bytes."""

_RANGE: Final = struct.Struct(">qi11xi")
_RECENT: Final = 256
_SMALL_CHUNK: Final = 4096
_LARGE_CHUNK: Final = 65536
_BY_CLOCK: Final = -2
"""Less than any timestamp: when the first batch has none, the clock says when to roll."""


class FileSlice(NamedTuple):
    """Bytes of a file, for sendfile: acquire() the file while the slice waits, release() it when it is sent."""

    file: FileHandle
    position: int
    length: int
    warm: bool
    """Written a short while ago by this process, so most likely in memory."""


class BatchRange(NamedTuple):
    """Where a batch lies."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class Tail(NamedTuple):
    """Where the batches of a segment end: behind the last one's bytes, and after its last offset."""

    position: int
    offset: int


class Timestamped(NamedTuple):
    """A timestamp and the last offset of the batch that brought it."""

    timestamp: int
    offset: int


def file_name(offset: int, suffix: str) -> str:
    """The name of a file of the segment that begins at `offset`.

    >>> file_name(42, ".log")
    '00000000000000000042.log'
    """
    return f"{offset:020d}{suffix}"


class Segment:
    """One segment of a log; `sealed` once a later one exists."""

    __slots__ = (
        "_append",
        "_entries_left",
        "_files",
        "_first_timestamp",
        "_full_at",
        "_largest",
        "_last_possible",
        "_max_ms",
        "_pool",
        "_prefix",
        "_recent",
        "_roll_after",
        "_since_index",
        "base_offset",
        "created_ms",
        "file",
        "has_file",
        "index_interval",
        "offset_index",
        "sealed",
        "size",
        "synced",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, pool: FilePool, directory: str, base_offset: int, sizes: Mapping[str, int], config: LogConfig, now_ms: int
    ) -> None:
        """`sizes` are the lengths of the files that exist, by suffix."""
        self._pool = pool
        self._files = pool.files
        self._append = pool.files.append
        self._prefix = f"{directory}/{base_offset:020d}"
        self.base_offset = base_offset
        self.size = sizes.get(LOG_SUFFIX, 0)
        self.has_file = LOG_SUFFIX in sizes
        self.file = pool.handle(self._prefix + LOG_SUFFIX)
        self.offset_index = OffsetIndex(
            pool.files, pool.handle(self._prefix + INDEX_SUFFIX), base_offset, sizes.get(INDEX_SUFFIX)
        )
        self.time_index = TimeIndex(
            pool.files, pool.handle(self._prefix + TIME_INDEX_SUFFIX), base_offset, sizes.get(TIME_INDEX_SUFFIX)
        )
        self.txn_index = TransactionIndex(pool.files, self._prefix + TXN_INDEX_SUFFIX, sizes.get(TXN_INDEX_SUFFIX, 0))
        self.created_ms = now_ms
        self.sealed = False
        self.synced = False
        """Sealed, and log and indexes are on disk; set by whoever holds the log's lock."""
        self._largest: tuple[int, int] | None = (-1, base_offset) if self.size == 0 else None
        self._first_timestamp: int | None = None
        self._since_index = 0
        self.index_interval = config.index_interval_bytes
        self._entries_left = 0
        self._full_at = 0
        self._last_possible = base_offset + MAX_RELATIVE_OFFSET
        self._max_ms = 0
        self._roll_after = _BY_CLOCK
        self._recent = array("q"), array("q")

    @classmethod
    def begin(cls, pool: FilePool, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """A new segment, without files as yet."""
        return cls(pool, directory, base_offset, {}, config, now_ms)

    def make_file(self) -> None:
        """Make the log file; files of that name, left over from a crash, are removed."""
        for handle in (self.file, self.offset_index.file, self.time_index.file):
            self._files.remove(handle.path)
        self.txn_index.reset()
        self._files.close(self._files.open(self.path, create=True))
        self.has_file = True

    def activate(self, config: LogConfig, jitter_ms: int) -> None:
        """Make ready for appending: `roll_due` says when the segment has reached a limit of `config`."""
        self.index_interval = config.index_interval_bytes
        self._full_at = config.segment_bytes
        self._max_ms = config.roll_ms - jitter_ms
        self._entries_left = min(  # one entry of the time index is kept for sealing
            config.segment_index_bytes // self.offset_index.ENTRY.size - self.offset_index.entries,
            config.segment_index_bytes // self.time_index.ENTRY.size - 1 - self.time_index.entries,
        )
        if self._entries_left <= 0:
            self._full_at = 0
        if self.size:
            self._set_roll_after()

    def _set_roll_after(self) -> None:
        first = self.first_timestamp
        self._roll_after = first + self._max_ms if first >= 0 else _BY_CLOCK

    @property
    def entries_left(self) -> int:
        """How many entries the indexes may still get."""
        return self._entries_left

    def has_room(self, size: int, last_offset: int, max_timestamp: int) -> bool:
        """Whether a batch, or several that are so large together, belongs here for sure; if not, `roll_due` knows."""
        return (
            0 < self.size <= self._full_at - size
            and last_offset <= self._last_possible
            and max_timestamp <= self._roll_after
        )

    def roll_due(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether a batch of `size` bytes, up to `last_offset` and `max_timestamp`, belongs into a new segment.

        Age counts by timestamps: that of the first batch and that of the new one. Without timestamps, by the clock.
        """
        if last_offset > self._last_possible:
            return True
        if self.size == 0:
            return False
        if self.size + size > self._full_at:
            return True
        if self._roll_after == _BY_CLOCK:
            return now_ms - self.created_ms > self._max_ms
        return max_timestamp > self._roll_after

    @property
    def path(self) -> str:
        """The log file's path."""
        return self.file.path

    @property
    def largest_timestamp(self) -> Timestamped:
        """The largest timestamp; -1 when no batch has one."""
        if self._largest is None:
            self._largest = self.time_index.last()
        return Timestamped._make(self._largest)

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 when it has none, or there is no batch."""
        if self._first_timestamp is None:
            if self.size < HEADER_SIZE:
                return -1
            self._first_timestamp = next(self.headers(0, self.size))[1].max_timestamp
        return self._first_timestamp

    def retention_timestamp(self) -> int:
        """What retention.ms is counted from: the largest timestamp, or else when the file was written. Reads files."""
        largest = self.largest_timestamp.timestamp
        return largest if largest >= 0 else self._files.modified_ms(self.file.path)

    def write(
        self,
        batch: memoryview,
        size: int,
        start: int,
        last_offset: int,
        max_timestamp: int,
        aborted: AbortedTransaction | None = None,
    ) -> None:
        """Append one batch of `size` bytes that ends at `last_offset`, as the first at or after offset `start`.

        `aborted` is the transaction that the batch ends, for the transaction index. After an OSError the segment is
        what it was before, unless that is UnknownState.
        """
        self._put(batch, size, aborted)
        self._note(size, start, last_offset, max_timestamp)

    def write_run(self, data: memoryview, run: Run, start: int) -> None:
        """Append several batches, which lie one behind the other in `data`, with one call to the system."""
        self._put(data[: run.size], run.size, None)
        for base_offset, length, _, _, _, _, delta, _, max_timestamp, *_ in run.headers:
            last_offset = base_offset + delta
            self._note(length + LOG_OVERHEAD, start, last_offset, max_timestamp)
            start = last_offset + 1

    def _put(self, data: memoryview, size: int, aborted: AbortedTransaction | None) -> None:
        """Write to the files. What can fail is done here, so that `_note` cannot, and is undone if something does."""
        if self._largest is None:
            self._largest = self.time_index.last()
        file = self.file
        file.writing = True  # before looking at its pin: from here on the pool leaves the descriptor open
        try:
            fd = file.fd if file.pinned else file.pin()
            if self.offset_index.block_full:
                self.offset_index.write()
                self.time_index.write()
            try:
                written = self._append(fd, data)
                if written != size:
                    self._files.append_all(fd, data[written:])
                if aborted is not None:
                    self.txn_index.append(aborted)
            except BaseException:
                self._files.cut_back(fd, self.size)
                raise
        finally:
            file.writing = False

    def _note(self, size: int, start: int, last_offset: int, max_timestamp: int) -> None:
        """A batch was put at the segment's end."""
        position = self.size
        if position == 0:
            self._first_timestamp = max_timestamp
            self._set_roll_after()
        largest = self._largest or self.largest_timestamp
        if max_timestamp > largest[0]:
            self._largest = largest = max_timestamp, last_offset
        if self._since_index > self.index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.append(largest[0], largest[1])
            self._entries_left -= 1
            if self._entries_left <= 0:
                self._full_at = 0
            self._since_index = size
        else:
            self._since_index += size
        starts, positions = self._recent
        starts.append(start)
        positions.append(position)
        if len(starts) > 2 * _RECENT:
            self._recent = starts[_RECENT:], positions[_RECENT:]
        self.size = position + size

    def locate(self, offset: int, end: int, *, cached: bool = False) -> BatchRange | None:
        """The first batch before position `end` that holds `offset` or later ones."""
        position = self.recent_position(offset)
        if position is None:
            position = self.offset_index.lookup(offset, cached=cached)[1]
        for found in self.ranges(position, end, cached=cached):
            if found.last_offset >= offset:
                return found
        return None

    def recent_position(self, offset: int) -> int | None:
        """The position of the batch that locate() finds, if it is among the newest, without looking at the file."""
        starts, positions = self._recent
        if not positions or offset < starts[0]:
            return None
        return positions[min(bisect_right(starts, offset), len(positions)) - 1]

    def ranges(self, position: int, end: int, *, cached: bool = False) -> Iterator[BatchRange]:
        """The batches from `position` (the start of one) to `end`, where one ends: CorruptMessage if none does."""
        read = self.file.read_cached if cached else self.file.read
        walked = position
        for at, data, start in self._walk(position, end, read, _SMALL_CHUNK):
            base_offset, length, last_delta = _RANGE.unpack_from(data, start)
            walked = at + length + LOG_OVERHEAD
            yield BatchRange(at, length + LOG_OVERHEAD, base_offset, base_offset + last_delta)
        if walked != end:
            raise CorruptMessage(f"{self.file.path} ends at byte {end}, inside of a batch; see `barnabas log check`")

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the batches from `position` (the start of one) to `end`, each with its position."""
        for at, data, start in self._walk(position, end, self.file.read, _LARGE_CHUNK):
            yield at, BatchHeader._make(HEADER.unpack_from(data, start))

    def _walk(
        self, position: int, end: int, read: Callable[[int, int], bytes], chunk: int
    ) -> Iterator[tuple[int, bytes, int]]:
        data, begin = b"", position
        while end - position >= HEADER_SIZE:
            start = position - begin
            if start + HEADER_SIZE > len(data):
                data, begin, start = read(min(chunk, end - position), position), position, 0
                if len(data) < HEADER_SIZE:
                    return
            length = int.from_bytes(data[start + 8 : start + 12], "big", signed=True)
            if length < HEADER_SIZE - LOG_OVERHEAD:
                raise CorruptMessage(f"{self.file.path} has no batch at byte {position}; see `barnabas log check`")
            if position + LOG_OVERHEAD + length > end:
                return
            yield position, data, start
            position += LOG_OVERHEAD + length

    def next_offset(self) -> int:
        """The offset after the last batch; the base when there is none. Reads the file's tail."""
        return self.tail().offset

    def tail(self) -> Tail:
        """Where the last whole batch ends. Reads the batches from the last index entry on."""
        position, offset = min(self.offset_index.last()[1], self.size), self.base_offset
        for found in self.ranges(position, self.size):
            position, offset = found.position + found.size, found.last_offset + 1
        return Tail(position, offset)

    def end_before(self, offset: int) -> int:
        """The offset after the last batch that holds nothing of `offset` or later; the base when there is none."""
        end = self.base_offset
        for found in self.ranges(self.offset_index.lookup(offset - 1)[1], self.size):
            if found.last_offset >= offset:
                break
            end = found.last_offset + 1
        return end

    def seal(self) -> None:
        """End the segment, whose indexes are finished: nothing is written to it any more. Cannot fail."""
        self.file.unpin()
        self.sealed = True
        self._recent = array("q"), array("q")

    def finish_indexes(self) -> None:
        """Write the indexes, with a last entry for the largest timestamp."""
        if self.has_file:
            if self.size:
                self.time_index.append(*self.largest_timestamp)
            self.offset_index.trim()
            self.time_index.trim()

    def sync(self) -> bool:
        """Bring the log to the disk, and once it is sealed, the indexes; True if both. Runs in a thread.

        The transaction index goes with the log: unlike the others, recovery does not make it anew for what lies before
        the recovery point.
        """
        sealed = self.sealed
        if self.has_file:
            self._sync(self.file)
            self.txn_index.sync()
            if sealed:
                self.sync_indexes()
        return sealed

    def sync_indexes(self) -> None:
        """Bring the indexes for offsets and times, as far as they are written, to the disk. Runs in a thread."""
        for index in (self.offset_index, self.time_index):
            if self.has_file and index.has_file:
                self._sync(index.file)

    def _sync(self, handle: FileHandle) -> None:
        fd = handle.acquire()
        try:
            self._files.sync(fd)
        finally:
            handle.release()

    def truncate_to(self, offset: int) -> None:
        """Drop the batches that hold `offset` or later ones; the segment can be written to again."""
        largest = self.largest_timestamp
        found = self.locate(offset, self.size)
        if found is not None:
            self.cut(found.position)
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index = self.txn_index.truncate_to(offset)
        self.sealed = self.synced = False
        self._largest = largest if largest.offset < offset else self._read_largest_timestamp()
        self._since_index = 0

    def cut(self, size: int) -> None:
        """Cut the log file; slices that were given out are revoked."""
        old = self.file
        old.revoked = True
        fd = old.acquire()
        try:
            self._files.truncate(fd, size)
        finally:
            old.release()
        old.close()
        self.file = self._pool.handle(old.path)
        self.size = size
        if size == 0:
            self._first_timestamp = None
        self._recent = array("q"), array("q")

    def _read_largest_timestamp(self) -> Timestamped:
        largest = Timestamped._make(self.time_index.last())
        position = self.offset_index.lookup(largest.offset)[1]
        for _, header in self.headers(position, self.size):
            if header.max_timestamp > largest.timestamp:
                largest = Timestamped(header.max_timestamp, header.last_offset)
        return largest

    def complete_time_index(self) -> None:
        """Make sure that the largest timestamp is the time index's last entry. Reads the batches after the last one."""
        self._largest = self._read_largest_timestamp()
        self.finish_indexes()

    def rebuilt(self, largest: Timestamped) -> None:
        """Recovery has rebuilt the indexes."""
        self._largest = largest
        self._since_index = 0

    def mark_deleted(self) -> list[str]:
        """Rename the files for removal; returns their new names. Who knows this segment finds them until they are gone.

        The names are used once: a later segment of the same base offset, also of a later topic of the same name, gets
        others, so nobody who comes late reads that one in the place of this.
        """
        marked = []
        ending = f".{self._pool.new_number()}{DELETED_SUFFIX}"
        for handle in (self.file, self.offset_index.file, self.time_index.file):
            if self._files.exists(handle.path):
                self._pool.rename(handle, handle.path + ending)
                marked.append(handle.path)
        if self._files.exists(self.txn_index.path):
            path = self.txn_index.path + ending
            self._files.rename(self.txn_index.path, path)
            self.txn_index.path = path
            marked.append(path)
        return marked

    def moved(self, directory: str) -> None:
        """The directory was renamed."""
        for file in (self.file, self.offset_index.file, self.time_index.file, self.txn_index):
            file.path = f"{directory}/{file.path.rpartition('/')[2]}"

    def close(self) -> None:
        """Close the files, once nobody has a lease on them."""
        self.file.close()
        self.offset_index.file.close()
        self.time_index.file.close()
