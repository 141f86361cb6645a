"""Appending to a log: batches get their place, and are written to the active segment.

The log in memory never holds what is not in the file, nor the file what is not in memory. What can fail when a batch is
written is done before its write, or undone with it (`Segment.write`); what is noted after the write, until the new end
offset, only changes memory. Should that fail nevertheless, nothing more is written to the directory until its logs were
read again: the next batch would get an offset that the file has already.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.errors import CorruptMessage, RecordListTooLarge, StorageFailed, UnknownTopicOrPartition
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
from barnabas.storage.log.part import LogPart
from barnabas.storage.log.runs import Run, read_run, run_of
from barnabas.storage.producers.replaying import aborted_by
from barnabas.storage.producers.state import MAX_SEQUENCE
from barnabas.storage.segments.indexes import MAX_RELATIVE_OFFSET
from barnabas.storage.segments.segments import MARK_MS, Segments

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


class AppendInfo(NamedTuple):
    """Where a batch went; for a repetition, where the first one is."""

    base_offset: int
    last_offset: int
    append_time: int
    """The broker's time with LogAppendTime, -1 otherwise."""
    log_start_offset: int
    duplicate: bool


class Appender(LogPart):
    """Appends to one log, on the event loop, or in a thread to one that begins within a batch (Log.start_within)."""

    __slots__ = ("max_batch",)

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.max_batch = log.config.segment_bytes
        """No batch may have more bytes; follows the log's settings."""

    def prepare(self) -> None:
        """Load the log, and make the file that the next append goes to. Waits for the file system."""
        log = self._log
        segments = log.open()
        with log.durability.lock, log.store.writing(f"making a file of {log.path}"):
            with log.lock:
                log.check_open()
                segment = segments.active
                if segment.has_file:
                    return
                segments.is_making_file = True
            is_made = False
            try:
                segment.create_file()
                is_made = True
            except FileNotFoundError as error:
                log.check_open(error)
                raise
            finally:
                with log.lock:
                    segments.end_making_file(is_made=is_made)

    def append(
        self,
        batch: bytes | memoryview,
        leader_epoch: int,
        now_ms: int,
        header: HeaderFields | None = None,
        in_sequence: bool = True,
    ) -> AppendInfo:
        """As leader: give one batch its place and write it.

        Raises ApiError; after ReadBackNeeded, it may be appended when `recall` has run.

        `header` is what validation.check returned; it is the batch's own, or with LogAppendTime goes in its place.
        Batches that a coordinator writes in a client's transaction are not `in_sequence`: all of them begin at 0.
        A batch that can be written to is given its place where it lies, which saves putting two buffers together.
        """
        log = self._log
        store = log.store
        if store.failed is not None:
            store.check_writable()
        segments = log.loaded or log.open()
        size = len(batch)
        if header is None:
            header = HEADER.unpack_from(batch)
            if header[1] + LOG_OVERHEAD != size:
                raise CorruptMessage(f"the batch's header says {header[1] + LOG_OVERHEAD} bytes, but it has {size}")
        _, length, _, _, _, attributes, delta, _, timestamp, producer_id, producer_epoch, sequence, _ = header
        if size > self.max_batch:
            raise RecordListTooLarge(f"a batch of {size} bytes does not fit into a segment of {self.max_batch} bytes")
        with log.lock:
            base = log.log_end_offset
            last = base + delta
            producer = None
            if producer_id >= 0:
                special = attributes & (TRANSACTIONAL | CONTROL)
                producer = None if special else log.producers.states.next_of(producer_id, producer_epoch, sequence)
                if producer is None and (found := log.producers.find_duplicate(header, in_sequence)) is not None:
                    append_time = found.timestamp if attributes & LOG_APPEND_TIME else -1
                    return AppendInfo(found.base_offset, found.last_offset, append_time, log.log_start_offset, True)
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
                if not segment.limits.has_room(segment.size, size, last, timestamp):
                    segment = self._segment_for(segments, base, size, last, timestamp, now_ms)
                    producer = None  # a new segment's snapshot has what was found above: it must not change any more
                if attributes & CONTROL:
                    self._write_control(segment, BatchHeader(base, *header[1:]), batch)
                else:
                    segment.write(batch, size, base, last, timestamp)
            except OSError as error:
                if isinstance(error, FileNotFoundError):
                    log.check_open(error)  # it was set aside, and its directory has another name
                raise store.fail(error, f"writing to {log.path}") from error
            try:
                if leader_epoch > log.epochs.latest:
                    self._begin_epoch(leader_epoch, base)
                if producer is not None:
                    producer.add((sequence + delta) & MAX_SEQUENCE, last, delta, timestamp)
                elif producer_id >= 0:
                    log.producers.add(segment, BatchHeader(base, *header[1:]), batch)
            except BaseException as error:
                store.distrust(f"{log.path} has a batch at offset {base} that is not in memory: {error!r}")
                raise
            log.log_end_offset = last + 1
            return tuple.__new__(AppendInfo, (base, last, append_time, log.log_start_offset, False))

    def append_replica(self, batches: bytes | memoryview, *, now_ms: int) -> AppendInfo | None:
        """As follower: write whole batches with the offsets and epochs they have; None when there is no whole batch.

        Raises CorruptMessage when they were damaged on the way.
        """
        log = self._log
        segments = log.open()
        view = memoryview(batches)
        run = read_run(view, log.log_end_offset, log.tp)
        if run is None:
            return None
        with log.lock, log.store.writing(f"writing to {log.path}"):
            if now_ms - segments.marked_ms > MARK_MS:
                segments.mark(now_ms)
            for part in run.parts():
                if part.fits(segments.active):
                    self._append_run(segments.active, part, view)
                    view = view[part.size :]
                    continue
                for header in part.headers:
                    segment = self._segment_for_placed(segments, header, now_ms)
                    self._append_run(segment, run_of(header), view)
                    view = view[header.size :]
        return AppendInfo(run.headers[0].base_offset, log.log_end_offset - 1, -1, log.log_start_offset, False)

    def _segment_for_placed(self, segments: Segments, header: BatchHeader, now_ms: int) -> Segment:
        """The segment for a batch that has its offsets."""
        start, last = self._log.log_end_offset, header.last_offset
        base = start if last - start <= MAX_RELATIVE_OFFSET else header.base_offset
        return self._segment_for(segments, base, header.size, last, header.max_timestamp, now_ms)

    def _append_run(self, segment: Segment, run: Run, data: memoryview) -> None:
        """Write the batches at the front of `data`; a control batch comes by itself."""
        log = self._log
        if run.has_control:
            self._write_control(segment, run.headers[0], data[: run.size])
        else:
            segment.write_run(data, run, log.log_end_offset)
        position = 0
        add_batch = log.producers.add
        try:
            for header in run.headers:
                if header.leader_epoch > log.epochs.latest:
                    self._begin_epoch(header.leader_epoch, header.base_offset)
                end = position + header.batch_length + LOG_OVERHEAD
                add_batch(segment, header, data[position:end])
                position = end
        except BaseException as error:
            log.store.distrust(
                f"{log.path} has batches up to offset {run.last_offset} that are not in memory: {error!r}"
            )
            raise
        log.log_end_offset = run.last_offset + 1

    def _write_control(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """Write a control batch, and where it aborts a transaction, that into the index: both or neither."""
        log = self._log
        aborted = aborted_by(log.producers.states, header, bytes(batch[HEADER_SIZE:]))
        segment.write(batch, header.size, log.log_end_offset, header.last_offset, header.max_timestamp, aborted)

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Note a batch's new epoch. The file follows soon, and before the recovery point can pass the batch."""
        log = self._log
        log.epochs.assign(epoch, start_offset)
        log.store.background(lambda: log.durability.try_flush(log.recovery_point))

    def _segment_for(self, segments: Segments, base: int, size: int, last: int, timestamp: int, now_ms: int) -> Segment:
        """The active segment, after rolling to a new one if the batch belongs there; its file exists."""
        self._check_appendable(segments)
        filled, limits = segments.active.size, segments.active.limits
        if limits.roll_due(filled, size, last, timestamp, now_ms):
            self.roll(segments, base, now_ms)
        elif limits.begins_to_end(filled, size, timestamp) and segments.next_file is None:
            self._log.store.background(self.make_next_file)
        segments.make_file()
        return segments.active

    def roll(self, segments: Segments, base_offset: int, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty. The caller has the log's lock."""
        log = self._log
        self._check_appendable(segments)
        if segments.roll(base_offset, now_ms):
            log.producers.note_snapshot(base_offset)
            logger.info("%s: rolled to a new segment at offset %d.", log.path, base_offset)
            log.store.background(lambda: log.durability.try_flush(base_offset))

    def make_next_file(self) -> None:
        """Make the file of the next segment ahead of time. Runs in a thread.

        If that fails, or is not done when the file is needed, the append makes it, and says what is wrong.
        """
        log = self._ref()
        if log is None:  # deleted meanwhile
            return
        segments = log.loaded
        if segments is None or segments.next_file is not None or log.store.failed is not None:
            return
        try:
            file = segments.make_next_file()
            with log.lock:
                if log.loaded is segments and segments.next_file is None:
                    segments.next_file = file
                    return
            file.close()
            log.store.files.remove(file.path)
        except OSError as error:
            if not log.is_closed:
                logger.info(
                    "Could not make the next segment file of %s ahead of time. It is made when it is needed: %s",
                    log.path,
                    error,
                )

    def _check_appendable(self, segments: Segments) -> None:
        """Refuse batches while others work on the files without the log's lock, and after a cut that was not synced.

        Such a sync is tried again.
        """
        log = self._log
        if segments.closing:
            raise UnknownTopicOrPartition(f"{log.tp} is being closed")
        if segments.is_making_file:
            raise StorageFailed(f"the first file of {log.path} is being made: try again")
        if segments.cut_unsynced:
            log.store.background(lambda: log.durability.try_flush())  # which holds the log
            raise StorageFailed(
                f"{log.path} was truncated, and the truncation is not on disk yet. It is synced again now: try again"
            )
