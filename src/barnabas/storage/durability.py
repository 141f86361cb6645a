"""The part of a log that brings it to the disk, and closes it.

Everything before the recovery point is on disk; flushing.py has the order in which it gets there.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import StorageFailed
from barnabas.storage.flushing import FlushPlan
from barnabas.storage.reading import LogReader

if TYPE_CHECKING:
    from barnabas.storage.segments import Segments

logger = logging.getLogger(__name__)

_FLUSH_TRIES: Final = 5


class DurableLog(LogReader):
    """The part of a log that outlives the process."""

    __slots__ = ()

    def flush(self, up_to: int | None = None) -> int:
        """Bring everything before `up_to` to the disk; returns the new recovery point. Runs in a thread."""
        with self._flush_lock, self._store.writing(f"syncing {self._path}"):
            segments = self._segments  # looked up here: a deleted log writes nothing more into its directory
            up_to = self.log_end_offset if up_to is None else up_to  # not what is appended and rolled meanwhile
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
            with self._store.writing(f"renaming {self._path}", removes=True):
                self._store.files.rename(self._path, path)
            if segments is not None:
                segments.moved(path)
