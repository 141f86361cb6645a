"""Removing old records: DeleteRecords, retention, and the segments that compaction replaces.

The log start offset moves before anything is removed, so what a failure leaves by mistake lies before it. Segments
whose files could not be renamed stay a part of the log, so that they are known to be removed later. The active segment
stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.storage.log.log import Log
    from barnabas.storage.log.retention import Expired
    from barnabas.storage.segments.segment import Segment
    from barnabas.storage.segments.segments import Segments


class Removal:
    """Removes old records of one log."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def delete_records_before(self, offset: int) -> int:
        """See Log.delete_records_before."""
        log = self._log
        log.open()
        with log.lock:
            if offset < 0 or offset > log.high_watermark:
                raise OffsetOutOfRange(
                    f"{log.tp}: records before {offset} cannot be deleted; the high watermark is {log.high_watermark}"
                )
            self._move_start(offset)
            return log.log_start_offset

    def remove_segments(self, expired: Expired, now_ms: int) -> int:
        """See Log.remove_segments. The log's lock is held neither over the renames nor while a file is made.

        So appends go on. The flush lock is held, so that the log is not cut, which could use the names of what is
        removed again.
        """
        log = self._log
        segments = log.open()
        with log.durability.lock:
            if expired.count >= len(segments.all) and log.log_end_offset == expired.end_offset:
                log.appender.make_next_file()
            with log.lock:
                if log.is_closed or segments.closing or log.truncations != expired.truncations:
                    return 0
                takes_all = expired.count >= len(segments.all) and log.log_end_offset == expired.end_offset
                if takes_all and segments.next_file is not None:  # else it stays for now: nothing is opened here
                    with log.store.writing(f"writing to {log.path}"):
                        log.appender.roll(segments, log.log_end_offset, now_ms)
            with log.store.writing(f"removing segments of {log.path}", removes=True):
                try:
                    return self._remove_first(segments, expired.count)
                except FileNotFoundError:
                    if not log.is_closed:  # with its directory, which has another name now
                        raise
                    return 0

    def _remove_first(self, segments: Segments, most: int) -> int:
        """Remove the oldest segments, but not the active one."""
        log = self._log
        if log.store.failed is None:
            log.durability.write_snapshots()  # of producers that wrote nothing since
        with log.lock:
            count = 0 if log.is_closed else min(most, len(segments.all) - 1)
            if count <= 0:
                return 0
            self._move_start(segments.all[count].base_offset)
            removed = segments.take_first(count)
            snapshots = log.producers.snapshots.forget(segment.base_offset for segment in removed)
        dropped = 0
        try:
            for path in snapshots:
                log.store.files.remove(path)
            for segment in removed:
                segments.drop((segment,))
                dropped += 1
        except OSError:
            with log.lock:
                if not log.is_closed:  # they lie before the log start offset, so the next pass removes them
                    segments.put_back(removed[dropped:])
            raise
        return count

    def _move_start(self, offset: int) -> None:
        log = self._log
        if offset > log.log_start_offset:
            log.log_start_offset = offset
            log.store.start_moves += 1  # after the move: who sees the number sees that, too
            log.epochs.truncate_from_start(offset)
            if log.producers.first_unstable_offset is not None:
                log.producers.find_unstable()

    def is_as_planned(self, old: Sequence[Segment], truncations: int) -> bool:
        """See Log.is_as_planned."""
        segments = self._log.loaded
        if segments is None or truncations != self._log.truncations:
            return False
        return segments.holds(old)

    def replace_segments(self, old: Sequence[Segment], sizes: Mapping[str, int], truncations: int) -> bool:
        """See Log.replace_segments. As in `remove_segments`, files get their names without the log's lock.

        The log may be set aside meanwhile. Its directory is then as a crash would leave it, and nobody uses its name
        before this is done.
        """
        log = self._log
        with log.durability.lock:
            with log.lock:
                segments = log.loaded
                if segments is None or not self.is_as_planned(old, truncations):
                    return False
            try:
                replacement = segments.prepare_replacement(old, sizes)
                with log.lock:
                    segments.replace(replacement)
                    snapshots = log.producers.snapshots.forget(segment.base_offset for segment in old[1:])
                    log.producers.has_aborted = any(not segment.txn_index.is_empty for segment in segments.all)
                segments.drop_replaced(replacement)
                for path in snapshots:
                    log.store.files.remove(path)
            except FileNotFoundError:
                if not log.is_closed:
                    raise
                return False
            return True
