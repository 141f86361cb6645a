"""The offset index and the time index of a segment.

    .index      8 bytes an entry: last offset of a batch minus the segment's base, position of that batch in the log
    .timeindex 12 bytes an entry: largest timestamp so far, offset (minus base) of the batch that brought it

Both are sparse (one entry about every index.interval.bytes), sorted, and only hints: a search begins at the entry at or
before its target and goes on over batch headers. So an index may lag behind its log. New entries are collected in
memory and written in blocks, and a crash costs nothing, because recovery rebuilds the indexes of every segment that
was not synced. The file itself is made when there is something to write, or when the segment ends. Entries on file are
searched where they are, with a few small reads: memory does not grow with the log.

Kafka allocates the files of its active segment in full, so a file may end in zeroes: an entry of zeroes is no entry.
"""

from __future__ import annotations

import logging
import struct
from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import StorageFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from barnabas.storage.file_pool import FileHandle
    from barnabas.storage.files import FileSystem

    _Read: TypeAlias = Callable[[int, int], list[tuple[int, int]]]

logger = logging.getLogger(__name__)

_BLOCK: Final = 32
_GUESSES: Final = 3
_PENDING: Final = 256
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Offsets are kept relative to the segment's base, in four bytes."""


class KeptEntries(NamedTuple):
    """What stays of an index that is cut."""

    entries: int
    last: tuple[int, int] | None
    """The last one, as it is on file."""


class _OnFile:
    """What is known of the entries on file. They are counted by who needs that first, maybe a reader in a thread.

    Whoever changes the file puts another one in the place of this: what a reader has counted meanwhile goes with it.
    """

    __slots__ = ("count", "last_key", "size")

    def __init__(self, size: int, count: int = -1, last_key: int = 0) -> None:
        self.size = size
        """The file's length; -1 when there is no file yet."""
        self.count = count
        """How many entries there are; -1 until they are counted."""
        self.last_key = last_key
        """The key of the last one, once they are counted."""


