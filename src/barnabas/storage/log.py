"""One partition's log: batches in order, from the log start offset to the log end offset.

Threads. Appends and everything else that changes the log happen on the event loop, one at a time under `_lock`;
retention removes old segments from a thread under the same lock. A log is cut in a thread, while nobody leads or
follows its partition. `flush` runs in a thread, and while it waits for the disk it holds no lock that the event loop
takes. Methods that wait for the disk say so; the others do not wait, but for the first touch after a clean start, when
the log is loaded.

A log is described in four parts, each built on the one before: reading, which changes nothing (reading.py), bringing it
to the disk (durability.py), appending (appending.py), and here how it is made and what is removed from it.

A write or sync that fails makes the whole log directory fail (see directory.py).
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from barnabas.model.errors import InconsistentTopicId, OffsetOutOfRange, UnknownTopicOrPartition
from barnabas.model.ids import NO_ID
from barnabas.storage import checkpoints
from barnabas.storage.appending import AppendInfo, GrowingLog
from barnabas.storage.epochs import EpochEnd
from barnabas.storage.files import ColdRead, FileHandle
from barnabas.storage.flushing import FlushPlan
from barnabas.storage.producer_state import ProducerInfo, ProducerStates
from barnabas.storage.recovery import TornLog
from barnabas.storage.replaying import load_producers
from barnabas.storage.search import TimestampOffset
from barnabas.storage.segment import FileSlice, Segment
from barnabas.storage.segments import ReadResult, Segments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
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


class Log(GrowingLog):
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
        """Load a log that was not closed cleanly; one whose end is missing is `torn`. Reads files; runs in a thread."""
        log = cls(tp, store, path, config, log_start_offset=log_start_offset, recovery_point=recovery_point)
        log.cleaned_to = cleaned_to
        log.high_watermark = high_watermark
        try:
            log._load(clean=False).changes += 1
        except TornLog as error:
            log._refuse(error)
            store.unrecovered = True
            return log
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log.cleaned_to = None if cleaned_to is None else min(cleaned_to, log.log_end_offset)
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
        """Use these settings from now on. A log that is being loaded takes them when that is done (`_load`)."""
        self.config = config
        self._max_batch = config.segment_bytes
        if self._segments is not None:
            with self._lock:
                if self._segments is not None:
                    self._segments.use(self.config)

    def truncate_to(self, offset: int) -> None:
        """Cut everything from `offset` on; a batch that holds it goes as a whole. A log that starts later starts anew.

        Nobody appends meanwhile. Slices that wait are revoked. Where there is something to cut, this waits for the disk
        and runs in a thread.
        """
        self._open()
        if offset < self.log_start_offset:
            self.truncate_fully(offset)
        elif offset < self.log_end_offset:
            if not self._truncate(offset):
                self.truncate_fully(offset)
        else:
            with self._lock:
                self._epochs.truncate_from_end(offset)

    def truncate_fully(self, start_offset: int) -> None:
        """Drop everything and start anew at `start_offset`. Otherwise as `truncate_to`."""
        segments = self._open()
        with self._flush_lock:
            with self._cutting():
                self._lower(min(start_offset, segments.all[0].base_offset), start_offset)
            with self._removing(segments):
                self._start_anew(segments, start_offset)

    def _truncate(self, offset: int) -> bool:
        """Cut the log; False if retention has removed what was to be kept meanwhile."""
        segments = self._open()
        with self._flush_lock:
            with self._cutting():
                end_offset = segments.end_before(offset)
                self._lower(end_offset, end_offset)
                producers = self._producers_at(segments, end_offset)
            with self._removing(segments):
                if offset < self.log_start_offset:
                    return False
                self._cut(segments, offset, end_offset, producers)
        return True

    def _cut(self, segments: Segments, offset: int, end_offset: int, producers: ProducerStates) -> None:
        logger.info("%s: cut the log at offset %d; it ended at %d", self._path, end_offset, self.log_end_offset)
        segments.truncate_to(offset)
        self._snapshots.remove_after(offset)
        self._epochs.truncate_from_end(offset)
        self.log_end_offset = end_offset
        self._producers = producers
        while self._ended and self._ended[-1].last_offset >= end_offset:
            self._ended.pop()
        self._find_unstable()

    def _start_anew(self, segments: Segments, start_offset: int) -> None:
        logger.info("%s: dropped all up to %d, to go on at %d", self._path, self.log_end_offset, start_offset)
        segments.start_again(start_offset, self._store.clock.now_ms())
        self._snapshots.remove_after(-1)
        self._epochs.clear()
        self._producers = ProducerStates(start_offset)
        self._ended.clear()
        self.cleaned_to = None
        self.log_start_offset = self.log_end_offset = self.recovery_point = self.high_watermark = start_offset
        self._find_unstable()

    @contextmanager
    def _cutting(self, *, undone: bool = True) -> Iterator[None]:
        """Of a log that is deleted meanwhile, files that are missing say nothing of the disk."""
        with self._store.writing(f"cutting {self._path}", undone=undone):
            try:
                yield
            except FileNotFoundError:
                self._check_open()
                raise

    @contextmanager
    def _removing(self, segments: Segments) -> Iterator[None]:
        """Change memory and files. At the end what was cut is gone from the disk, too.

        If it came back with the next crash, it could lie behind what was written in its place, and the indexes could
        speak of it.
        """
        with self._cutting(undone=False):
            with self._lock:
                self._check_open()
                self.truncations += 1
                self._closed_at = -1  # the log may grow to the same end again, with nothing of it on disk
                yield
            plan = FlushPlan(
                segments=[segments.active],
                snapshots=[],
                epochs=self._epochs.entries,
                epoch_changes=self._epochs.changes,
                name_changes=segments.changes,
                truncations=self.truncations,
            )
            segments.active.sync_indexes()
            self._flusher.sync(plan, self._snapshots)

    def _check_open(self) -> None:
        if self._closed:
            raise UnknownTopicOrPartition(f"{self.tp} was closed")

    def _lower(self, offset: int, log_start_offset: int) -> None:
        """Before anything is cut: neither in memory nor on disk is more said of the log than is left of it.

        Otherwise a crash after the next appends would take them for known to be on disk, or for committed. Nothing is
        flushed meanwhile, so the recovery point does not rise again.
        """
        with self._lock:
            self._check_open()
            self.recovery_point = min(self.recovery_point, offset)
            self.high_watermark = min(self.high_watermark, offset)
            self.log_start_offset = min(self.log_start_offset, log_start_offset)
            if self.cleaned_to is not None:
                self.cleaned_to = min(self.cleaned_to, offset)
        self._store.lower_checkpoints(self)

    def _producers_at(self, segments: Segments, end_offset: int) -> ProducerStates:
        """The producers as of an offset before the log's end. Reads the batches since the last snapshot, if it must."""
        if self._producers.hold_since(end_offset):
            self._producers.end_offset = end_offset
            return self._producers
        view = segments.all
        return load_producers(view, self._snapshots, view[0].base_offset, end_offset)

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
        with self._lock:
            if self._closed or self.truncations != expired.truncations:
                return 0
            if expired.count >= len(segments.all) and self.log_end_offset == expired.end_offset:
                with self._store.writing(f"writing to {self._path}"):
                    self._roll(segments, self.log_end_offset, now_ms)
            count = min(expired.count, len(segments.all) - 1)
            if count > 0:
                with self._store.writing(f"removing segments of {self._path}", removes=True):
                    bases = [segment.base_offset for segment in segments.all[:count]]
                    self._move_start(segments.all[count].base_offset)  # first: what stays by mistake lies before it
                    segments.remove_first(count)
                    for base in bases:
                        self._snapshots.remove(base)
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
