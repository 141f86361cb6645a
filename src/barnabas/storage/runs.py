"""Batches that a follower was sent at once: they lie one behind the other, and go into the log together.

A leader writes batches one by one, as they come. A follower gets several, and one call to the system is cheaper than
many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import CorruptMessage, OffsetOutOfRange
from barnabas.protocol.records.batch import CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader
from barnabas.protocol.records.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.model.ids import TopicPartition
    from barnabas.storage.segment import Segment


def sound_batches(data: memoryview) -> list[BatchHeader]:
    """The headers of the batches in `data`; the last one may be cut short, and is left out.

    Raises CorruptMessage if one of them is not what its CRC says.
    """
    found: list[BatchHeader] = []
    position, size = 0, len(data)
    while position + HEADER_SIZE <= size:
        header = BatchHeader._make(HEADER.unpack_from(data, position))
        length, magic = header[1], header[3]
        end = position + LOG_OVERHEAD + length
        if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
            raise CorruptMessage(f"the leader sent a batch of format {magic} and {length} bytes")
        if end > size:
            break
        if crc32c(data[position + CRC_START : end]) != header[4]:
            raise CorruptMessage("the leader sent a batch whose CRC does not hold")
        found.append(header)
        position = end
    return found


def check_order(run: Sequence[BatchHeader], end_offset: int, tp: TopicPartition) -> None:
    """Refuse batches that cannot follow each other, or a log that ends here."""
    for header in run:
        if header.base_offset < end_offset:
            raise OffsetOutOfRange(f"{tp}: a batch at {header.base_offset} cannot follow offset {end_offset - 1}")
        end_offset = header.last_offset + 1


def fit_together(segment: Segment, run: Sequence[BatchHeader]) -> bool:
    """Whether all batches surely belong into this segment; if not, each must be looked at for itself."""
    return len(run) <= segment.entries_left and segment.has_room(
        sum(header[1] + LOG_OVERHEAD for header in run), run[-1].last_offset, max(header[8] for header in run)
    )
