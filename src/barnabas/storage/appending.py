"""The part of a log that grows: batches get their place, and are written to the active segment.

The log in memory never holds what is not in the file, nor the file what is not in memory. What can fail when a batch is
written is done before its write, or undone with it (`Segment.write`); what is noted after the write, until the new end
offset, only changes memory. Should that fail nevertheless, nothing more is written to the directory until its logs were
read again: the next batch would get an offset that the file has already.
"""

from __future__ import annotations

import logging
from itertools import islice
from typing import Final, NamedTuple

from barnabas.model.errors import ApiError, CorruptMessage, OutOfOrderSequence, RecordListTooLarge
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
from barnabas.storage.durability import DurableLog
from barnabas.storage.producer_state import MAX_SEQUENCE, Duplicate
from barnabas.storage.recall import MustRecall, read_back
from barnabas.storage.replaying import aborted_by, replay
from barnabas.storage.runs import Run, read_run, run_of
from barnabas.storage.segment import MAX_RELATIVE_OFFSET, Segment
from barnabas.storage.segments import MARK_MS, Segments

logger = logging.getLogger(__name__)

RECALLED_AT_ONCE: Final = 500
"""Producers that are filled up while the log is locked."""


class AppendInfo(NamedTuple):
    """Where a batch went; for a repetition, where the first one is."""

    base_offset: int
    last_offset: int
    append_time: int
    """The broker's time with LogAppendTime, -1 otherwise."""
    log_start_offset: int
    duplicate: bool


class GrowingLog(DurableLog):
    """The part of a log that is written to."""

    __slots__ = ()

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

    def recall(self) -> None:
        """Read back what a snapshot left out, after MustRecall. Waits for the disk; runs in a thread.

        Appends go on meanwhile: producers are filled up a few at a time.
        """
        segments, states = self._open(), self._producers
        if states.snapshot_offset:
            older = iter(read_back(states, segments.all).items())
            while some := list(islice(older, RECALLED_AT_ONCE)):
                with self._lock:
                    for (producer_id, epoch), batches in some:
                        states.remember(producer_id, epoch, batches)
            states.snapshot_offset = 0

    def recall_for(self, header: HeaderFields) -> None:
        """The same, if it must be before this batch can be appended."""
        if self._producers.snapshot_offset and header[9] >= 0:
            try:
                self._find_repeated(header, True)
            except MustRecall:
                self.recall()
            except ApiError:
                return  # the append says so

    def append(
        self,
        batch: bytes | memoryview,
        leader_epoch: int,
        now_ms: int,
        header: HeaderFields | None = None,
        in_sequence: bool = True,
    ) -> AppendInfo:
        """As leader: give one batch its place and write it.

        Raises ApiError; after MustRecall, it may be appended when `recall` has run.

        `header` is what validation.check returned; it is the batch's own, or with LogAppendTime goes in its place.
        Batches that a coordinator writes in a client's transaction are not `in_sequence`: all of them begin at 0.
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
                if producer is None and (found := self._find_repeated(header, in_sequence)) is not None:
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
                if attributes & CONTROL:
                    self._write_control(segment, BatchHeader._make(header)._replace(base_offset=base), batch)
                else:
                    segment.write(batch, size, base, last, timestamp)
            except OSError as error:
                raise store.fail(error, f"writing to {self._path}") from error
            try:
                if leader_epoch > self._epochs.latest:
                    self._begin_epoch(leader_epoch, base)
                if producer is not None:
                    producer.add((sequence + delta) & MAX_SEQUENCE, last, delta, timestamp)
                elif producer_id >= 0:
                    self._note_producer(segment, BatchHeader._make(header)._replace(base_offset=base), batch)
            except BaseException as error:
                store.distrust(f"{self._path} has a batch at offset {base} that could not be noted: {error!r}")
                raise
            self.log_end_offset = last + 1
            return tuple.__new__(AppendInfo, (base, last, append_time, self.log_start_offset, False))

    def _find_repeated(self, header: HeaderFields, in_sequence: bool) -> Duplicate | None:
        """The batch that this one repeats, if it does. Raises ApiError for one that must not follow."""
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        if attributes & CONTROL:
            return None
        if not in_sequence:
            self._producers.check_epoch(producer_id, epoch)
            return None
        transactional = bool(attributes & TRANSACTIONAL)
        try:
            return self._producers.check(producer_id, epoch, sequence, delta, transactional)
        except OutOfOrderSequence as error:
            if self._producers.snapshot_offset:
                raise MustRecall(str(error)) from None
            raise

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
            for part in run.parts():
                if part.fits(segments.active):
                    self._append_run(segments.active, part, view)
                    view = view[part.size :]
                    continue
                for header in part.headers:
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
        """Write the batches at the front of `data`; a control batch comes by itself."""
        if run.has_control:
            self._write_control(segment, run.headers[0], data[: run.size])
        else:
            segment.write_run(data, run, self.log_end_offset)
        position = 0
        try:
            for header in run.headers:
                if header.leader_epoch > self._epochs.latest:
                    self._begin_epoch(header.leader_epoch, header.base_offset)
                end = position + header.batch_length + LOG_OVERHEAD
                self._note_producer(segment, header, data[position:end])
                position = end
        except BaseException as error:
            self._store.distrust(f"{self._path} has batches up to {run.last_offset} that could not be noted: {error!r}")
            raise
        self.log_end_offset = run.last_offset + 1

    def _write_control(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """Write a control batch, and where it aborts a transaction, that into the index: both or neither."""
        aborted = aborted_by(self._producers, header, bytes(batch[HEADER_SIZE:]))
        segment.write(batch, header.size, self.log_end_offset, header.last_offset, header.max_timestamp, aborted)

    def _note_producer(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """A batch, of a producer, of its transaction, or the marker that ends one, was written to `segment`."""
        payload = bytes(batch[HEADER_SIZE:]) if header.is_control else b""
        ended = replay(self._producers, header, payload, None)
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
