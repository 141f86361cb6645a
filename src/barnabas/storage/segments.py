"""The segments of one log, oldest first, the last one active: finding, reading, rolling, cutting, removing.

This is about files only; offsets that have a meaning beyond them (log start, high watermark), producers and leader
epochs belong to the log. Whoever changes the segments holds the log's lock. Readers take `all` as it is at one moment:
it is replaced, never changed, and segments that were removed can be read until nobody has a lease on them.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from operator import is_
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.storage.segment import FileSlice, Segment, file_name
from barnabas.storage.txn_index import aborted_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.txn_index import AbortedTransaction

SWAP_SUFFIX: Final = ".swap"
"""Of the files of a segment that replaces others; it counts from the moment when all of its files are named so."""
MARK_MS: Final = 15_000
_WARM_MARKS: Final = 2
_WARM_BYTES: Final = 16 << 20
"""What was written within the last marks, and is no more than this, counts as being in memory."""


class ReadResult(NamedTuple):
    """What a read found: slices whose lengths sum up to `size`."""

    slices: tuple[FileSlice, ...]
    size: int
    aborted: Sequence[AbortedTransaction] = ()
    """The aborted transactions with records in it, where they were asked for."""


NOTHING: Final = ReadResult((), 0)


def segment_number(segments: Sequence[Segment], offset: int) -> int:
    """Which segment holds `offset`; -1 when it lies before the first."""
    return bisect_right(segments, offset, key=_base_offset) - 1


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def aborted_transactions(
    segments: Sequence[Segment], offset: int, found: ReadResult, up_to: int, *, cached: bool
) -> list[AbortedTransaction]:
    """The aborted transactions with records in what was `found` from `offset` on; see Log.read."""
    number = max(segment_number(segments, offset), 0)
    while number < len(segments) - 1 and segments[number].file is not found.slices[0].file:
        number += 1
    last = found.slices[-1]
    after = segments[number].offset_index.offset_after(last.position + last.length, cached=cached)
    if after is None and number + 1 < len(segments):
        after = segments[number + 1].base_offset
    end = up_to if after is None else min(after, up_to)
    return aborted_between((segment.txn_index for segment in segments[number:]), offset, end, cached=cached)


class Segments:
    """The segments of one log."""

    __slots__ = (
        "_config",
        "_jitter_ms",
        "_marked_size",
        "_path",
        "_store",
        "_warm_from",
        "active",
        "all",
        "changes",
        "marked_ms",
    )

    def __init__(self, store: LogDirectory, path: str, config: LogConfig, segments: Iterable[Segment]) -> None:
        self._store = store
        self._path = path
        self._config = config
        self._jitter_ms = 0
        self._marked_size = 0
        self._warm_from = 0
        self.all: tuple[Segment, ...] = ()
        self.active: Segment
        self.changes = 0
        """Grows when file names change, so that a flush knows whether the directory must be synced."""
        self.marked_ms = 0
        """When mark() was last called; whoever appends does so every MARK_MS."""
        self._set(tuple(segments))

    def _set(self, segments: tuple[Segment, ...]) -> None:
        self.all = segments
        self.active = segments[-1]
        self._warm_from = self._marked_size = self.active.size
        jitter_ms = min(self._config.segment_jitter_ms, self._config.roll_ms)
        self._jitter_ms = random.randrange(jitter_ms) if jitter_ms > 0 else 0
        self.active.activate(self._config, self._jitter_ms)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.all)

    def use(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self._config = config
        self.active.activate(config, self._jitter_ms)

    # Growing

    def mark(self, now_ms: int) -> None:
        """Before an append: remember how long the active segment is, to know later what was written lately."""
        recent = now_ms - self.marked_ms < _WARM_MARKS * MARK_MS
        self._warm_from = self._marked_size if recent else self.active.size
        self._marked_size = self.active.size
        self.marked_ms = now_ms

    def make_file(self) -> None:
        """Make the active segment's file, if it has none yet."""
        if not self.active.has_file:
            self.active.make_file()
            self.changes += 1

    def roll(self, base_offset: int, now_ms: int) -> bool:
        """Begin a new segment at `base_offset`; False when the active one begins there already.

        What can fail comes first: without its successor, the active segment goes on and is synced as before.
        """
        if self.active.base_offset == base_offset:
            return False
        self.active.finish_indexes()
        following = self._begin(base_offset, now_ms)
        self.active.seal()
        self._set((*self.all, following))
        return True

    def _begin(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment.begin(self._store.pool, self._path, base_offset, self._config, now_ms)
        segment.make_file()
        self.changes += 1
        return segment

    # Reading

    def read(
        self,
        segments: tuple[Segment, ...],
        active_size: int,
        end_offset: int,
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one: bool,
        cached: bool,
    ) -> ReadResult:
        """Bytes from the batch that holds `offset` on, from one segment; see Log.read.

        The first three say what the log was like at one moment.
        """
        number = len(segments) - 1
        if offset < segments[-1].base_offset:
            number = max(segment_number(segments, offset), 0)
        while number < len(segments):
            segment = segments[number]
            number += 1
            size, next_base = active_size, end_offset
            if number < len(segments):
                size, next_base = segment.size, segments[number].base_offset
            end = size if up_to >= next_base else _end_position(segment, size, up_to, cached)
            found = self._read_segment(segment, size, end, offset, max_bytes, min_one, cached)
            if found.size:
                return found
        return NOTHING

    def _read_segment(
        self, segment: Segment, size: int, end: int, offset: int, max_bytes: int, min_one: bool, cached: bool
    ) -> ReadResult:
        """Read from one segment of `size` bytes, up to position `end`."""
        position = segment.recent_position(offset)
        first = 0
        if position is None or (min_one and end - position > max_bytes):
            found = segment.locate(offset, size, cached=cached)
            if found is None:
                return NOTHING
            position, first = found.position, found.size
        length = min(end - position, max(max_bytes, first) if min_one else max_bytes)
        if length <= 0:
            return NOTHING
        warm = (
            segment is self.active
            and position >= self._warm_from
            and position + _WARM_BYTES >= size
            and self._store.clock.now_ms() - self.marked_ms < _WARM_MARKS * MARK_MS
        )
        return ReadResult((FileSlice(segment.file, position, length, warm),), length)

    # Shrinking

    def end_before(self, offset: int) -> int:
        """Where the log ends once everything from `offset` on is cut, which lies in one of the segments."""
        return self.all[segment_number(self.all, offset)].end_before(offset)

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on, which lies in one of the segments."""
        kept = segment_number(self.all, offset) + 1
        active = self.all[kept - 1]
        self._drop(reversed(self.all[kept:]))  # so that whatever is left, if this breaks off, is of one piece
        active.truncate_to(offset)
        self._set(self.all[:kept])

    def start_again(self, base_offset: int, now_ms: int) -> None:
        """Drop all segments and begin a new one."""
        self._drop(reversed(self.all))
        self._set((self._begin(base_offset, now_ms),))

    def remove_first(self, count: int) -> None:
        """Remove the oldest `count` segments, of which the active one is none."""
        removed, self.all = self.all[:count], self.all[count:]
        self._drop(removed)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether `segments` are there, one after another, with another one after them."""
        first = segment_number(self.all, segments[0].base_offset)
        following = self.all[first : first + len(segments) + 1]
        return len(following) > len(segments) and all(map(is_, following, segments))

    def replace(self, old: Sequence[Segment], sizes: Mapping[str, int]) -> None:
        """Put the segment in `.swap` files, which have these `sizes`, in the place of `old`; it is on disk."""
        first = segment_number(self.all, old[0].base_offset)
        self._drop(old)
        now_ms = self._store.clock.now_ms()
        new = Segment(self._store.pool, self._path, old[0].base_offset, sizes, self._config, now_ms)
        for suffix in sizes:
            final = f"{self._path}/{file_name(new.base_offset, suffix)}"
            self._store.files.rename(final + SWAP_SUFFIX, final)
        new.sealed = new.synced = True
        self.all = (*self.all[:first], new, *self.all[first + len(old) :])
        self.changes += 1

    def _drop(self, segments: Iterable[Segment]) -> None:
        """Rename the segments' files, to be removed later."""
        due_ms = self._store.clock.now_ms() + self._config.file_delete_delay_ms
        self.changes += 1  # before and after: whoever misses a file on the way looks again
        for segment in segments:
            segment.close()
            self._store.discard(tuple(segment.mark_deleted()), due_ms)
        self.changes += 1

    def close(self) -> None:
        """Close the files, once nobody has a lease on them."""
        for segment in self.all:
            segment.close()

    def moved(self, path: str) -> None:
        """The directory was renamed."""
        for segment in self.all:
            segment.moved(path)


def _end_position(segment: Segment, size: int, up_to: int, cached: bool) -> int:
    """Where the first batch at or after `up_to` begins."""
    found = segment.locate(up_to, size, cached=cached)
    if found is None:
        return size
    return found.position if found.base_offset >= up_to else found.position + found.size
