"""Where reading stands: offsets of partitions, ranges of them, and how ranges are cut for tasks. Pure.

Offsets have the JSON form of Spark's own Kafka source, `{"topic":{"0":5}}`. Spark compares offsets as text, so keys are
sorted here, topics by name and partitions by number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


Offsets = Mapping[TopicPartition, int]
"""The next offset to read, by partition."""

Nested = dict[str, dict[str, int]]
"""Offsets as JSON has them: topic, then partition as text."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets of one partition from `start` up to, and without, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        """The partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """How many offsets it has; there may be fewer records."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


Piece = tuple[OffsetRange, ...]
"""What one task reads."""

RANGE_COST: Final = 4_000
"""What it costs to begin with a range, in offsets that could be read meanwhile."""


def to_nested(offsets: Offsets) -> Nested:
    """Offsets in the shape of their JSON form, sorted."""
    found: Nested = {}
    for partition in sorted(offsets):
        found.setdefault(partition.topic, {})[str(partition.partition)] = offsets[partition]
    return found


def from_nested(value: object) -> dict[TopicPartition, int]:
    """Offsets from the shape of their JSON form. Raises ValueError that says what is wrong."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{value!r} is no JSON object of topics")
    found: dict[TopicPartition, int] = {}
    for topic, partitions in value.items():
        if not isinstance(partitions, Mapping):
            raise ValueError(f'topic "{topic}" has {partitions!r} instead of an object of partitions')
        for index, offset in partitions.items():
            if not str(index).isdecimal():
                raise ValueError(f'topic "{topic}" has a partition "{index}", which is no number')
            if not isinstance(offset, int) or isinstance(offset, bool):
                raise ValueError(f'partition {index} of topic "{topic}" has {offset!r} instead of a number')
            found[TopicPartition(topic, int(index))] = offset
    return found


def to_text(offsets: Offsets) -> str:
    """Offsets as JSON; equal offsets give equal text."""
    return json.dumps(to_nested(offsets), separators=(",", ":"))


def from_text(text: str) -> dict[TopicPartition, int]:
    """Offsets from JSON. Raises ValueError that says what is wrong."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"this is no JSON ({error})") from error
    return from_nested(value)


def between(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges from `start` to `end`, without empty ones; a partition that `start` lacks begins at 0."""
    return [
        OffsetRange(*partition, start.get(partition, 0), end[partition])
        for partition in sorted(end)
        if start.get(partition, 0) < end[partition]
    ]


def limit_ends(start: Offsets, end: Offsets, limit: int) -> dict[TopicPartition, int]:
    """Where to stop so that about `limit` offsets lie between, shared by how much each partition has.

    Every partition that has anything gets at least one, so that none starves beside a busy one; with more partitions
    than `limit` allows, the sum passes it by that.
    """
    waiting = {partition: last - start.get(partition, 0) for partition, last in end.items()}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= limit:
        return dict(end)
    return {
        partition: start.get(partition, 0) + max(1, waiting[partition] * limit // total)
        if waiting[partition] > 0
        else end[partition]
        for partition in end
    }


def split(ranges: Sequence[OffsetRange], min_partitions: int | None) -> list[OffsetRange]:
    """Cut large ranges until there are at least `min_partitions`, as far as there are offsets; order is kept."""
    total = sum(each.size for each in ranges)
    if min_partitions is None or len(ranges) >= min_partitions or not total:
        return list(ranges)
    return [piece for each in ranges for piece in _cut(each, min(each.size, -(-each.size * min_partitions // total)))]


def _cut(whole: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    bounds = [whole.start + whole.size * number // pieces for number in range(pieces + 1)]
    return (OffsetRange(whole.topic, whole.partition, first, last) for first, last in pairwise(bounds))


def cost_of(ranges: Iterable[OffsetRange]) -> int:
    """What it costs to read ranges, in offsets."""
    return sum(each.size + RANGE_COST for each in ranges)


def group_ranges(ranges: Sequence[OffsetRange], most: int) -> list[Piece]:
    """The ranges in order, in so many pieces of about the same cost, or each alone if they are not more than that."""
    if len(ranges) <= most:
        return [(each,) for each in ranges]
    total = cost_of(ranges)
    begins = accumulate((cost_of([each]) for each in ranges), initial=0)
    numbered = [(begin * most // total, each) for begin, each in zip(begins, ranges, strict=False)]
    return [tuple(each for _, each in group) for _, group in groupby(numbered, key=itemgetter(0))]
