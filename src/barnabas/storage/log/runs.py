"""Batches that a follower was sent at once: they lie one behind the other, and go into the log together.

A leader writes batches one by one, as they come. A follower gets several, and one call to the system is cheaper than
many. They are gone over once before anything is written, since the time that following takes is mostly spent here.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import CorruptMessage, OffsetOutOfRange
from barnabas.protocol.records.batch import CONTROL, CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from barnabas.protocol.records.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.model.ids import TopicPartition
    from barnabas.storage.segments.segment import Segment


LENGTH_START: Final = 8
"""Where a batch says how long it is, after its offset."""


class Run(NamedTuple):
    """Batches one behind the other."""

    headers: Sequence[BatchHeader]
    size: int
    """Bytes of all."""
    last_offset: int
    max_timestamp: int
    has_control: bool

    def parts(self) -> Iterator[Run]:
        """The batches in runs that can be written at once: a control batch by itself.

        What a marker ends depends on the batches before it, and must be known when it is written.
        """
        if not self.has_control:
            yield self
            return
        for is_control, headers in groupby(self.headers, lambda header: header.is_control):
            if is_control:
                yield from map(run_of, headers)
            else:
                yield _run_of_all(list(headers))

    def fits(self, segment: Segment) -> bool:
        """Whether all batches surely belong into this segment; if not, each must be looked at for itself."""
        return len(self.headers) <= segment.limits.entries_left and segment.limits.has_room(
            segment.size, self.size, self.last_offset, self.max_timestamp
        )


def first_batches(data: memoryview, most: int) -> tuple[int, int]:
    """Where the first `most` batches of `data` end, and how many that are; at the end if there are no more.

    From what is no batch on all counts as one: whoever reads it says what is wrong.
    """
    position, size, count = 0, len(data), 0
    while count < most and position + HEADER_SIZE <= size:
        length = int.from_bytes(data[position + LENGTH_START : position + LOG_OVERHEAD], "big")
        if length < HEADER_SIZE - LOG_OVERHEAD:
            return size, count + 1
        position += LOG_OVERHEAD + length
        count += 1
    return (position, count) if count == most and position < size else (size, count)


def run_of(header: BatchHeader) -> Run:
    """A batch by itself."""
    return Run((header,), header.size, header.last_offset, header.max_timestamp, header.is_control)


def _run_of_all(headers: Sequence[BatchHeader]) -> Run:
    size = sum(header.size for header in headers)
    return Run(headers, size, headers[-1].last_offset, max(header.max_timestamp for header in headers), False)


def read_run(data: memoryview, end_offset: int, tp: TopicPartition) -> Run | None:
    """The batches in `data`, for a log that ends at `end_offset`; None if there is none.

    The last one may be cut short, and is left out. Raises CorruptMessage if one of them is not what its CRC says, and
    OffsetOutOfRange if one cannot follow what is before it.
    """
    headers: list[BatchHeader] = []
    position, size, latest, flags = 0, len(data), -1, 0
    while position + HEADER_SIZE <= size:
        header = BatchHeader._make(HEADER.unpack_from(data, position))
        base_offset, length, _, magic, crc, attributes, delta, _, max_timestamp, *_ = header
        end = position + LOG_OVERHEAD + length
        if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptMessage(f"{tp}: the leader sent a batch of magic {magic} and {length} bytes")
        if end > size:
            break
        if crc32c(data[position + CRC_START : end]) != crc:
            raise CorruptMessage(f"{tp}: the leader sent a batch whose CRC is wrong")
        if base_offset < end_offset:
            raise OffsetOutOfRange(f"{tp}: a batch at {base_offset} cannot follow offset {end_offset - 1}")
        end_offset = base_offset + delta + 1
        if max_timestamp > latest:
            latest = max_timestamp
        flags |= attributes
        headers.append(header)
        position = end
    return Run(headers, position, end_offset - 1, latest, bool(flags & CONTROL)) if headers else None
