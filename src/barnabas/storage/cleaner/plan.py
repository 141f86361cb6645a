"""What of a log can be cleaned, whether it is worth it, and which segments become one.

A log can be cleaned up to the lowest of: its active segment, the high watermark, the oldest open transaction, and the
first segment with a record younger than min.compaction.lag.ms. Whole segments only. It is worth it when the dirty part
is more than min.cleanable.dirty.ratio of that, or when a dirty record is older than max.compaction.lag.ms.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from barnabas.model.log_config import NEVER
from barnabas.storage.segments.file_names import LOG_SUFFIX, OFFSET_DIGITS
from barnabas.storage.segments.indexes import MAX_RELATIVE_OFFSET

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.storage.cleaner.task import SegmentFiles
    from barnabas.storage.files import DirEntry
    from barnabas.storage.log.log import Log
    from barnabas.storage.segments.segment import Segment

logger = logging.getLogger(__name__)


class LogToClean(NamedTuple):
    """A log and what can be cleaned of it."""

    log: Log
    first_dirty: int
    end: int
    """The first offset that cannot be cleaned; a segment begins there."""
    segments: tuple[Segment, ...]
    """All segments before `end`."""
    truncations: int
    log_end_offset: int
    """All before this must be on disk before a record goes: the one that supersedes it, and the marker that committed
    that one."""
    clean_bytes: int
    dirty_bytes: int
    overdue: bool
    """max.compaction.lag.ms has passed."""

    @property
    def ratio(self) -> float:
        """How much of what can be cleaned is dirty."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether to clean it."""
        return self.dirty_bytes > 0 and (self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio)


def first_dirty_offset(log: Log) -> int:
    """Where the dirty part begins; a checkpoint that does not fit the log counts as none."""
    noted = log.cleaned_to
    if noted is None:
        return log.log_start_offset
    if noted > log.log_end_offset:
        logger.warning(
            "%s was cleaned up to offset %d, but ends at %d. It is cleaned from its start.",
            log.tp,
            noted,
            log.log_end_offset,
        )
        return log.log_start_offset
    return max(noted, log.log_start_offset)


def may_be_due(log: Log, entries: Iterable[DirEntry]) -> bool:
    """Whether a log that is not open may be worth cleaning, going by the `entries` of its directory.

    What these cannot tell (open transactions, young records) only makes the dirty part smaller, so No is certain.
    """
    noted = log.cleaned_to
    fits = noted is not None and noted <= log.log_end_offset
    first_dirty = max(noted or 0, log.log_start_offset) if fits else log.log_start_offset
    sizes = {base: entry.size for entry in entries if (base := base_offset_of(entry.name)) is not None}
    clean, dirty = sealed_bytes(sizes, first_dirty)
    if dirty == 0:
        return False
    config = log.config
    return config.max_compaction_lag_ms < NEVER or dirty / (clean + dirty) > config.min_cleanable_dirty_ratio


def base_offset_of(name: str) -> int | None:
    """The offset at which a segment begins, going by the name of its `.log` file; None for any other file.

    >>> base_offset_of("00000000000000000042.log")
    42
    """
    digits, suffix = name[:OFFSET_DIGITS], name[OFFSET_DIGITS:]
    return int(digits) if suffix == LOG_SUFFIX and digits.isdecimal() else None


def sealed_bytes(sizes: Mapping[int, int], first_dirty: int) -> tuple[int, int]:
    """The bytes of sealed segments before and after the first dirty offset; `sizes` has all segments by base offset."""
    clean = dirty = 0
    for base, end in pairwise(sorted(sizes)):
        if base < first_dirty:
            clean += sizes[base]
        if end > first_dirty:
            dirty += sizes[base]
    return clean, dirty


def examine(log: Log, now_ms: int) -> LogToClean:
    """See what of a log can be cleaned. Reads files; runs in a thread."""
    log.open()
    # In this order: a cut after the first look is noticed, what begins after the second does not matter to it.
    truncations = log.truncations
    high_watermark = log.high_watermark
    unstable = log.producers.first_unstable_offset
    log_end_offset = log.log_end_offset
    segments = log.segments
    first_dirty = first_dirty_offset(log)
    config = log.config
    lag_ms = config.min_compaction_lag_ms
    bound = min(high_watermark, segments[-1].base_offset)
    if unstable is not None:
        bound = min(bound, unstable)
    ends = [segment.base_offset for segment in segments[1:]]
    cleanable = 0
    clean_bytes = dirty_bytes = 0
    earliest: int | None = None
    for segment, end in zip(segments, ends, strict=False):
        if end > bound:
            break
        dirty = end > first_dirty
        if dirty and lag_ms > 0 and segment.largest_timestamp.timestamp > now_ms - lag_ms:
            break
        cleanable += 1
        if segment.base_offset < first_dirty:
            clean_bytes += segment.size
        if dirty:
            dirty_bytes += segment.size
            if segment.first_timestamp > 0:
                earliest = min(earliest or segment.first_timestamp, segment.first_timestamp)
    overdue = earliest is not None and earliest < now_ms - config.max_compaction_lag_ms
    return LogToClean(
        log,
        first_dirty,
        segments[cleanable].base_offset,
        segments[:cleanable],
        truncations,
        log_end_offset,
        clean_bytes,
        dirty_bytes,
        overdue,
    )


def group_segments(
    segments: Sequence[SegmentFiles], max_bytes: int, max_index_bytes: int, end: int
) -> list[list[SegmentFiles]]:
    """Put neighbours together that fit into one segment, as large as they are now; `end` is where the last one ends."""
    groups: list[list[SegmentFiles]] = []
    size = index_size = time_index_size = 0
    for number, segment in enumerate(segments):
        segment_end = segments[number + 1].base_offset if number + 1 < len(segments) else end
        if (
            groups
            and size + segment.size <= max_bytes
            and index_size + segment.index_size <= max_index_bytes
            and time_index_size + segment.time_index_size <= max_index_bytes
            and segment_end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = index_size = time_index_size = 0
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
    return groups
