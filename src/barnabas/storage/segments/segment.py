"""A segment: one file of batches, with its indexes.

    00000000000000001000.log         batches as clients sent them, from offset 1000 on
    00000000000000001000.index       offset -> position
    00000000000000001000.timeindex   timestamp -> offset
    00000000000000001000.txnindex    aborted transactions, where there are any

A segment only grows, until a later one is begun; then it is sealed. From that moment its log does not change until it
is removed, and the last entries of its indexes, which are in memory, are written by the thread that syncs it. Finding a
position takes the offset index and a few batch headers; the newest batches are remembered, so that a consumer at the
tail costs no read at all.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage
from barnabas.protocol.records.batch import HEADER_SIZE, LOG_OVERHEAD
from barnabas.storage.files import ColdRead
from barnabas.storage.segments.batches import batch_headers, batch_ranges
from barnabas.storage.segments.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from barnabas.storage.segments.indexes import OffsetIndex, TimeIndex
from barnabas.storage.segments.rolling import RollLimits
from barnabas.storage.segments.txn_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.model.log_config import LogConfig
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.file_pool import FileHandle, FilePool
    from barnabas.storage.log.runs import Run
    from barnabas.storage.segments.batches import BatchRange
    from barnabas.storage.segments.cut import Cut
    from barnabas.storage.segments.txn_index import AbortedTransaction

_RECENT: Final = 256
_MOST_RECENT: Final = 2 * _RECENT


class FileSlice(NamedTuple):
    """Bytes of a file, for sendfile: acquire() the file while the slice waits, release() it when it is sent."""

    file: FileHandle
    position: int
    length: int
    warm: bool
    """Written a short while ago by this process, so most likely in memory."""


class Tail(NamedTuple):
    """Where the batches of a segment end: behind the last one's bytes, and after its last offset."""

    position: int
    offset: int


class Timestamped(NamedTuple):
    """A timestamp and the last offset of the batch that brought it."""

    timestamp: int
    offset: int


