"""The segments of one log, oldest first, the last one active: finding, reading, rolling, cutting, removing.

This is about files only; offsets that have a meaning beyond them (log start, high watermark), producers and leader
epochs belong to the log. Whoever changes the segments holds the log's lock. Readers take `all` as it is at one moment:
it is replaced, never changed, and segments that were removed can be read until nobody has a lease on them.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import is_
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.storage.segments.file_names import LOG_SUFFIX, TEMPORARY_SUFFIX, file_name
from barnabas.storage.segments.segment import FileSlice, Segment
from barnabas.storage.segments.txn_index import aborted_between

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.model.log_config import LogConfig
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.file_pool import FileHandle
    from barnabas.storage.segments.cut import Cut
    from barnabas.storage.segments.txn_index import AbortedTransaction

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

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether the records of a batch in it were aborted; only where aborted transactions were asked for."""
        if not self.aborted or not header.is_transactional or header.is_control:
            return False
        return any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in self.aborted
        )


NOTHING: Final = ReadResult((), 0)


class Replacement(NamedTuple):
    """A segment that takes the place of others."""

    old: Sequence[Segment]
    new: Segment
    marked: Sequence[str]
    """The files of the old ones, as they are called now."""


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
    after = segments[number].offset_behind(last.position + last.length, cached=cached)
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
        "_written_before",
        "active",
        "all",
        "changes",
        "closing",
        "cut_unsynced",
        "is_making_file",
        "marked_ms",
        "next_file",
    )

    def __init__(self, store: LogDirectory, path: str, config: LogConfig, segments: Iterable[Segment]) -> None:
        self._store = store
        self._path = path
        self._config = config
        self._jitter_ms = 0
        self._marked_size = 0
        self._warm_from = 0
        self._written_before: int | None = None
        """Added to the size of the active segment, it gives the bytes that were written."""
        self.all: tuple[Segment, ...] = ()
        self.active: Segment
        self.changes = 0
        """Grows when file names change, so that a flush knows whether the directory must be synced."""
        self.marked_ms = 0
        """When mark() was last called; whoever appends does so every MARK_MS."""
        self.cut_unsynced = False
        """Whether segments were cut, and the disk may still have what is gone: the active one has no room till then."""
        self.closing = False
        """Whether the log is being closed: the active segment has no room any more."""
        self.is_making_file = False
        """Whether a thread makes the active segment's file: nobody else may, nor write to it, till then."""
        self.next_file: FileHandle | None = None
        """An empty file for the next segment, whose name does not count; None if it was not made yet."""
        self._set(tuple(segments))

    def _set(self, segments: tuple[Segment, ...]) -> None:
        written = 0 if self._written_before is None else self._written_before + self.active.size
        self._written_before = written - segments[-1].size
        self.all = segments
        self.active = segments[-1]
        self._warm_from = self._marked_size = self.active.size
        self._jitter_ms = _random_part(min(self._config.segment_jitter_ms, self._config.roll_ms))
        self._activate()

    def _activate(self) -> None:
        self.active.activate(self._config, self._jitter_ms)
        if self.cut_unsynced or self.closing:
            self.active.limits.block()

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.all)

    @property
    def written_bytes(self) -> int:
        """Bytes that were written since the log was loaded. It never shrinks, whatever is removed or cut."""
        assert self._written_before is not None
        return self._written_before + self.active.size

    def use(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        self._config = config
        self._activate()

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

    def end_making_file(self, *, is_made: bool) -> None:
        """A thread has made the active segment's file, or could not."""
        self.is_making_file = False
        if is_made:
            self.active.has_file = True
            self.changes += 1

    def roll(self, base_offset: int, now_ms: int) -> bool:
        """Begin a new segment at `base_offset`; False when the active one begins there already.

        What can fail comes first: without its successor, the active segment goes on and is synced as before.
        """
        if self.active.base_offset == base_offset:
            return False
        self.active.add_last_entry()
        following = self._begin(base_offset, now_ms)
        self.active.seal()
        self._set((*self.all, following))
        return True

    def _begin(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment.begin(self._store.pool, self._path, base_offset, self._config, now_ms)
        if not self._use_next_file(segment):
            segment.make_file()
        self.changes += 1
        return segment

    def _use_next_file(self, segment: Segment) -> bool:
        """Give a segment the file that was made ahead of time; False if there is none."""
        if self.next_file is None:
            return False
        try:
            segment.take_file(self.next_file)
        except FileNotFoundError:  # whoever removed it did no harm
            self.next_file = None
            return False
        self.next_file = None
        return True

    def make_next_file(self) -> FileHandle:
        """Make and open a file for the next segment; the caller sets `next_file`. Runs in a thread, without a lock.

        Its name is used once, has no offset, and is one that a start removes (leftovers.py): whenever the process ends,
        the file is part of the log or it is none.
        """
        pool = self._store.pool
        path = f"{self._path}/next-{pool.new_number()}{LOG_SUFFIX}{TEMPORARY_SUFFIX}"
        pool.files.close(pool.files.open(path, create=True))
        file = pool.handle(path)
        try:
            file.acquire()
            file.release()
        except BaseException:
            pool.files.remove(path)
            raise
        return file

    def take_next_file(self) -> FileHandle | None:
        """The file that was made for the next segment, if there is one: the caller removes it."""
        file, self.next_file = self.next_file, None
        return file

    def end_appends(self) -> None:
        """The log is being closed: nothing more is written to the active segment."""
        self.closing = True
        self.active.limits.block()

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
        found = segment.recent(offset, size)
        if found is None:
            batch = segment.locate(offset, size, cached=cached)
            if batch is None:
                return NOTHING
            found = batch.position, batch.position + batch.size
        position, batch_end = found
        length = min(end - position, max(max_bytes, batch_end - position) if min_one else max_bytes)
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

    def holding(self, offset: int) -> Segment:
        """The segment that an offset of the log lies in."""
        return self.all[segment_number(self.all, offset)]

    def carry_out(self, cut: Cut) -> None:
        """Cut as planned, in a segment that is still one of these."""
        kept = self.all.index(cut.segment) + 1
        self.cut_unsynced = True
        self._drop(reversed(self.all[kept:]))  # so that whatever is left, if this breaks off, is of one piece
        cut.segment.carry_out(cut)
        self._set(self.all[:kept])

    def prepare_start(self, base_offset: int, now_ms: int) -> Segment:
        """A segment for `start_again`, with a file that has no final name yet."""
        segment = Segment.begin(self._store.pool, self._path, base_offset, self._config, now_ms)
        segment.prepare_file()
        return segment

    def start_again(self, first: Segment) -> None:
        """Drop all segments and begin with a new one."""
        self.cut_unsynced = True
        self._drop(reversed(self.all))
        first.use_prepared_file()
        self.changes += 1
        self._set((first,))

    def end_cut(self) -> None:
        """What was cut is gone from the disk, too: the active segment is written to again."""
        self.cut_unsynced = False
        self._activate()

    def take_first(self, count: int) -> tuple[Segment, ...]:
        """Take out the oldest `count` segments, of which the active one is none; `drop` removes their files."""
        taken, self.all = self.all[:count], self.all[count:]
        self.changes += 1  # whoever misses a file of theirs looks again
        return taken

    def put_back(self, taken: Iterable[Segment]) -> None:
        """Segments that were taken out could not be removed: they are the oldest again."""
        self.all = (*taken, *self.all)
        self.changes += 1

    def drop(self, taken: Iterable[Segment]) -> None:
        """Rename the files of segments that were taken out, to be removed later. Needs no lock."""
        for segment in taken:
            segment.close()
            self._discard(segment.mark_deleted())

    def _discard(self, paths: Iterable[str]) -> None:
        due_ms = self._store.clock.now_ms() + self._config.file_delete_delay_ms
        self._store.discard(tuple(paths), due_ms)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether `segments` are there, one after another, with another one after them."""
        first = segment_number(self.all, segments[0].base_offset)
        following = self.all[first : first + len(segments) + 1]
        return len(following) > len(segments) and all(map(is_, following, segments))

    def prepare_replacement(self, old: Sequence[Segment], sizes: Mapping[str, int]) -> Replacement:
        """Give the segment in `.swap` files, which have these `sizes` and are on disk, the names of `old`.

        Readers go on with the old ones, which have other names from now on, until `replace`. Needs no lock.
        """
        for segment in old:
            segment.txn_index.entries()  # from here on in memory: it has no handle, which a reader would find it by
        marked = [path for segment in old for path in segment.mark_deleted()]
        now_ms = self._store.clock.now_ms()
        new = Segment(self._store.pool, self._path, old[0].base_offset, sizes, self._config, now_ms)
        for suffix in sizes:
            final = f"{self._path}/{file_name(new.base_offset, suffix)}"
            self._store.files.rename(final + SWAP_SUFFIX, final)
        new.sealed = new.synced = True
        return Replacement(old, new, marked)

    def replace(self, replacement: Replacement) -> None:
        """Put the new segment in the place of the old ones, which are still there."""
        old, new, _ = replacement
        first = segment_number(self.all, old[0].base_offset)
        self.all = (*self.all[:first], new, *self.all[first + len(old) :])
        self.changes += 1

    def drop_replaced(self, replacement: Replacement) -> None:
        """Have the files of segments that were replaced removed later. Needs no lock."""
        for segment in replacement.old:
            segment.close()
        self._discard(replacement.marked)

    def _drop(self, segments: Iterable[Segment]) -> None:
        """Rename the segments' files, to be removed later."""
        self.changes += 1  # before and after: whoever misses a file on the way looks again
        self.drop(segments)
        self.changes += 1

    def close(self) -> None:
        """Close the files, once nobody has a lease on them."""
        for segment in self.all:
            segment.close()
        if self.next_file is not None:
            self.next_file.close()

    def set_directory(self, path: str) -> None:
        """The directory was renamed."""
        for segment in self.all:
            segment.set_directory(path)


def _random_part(most_ms: int) -> int:
    """Less than this, so that logs do not all begin a segment at once (log.roll.jitter.ms, which few set)."""
    if most_ms <= 0:
        return 0
    import random

    return random.randrange(most_ms)


def _end_position(segment: Segment, size: int, up_to: int, cached: bool) -> int:
    """Where the first batch at or after `up_to` begins."""
    found = segment.locate(up_to, size, cached=cached)
    if found is None:
        return size
    return found.position if found.base_offset >= up_to else found.position + found.size
