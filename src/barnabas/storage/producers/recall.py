"""What a snapshot left out of a producer's last batches, read back from the log when it is asked for.

A snapshot, in Kafka's format, has one batch of each producer, and a producer may have five on their way. If the broker
stops before it has answered them, the producer repeats all five; by the snapshot alone four of them would be unknown,
and a producer that did nothing wrong would be refused. So a batch that does not fit is looked for again, after the
headers of the batches before the snapshot have been read: once for each log that was loaded, for all its producers
together, and only if somebody asks (`ReadBackNeeded`). A start reads nothing for it. With many producers it takes long,
so a thread does it, while the log takes other batches.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import CorruptMessage, OutOfOrderSequence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.producers.state import Older, ProducerStates
    from barnabas.storage.segments.segment import Segment

logger = logging.getLogger(__name__)

LOOK_BACK: Final = 16 * 1024 * 1024
"""Bytes before the snapshot in which batches are looked for: what was on its way then lies at the end of the log."""


class ReadBackNeeded(OutOfOrderSequence):
    """A batch is out of order as far as the snapshot tells: it may be one that has to be read back first."""


def read_back(states: ProducerStates, segments: Sequence[Segment]) -> Older:
    """The batches of producers that the snapshot left out. Reads files, and changes nothing; runs in a thread."""
    end_offset = states.snapshot_offset
    try:
        return states.older_batches(_headers(segments, end_offset))
    except CorruptMessage as error:
        logger.warning(
            "%s: batches before offset %d could not be read back: %s. Producers that repeat one of them are refused.",
            segments[-1].path,
            end_offset,
            error,
        )
        return {}


def _headers(segments: Sequence[Segment], end_offset: int) -> Iterator[BatchHeader]:
    """The headers of the last batches before `end_offset`, oldest first."""
    left = LOOK_BACK
    spans: list[tuple[Segment, int, int]] = []
    for segment in reversed(segments):
        if segment.base_offset >= end_offset:
            continue
        following = segment.locate(end_offset, segment.size)
        end = segment.size if following is None else following.position
        spans.append((segment, _batch_after(segment, end - left), end))
        left -= end
        if left <= 0:
            break
    for segment, start, end in reversed(spans):
        for _, header in segment.headers(start, end):
            yield header


def _batch_after(segment: Segment, position: int) -> int:
    """Where a batch begins at `position` or soon after it."""
    if position <= 0:
        return segment.position_before(segment.base_offset)
    offset, _ = segment.offset_index.entry_after(position) or segment.offset_index.last()
    return segment.position_before(offset)
