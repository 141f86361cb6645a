"""Making the indexes of a segment anew from its batches, where files are missing, damaged or not to be trusted."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.storage.segments.segment import Timestamped

if TYPE_CHECKING:
    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


def ensure_indexes(segment: Segment) -> None:
    """Rebuild the indexes of a segment where a file is missing or cannot be an index."""
    if segment.size > 0 and (segment.offset_index.damaged or segment.time_index.damaged):
        _rebuild_indexes(segment)


def repair_indexes(segment: Segment) -> None:
    """Make good what may be lost of the indexes of a segment that ended at the recovery point.

    Its batches were synced while it was still active. It was sealed after that, perhaps just before the crash.
    """
    if segment.offset_index.is_sound() and segment.time_index.is_sound():
        segment.complete_time_index()
    else:
        _rebuild_indexes(segment)


def _rebuild_indexes(segment: Segment) -> None:
    logger.warning("Rebuilding the indexes of %s: they are missing or damaged.", segment.path)
    builder = IndexBuilder(segment)
    for position, header in segment.headers(0, segment.size):
        builder.add(position, header)
    builder.finish()


class IndexBuilder:
    """Makes the indexes of a segment anew, as writing it would have."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._largest = Timestamped(-1, segment.base_offset)
        self._last_entry = 0
        segment.offset_index.reset()
        segment.time_index.reset()

    def add(self, position: int, header: BatchHeader) -> None:
        """Take the next batch into account."""
        if header.max_timestamp > self._largest.timestamp:
            self._largest = Timestamped(header.max_timestamp, header.last_offset)
        if position - self._last_entry > self._segment.index_interval:
            self._segment.offset_index.append(header.last_offset, position)
            self._segment.time_index.append(*self._largest)
            self._last_entry = position

    def finish(self) -> None:
        """Write the indexes."""
        self._segment.use_rebuilt_indexes(self._largest)
        self._segment.finish_indexes()
