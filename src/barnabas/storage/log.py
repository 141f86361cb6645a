"""One partition's log: batches in order, in segments, of which the last one is written to.

Threads. Appends, truncation and everything else that changes the log happen on the event loop, one at a time under
`_lock`; retention removes old segments from a thread under the same lock. Reads take a view of the segments and need no
lock after that. `flush` runs in a thread and holds no lock while it waits for the disk. Methods that wait for the disk
say so; the others do not wait, but for the first touch after a clean start, when the log is loaded.

What reaches the disk, in this order: the batches (fsync of the segments), the leader epochs, the names of new files
(fsync of the directory), and only then the recovery point moves. So after a crash everything before it is there.

A write or sync that fails makes the whole log directory fail (see directory.py). The log in memory never holds what is
not in the file: the failed batch is cut off again.
"""

from __future__ import annotations

import logging
import random
import threading
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import (
    CorruptMessage,
    InconsistentTopicId,
    OffsetOutOfRange,
    RecordListTooLarge,
    UnknownTopicOrPartition,
)
from barnabas.model.ids import NO_ID
from barnabas.protocol.records.batch import (
    CONTROL,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    PLACE,
    TRANSACTIONAL,
    BatchHeader,
)
from barnabas.protocol.records.checksum import crc32c
from barnabas.storage import checkpoints, recovery, search
from barnabas.storage.checkpoints import DamagedCheckpoint
from barnabas.storage.epochs import EpochEnd, LeaderEpochs
from barnabas.storage.files import ColdRead, FileHandle
from barnabas.storage.producer_state import ProducerInfo, ProducerStates, Snapshots
from barnabas.storage.search import TimestampOffset
from barnabas.storage.segment import MAX_RELATIVE_OFFSET, FileSlice, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from uuid import UUID

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory

__all__ = [
    "AppendInfo",
    "ColdRead",
    "EpochEnd",
    "FileHandle",
    "FileSlice",
    "Log",
    "ProducerInfo",
    "ReadResult",
    "TimestampOffset",
]

logger = logging.getLogger(__name__)

_WARM_TAIL: Final = 16 << 20
"""So much of a log's end counts as being in memory, if this process wrote it ..."""
_WARM_WRITES: Final = 256 << 20
"""... and so much was not written since then to the same directory."""
_FLUSH_TRIES: Final = 5


class AppendInfo(NamedTuple):
    """Where a batch went; for a repetition, where the first one is."""

    base_offset: int
    last_offset: int
    append_time: int
    """The broker's time with LogAppendTime, -1 otherwise."""
    log_start_offset: int
    duplicate: bool


class ReadResult(NamedTuple):
    """What a read found: slices whose lengths sum up to `size`."""

    slices: tuple[FileSlice, ...]
    size: int


NOTHING: Final = ReadResult((), 0)


