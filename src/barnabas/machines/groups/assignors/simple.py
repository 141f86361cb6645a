"""The simple assignor of share groups: partitions are shared by so many members that every member has work.

With more members than partitions, a partition has several members, and with more partitions than members, a member has
several partitions; how many is as equal as it can be. Members keep what they have as far as that allows. Where members
subscribe to different topics, each topic is spread over its own subscribers, and a member gets its part of each.

Only partitions in `assignable` are given out. Results are as balanced as those of Kafka 4.3.0's, which of equal members
gets a partition more is for us to choose: there it hangs on the order of Java's hash tables.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Assignment, GroupSpec, Partitions

    Place = tuple[UUID, int]
    """A partition of a topic."""


def assign_simple(spec: GroupSpec, assignable: Partitions) -> Assignment:
    """Share the partitions that may be given out among their topics' subscribers."""
    held: dict[str, set[Place]] = {member_id: set() for member_id in spec.members}
    subscriptions = {member.subscribed for member in spec.members.values()}
    topics = sorted({topic for subscribed in subscriptions for topic in subscribed})
    for together in [topics] if len(subscriptions) == 1 else [[topic] for topic in topics]:
        places = [
            (topic, partition)
            for topic in together
            for partition in sorted(assignable.get(topic, ()))
            if partition < spec.topic(topic).partition_count
        ]
        members = [name for name, member in spec.members.items() if not member.subscribed.isdisjoint(together)]
        for member_id, mine in _Sharing(places, members, spec).build().items():
            held[member_id] |= mine
    return {member_id: _by_topic(places) for member_id, places in held.items()}


class _Sharing:
    """Partitions and members all of whom may have all of them."""

    def __init__(self, places: list[Place], members: list[str], spec: GroupSpec) -> None:
        self.sharing = -(-len(members) // len(places)) if places else 0
        """How many members a partition should have."""
        self.quotas = _quotas(self.sharing * len(places), members)
        self.by_place: dict[Place, list[str]] = {place: [] for place in places}
        self.by_member: dict[str, set[Place]] = {member_id: set() for member_id in members}
        for member_id in members:
            for topic, partitions in spec.members[member_id].assigned.items():
                for partition in partitions:
                    if (place := (topic, partition)) in self.by_place:
                        self.by_place[place].append(member_id)
                        self.by_member[member_id].add(place)

    def build(self) -> Mapping[str, set[Place]]:
        """Take what is too much, first from members that have too much, then give out what is missing."""
        overfilled = {name for name, mine in self.by_member.items() if len(mine) > self.quotas[name]}
        for place, members in self.by_place.items():
            excess = len(members) - self.sharing
            for member_id in sorted(members, key=lambda name: name not in overfilled)[: max(excess, 0)]:
                self._take(place, member_id)
        for member_id, mine in self.by_member.items():
            for place in sorted(mine)[self.quotas[member_id] :]:
                self._take(place, member_id)
        self._fill()
        return self.by_member

    def _take(self, place: Place, member_id: str) -> None:
        self.by_place[place].remove(member_id)
        self.by_member[member_id].remove(place)

    def _fill(self) -> None:
        """Give partitions that have too few members to members that have room, in turns.

        A partition that all members with room have already stays with fewer members: that harms nobody.
        """
        rooms = [name for name, mine in self.by_member.items() if len(mine) < self.quotas[name]]
        turn = 0
        for place, members in self.by_place.items():
            passed = 0
            while rooms and len(members) < self.sharing and passed < len(rooms):
                turn %= len(rooms)
                member_id = rooms[turn]
                if member_id in members:
                    turn, passed = turn + 1, passed + 1
                    continue
                members.append(member_id)
                mine = self.by_member[member_id]
                mine.add(place)
                passed = 0
                if len(mine) >= self.quotas[member_id]:
                    del rooms[turn]
                else:
                    turn += 1


def _quotas(total: int, members: list[str]) -> dict[str, int]:
    """How many partitions each member gets, so that they add up."""
    bounds = [-(-total * place // max(len(members), 1)) for place in range(len(members) + 1)]
    return {member_id: after - before for member_id, (before, after) in zip(members, pairwise(bounds), strict=True)}


def _by_topic(places: Iterable[Place]) -> dict[UUID, frozenset[int]]:
    topics: dict[UUID, set[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, set()).add(partition)
    return {topic: frozenset(topics[topic]) for topic in sorted(topics)}
