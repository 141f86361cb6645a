"""One partition's log: batches in order, from the log start offset to the log end offset.

Threads. Appends, truncation and everything else that changes the log happen on the event loop, one at a time under
`_lock`; retention removes old segments from a thread under the same lock. `flush` runs in a thread and holds no lock
while it waits for the disk. Methods that wait for the disk say so; the others do not wait, but for the first touch
after a clean start, when the log is loaded. Reading, which changes nothing, is in reading.py.

Everything before the recovery point is on disk; flushing.py has the order in which it gets there.

A write or sync that fails makes the whole log directory fail (see directory.py). The log in memory never holds what is
not in the file: the failed batch is cut off again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import (
    CorruptMessage,
    InconsistentTopicId,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordListTooLarge,
    StorageFailed,
)
from barnabas.model.ids import NO_ID
from barnabas.protocol.records.batch import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    PLACE,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
)
from barnabas.storage import checkpoints, recovery
from barnabas.storage.epochs import EpochEnd
from barnabas.storage.files import ColdRead, FileHandle
from barnabas.storage.flushing import FlushPlan
from barnabas.storage.producer_state import MAX_SEQUENCE, Duplicate, ProducerInfo, ProducerStates
from barnabas.storage.reading import LogReader
from barnabas.storage.recall import recall
from barnabas.storage.runs import Run, read_run, run_of
from barnabas.storage.search import TimestampOffset
from barnabas.storage.segment import MAX_RELATIVE_OFFSET, FileSlice, Segment
from barnabas.storage.segments import MARK_MS, ReadResult, Segments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from barnabas.model.ids import TopicPartition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.directory import LogDirectory
    from barnabas.storage.retention import Expired

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

_FLUSH_TRIES: Final = 5


class AppendInfo(NamedTuple):
    """Where a batch went; for a repetition, where the first one is."""

    base_offset: int
    last_offset: int
    append_time: int
    """The broker's time with LogAppendTime, -1 otherwise."""
    log_start_offset: int
    duplicate: bool


