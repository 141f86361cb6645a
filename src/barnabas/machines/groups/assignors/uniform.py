"""The uniform assignor: members get equally many partitions, and keep those that they have as far as that allows.

Balance goes before keeping. Racks do not count, as in Kafka 4.3.0. This module has the simple case, in which all
members read the same topics; the other one is in `uneven`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.machines.groups.assignors.uneven import assign_uneven

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Assignment, GroupSpec, MemberSpec, Partitions


def assign_uniform(spec: GroupSpec) -> Assignment:
    """Spread the partitions of all topics over their readers."""
    subscriptions = {member.subscribed for member in spec.members.values()}
    if len(subscriptions) > 1:
        return assign_uneven(spec)
    return _Even(spec, subscriptions.pop()).build() if subscriptions else {}


class _Even:
    """One assignment in the making, for members that all read the same topics."""

    def __init__(self, spec: GroupSpec, subscribed: frozenset[UUID]) -> None:
        self.spec = spec
        self.subscribed = subscribed
        topics = sorted(subscribed, key=lambda topic_id: spec.topic(topic_id).name)
        self.unassigned = self._without_owner(topics)
        total = sum(spec.topics[topic_id].partition_count for topic_id in topics)
        self.quota, self.extras = divmod(total, max(len(spec.members), 1))
        """How many partitions each member gets, and how many members get one more: which is not decided yet."""

    def build(self) -> Assignment:
        """Let members keep what they may, then give the rest to those that have room."""
        kept: dict[str, Partitions] = {}
        rooms: list[tuple[str, int]] = []
        members_left = len(self.spec.members)
        for member_id, member in self.spec.members.items():
            quota = self.quota + (self.extras > 0)
            kept[member_id], count = self._keep(member, quota)
            takes_extra = self.extras > 0 and (count == quota or members_left <= self.extras)
            room = self.quota + takes_extra - count
            if room > 0:
                rooms.append((member_id, room))
            self.extras -= takes_extra
            members_left -= 1
        return self._fill(kept, rooms)

    def _without_owner(self, topics: list[UUID]) -> list[tuple[UUID, int]]:
        owned: dict[UUID, set[int]] = {topic_id: set() for topic_id in topics}
        for member in self.spec.members.values():
            for topic_id, partitions in member.assigned.items():
                if (taken := owned.get(topic_id)) is not None:
                    taken |= partitions
        return [
            (topic_id, partition)
            for topic_id, taken in owned.items()
            for partition in range(self.spec.topics[topic_id].partition_count)
            if partition not in taken
        ]

    def _keep(self, member: MemberSpec, quota: int) -> tuple[Partitions, int]:
        """What the member keeps, and how many partitions that is: no topic that it does not read, and no more than
        `quota`."""
        assigned = member.assigned
        count = sum(map(len, assigned.values()))
        if count <= quota and self.subscribed.issuperset(assigned) and all(assigned.values()):
            return assigned, count
        kept: dict[UUID, frozenset[int]] = {}
        count = 0
        for topic_id, partitions in assigned.items():
            if topic_id not in self.subscribed:
                continue
            room = quota - count
            if len(partitions) > room:
                in_order = sorted(partitions)
                self.unassigned += [(topic_id, partition) for partition in in_order[room:]]
                partitions = frozenset(in_order[:room])
            if partitions:
                kept[topic_id] = partitions
                count += len(partitions)
        return kept, count

    def _fill(self, kept: dict[str, Partitions], rooms: list[tuple[str, int]]) -> Assignment:
        start = 0
        for member_id, room in rooms:
            added: dict[UUID, list[int]] = {}
            for topic_id, partition in self.unassigned[start : start + room]:
                added.setdefault(topic_id, []).append(partition)
            start += room
            had = kept[member_id]
            kept[member_id] = {**had, **{topic: had.get(topic, frozenset()).union(new) for topic, new in added.items()}}
        return kept
