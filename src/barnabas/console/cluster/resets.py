"""Where a group would go on after a reset: worked out before anything is changed, so that it can be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.model.ids import TopicPartition

EARLIEST_WAY: Final = "earliest"
LATEST_WAY: Final = "latest"
OFFSET_WAY: Final = "offset"
SHIFT_WAY: Final = "shift"
TIME_WAY: Final = "time"
WAYS: Final = (EARLIEST_WAY, LATEST_WAY, OFFSET_WAY, SHIFT_WAY, TIME_WAY)


class ResetStep(NamedTuple):
    """What a reset does to one partition."""

    partition: TopicPartition
    before: int | None
    after: int
    start: int
    end: int

    def document(self) -> dict[str, object]:
        """As the page gets it."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "before": self.before,
            "after": self.after,
            "again": None if self.before is None else max(0, self.before - self.after),
            "skipped": None if self.before is None else max(0, self.after - self.before),
            "lag": self.end - self.after,
        }


def plan_reset(
    cluster: ClusterAdmin,
    committed: Mapping[TopicPartition, int],
    partitions: Sequence[TopicPartition],
    way: str,
    value: int,
) -> list[ResetStep]:
    """The new offsets, inside their logs. Raises RequestRefused if a partition has no leader."""
    starts, ends = cluster.offsets.at(partitions, EARLIEST), cluster.offsets.at(partitions, LATEST)
    for place in partitions:
        if place not in starts or place not in ends:
            raise RequestRefused(ErrorCode.leader_not_available, f"there is no partition {place}, or it has no leader")
    times = cluster.offsets.at(partitions, value) if way == TIME_WAY else {}
    steps = []
    for place in sorted(partitions):
        wanted = {
            EARLIEST_WAY: starts[place],
            LATEST_WAY: ends[place],
            OFFSET_WAY: value,
            SHIFT_WAY: committed.get(place, starts[place]) + value,
            TIME_WAY: ends[place] if times.get(place, -1) < 0 else times[place],
        }[way]
        after = min(max(wanted, starts[place]), ends[place])
        steps.append(ResetStep(place, committed.get(place), after, starts[place], ends[place]))
    return steps
