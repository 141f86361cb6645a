"""Finding records by time, for ListOffsets.

The time index leads to a place before the record; from there on batch headers are read, and one batch is unpacked. All
of this reads files, so it runs in a thread, on segments that may grow or go away at the same time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from barnabas.protocol.records.compression import MAX_UNPACKED, decompress
from barnabas.protocol.records.records import read_records

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.storage.segments.segment import Segment


class TimestampOffset(NamedTuple):
    """A record found by time; `leader_epoch` is -1 when unknown."""

    timestamp: int
    offset: int
    leader_epoch: int


def offset_for_time(segments: Sequence[Segment], timestamp: int, start_offset: int) -> TimestampOffset | None:
    """The first record at or after `start_offset` whose timestamp is at least `timestamp`."""
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        if not is_last and (
            segment.retention_timestamp() < timestamp or segments[number + 1].base_offset <= start_offset
        ):
            continue
        size = segment.size
        offset = max(segment.time_index.lookup(timestamp)[1], start_offset)
        for position, header in segment.headers(segment.position_before(offset), size):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            for found_timestamp, found_offset in _records(segment, position, header):
                if found_timestamp >= timestamp and found_offset >= start_offset:
                    return TimestampOffset(found_timestamp, found_offset, header.leader_epoch)
    return None


def offset_of_max_timestamp(segments: Sequence[Segment]) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all."""
    segment = max(segments, key=lambda segment: segment.largest_timestamp.timestamp)
    timestamp, offset = segment.largest_timestamp
    if timestamp < 0:
        return None
    for position, header in segment.headers(segment.position_before(offset), segment.size):
        if header.max_timestamp == timestamp:
            for found_timestamp, found_offset in _records(segment, position, header):
                if found_timestamp == timestamp:
                    return TimestampOffset(timestamp, found_offset, header.leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record of a batch."""
    payload = segment.file.read(header.size - HEADER_SIZE, position + HEADER_SIZE)
    if header.codec:
        payload = decompress(header.codec, payload, MAX_UNPACKED)
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
    for record in read_records(payload, header.record_count):
        timestamp = header.base_timestamp + record.timestamp_delta if append_time is None else append_time
        yield timestamp, header.base_offset + record.offset_delta