class Segment:
    """One segment of a log; `sealed` once a later one exists."""

    __slots__ = (
        "_append",
        "_files",
        "_first_timestamp",
        "_largest",
        "_owner",
        "_pool",
        "_prefix",
        "_recent",
        "_since_index",
        "base_offset",
        "file",
        "has_file",
        "index_interval",
        "limits",
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
        self._owner = pool.owner
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
        self.sealed = False
        self.synced = False
        """Sealed, and log and indexes are on disk; set by whoever holds the log's lock."""
        self._largest: tuple[int, int] | None = (-1, base_offset) if self.size == 0 else None
        self._first_timestamp: int | None = None
        self._since_index = 0
        self.index_interval = config.index_interval_bytes
        self.limits = RollLimits(base_offset, now_ms)
        self._recent = array("q"), array("q")

    @classmethod
    def begin(cls, pool: FilePool, directory: str, base_offset: int, config: LogConfig, now_ms: int) -> Segment:
        """A new segment, without files as yet."""
        return cls(pool, directory, base_offset, {}, config, now_ms)

    def make_file(self) -> None:
        """Make the log file; files of that name, left over from a crash, are removed."""
        self.create_file()
        self.has_file = True

    def create_file(self) -> None:
        """As `make_file`, but it is not used yet. Needs no lock."""
        self._remove_files()
        self._files.close(self._files.open(self.path, create=True))

    def prepare_file(self) -> None:
        """Make the log file under another name, while an older segment still has its own."""
        self._files.remove(self.path + TEMPORARY_SUFFIX)
        self._files.close(self._files.open(self.path + TEMPORARY_SUFFIX, create=True))

    def use_prepared_file(self) -> None:
        """As `make_file`, with the file that was prepared. Needs no descriptor."""
        self._remove_files()
        self._files.rename(self.path + TEMPORARY_SUFFIX, self.path)
        self.has_file = True

    def take_file(self, file: FileHandle) -> None:
        """As `make_file`, with an empty file of another name, which nobody else knows."""
        self._remove_files()
        self._files.rename(file.path, self.path)
        file.path = self.path
        self.file = file
        self.has_file = True

    def _remove_files(self) -> None:
        for handle in (self.file, self.offset_index.file, self.time_index.file):
            self._files.remove(handle.path)
        self.txn_index.reset()

    def activate(self, config: LogConfig, jitter_ms: int) -> None:
        """Make ready for appending: `limits` say when the segment is full."""
        self.index_interval = config.index_interval_bytes
        entries_left = min(  # one entry of the time index is kept for sealing
            config.segment_index_bytes // self.offset_index.ENTRY.size - self.offset_index.entries,
            config.segment_index_bytes // self.time_index.ENTRY.size - 1 - self.time_index.entries,
        )
        self.limits.apply(config, jitter_ms, entries_left)
        if self.size:
            self.limits.count_age_from(self.first_timestamp)

    @property
    def path(self) -> str:
        """The log file's path."""
        return self.file.path

    @property
    def largest_timestamp(self) -> Timestamped:
        """The largest timestamp; -1 when no batch has one. Reads a file the first time."""
        largest = self._largest
        if largest is None:
            largest = self.time_index.last()
            if self.sealed:  # into others, a larger one may have been written meanwhile
                self._largest = largest
        return Timestamped._make(largest)

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
        return largest if largest >= 0 else self._pool.modified_ms(self.file)

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
            if self._owner(fd) is not file:
                self._pool.check_owner(file, fd)  # which ends the process
            if self.offset_index.block_full:
                self.write_indexes()
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
            self.limits.count_age_from(max_timestamp)
        largest = self._largest or self.largest_timestamp
        if max_timestamp > largest[0]:
            self._largest = largest = max_timestamp, last_offset
        if self._since_index > self.index_interval:
            self.offset_index.append(last_offset, position)
            self.time_index.append(largest[0], largest[1])
            self.limits.use_entry()
            self._since_index = size
        else:
            self._since_index += size
        starts, positions = self._recent
        starts.append(start)
        positions.append(position)
        if len(starts) > _MOST_RECENT:
            self._recent = starts[_RECENT:], positions[_RECENT:]
        self.size = position + size

    def locate(self, offset: int, end: int, *, cached: bool = False) -> BatchRange | None:
        """The first batch before position `end` that holds `offset` or later ones."""
        recent = self.recent(offset, end)
        if recent is not None:
            return self._first_with(offset, recent[0], end, cached)
        indexed, position = self.offset_index.lookup(offset, cached=cached)
        is_first = position != 0  # and is to be looked at: the index is a hint
        try:
            for found in self.ranges(position, end, cached=cached):
                if is_first:
                    is_first = False
                    if not self.base_offset <= found.base_offset <= indexed:
                        break
                if found.last_offset >= offset:
                    return found
            else:
                if not is_first:
                    return None
        except CorruptMessage:
            if not is_first:
                raise
        if cached:
            raise ColdRead(self.path)
        found_without = self._first_with(offset, 0, end, cached)  # fails if the file was cut meanwhile
        self.offset_index.doubt(indexed, position)
        return found_without

    def _first_with(self, offset: int, position: int, end: int, cached: bool) -> BatchRange | None:
        for found in self.ranges(position, end, cached=cached):
            if found.last_offset >= offset:
                return found
        return None

    def position_before(self, offset: int) -> int:
        """The start of a batch from which on `offset` is found."""
        indexed, position = self.offset_index.lookup(offset)
        if position == 0:
            return 0
        with suppress(CorruptMessage):
            first = next(self.ranges(position, self.size), None)
            if first is not None and self.base_offset <= first.base_offset <= indexed:
                return position
        if position < self.size:  # else it may have been cut meanwhile
            self.offset_index.doubt(indexed, position)
        return 0

    def offset_behind(self, position: int, *, cached: bool = False) -> int | None:
        """An offset that no batch before `position` has, by the next entry of the index; None if there is none."""
        found = self.offset_index.entry_after(position, cached=cached)
        if found is None or found[1] >= self.size:  # it may have been cut meanwhile
            return None
        indexed, at = found
        with suppress(CorruptMessage):  # the index is a hint: too low an offset would hide aborted transactions
            first = next(self.ranges(at, self.size, cached=cached), None)
            if first is not None and self.base_offset <= first.base_offset <= indexed:
                return indexed
        self.offset_index.doubt(indexed, at)
        return None

    def recent(self, offset: int, end: int) -> tuple[int, int] | None:
        """Where the batch that locate() finds begins and ends, if it is among the newest: no file is looked at."""
        starts, positions = self._recent
        if not positions or offset < starts[0]:
            return None
        number, count = bisect_right(starts, offset), len(positions)
        if number < count:
            return positions[number - 1], positions[number]
        return positions[count - 1], end

    def ranges(self, position: int, end: int, *, cached: bool = False) -> Iterator[BatchRange]:
        """The batches from `position` (the start of one) to `end`, where one ends: CorruptMessage if none does."""
        return batch_ranges(self.file, position, end, cached=cached)

    def headers(self, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
        """The headers of the batches from `position` (the start of one) to `end`, each with its position."""
        return batch_headers(self.file, position, end)

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
        for found in self.ranges(self.position_before(offset - 1), self.size):
            if found.last_offset >= offset:
                break
            end = found.last_offset + 1
        return end

    def seal(self) -> None:
        """End the segment, whose indexes have their last entries: nothing more is added to it. Cannot fail."""
        self.file.unpin()
        self.sealed = True
        self._recent = array("q"), array("q")

    def add_last_entry(self) -> None:
        """Add an entry for the largest timestamp to the time index; `sync` writes it once the segment is sealed."""
        if self.has_file and self.size:
            self.time_index.append(*self.largest_timestamp)

    def finish_indexes(self) -> None:
        """Write the indexes, with a last entry for the largest timestamp."""
        self.add_last_entry()
        self._trim_indexes()

    def _trim_indexes(self) -> None:
        if self.has_file:
            self.offset_index.trim()
            self.time_index.trim()

    def sync(self) -> bool:
        """Bring the log to the disk, and once it is sealed, all of the indexes; True if both. Runs in a thread.

        The transaction index goes with the log: unlike the others, recovery does not make it anew for what lies before
        the recovery point.
        """
        sealed = self.sealed
        if self.has_file:
            self._sync(self.file)
            self.txn_index.sync()
            if sealed:
                self._trim_indexes()
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

    def write_indexes(self) -> None:
        """Write the entries of the indexes that are only in memory."""
        self.offset_index.write()
        self.time_index.write()

    def carry_out(self, cut: Cut) -> None:
        """Cut the files; the segment can be written to again."""
        if cut.position < self.size:
            self.cut(cut.position)
        self.offset_index.cut(cut.offsets)
        self.time_index.cut(cut.times)
        self.txn_index = self.txn_index.truncate_to(cut.offset)
        self.sealed = self.synced = False
        self._largest = cut.largest
        self._since_index = 0

    def cut(self, size: int) -> None:
        """Cut the log file; slices that were given out are revoked. Needs no descriptor."""
        old = self.file
        old.revoked = True
        self._files.truncate_file(old.path, size)
        old.close()
        self.file = self._pool.handle(old.path)
        self.size = size
        if size == 0:
            self._first_timestamp = None
        self._recent = array("q"), array("q")

    def read_largest_timestamp(self, largest: Timestamped, end: int) -> Timestamped:
        """The largest timestamp before position `end`, given one that an index has."""
        for _, header in self.headers(min(self.position_before(largest.offset), end), end):
            if header.max_timestamp > largest.timestamp:
                largest = Timestamped(header.max_timestamp, header.last_offset)
        return largest

    def complete_time_index(self) -> None:
        """Make sure that the largest timestamp is the time index's last entry. Reads the batches after the last one."""
        self._largest = self.read_largest_timestamp(Timestamped._make(self.time_index.last()), self.size)
        self.finish_indexes()

    def use_rebuilt_indexes(self, largest: Timestamped) -> None:
        """Recovery has rebuilt the indexes."""
        self._largest = largest
        self._since_index = 0

    def mark_deleted(self) -> list[str]:
        """Rename the files for removal; returns their new names. Readers of this segment find them until they are gone.

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

    def set_directory(self, directory: str) -> None:
        """The directory was renamed."""
        for file in (self.file, self.offset_index.file, self.time_index.file, self.txn_index):
            file.path = f"{directory}/{file.path.rpartition('/')[2]}"

    def close(self) -> None:
        """Close the files, once nobody has a lease on them."""
        self.file.close()
        self.offset_index.file.close()
        self.time_index.file.close()