class Log(LogReader):
    """One partition's log."""

    __slots__ = ()

    @classmethod
    def create(cls, tp: TopicPartition, store: LogDirectory, path: str, config: LogConfig, topic_id: UUID) -> Log:
        """Make an empty log. The first flush brings its directory to the disk."""
        with store.writing(f"making {path}"):
            store.files.make_dir(path)
            checkpoints.write_topic_id(store.files, path, topic_id, sync=False)
            log = cls(tp, store, path, config, topic_id=topic_id)
            log._load(clean=True).changes += 1
        log._flusher.is_new = True
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
        cleaned_to: int | None = None,
    ) -> Log:
        """Load a log that was not closed cleanly. Reads files; runs in a thread."""
        log = cls(tp, store, path, config, log_start_offset=log_start_offset, recovery_point=recovery_point)
        log.cleaned_to = cleaned_to
        log.high_watermark = high_watermark
        log._load(clean=False).changes += 1
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        return log

    def set_topic_id(self, topic_id: UUID) -> None:
        """Give the topic's id to a log that has none; InconsistentTopicId when it has another one."""
        if self.topic_id == NO_ID:
            segments = self._open()
            with self._store.writing(f"writing the topic id of {self._path}"):
                checkpoints.write_topic_id(self._store.files, self._path, topic_id, sync=False)
            segments.changes += 1
            self._topic_id = topic_id
        elif self.topic_id != topic_id:
            raise InconsistentTopicId(f"{self._path} belongs to topic id {self.topic_id}, not {topic_id}")

    def update_config(self, config: LogConfig) -> None:
        """Use these settings from now on."""
        with self._lock:
            self.config = config
            self._max_batch = config.segment_bytes
            if self._segments is not None:
                self._segments.use(config)

    # Appending

    @property
    def is_ready(self) -> bool:
        """Whether an append finds everything in its place: the log was loaded, and has a file to go on with."""
        segments = self._segments
        return segments is not None and segments.active.has_file

    def prepare(self) -> None:
        """Load the log, and make the file that the next append goes to. Waits for the file system."""
        segments = self._open()
        with self._lock, self._store.writing(f"making a file of {self._path}"):
            segments.make_file()

    def append(
        self, batch: bytes | memoryview, leader_epoch: int, now_ms: int, header: HeaderFields | None = None
    ) -> AppendInfo:
        """As leader: give one batch its place and write it.

        `header` is what validation.check returned; it is the batch's own, or with LogAppendTime goes in its place.
        A batch that can be written to is given its place where it lies, which saves putting two buffers together.
        """
        store = self._store
        if store.failed is not None:
            store.check_writable()
        segments = self._segments or self._open()
        size = len(batch)
        if header is None:
            header = HEADER.unpack_from(batch)
            if header[1] + LOG_OVERHEAD != size:
                raise CorruptMessage(f"the batch's header speaks of {header[1] + LOG_OVERHEAD} bytes, it has {size}")
        _, length, _, _, _, attributes, delta, _, timestamp, producer_id, producer_epoch, sequence, _ = header
        if size > self._max_batch:
            raise RecordListTooLarge(f"a batch of {size} bytes does not fit into a segment of {self._max_batch} bytes")
        with self._lock:
            base = self.log_end_offset
            last = base + delta
            producer = None
            if producer_id >= 0:
                special = attributes & (TRANSACTIONAL | CONTROL)
                producer = None if special else self._producers.next_of(producer_id, producer_epoch, sequence)
                if producer is None and (found := self._find_repeated(segments, header)) is not None:
                    append_time = found.timestamp if attributes & LOG_APPEND_TIME else -1
                    return AppendInfo(found.base_offset, found.last_offset, append_time, self.log_start_offset, True)
            if not isinstance(batch, memoryview) or batch.readonly:
                batch = memoryview(bytearray(batch))
            if attributes & LOG_APPEND_TIME:
                append_time = timestamp
                HEADER.pack_into(batch, 0, base, length, leader_epoch, *header[3:])
            else:
                append_time = -1
                PLACE.pack_into(batch, 0, base, length, leader_epoch)
            segment = segments.active
            if now_ms - segments.marked_ms > MARK_MS:
                segments.mark(now_ms)
            try:
                if not segment.has_room(size, last, timestamp):
                    segment = self._segment_for(segments, base, size, last, timestamp, now_ms)
                segment.write(batch, size, base, last, timestamp)
            except OSError as error:
                raise store.fail(error, f"writing to {self._path}") from error
            if leader_epoch > self._epochs.latest:
                self._begin_epoch(leader_epoch, base)
            if producer is not None:
                producer.add((sequence + delta) & MAX_SEQUENCE, last, delta, timestamp)
            elif producer_id >= 0:
                self._note_producer(segment, BatchHeader._make(header)._replace(base_offset=base), batch)
            self.log_end_offset = last + 1
            return tuple.__new__(AppendInfo, (base, last, append_time, self.log_start_offset, False))

    def _find_repeated(self, segments: Segments, header: HeaderFields) -> Duplicate | None:
        """The batch that this one repeats, if it does. Raises ApiError for one that must not follow."""
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        if attributes & CONTROL:
            return None
        transactional = bool(attributes & TRANSACTIONAL)
        try:
            return self._producers.check(producer_id, epoch, sequence, delta, transactional)
        except OutOfOrderSequence:
            if not recall(self._producers, segments.all):
                raise
            return self._producers.check(producer_id, epoch, sequence, delta, transactional)

    def append_replica(self, batches: bytes | memoryview, *, now_ms: int) -> AppendInfo | None:
        """As follower: write whole batches with the offsets and epochs they have; None when there is no whole batch.

        Raises CorruptMessage when they were damaged on the way.
        """
        segments = self._open()
        view = memoryview(batches)
        run = read_run(view, self.log_end_offset, self.tp)
        if run is None:
            return None
        with self._lock, self._store.writing(f"writing to {self._path}"):
            if now_ms - segments.marked_ms > MARK_MS:
                segments.mark(now_ms)
            if run.fits(segments.active):
                self._append_run(segments.active, run, view)
            else:
                for header in run.headers:
                    segment = self._place(segments, header, now_ms)
                    self._append_run(segment, run_of(header), view)
                    view = view[header.size :]
        return AppendInfo(run.headers[0].base_offset, self.log_end_offset - 1, -1, self.log_start_offset, False)

    def _place(self, segments: Segments, header: BatchHeader, now_ms: int) -> Segment:
        """The segment for a batch that has its offsets."""
        start, last = self.log_end_offset, header.last_offset
        base = start if last - start <= MAX_RELATIVE_OFFSET else header.base_offset
        return self._segment_for(segments, base, header.size, last, header.max_timestamp, now_ms)

    def _append_run(self, segment: Segment, run: Run, data: memoryview) -> None:
        """Write the batches at the front of `data`."""
        segment.write_run(data, run, self.log_end_offset)
        position = 0
        for header in run.headers:
            if header.leader_epoch > self._epochs.latest:
                self._begin_epoch(header.leader_epoch, header.base_offset)
            end = position + header.batch_length + LOG_OVERHEAD
            self._note_producer(segment, header, data[position:end])
            position = end
        self.log_end_offset = run.last_offset + 1

    def _note_producer(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """A batch, of a producer, of its transaction, or the marker that ends one, was written to `segment`."""
        payload = bytes(batch[HEADER_SIZE:]) if header.is_control else b""
        ended = recovery.replay(self._producers, header, payload, segment.txn_index)
        if ended is not None:
            self._forget_ended(self.high_watermark)
            self._ended.append(ended)
        if header.is_transactional:
            self._find_unstable()
            self.has_aborted = self.has_aborted or not segment.txn_index.is_empty

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        """Note, on becoming leader, that `epoch` starts at `start_offset`."""
        self._open()
        with self._lock:
            self._epochs.assign(epoch, start_offset)

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Note a batch's new epoch. The file follows soon, and before the recovery point can pass the batch."""
        self._epochs.assign(epoch, start_offset)
        self._store.background(lambda: self.try_flush(self.recovery_point))

    def _segment_for(self, segments: Segments, base: int, size: int, last: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, after rolling to a new one if the batch belongs there; its file exists."""
        if segments.active.roll_due(size, last, timestamp, now_ms):
            self._roll(segments, base, now_ms)
        segments.make_file()
        return segments.active

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        segments = self._open()
        with self._lock, self._store.writing(f"writing to {self._path}"):
            self._roll(segments, self.log_end_offset, now_ms)

    def _roll(self, segments: Segments, base_offset: int, now_ms: int) -> None:
        if segments.roll(base_offset, now_ms):
            self._producers.end_offset = base_offset
            self._snapshots.take(self._producers, sync=False)
            logger.info("%s: began segment %d", self._path, base_offset)
            self._store.background(lambda: self.try_flush(base_offset))

    # Removing

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on; a batch that holds it goes as a whole. Slices that wait are revoked."""
        segments = self._open()
        with self._lock, self._store.writing(f"cutting {self._path}"):
            if offset < segments.all[0].base_offset:
                self._truncate_fully(segments, offset)
            elif offset < self.log_end_offset:
                self._truncate(segments, offset)
            self._epochs.truncate_from_end(offset)

    def _truncate(self, segments: Segments, offset: int) -> None:
        self.truncations += 1
        end_offset = segments.truncate_to(offset)
        self._snapshots.remove_after(offset)
        logger.info("%s: cut the log at offset %d; it ended at %d", self._path, end_offset, self.log_end_offset)
        self.log_end_offset = end_offset
        self.recovery_point = min(self.recovery_point, end_offset)
        if self.cleaned_to is not None:
            self.cleaned_to = min(self.cleaned_to, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        first_offset = segments.all[0].base_offset
        self._producers = recovery.load_producers(segments.all, self._snapshots, first_offset, end_offset)
        while self._ended and self._ended[-1].last_offset >= end_offset:
            self._ended.pop()
        self._find_unstable()

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything and start again at `start_offset`."""
        segments = self._open()
        with self._lock, self._store.writing(f"cutting {self._path}"):
            self._truncate_fully(segments, start_offset)

    def _truncate_fully(self, segments: Segments, start_offset: int) -> None:
        self.truncations += 1
        segments.start_again(start_offset, self._store.clock.now_ms())
        self._snapshots.remove_after(-1)
        self._epochs.clear()
        self._producers = ProducerStates(start_offset)
        self._ended.clear()
        self.cleaned_to = None
        logger.info("%s: dropped all, to go on at offset %d", self._path, start_offset)
        self.log_start_offset = self.log_end_offset = self.recovery_point = self.high_watermark = start_offset
        self._find_unstable()

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

    def remove_segments(self, expired: Expired, now_ms: int) -> int:
        """Remove the oldest segments. The active one is rolled first if need be, and stays if it is empty or has grown.

        Returns how many were removed. Waits for renames; runs in a thread.
        """
        segments = self._open()
        with self._lock, self._store.writing(f"removing segments of {self._path}"):
            if self._closed or self.truncations != expired.truncations:
                return 0
            if expired.count >= len(segments.all) and self.log_end_offset == expired.end_offset:
                self._roll(segments, self.log_end_offset, now_ms)
            count = min(expired.count, len(segments.all) - 1)
            if count > 0:
                bases = [segment.base_offset for segment in segments.all[:count]]
                segments.remove_first(count)
                for base in bases:
                    self._snapshots.remove(base)
                self._move_start(segments.all[0].base_offset)
            return count

    def is_as_planned(self, old: Sequence[Segment], truncations: int) -> bool:
        """Whether `old` are still segments of the log, and it was not cut since."""
        segments = self._segments
        if segments is None or truncations != self.truncations:
            return False
        return segments.holds(old)

    def replace_segments(self, old: Sequence[Segment], sizes: Mapping[str, int], truncations: int) -> bool:
        """Put the segment in `.swap` files, which have these `sizes`, in the place of `old`, neighbours before the end.

        False if the log is not what it was. Waits for renames; runs in a thread.
        """
        with self._lock:
            segments = self._segments
            if segments is None or not self.is_as_planned(old, truncations):
                return False
            segments.replace(old, sizes)
            for segment in old[1:]:
                self._snapshots.remove(segment.base_offset)
            self.has_aborted = any(not segment.txn_index.is_empty for segment in segments.all)
            return True

    def _move_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.truncate_from_start(offset)
            if self.first_unstable_offset is not None:
                self._find_unstable()

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        if self._segments is not None and len(self._producers):
            with self._lock:
                self._producers.expire(now_ms - self._store.producer_expiration_ms)

    # Bringing it to the disk

    def flush(self, up_to: int | None = None) -> int:
        """Bring everything before `up_to` to the disk; returns the new recovery point. Runs in a thread."""
        with self._flush_lock, self._store.writing(f"syncing {self._path}"):
            segments = self._segments  # looked up here: a deleted log writes nothing more into its directory
            for attempt in range(_FLUSH_TRIES):
                try:
                    if segments is None or self._flush(segments, up_to):
                        break
                except FileNotFoundError:  # a file, or the whole partition, was removed meanwhile
                    if self._closed:
                        break
                    if attempt == _FLUSH_TRIES - 1:
                        raise
        return self.recovery_point

    def try_flush(self, up_to: int | None = None) -> None:
        """Flush where nobody waits for it: of a failure, only the log tells. Runs in a thread."""
        try:
            self.flush(up_to)
        except StorageFailed as error:
            logger.warning("could not flush %s: %s", self.tp, error)

    def _flush(self, segments: Segments, up_to: int | None) -> bool:
        """One pass; False when the log was rolled or cut meanwhile, and another pass is needed."""
        with self._lock:
            start = self.recovery_point
            end = self.log_end_offset if up_to is None else min(up_to, self.log_end_offset)
            unsynced = [segment for segment in segments.all if not segment.synced and segment.base_offset < end]
            plan = FlushPlan(
                segments=[segment for segment in unsynced if segment.sealed or end > start],
                snapshots=[offset for offset in self._snapshots.offsets if start <= offset <= end],
                epochs=self._epochs.entries,
                epoch_changes=self._epochs.changes,
                name_changes=segments.changes,
                truncations=self.truncations,
            )
            if end <= start and not self._flusher.is_behind(segments, self._epochs):
                return True
        complete = self._flusher.sync(plan, self._snapshots)
        with self._lock:
            if plan.truncations != self.truncations:
                return False
            for segment in complete:
                segment.synced = True
            if any(segment.sealed and not segment.synced for segment in plan.segments):
                return False
            self.recovery_point = max(self.recovery_point, end)
            self.last_flush_ms = self._store.clock.now_ms()
        return True

    def close(self) -> None:
        """Flush, and write what makes the next start cheap: indexes, a snapshot, the epochs. Waits for the disk."""
        segments = self._segments
        if segments is not None and (
            self.log_end_offset != self._closed_at or self._flusher.is_behind(segments, self._epochs)
        ):
            active = segments.active
            with self._lock, self._store.writing(f"closing {self._path}"):
                active.finish_indexes()
                if self.log_end_offset > 0:
                    self._producers.end_offset = self.log_end_offset
                    self._snapshots.take(self._producers, sync=False)
                segments.changes += 1
            self.flush()
            with self._store.writing(f"closing {self._path}"):
                active.sync_indexes()
        self.abandon()

    def abandon(self) -> None:
        """Close the files and nothing else, as when the directory failed."""
        with self._lock:
            self._abandon()

    def _abandon(self) -> Segments | None:
        self._closed = True
        segments, self._segments = self._segments, None
        if segments is not None:
            segments.close()
        return segments

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way; it may still write into the log's directory, whatever became of the log."""
        return self._flush_lock.locked()

    def wait_for_flush(self) -> None:
        """Wait for the flush that is under way, if one is."""
        with self._flush_lock:
            pass

    def mark_deleted(self, path: str) -> None:
        """The partition is deleted: rename its directory to `path` and take no more calls.

        A flush that is under way may go on for a while; before the name is used again, `wait_for_flush`.
        """
        with self._lock:
            segments = self._abandon()
            with self._store.writing(f"renaming {self._path}"):
                self._store.files.rename(self._path, path)
            if segments is not None:
                segments.moved(path)