class _Index:
    """Sorted pairs of numbers: the first so many on file, the rest in memory."""

    __slots__ = ("_entry", "_files", "_keys", "_on_file", "_values", "base_offset", "file")

    def __init__(
        self, files: FileSystem, file: FileHandle, base_offset: int, size: int | None, entry: struct.Struct
    ) -> None:
        self.file = file
        self.base_offset = base_offset
        self._files = files
        self._entry = entry
        self._on_file = _OnFile(size) if size else _OnFile(-1 if size is None else 0, 0)
        self._keys: list[int] = []
        self._values: list[int] = []
        """Grow before the keys do: a reader in another thread goes by the keys."""

    @property
    def entries(self) -> int:
        """How many entries there are."""
        return self._counted(self._on_file) + len(self._keys)

    @property
    def size(self) -> int:
        """The length that the file has once all entries are written."""
        return self.entries * self._entry.size

    @property
    def block_full(self) -> bool:
        """Whether enough entries have come together in memory to write them."""
        return len(self._keys) >= _PENDING

    @property
    def has_file(self) -> bool:
        """Whether there is a file; it is made when there is something to write."""
        return self._on_file.size >= 0

    @property
    def damaged(self) -> bool:
        """Whether the file is missing, or cannot be an index, going by its length."""
        size = self._on_file.size
        return size < 0 or size % self._entry.size != 0

    def is_sound(self) -> bool:
        """Whether all entries on file rise, as they do unless a part of the file was lost. Reads the file."""
        size = self._on_file.size
        entries = self._read(0, size // self._entry.size) if size else []
        return all(before[0] < after[0] and before[1] <= after[1] for before, after in pairwise([(-1, -1), *entries]))

    def write(self) -> None:
        """Write the entries that are only in memory."""
        if not self._keys:
            return
        self._make_file()
        on_file = self.entries - len(self._keys)
        data = b"".join(map(self._entry.pack, self._keys, self._values))
        fd = self.file.acquire()
        try:
            if self._on_file.size != on_file * self._entry.size:
                self._files.truncate(fd, on_file * self._entry.size)
            try:
                self._files.append_all(fd, data)
            except BaseException:
                self._files.cut_back(fd, on_file * self._entry.size)
                raise
        finally:
            self.file.release()
        count = on_file + len(self._keys)
        self._on_file = _OnFile(count * self._entry.size, count, self._keys[-1])
        self._keys = []
        self._values = []

    def trim(self) -> None:
        """Write what is in memory and cut what is no entry; the file is then as Kafka leaves it when it closes."""
        self._make_file()
        self.write()
        if self._on_file.size != self.entries * self._entry.size:
            self._cut(self.entries, self._on_file.last_key)

    def reset(self) -> None:
        """Forget all entries."""
        self._keys, self._values = [], []
        if self._on_file.size > 0:
            self._cut(0, 0)
        else:
            self._on_file = _OnFile(self._on_file.size, 0)

    def _make_file(self) -> None:
        if self._on_file.size < 0:
            self._files.close(self._files.open(self.file.path, create=True))
            self._on_file = _OnFile(0, 0)

    def _last(self) -> tuple[int, int] | None:
        values, keys = self._values, self._keys  # in this order, as in `_floor`
        if keys:
            at = len(keys) - 1
            return keys[at], values[at]
        count = self.entries
        return self._read(count - 1, 1)[0] if count else None

    def _floor(self, key: int, *, cached: bool = False) -> tuple[int, int] | None:
        """The last entry whose key is at most `key`."""
        values, keys = self._values, self._keys  # in this order: `write` may empty both, the keys first
        if keys and keys[0] <= key:
            at = bisect_right(keys, key) - 1
            return keys[at], values[at]
        on_file = self._on_file
        count = on_file.count
        if count < 0:
            count = self._counted(on_file)
        if count == 0:
            return None
        fd = self.file.acquire()
        try:
            read = self._files.read_cached if cached else self._files.read
            size = self._entry.size
            return self._search(lambda first, number: self._parse(read(fd, number * size, first * size)), on_file, key)
        finally:
            self.file.release()

    def _search(self, read: _Read, on_file: _OnFile, key: int) -> tuple[int, int] | None:
        """Look where the entry should be if keys rise evenly, which they almost do, and halve what is left if not."""
        low, high = 0, on_file.count
        low_key, high_key = 0, on_file.last_key
        for _ in range(_GUESSES):
            if high - low <= _BLOCK or not low_key <= key <= high_key:
                break
            guess = low + (key - low_key) * (high - low) // max(high_key - low_key, 1)
            first = min(max(guess - _BLOCK // 2, low), high - _BLOCK)
            block = read(first, _BLOCK)
            if key < block[0][0]:
                high, high_key = first, block[0][0]
            elif key >= block[-1][0] and first + _BLOCK < high:
                low, low_key = first + _BLOCK - 1, block[-1][0]
            else:
                return block[bisect_right(block, key, key=_first) - 1]
        while high - low > _BLOCK:
            middle = (low + high) // 2
            if read(middle, 1)[0][0] <= key:
                low = middle
            else:
                high = middle
        if low == high:
            return None
        block = read(low, high - low)
        at = bisect_right(block, key, key=_first) - 1
        return block[at] if at >= 0 else None

    def _kept_while(self, keep: Callable[[tuple[int, int]], bool]) -> KeptEntries:
        """The entries before the first that is not to be kept. Writes what is in memory, and reads the file."""
        self.write()
        kept = bisect_left(range(self.entries), True, key=lambda at: not keep(self._read(at, 1)[0]))
        return KeptEntries(kept, self._read(kept - 1, 1)[0] if kept else None)

    def cut(self, kept: KeptEntries) -> None:
        """Drop all entries but those. Needs no descriptor."""
        if kept.entries < self.entries:
            self._cut(kept.entries, 0 if kept.last is None else kept.last[0])

    def _cut(self, entries: int, last_key: int) -> None:
        self._files.truncate_file(self.file.path, entries * self._entry.size)
        self._on_file = _OnFile(entries * self._entry.size, entries, last_key)

    def _read(self, first: int, count: int) -> list[tuple[int, int]]:
        return self._parse(self.file.read(count * self._entry.size, first * self._entry.size))

    def _parse(self, data: bytes) -> list[tuple[int, int]]:
        if not data or len(data) % self._entry.size:
            raise StorageFailed(
                f"{self.file.path} ends inside an entry. Remove it: the next start of the broker makes it anew"
            )
        return list(self._entry.iter_unpack(data))

    def _counted(self, on_file: _OnFile) -> int:
        """How many entries are on file: all, unless it ends in zeroes. Reads the file the first time."""
        if on_file.count >= 0:
            return on_file.count
        count = on_file.size // self._entry.size
        if count and not any(self._read(count - 1, 1)[0]):
            low, high = 0, count - 1
            while low < high:
                middle = (low + high) // 2
                if any(self._read(middle, 1)[0]):
                    low = middle + 1
                else:
                    high = middle
            count = low
        on_file.last_key = self._read(count - 1, 1)[0][0] if count else 0
        on_file.count = count
        return count


def _first(entry: tuple[int, int]) -> int:
    return entry[0]


class OffsetIndex(_Index):
    """From offsets to positions in the log."""

    __slots__ = ("_is_doubted",)

    ENTRY: Final = struct.Struct(">ii")

    def __init__(self, files: FileSystem, file: FileHandle, base_offset: int, size: int | None = None) -> None:
        super().__init__(files, file, base_offset, size, self.ENTRY)
        self._is_doubted = False

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets and positions only grow."""
        self._values.append(position)
        self._keys.append(offset - self.base_offset)

    def lookup(self, offset: int, *, cached: bool = False) -> tuple[int, int]:
        """Offset and position of the last entry at or before `offset`; the segment's start when there is none."""
        found = self._floor(min(offset - self.base_offset, MAX_RELATIVE_OFFSET), cached=cached)
        return (self.base_offset, 0) if found is None else (self.base_offset + found[0], found[1])

    def doubt(self, offset: int, position: int) -> None:
        """An entry would have led a reader past batches, or to what is none; said once."""
        if not self._is_doubted:
            self._is_doubted = True
            logger.warning(
                "%s is damaged: it has offset %d at byte %d, where no such batch begins. Batches are found without "
                "it, which is slow. Stop the broker and remove the file: it is made anew at the next start.",
                self.file.path,
                offset,
                position,
            )

    def entry_after(self, position: int, *, cached: bool = False) -> tuple[int, int] | None:
        """Offset and position of the first entry at or after `position`; None without one."""
        values, keys = self._values, self._keys
        count = len(keys)
        if not (count and values[0] < position) and (on_file := self._counted(self._on_file)):
            read = self.file.read_cached if cached else self.file.read
            size = self.ENTRY.size

            def entry(at: int) -> tuple[int, int]:
                return self._parse(read(size, at * size))[0]

            at = bisect_left(range(on_file), position, key=lambda at: entry(at)[1])
            if at < on_file:
                relative, found = entry(at)
                return self.base_offset + relative, found
        at = bisect_left(values, position, 0, count)
        return (self.base_offset + keys[at], values[at]) if at < count else None

    def last(self) -> tuple[int, int]:
        """Offset and position of the last entry; the segment's start when there is none."""
        found = self._last()
        return (self.base_offset, 0) if found is None else (self.base_offset + found[0], found[1])

    def kept_before(self, offset: int) -> KeptEntries:
        """What stays without the entries of `offset` and later ones; see `cut`."""
        relative = offset - self.base_offset
        return self._kept_while(lambda entry: entry[0] < relative)


class TimeIndex(_Index):
    """From timestamps to offsets."""

    __slots__ = ("_last_timestamp",)

    ENTRY: Final = struct.Struct(">qi")

    def __init__(self, files: FileSystem, file: FileHandle, base_offset: int, size: int | None = None) -> None:
        super().__init__(files, file, base_offset, size, self.ENTRY)
        self._last_timestamp: int | None = None if size else -1

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry, unless the timestamp is no larger than the last one.

        Time 0 at the base offset would be an entry of zeroes, which is none: readers begin there without it, too.
        """
        if self._last_timestamp is None:
            self._last_timestamp = self.last()[0]
        if timestamp > self._last_timestamp and (timestamp or offset != self.base_offset):
            self._last_timestamp = timestamp
            self._values.append(offset - self.base_offset)
            self._keys.append(timestamp)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Timestamp and offset of the last entry whose timestamp is at most `timestamp`; (-1, base) when none is."""
        found = self._floor(timestamp)
        return (-1, self.base_offset) if found is None else (found[0], self.base_offset + found[1])

    def last(self) -> tuple[int, int]:
        """Timestamp and offset of the last entry; (-1, base) when there is none. May read the file."""
        found = self._last()
        return (-1, self.base_offset) if found is None else (found[0], self.base_offset + found[1])

    def kept_before(self, offset: int) -> KeptEntries:
        """What stays without the entries that speak of `offset` or later ones; see `cut`."""
        relative = offset - self.base_offset
        return self._kept_while(lambda entry: entry[1] < relative)

    def cut(self, kept: KeptEntries) -> None:
        """Drop all entries but those. Needs no descriptor."""
        super().cut(kept)
        self._last_timestamp = -1 if kept.last is None else kept.last[0]

    def reset(self) -> None:
        """Forget all entries."""
        super().reset()
        self._last_timestamp = -1
