"""The range assignor: each member gets consecutive partitions of every topic that it reads.

Members stand in one order for all topics: those with an instance id first, by that id, so that they keep their ranges
over restarts, then the others by member id. Where all read the same topics and these have equally many partitions, a
member has the same partition numbers of every topic. What members had before does not count, and racks do not either,
as in Kafka 4.3.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Assignment, GroupSpec


def assign_ranges(spec: GroupSpec) -> Assignment:
    """Cut every topic into ranges, one for each of its readers; the first ones are longer by one if need be."""
    counts = {topic_id: len(readers) for topic_id, readers in spec.subscribers().items()}
    taken = dict.fromkeys(counts, 0)
    """How many readers of a topic have their range."""
    assignment: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in spec.members}
    for member_id in _in_order(spec):
        mine = assignment[member_id]
        for topic_id in spec.members[member_id].subscribed:
            index = taken[topic_id]
            taken[topic_id] = index + 1
            quota, extra = divmod(spec.topics[topic_id].partition_count, counts[topic_id])
            start = index * quota + min(index, extra)
            end = start + quota + (index < extra)
            if start < end:
                mine[topic_id] = frozenset(range(start, end))
    return assignment


def _in_order(spec: GroupSpec) -> list[str]:
    def place(member_id: str) -> tuple[bool, str]:
        instance_id = spec.members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id

    return sorted(spec.members, key=place)
