"""Reading a log: bytes from an offset on, and records by their timestamps.

Reads take a view of the segments under the log's lock and need no lock after that. What was removed meanwhile is passed
over, and what was cut meanwhile is read again, so an answer is always one that the log would have given at some moment
of the call.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.model.errors import ApiError, OffsetOutOfRange, StorageFailed
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.storage.log import search
from barnabas.storage.log.part import LogPart
from barnabas.storage.segments.segments import NOTHING, aborted_transactions

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.storage.log.search import TimestampOffset
    from barnabas.storage.segments.segment import Segment
    from barnabas.storage.segments.segments import ReadResult, Segments

_Found = TypeVar("_Found")


class LogReader(LogPart):
    """Reads one log; changes nothing."""

    __slots__ = ()

    def read(
        self,
        offset: int,
        max_bytes: int,
        up_to: int,
        min_one: bool,
        *,
        may_block: bool = True,
        committed: bool = False,
    ) -> ReadResult:
        """Bytes from the batch that holds `offset` on, of batches that begin before `up_to`.

        The last batch may be cut by `max_bytes`; with `min_one` the first one is whole, however large. With
        `may_block=False`, ColdRead is raised where this would have to wait for the disk: call again in a thread.

        With `committed`, the answer names the aborted transactions that have records in it; there may be a few more, of
        records that follow closely. Bytes and transactions are taken from the same view of the segments: when retention
        or compaction takes a segment away meanwhile, its transactions would not be found any more, and a reader of
        committed records would take the aborted ones for good.
        """
        log = self._log
        segments = log.loaded or log.open()
        while True:
            with log.lock:
                view, size, end_offset = segments.all, segments.active.size, log.log_end_offset
                truncations, changes, has_aborted = log.truncations, segments.changes, log.producers.has_aborted
            if offset < log.log_start_offset or offset > end_offset:
                raise OffsetOutOfRange(
                    f"{log.tp}: offset {offset} is not within {log.log_start_offset} and {end_offset}"
                )
            if offset >= up_to or offset == end_offset or (max_bytes <= 0 and not min_one):
                return NOTHING
            try:
                found = segments.read(view, size, end_offset, offset, max_bytes, up_to, min_one, not may_block)
                if committed and has_aborted and found.size:
                    aborted = aborted_transactions(view, offset, found, up_to, cached=not may_block)
                    found = found._replace(aborted=aborted)
            except FileNotFoundError as error:
                self._check_removed(segments, changes, error)
                continue
            except ApiError:
                if truncations == log.truncations:
                    raise
                continue
            if truncations == log.truncations:
                return found

    def offset_for_time(self, timestamp: int, *, up_to: int) -> TimestampOffset | None:
        """The first record before `up_to` whose timestamp is at least `timestamp`. Runs in a thread."""
        log = self._log
        found = self._search(lambda segments: search.offset_for_time(segments, timestamp, log.log_start_offset))
        return None if found is None or found.offset >= up_to else found

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record that has the largest timestamp. Runs in a thread."""
        return self._search(search.offset_of_max_timestamp)

    def _search(self, find: Callable[[tuple[Segment, ...]], _Found]) -> _Found:
        log = self._log
        segments = log.open()
        while True:
            with log.lock:
                view, truncations, changes = segments.all, log.truncations, segments.changes
            try:
                found = find(view)
            except FileNotFoundError as error:
                self._check_removed(segments, changes, error)
                continue
            except ApiError:
                if truncations == log.truncations:
                    raise
                continue
            if truncations == log.truncations:
                return found

    def _check_removed(self, segments: Segments, changes: int, error: FileNotFoundError) -> None:
        """A file was not found: pass over it if segments were removed since `changes`."""
        self._log.check_open(error)
        if segments.changes == changes:
            folder = str(Path(error.filename).parent)
            raise StorageFailed(f"{error.filename} is gone").with_remedy(
                Remedy(RemedyKind.CHECK_LOG, folder)
            ) from error
