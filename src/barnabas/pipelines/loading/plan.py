"""What a round of a load reads: from where the table stands to where the topic ends, in pieces for tasks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.errors import DataLost, OffsetOutOfRange
from barnabas.pipelines.spark.read.offsets import OffsetRange, Piece, between, cost_of, group_ranges, limit_ends, split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.spark.read.offsets import Offsets

MAX_OFFSETS_PER_COMMIT: Final = 4_000_000
"""How many offsets a commit covers at most: what a crash makes us read again."""
PIECE_OFFSETS: Final = 250_000
"""A task gets at least so many, where there are that many: a consumer takes a moment to get going."""
MOST_TASKS: Final = 64
"""There are no more than that, unless the cluster can run more at once: each task costs, and writes files."""


@dataclass(frozen=True, slots=True)
class Round:
    """One commit of a load."""

    ranges: Sequence[OffsetRange]
    """What the commit moves past, one range for each partition; one that is empty only notes where a partition is."""
    pieces: Sequence[Piece]
    """The same for tasks."""


def plan_round(start: Offsets, end: Offsets, known: Offsets, tasks: int, most: int = MAX_OFFSETS_PER_COMMIT) -> Round:
    """The next round for so many tasks at once."""
    ranges = between(start, limit_ends(start, end, most))
    taken = {each.place for each in ranges}
    new = [OffsetRange(*place, start[place], start[place]) for place in sorted(start) if place not in {*known, *taken}]
    pieces = max(1, cost_of(ranges) // PIECE_OFFSETS)
    cut = split(ranges, min(2 * tasks, pieces))
    return Round([*ranges, *new], group_ranges(cut, min(max(tasks, pieces), max(2 * tasks, MOST_TASKS))))


def check_position(stored: Offsets, first: Offsets, last: Offsets, *, fail_on_data_loss: bool) -> None:
    """Raise OffsetOutOfRange or DataLost if the topic does not have what comes next any more.

    A table knows all partitions that there were when it was made. So one that it does not know was added to the topic
    since, and is to be loaded from its offset 0.
    """
    if fail_on_data_loss:
        for place in sorted(first.keys() - stored.keys()):
            if first[place] > 0:
                raise DataLost(
                    f"{place} was added to the topic since the table was made, and it begins at offset {first[place]} "
                    f"now: {first[place]} offsets were removed before they were loaded."
                ).with_remedy(Remedy(RemedyKind.ALLOW_DATA_LOSS))
    for place, offset in sorted(stored.items()):
        if place not in last:
            raise DataLost(f"{place} is in the table up to offset {offset}, and the topic has no such partition now")
        if offset > last[place]:
            raise OffsetOutOfRange(
                f"the table is at offset {offset} of {place}, and the partition ends at {last[place]}: its log was "
                "truncated, so the next records may be other ones. Load into another table."
            )
        if offset < first[place] and fail_on_data_loss:
            raise DataLost(
                f"the table is at offset {offset} of {place}, and the partition begins at {first[place]} now: "
                f"{first[place] - offset} offsets were removed before they were loaded."
            ).with_remedy(Remedy(RemedyKind.ALLOW_DATA_LOSS))
