"""What stays of a segment when a log is truncated.

Everything that has to be read is read while the cut is planned, since a file may not be opened when there are no
descriptors. `Segment.carry_out` then needs none, and so cannot break off half-way when they run short.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.storage.segments.segment import Timestamped

if TYPE_CHECKING:
    from barnabas.storage.segments.indexes import KeptEntries
    from barnabas.storage.segments.segment import Segment


class Cut(NamedTuple):
    """What stays of a segment when everything from `offset` on is dropped."""

    segment: Segment
    offset: int
    end_offset: int
    """The offset after the last batch that stays."""
    position: int
    """Where that one ends."""
    offsets: KeptEntries
    times: KeptEntries
    largest: Timestamped


def plan_cut(segment: Segment, offset: int) -> Cut:
    """What stays without the batches that hold `offset` or later ones, once the indexes are written. Reads files."""
    found = segment.locate(offset, segment.size)
    position = segment.size if found is None else found.position
    times = segment.time_index.kept_before(offset)
    largest = segment.largest_timestamp
    if largest.offset >= offset:
        timestamp, relative = (-1, 0) if times.last is None else times.last
        largest = segment.read_largest_timestamp(Timestamped(timestamp, segment.base_offset + relative), position)
    _ = segment.first_timestamp  # it is read now, and remembered
    segment.txn_index.entries()
    return Cut(
        segment,
        offset,
        segment.end_before(offset),
        position,
        segment.offset_index.kept_before(offset),
        times,
        largest,
    )
