"""Which segments of a log are to go: by log start offset, by size, by time.

Always the oldest ones, as a run from the log's beginning, and only what lies below the high watermark. Time counts from
the largest timestamp in a segment. The active segment goes as well when it is old enough; an empty one stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.model.errors import CorruptMessage
from barnabas.storage.segments.segment import Timestamped

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import Segment


@dataclass(frozen=True, slots=True)
class Expired:
    """The oldest segments are to go, if the log is still what it was when that was decided."""

    count: int
    end_offset: int
    """Where the log ended: the active segment is not to go with what came since."""
    truncations: int


def expired_segments(log: Log, now_ms: int) -> Expired:
    """Which segments are to be removed. Reads files; runs in a thread, while the log may grow."""
    truncations, end_offset = log.truncations, log.log_end_offset
    config, segments, high_watermark = log.config, log.segments, log.high_watermark
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]

    def removable(number: int) -> bool:
        return number < len(segments) and ends[number] <= high_watermark

    count = 0
    while count + 1 < len(segments) and ends[count] <= log.log_start_offset:
        count += 1
    if not config.delete:
        return Expired(count, end_offset, truncations)
    if segments[-1].size == 0:
        segments = segments[:-1]
    if config.retention_bytes >= 0:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
        while removable(count) and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    if config.retention_ms >= 0:
        while removable(count) and _is_old(segments[count], now_ms - config.retention_ms):
            count += 1
    return Expired(count, end_offset, truncations)


def _is_old(segment: Segment, limit_ms: int) -> bool:
    """Whether all of a segment's records are older; what its time index says alone is no reason to remove them."""
    return segment.retention_timestamp() < limit_ms and _proven_timestamp(segment) < limit_ms


def _proven_timestamp(segment: Segment) -> int:
    """As `Segment.retention_timestamp`, held against the batches: a damaged index may name an earlier time.

    A batch has the timestamp that the time index ends with, and no batch from there on has a later one; else all are
    gone over.
    """
    largest = segment.largest_timestamp
    try:
        found = segment.locate(largest.offset, segment.size)
        if found is None or next(segment.headers(found.position, segment.size))[1].max_timestamp != largest.timestamp:
            largest = Timestamped(-1, segment.base_offset)
        largest = segment.read_largest_timestamp(largest, segment.size)
    except CorruptMessage:  # the batches are damaged themselves, and would never be removed
        return segment.retention_timestamp()
    return largest.timestamp if largest.timestamp >= 0 else segment.retention_timestamp()