class Log:
    """One partition's log."""

    __slots__ = (
        "__weakref__",
        "_active",
        "_append_time",
        "_closed",
        "_closed_at",
        "_epochs",
        "_epochs_on_disk",
        "_flush_lock",
        "_is_new",
        "_jitter_ms",
        "_last_append_mark",
        "_lock",
        "_max_batch",
        "_names_changes",
        "_names_on_disk",
        "_opened_size",
        "_path",
        "_producers",
        "_segments",
        "_snapshots",
        "_store",
        "_topic_id",
        "_truncations",
        "config",
        "high_watermark",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "recovery_point",
        "tp",
    )

    def __init__(
        self,
        tp: TopicPartition,
        store: LogDirectory,
        path: str,
        config: LogConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        topic_id: UUID | None = None,
    ) -> None:
        """A log that was closed cleanly at `recovery_point`; its files are looked at when they are needed."""
        self.tp = tp
        self.config = config
        self.log_start_offset = log_start_offset
        self.log_end_offset = recovery_point
        self.recovery_point = recovery_point
        """Everything before this offset is on disk (fsync)."""
        self.high_watermark = recovery_point
        """Set by the broker whenever it moves; retention and checkpoints use it."""
        self.last_flush_ms = store.clock.now_ms()
        self._store = store
        self._path = path
        self._topic_id = topic_id
        self._active: Segment | None = None
        self._segments: tuple[Segment, ...] = ()
        self._epochs = LeaderEpochs()
        self._epochs_on_disk = 0
        self._producers = ProducerStates()
        self._snapshots = Snapshots(store.files, path)
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._jitter_ms = 0
        self._truncations = 0
        self._names_changes = 0
        self._names_on_disk = 0
        self._is_new = False
        self._opened_size = 0
        self._last_append_mark = 0
        self._closed = False
        self._closed_at = -1
        self._use_config(config)

    @classmethod
    def create(cls, tp: TopicPartition, store: LogDirectory, path: str, config: LogConfig, topic_id: UUID) -> Log:
        """Make an empty log. The first flush brings its directory to the disk."""
        store.check_writable()
        try:
            store.files.make_dir(path)
            checkpoints.write_topic_id(store.files, path, topic_id, sync=False)
            log = cls(tp, store, path, config, topic_id=topic_id)
            log._load(clean=True)
        except OSError as error:
            raise store.fail(error, f"making {path}") from error
        log._names_changes += 1
        log._is_new = True
        return log

    @classmethod
    def recover(
        cls,
        tp: TopicPartition,
        store: LogDirectory,
        path: str,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        high_watermark: int,
    ) -> Log:
        """Load a log that was not closed cleanly. Reads files; runs in a thread."""
        log = cls(tp, store, path, config, log_start_offset=log_start_offset, recovery_point=recovery_point)
        log._load(clean=False)
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        return log

    def __repr__(self) -> str:
        return f"<Log {self.tp} {self.log_start_offset}..{self.log_end_offset}>"

    # What it is

    @property
    def topic_id(self) -> UUID:
        """The topic's id, or NO_ID when the directory does not say."""
        if self._topic_id is None:
            try:
                self._topic_id = checkpoints.read_topic_id(self._store.files, self._path)
            except DamagedCheckpoint as error:
                logger.warning("ignored a damaged file: %s", error)
                self._topic_id = NO_ID
        return self._topic_id

    def set_topic_id(self, topic_id: UUID) -> None:
        """Give the topic's id to a log that has none; InconsistentTopicId when it has another one."""
        if self.topic_id == NO_ID:
            checkpoints.write_topic_id(self._store.files, self._path, topic_id, sync=False)
            self._names_changes += 1
            self._topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicId(f"{self._path} belongs to topic id {self.topic_id}, not {topic_id}")

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return Path(self._path)

    @property
    def log_dir(self) -> Path:
        """The entry of log.dirs that it is in."""
        return Path(self._store.path)

    @property
    def is_failed(self) -> bool:
        """Whether its log directory takes no more writes."""
        return self._store.failed is not None

    @property
    def is_open(self) -> bool:
        """Whether the log was loaded; after a clean start that happens at the first touch."""
        return self._active is not None

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first."""
        self._open()
        return self._segments

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def latest_epoch(self) -> int:
        """The newest leader epoch in the log, or -1."""
        self._open()
        return self._epochs.latest

    @property
    def flush_required(self) -> bool:
        """Whether flush.messages is reached: a producer waits for LogManager.flush_through before it is answered."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    def producers(self) -> list[ProducerInfo]:
        """The producers that the log remembers."""
        self._open()
        return self._producers.describe()

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        with self._lock:
            self.config = config
            self._use_config(config)
            if self._active is not None:
                self._active.activate(config, self._jitter_ms)

    def _use_config(self, config: LogConfig) -> None:
        self._append_time = config.message_timestamp_type == "LogAppendTime"
        self._max_batch = config.segment_bytes
        self._jitter_ms = random.randrange(min(config.segment_jitter_ms, config.segment_ms) or 1)

    # Loading

    def open(self) -> None:
        """Load the log now and not at the first touch. Reads files."""
        self._open()

    def _open(self) -> Segment:
        segment = self._active
        if segment is None:
            with self._lock:
                if self._active is None:
                    expected = self.recovery_point
                    try:
                        self._load(clean=True)
                    except OSError as error:
                        raise self._store.fail(error, f"loading {self._path}") from error
                    if self.log_end_offset != expected:
                        logger.warning(
                            "%s ends at offset %d, though it was closed at %d",
                            self._path,
                            self.log_end_offset,
                            expected,
                        )
                segment = self._active
        if segment is None:
            raise UnknownTopicOrPartition(f"{self.tp} was closed")
        return segment

    def _load(self, *, clean: bool) -> None:
        if self._closed:
            return
        loaded = recovery.load(
            self._store,
            self._path,
            self.config,
            recovery_point=self.recovery_point,
            log_start_offset=self.log_start_offset,
            clean=clean,
        )
        self._segments = tuple(loaded.segments)
        self._epochs = loaded.epochs
        self._epochs_on_disk = 0
        self._producers = loaded.producers
        self._snapshots = loaded.snapshots
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self._names_changes += not clean
        if clean and (loaded.log_end_offset == 0 or loaded.log_end_offset in loaded.snapshots.offsets):
            self._closed_at = loaded.log_end_offset
        active = loaded.segments[-1]
        active.activate(self.config, self._jitter_ms)
        self._opened_size = active.size
        self._active = active

    # Appending

    def append(
        self, batch: bytes | memoryview, header: BatchHeader | None = None, *, leader_epoch: int, now_ms: int
    ) -> AppendInfo:
        """As leader: give one validated batch its place and write it; `header` is that of `batch`, if already read."""
        store = self._store
        if store.failed is not None:
            store.check_writable()
        segment = self._active or self._open()
        fields = HEADER.unpack_from(batch) if header is None else header
        _, length, _, _, _, attributes, delta, _, timestamp, producer_id, producer_epoch, sequence, _ = fields
        size = length + LOG_OVERHEAD
        if size != len(batch):
            raise CorruptMessage(f"the batch's header speaks of {size} bytes, but it has {len(batch)}")
        if size > self._max_batch:
            raise RecordListTooLarge(f"a batch of {size} bytes does not fit into a segment of {self._max_batch} bytes")
        with self._lock:
            base = self.log_end_offset
            last = base + delta
            transactional = bool(attributes & TRANSACTIONAL)
            has_sequence = producer_id >= 0 and not attributes & CONTROL
            if has_sequence:
                found = self._producers.check(producer_id, producer_epoch, sequence, delta, transactional=transactional)
                if found is not None:
                    append_time = found.timestamp if self._append_time else -1
                    return AppendInfo(found.base_offset, found.last_offset, append_time, self.log_start_offset, True)
            view = memoryview(batch)
            if self._append_time:
                append_time = timestamp = now_ms
                buffers = (_stamped(BatchHeader._make(fields), view, base, leader_epoch, now_ms), view[HEADER_SIZE:])
            else:
                append_time = -1
                buffers = (PLACE.pack(base, length, leader_epoch), view[16:])
            try:
                if segment is not self._active or segment.size == 0 or segment.roll_due(size, last, timestamp, now_ms):
                    segment = self._segment_for(base, size, last, timestamp, now_ms)
                segment.write(buffers, size, base, last, timestamp)
            except OSError as error:
                raise store.fail(error, f"writing to {self._path}") from error
            if leader_epoch > self._epochs.latest:
                self._epochs.assign(leader_epoch, base)
            if has_sequence:
                self._producers.record(producer_id, producer_epoch, sequence, base, delta, timestamp, transactional)
            elif producer_id >= 0:
                placed = BatchHeader._make(fields)._replace(base_offset=base, max_timestamp=timestamp)
                recovery.replay(self._producers, placed, bytes(view[HEADER_SIZE:]), segment.txn_index)
            self.log_end_offset = last + 1
            store.written = self._last_append_mark = store.written + size
            return AppendInfo(base, last, append_time, self.log_start_offset, False)

    def append_replica(self, batches: bytes | memoryview, *, now_ms: int) -> AppendInfo | None:
        """As follower: write whole batches with the offsets and epochs they have; None when there is no whole batch."""
        self._store.check_writable()
        self._open()
        view = memoryview(batches)
        first = position = 0
        base_offset = last_offset = -1
        with self._lock:
            while position + HEADER_SIZE <= len(view):
                header = BatchHeader._make(HEADER.unpack_from(view, position))
                if position + header.size > len(view):
                    break
                if header.base_offset < self.log_end_offset:
                    raise OffsetOutOfRange(
                        f"{self.tp}: a batch at {header.base_offset} cannot follow offset {self.log_end_offset - 1}"
                    )
                self._append_as_is(header, view[position : position + header.size], now_ms)
                base_offset = header.base_offset if position == first else base_offset
                last_offset = header.last_offset
                position += header.size
        if last_offset < 0:
            return None
        return AppendInfo(base_offset, last_offset, -1, self.log_start_offset, False)

    def _append_as_is(self, header: BatchHeader, batch: memoryview, now_ms: int) -> None:
        size, last, timestamp = header.size, header.last_offset, header.max_timestamp
        start = self.log_end_offset
        try:
            base = start if last - start <= MAX_RELATIVE_OFFSET else header.base_offset
            segment = self._segment_for(base, size, last, timestamp, now_ms)
            segment.write((batch,), size, start, last, timestamp)
        except OSError as error:
            raise self._store.fail(error, f"writing to {self._path}") from error
        if header.leader_epoch > self._epochs.latest:
            self._epochs.assign(header.leader_epoch, header.base_offset)
        recovery.replay(
            self._producers, header, bytes(batch[HEADER_SIZE:]) if header.is_control else b"", segment.txn_index
        )
        self.log_end_offset = last + 1
        self._store.written = self._last_append_mark = self._store.written + size

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note, on becoming leader, that `epoch` starts at `start_offset`."""
        self._open()
        with self._lock:
            self._epochs.assign(epoch, start_offset)

    def _segment_for(self, base: int, size: int, last: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, after rolling to a new one if the batch belongs there; its file exists."""
        active = self._segments[-1]
        if active.roll_due(size, last, timestamp, now_ms):
            return self._roll(base, now_ms)
        if not active.has_file:
            active.make_file()
            self._names_changes += 1
        return active

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        self._store.check_writable()
        self._open()
        with self._lock:
            try:
                self._roll(self.log_end_offset, now_ms)
            except OSError as error:
                raise self._store.fail(error, f"writing to {self._path}") from error

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        active = self._segments[-1]
        if active.base_offset == base_offset:
            return active
        active.seal()
        self._producers.end_offset = base_offset
        self._snapshots.take(self._producers, sync=False)
        segment = Segment.begin(self._store.pool, self._path, base_offset, self.config, now_ms)
        segment.make_file()
        self._jitter_ms = random.randrange(min(self.config.segment_jitter_ms, self.config.segment_ms) or 1)
        segment.activate(self.config, self._jitter_ms)
        self._segments = (*self._segments, segment)
        self._active = segment
        self._opened_size = 0
        self._names_changes += 1
        logger.info("%s: began segment %d", self._path, base_offset)
        self._store.rolled(self)
        return segment

    # Reading

    def read(self, offset: int, max_bytes: int, up_to: int, min_one: bool, *, may_block: bool = True) -> ReadResult:
        """Bytes from the batch that holds `offset` on, of batches that begin before `up_to`.

        The last batch may be cut by `max_bytes`; with `min_one` the first one is whole, however large. With
        `may_block=False`, ColdRead is raised where this would have to wait for the disk: call again in a thread.
        """
        if self._active is None:
            self._open()
        with self._lock:
            segments, end_offset, truncations = self._segments, self.log_end_offset, self._truncations
            active = segments[-1]
            active_size = active.size
        if offset < self.log_start_offset or offset > end_offset:
            raise OffsetOutOfRange(f"{self.tp}: offset {offset} is not within {self.log_start_offset} and {end_offset}")
        if offset >= up_to or offset == end_offset or (max_bytes <= 0 and not min_one):
            return NOTHING
        number = len(segments) - 1
        if offset < active.base_offset:
            number = bisect_right(segments, offset, key=_base_offset) - 1
        found = NOTHING
        while not found.size and number < len(segments):
            segment = segments[number]
            number += 1
            size, next_base = active_size, end_offset
            if segment is not active:
                size, next_base = segment.size, segments[number].base_offset
            found = self._read_segment(segment, size, offset, max_bytes, up_to, min_one, up_to >= next_base, may_block)
        if truncations != self._truncations:
            return self.read(offset, max_bytes, up_to, min_one, may_block=may_block)
        return found

    def _read_segment(
        self,
        segment: Segment,
        size: int,
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one: bool,
        whole: bool,
        may_block: bool,
    ) -> ReadResult:
        """Read from one segment of `size` bytes; `whole` when all its batches begin before `up_to`."""
        cached = not may_block
        end = size if whole else _end_position(segment, size, up_to, cached)
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
            segment is self._active
            and position >= self._opened_size
            and position + _WARM_TAIL >= size
            and self._store.written - self._last_append_mark < _WARM_WRITES
        )
        return ReadResult((FileSlice(segment.file, position, length, warm),), length)

    def offset_for_time(self, timestamp: int, *, up_to: int) -> TimestampOffset | None:
        """The first record before `up_to` whose timestamp is at least `timestamp`. Runs in a thread."""
        found = self._search(lambda segments: search.offset_for_time(segments, timestamp, self.log_start_offset))
        return None if found is None or found.offset >= up_to else found

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp. Runs in a thread."""
        return self._search(search.offset_of_max_timestamp)

    def _search(self, find: Callable[[tuple[Segment, ...]], TimestampOffset | None]) -> TimestampOffset | None:
        while True:
            truncations = self._truncations
            try:
                found = find(self.segments)
            except (FileNotFoundError, CorruptMessage):
                if truncations == self._truncations:
                    raise
                continue
            if truncations == self._truncations:
                return found

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of `offset`, or -1."""
        self._open()
        return self._epochs.epoch_at(offset)

    def offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where `epoch`, or the last one before it that the log has, ends."""
        self._open()
        return self._epochs.end_offset(epoch, self.log_end_offset)

    # Removing

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on; a batch that holds it goes as a whole. Slices that wait are revoked."""
        self._store.check_writable()
        self._open()
        with self._lock:
            if offset < self._segments[0].base_offset:
                self._truncate_fully(offset)
            elif offset < self.log_end_offset:
                self._truncate(offset)
            self._epochs.truncate_from_end(offset)

    def _truncate(self, offset: int) -> None:
        kept = bisect_right(self._segments, offset, key=_base_offset)
        removed = self._segments[kept:]
        active = self._segments[kept - 1]
        self._truncations += 1
        try:
            self._drop(removed)
            active.truncate_to(offset)
            self._snapshots.remove_after(offset)
            end_offset = active.next_offset()
        except OSError as error:
            raise self._store.fail(error, f"cutting {self._path}") from error
        self._segments = self._segments[:kept]
        active.activate(self.config, self._jitter_ms)
        self._active = active
        self._opened_size = active.size
        self._names_changes += 1
        logger.info("%s: cut the log at offset %d; it ended at %d", self._path, end_offset, self.log_end_offset)
        self.log_end_offset = end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self._producers = recovery.load_producers(self._segments, self._snapshots, self.log_start_offset, end_offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything and start again at `start_offset`."""
        self._store.check_writable()
        self._open()
        with self._lock:
            self._truncate_fully(start_offset)

    def _truncate_fully(self, start_offset: int) -> None:
        self._truncations += 1
        now_ms = self._store.clock.now_ms()
        try:
            self._drop(self._segments)
            self._snapshots.remove_after(-1)
            segment = Segment.begin(self._store.pool, self._path, start_offset, self.config, now_ms)
            segment.make_file()
        except OSError as error:
            raise self._store.fail(error, f"cutting {self._path}") from error
        segment.activate(self.config, self._jitter_ms)
        self._segments = (segment,)
        self._active = segment
        self._opened_size = 0
        self._names_changes += 1
        self._epochs.clear()
        self._producers = ProducerStates(start_offset)
        logger.info("%s: dropped all, to go on at offset %d", self._path, start_offset)
        self.log_start_offset = self.log_end_offset = self.recovery_point = self.high_watermark = start_offset

    def delete_records_before(self, offset: int) -> int:
        """Move the log start to `offset`, at most to the high watermark; returns where the log starts now."""
        self._open()
        with self._lock:
            if offset < 0 or offset > self.high_watermark:
                raise OffsetOutOfRange(
                    f"{self.tp}: records before {offset} cannot be deleted; the high watermark is {self.high_watermark}"
                )
            self._move_start(offset)
            return self.log_start_offset

    def remove_segments(self, count: int, now_ms: int) -> int:
        """Remove the oldest `count` segments, or what is left of them; the active one is rolled first if need be.

        Returns how many were removed. Waits for renames; runs in a thread.
        """
        self._store.check_writable()
        with self._lock:
            count = min(count, len(self._segments))
            try:
                if count == len(self._segments):
                    self._roll(self.log_end_offset, now_ms)
                    count = min(count, len(self._segments) - 1)
                if count <= 0:
                    return 0
                removed, self._segments = self._segments[:count], self._segments[count:]
                self._move_start(self._segments[0].base_offset)
                self._drop(removed)
            except OSError as error:
                raise self._store.fail(error, f"removing segments of {self._path}") from error
            self._names_changes += 1
        return count

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_from_start(offset)

    def _drop(self, segments: Iterable[Segment]) -> None:
        """Rename the segments' files, to be removed later."""
        due_ms = self._store.clock.now_ms() + self.config.file_delete_delay_ms
        for segment in segments:
            segment.close()
            self._store.discard(tuple(segment.mark_deleted()), due_ms)
            self._snapshots.remove(segment.base_offset)

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        if self._active is not None and len(self._producers):
            with self._lock:
                self._producers.expire(now_ms - self._store.producer_expiration_ms)

    # Bringing it to the disk

    def flush(self, up_to: int | None = None) -> int:
        """Bring everything before `up_to` to the disk; returns the new recovery point. Runs in a thread."""
        self._store.check_writable()
        if self._active is None:
            return self.recovery_point
        with self._flush_lock:
            for attempt in range(_FLUSH_TRIES):
                try:
                    if self._flush(up_to):
                        break
                except FileNotFoundError as error:
                    if attempt == _FLUSH_TRIES - 1:
                        raise self._store.fail(error, f"syncing {self._path}") from error
                except OSError as error:
                    raise self._store.fail(error, f"syncing {self._path}") from error
        return self.recovery_point

    def _flush(self, up_to: int | None) -> bool:
        """One pass; False when the log was rolled or cut meanwhile, and another pass is needed."""
        files = self._store.files
        with self._lock:
            end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            segments = [segment for segment in self._segments if not segment.synced and segment.base_offset < end]
            snapshots = [offset for offset in self._snapshots.offsets if self.recovery_point <= offset <= end]
            truncations = self._truncations
            names_changes = self._names_changes
            epochs, changes = self._epochs.entries, self._epochs.changes
            if end <= self.recovery_point and changes == self._epochs_on_disk and names_changes == self._names_on_disk:
                return True
        for segment in segments:
            segment.sync()
        for offset in snapshots:
            self._snapshots.sync(offset)
        if changes != self._epochs_on_disk:
            checkpoints.write_epochs(files, self._path, epochs, sync=True)
            self._epochs_on_disk = changes
        if names_changes != self._names_on_disk:
            if self.topic_id != NO_ID:
                files.sync_file(f"{self._path}/{checkpoints.PARTITION_METADATA}")
            files.sync_dir(self._path)
            if self._is_new:
                files.sync_dir(self._store.path)
                self._is_new = False
            self._names_on_disk = names_changes
        with self._lock:
            if truncations != self._truncations:
                return False
            if any(segment.sealed and not segment.synced for segment in segments):
                return False
            self.recovery_point = max(self.recovery_point, end)
            self.last_flush_ms = self._store.clock.now_ms()
        return True

    def close(self) -> None:
        """Flush, and write what makes the next start cheap: indexes, a snapshot, the epochs. Waits for the disk."""
        if self._active is not None and self._changed:
            with self._lock:
                active = self._segments[-1]
                try:
                    active.finish_indexes()
                    if self.log_end_offset > 0:
                        self._producers.end_offset = self.log_end_offset
                        self._snapshots.take(self._producers, sync=False)
                except OSError as error:
                    raise self._store.fail(error, f"closing {self._path}") from error
                self._names_changes += 1
            self.flush()
            try:
                if active.has_file:
                    self._store.files.sync_file(active.offset_index.file.path)
                    self._store.files.sync_file(active.time_index.file.path)
            except OSError as error:
                raise self._store.fail(error, f"closing {self._path}") from error
        self.abandon()

    @property
    def _changed(self) -> bool:
        """Whether the files are not as a clean stop left them."""
        return (
            self.log_end_offset != self._closed_at
            or self._names_changes != self._names_on_disk
            or self._epochs.changes != self._epochs_on_disk
        )

    def abandon(self) -> None:
        """Close the files and nothing else, as when the directory failed or the partition is deleted."""
        self._closed = True
        self._active = None
        for segment in self._segments:
            segment.close()

    def mark_deleted(self, path: str) -> None:
        """The partition is deleted: rename its directory to `path` and take no more calls."""
        self.abandon()
        try:
            self._store.files.rename(self._path, path)
        except OSError as error:
            raise self._store.fail(error, f"renaming {self._path}") from error
        for segment in self._segments:
            segment.moved(path)


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _end_position(segment: Segment, size: int, up_to: int, cached: bool) -> int:
    """Where the first batch at or after `up_to` begins."""
    found = segment.locate(up_to, size, cached=cached)
    if found is None:
        return size
    return found.position if found.base_offset >= up_to else found.position + found.size


def _stamped(header: BatchHeader, batch: memoryview, base: int, leader_epoch: int, now_ms: int) -> bytes:
    """The batch's header with its place in the log and the broker's time; that changes the CRC."""
    placed = header._replace(
        base_offset=base,
        leader_epoch=leader_epoch,
        attributes=header.attributes | LOG_APPEND_TIME,
        max_timestamp=now_ms,
    )
    covered = memoryview(HEADER.pack(*placed))[CRC_START:]
    return HEADER.pack(*placed._replace(crc=crc32c(batch[HEADER_SIZE:], crc32c(covered))))
