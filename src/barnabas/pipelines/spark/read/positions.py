"""Where reading begins and ends: what options say, and the offsets that it comes to in a cluster.

A position is one of four things: an end of the log, offsets by partition, a moment, or moments by partition. What is
given by partition has to name every partition, as in Spark's own Kafka source: a forgotten one would be read from
nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from barnabas.pipelines.errors import InvalidOption, NoPosition, OffsetOutOfRange
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.spark.read.offsets import Offsets


class Edge(Enum):
    """An end of the log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each partition; -2 stands for its beginning and -1 for its end."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtMoment:
    """The first record at or after a moment (milliseconds since 1970)."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class AtMoments:
    """The same by partition."""

    milliseconds: Mapping[TopicPartition, int]


Position = Edge | AtOffsets | AtMoment | AtMoments


class OffsetLookup(Protocol):
    """What has to be asked of a cluster (`cluster.ClusterView`)."""

    def earliest(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Where partitions begin."""

    def latest(self, partitions: Iterable[TopicPartition], /) -> dict[TopicPartition, int]:
        """Where partitions end."""

    def at(self, moments: Mapping[TopicPartition, int], /) -> dict[TopicPartition, int | None]:
        """The first offset at or after a moment of each partition."""


def offsets_at(
    position: Position, partitions: Collection[TopicPartition], cluster: OffsetLookup, *, too_late_is_end: bool = True
) -> dict[TopicPartition, int]:
    """The offset of each partition that a position comes to.

    A moment after the last record comes to the end, or, without `too_late_is_end`, is an error. Raises InvalidOption
    when partitions are named that are not read, or not all of them are; OffsetOutOfRange.
    """
    if position is Edge.EARLIEST:
        return cluster.earliest(partitions)
    if position is Edge.LATEST:
        return cluster.latest(partitions)
    if isinstance(position, AtOffsets):
        _check_named(position.offsets, partitions)
        return _resolved(position.offsets, cluster)
    if isinstance(position, AtMoments):
        _check_named(position.milliseconds, partitions)
        return _since(position.milliseconds, cluster, too_late_is_end)
    assert isinstance(position, AtMoment)
    return _since(dict.fromkeys(partitions, position.milliseconds), cluster, too_late_is_end)


def moves(position: Position) -> bool:
    """Whether a position may come to other offsets when it is asked for again, although nothing was removed."""
    if isinstance(position, AtOffsets):
        return LATEST in position.offsets.values()
    return position is Edge.LATEST or isinstance(position, AtMoment | AtMoments)


def check_order(start: Offsets, end: Offsets) -> None:
    """Raises InvalidOption where a partition would be read from an offset to an earlier one."""
    for partition in sorted(start):
        if start[partition] > end[partition]:
            raise InvalidOption(
                f"{partition} would be read from offset {start[partition]} to {end[partition]}, which comes before it: "
                "look at the options startingOffsets and endingOffsets, or those with moments in their place"
            )


def _check_named(named: Mapping[TopicPartition, int], partitions: Collection[TopicPartition]) -> None:
    wanted = set(partitions)
    if forgotten := sorted(wanted - named.keys()):
        raise NoPosition(
            f"positions are given by partition, and {_listed(forgotten)} has none; name every partition (an offset of "
            "-2 is the beginning, -1 the end)"
        )
    if foreign := sorted(named.keys() - wanted):
        raise InvalidOption(f"a position is given for {_listed(foreign)}, which is not read")


def _resolved(given: Mapping[TopicPartition, int], cluster: OffsetLookup) -> dict[TopicPartition, int]:
    """Offsets in place of -2 and -1, and none beyond an end."""
    firsts = cluster.earliest([partition for partition, offset in given.items() if offset == EARLIEST])
    ends = cluster.latest([partition for partition, offset in given.items() if offset != EARLIEST])
    found = {}
    for partition, offset in given.items():
        if offset == EARLIEST:
            found[partition] = firsts[partition]
        elif offset == LATEST:
            found[partition] = ends[partition]
        elif 0 <= offset <= ends[partition]:
            found[partition] = offset
        else:
            raise OffsetOutOfRange(
                f"offset {offset} of {partition} was asked for, and the partition ends at {ends[partition]}"
            )
    return found


def _since(
    moments: Mapping[TopicPartition, int], cluster: OffsetLookup, too_late_is_end: bool
) -> dict[TopicPartition, int]:
    found = cluster.at(moments)
    late = sorted(partition for partition, offset in found.items() if offset is None)
    if late and not too_late_is_end:
        raise OffsetOutOfRange(
            f"{_listed(late)} has no record at or after {moments[late[0]]} ms; to begin at its end, set "
            "startingOffsetsByTimestampStrategy to latest"
        )
    # Records of an open transaction have moments too, and lie past the end of what is committed.
    ends = cluster.latest(found)
    return {
        partition: ends[partition] if offset is None else min(offset, ends[partition])
        for partition, offset in found.items()
    }


def _listed(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, partitions))
