"""Bringing a log to the disk.

Everything before the recovery point is on disk: batches, the transaction index, leader epochs and names. The recovery
point rises only here, after all of that was synced, and falls only where the log is cut, which holds `lock` meanwhile.
flushing.py has the order in which things are synced.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import StorageFailed
from barnabas.storage.log.flushing import Flusher, FlushPlan
from barnabas.storage.log.part import LogPart

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segments import Segments

logger = logging.getLogger(__name__)

_FLUSH_TRIES: Final = 5


class Durability(LogPart):
    """Flushes one log."""

    __slots__ = ("closed_at", "flusher", "last_flush_ms", "lock")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.lock = threading.Lock()
        """Held by whoever flushes, cuts the log or removes its old segments; never asked for with the log's lock."""
        self.flusher = Flusher(log.store, log.path)
        self.last_flush_ms = log.store.clock.now_ms()
        self.closed_at = -1
        """The end offset at which the files are as `finish` leaves them; -1 when that is not known."""

    def flush(self, up_to: int | None = None) -> int:
        """Bring everything before `up_to` to the disk; returns the new recovery point. Runs in a thread."""
        log = self._log
        with self.lock, log.store.writing(f"syncing {log.path}"):
            segments = log.loaded  # looked up here: a deleted log writes nothing more into its directory
            up_to = log.log_end_offset if up_to is None else up_to  # not what is appended and rolled meanwhile
            for attempt in range(_FLUSH_TRIES):
                try:
                    if segments is not None:
                        self.write_snapshots()
                        if segments.cut_unsynced:
                            self.sync_cut(segments)
                    if segments is None or self._flush(segments, up_to):
                        break
                except FileNotFoundError:  # a file, or the whole partition, was removed meanwhile
                    if log.is_closed:
                        break
                    if attempt == _FLUSH_TRIES - 1:
                        raise
            return log.recovery_point  # before the log may be cut

    def try_flush(self, up_to: int | None = None) -> None:
        """Flush where nobody waits for it: a failure is only logged. Runs in a thread."""
        try:
            self.flush(up_to)
        except StorageFailed as error:
            logger.warning("Flush of %s failed: %s. The next flush syncs the same records.", self._log.tp, error)

    def _flush(self, segments: Segments, up_to: int) -> bool:
        """One pass; False when the log was rolled or cut meanwhile, and another pass is needed."""
        log = self._log
        snapshots = log.producers.snapshots
        with log.lock:
            start, end = log.recovery_point, min(up_to, log.log_end_offset)
            unsynced = [segment for segment in segments.all if not segment.synced and segment.base_offset < end]
            plan = FlushPlan(
                segments=[segment for segment in unsynced if segment.sealed or end > start],
                snapshots=[offset for offset in snapshots.offsets if start <= offset <= end],
                epochs=log.epochs.entries,
                epoch_changes=log.epochs.changes,
                name_changes=segments.changes,
                truncations=log.truncations,
            )
            if end <= start and not self.flusher.is_behind(segments, log.epochs):
                return True
        began = time.monotonic()
        complete = self.flusher.sync(plan, snapshots)
        log.store.flush_times.add(time.monotonic() - began)
        with log.lock:
            if plan.truncations != log.truncations:
                return False
            for segment in complete:
                segment.synced = True
            if any(segment.sealed and not segment.synced for segment in plan.segments):
                return False
            log.recovery_point = max(log.recovery_point, end)
            self.last_flush_ms = log.store.clock.now_ms()
        return True

    def write_snapshots(self) -> None:
        """Write the snapshots of producers that were noted when segments began. The caller has `lock`."""
        log = self._log
        snapshots = log.producers.snapshots
        with log.lock:
            noted = {} if log.is_closed else snapshots.to_encode()
        encoded = {offset: producers.encode() for offset, producers in noted.items()}
        with log.lock:
            snapshots.keep_encoded(encoded)
            log.producers.thaw()
            unwritten = {} if log.is_closed else snapshots.unwritten()
        for offset, content in unwritten.items():
            snapshots.write(offset, content)
            with log.lock:
                is_wanted = snapshots.confirm_written(offset)
            if not is_wanted:
                log.store.files.remove(snapshots.path(offset))

    def sync_cut(self, segments: Segments) -> None:
        """Have what was cut gone from the disk, too; then the log takes batches again. The caller has `lock`.

        If it came back with the next crash, it could lie behind what was written in its place, and the indexes could
        speak of it.
        """
        log = self._log
        with log.lock:
            plan = FlushPlan(
                segments=[segment for segment in segments.all if not segment.synced],
                snapshots=[],
                epochs=log.epochs.entries,
                epoch_changes=log.epochs.changes,
                name_changes=segments.changes,
                truncations=log.truncations,
            )
        segments.active.sync_indexes()
        self.flusher.sync(plan, log.producers.snapshots)
        with log.lock:
            segments.end_cut()

    def finish(self, segments: Segments) -> None:
        """Flush, and write what makes the next start cheap: indexes, a snapshot, the epochs. Waits for the disk."""
        log = self._log
        if log.log_end_offset == self.closed_at and not self.flusher.is_behind(segments, log.epochs):
            return
        active = segments.active
        with self.lock, log.store.writing(f"closing {log.path}"):
            with log.lock:
                segments.end_appends()
                next_file = segments.take_next_file()
                if log.log_end_offset > 0:
                    log.producers.note_snapshot(log.log_end_offset)
                segments.changes += 1
            active.finish_indexes()
            if next_file is not None:
                next_file.close()
                log.store.files.remove(next_file.path)
        self.flush()
        with log.store.writing(f"closing {log.path}"):
            active.sync_indexes()
