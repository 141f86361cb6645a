"""The uniform assignor where members read different topics.

Members keep what they still want to read. Partitions without an owner go, topic by topic, to the readers with the
least. Then each topic is looked at in turn, and its partitions move from the readers that have the most to those that
have the least, until these differ by one; as that may upset another topic with some of the same readers, the turns are
repeated until nothing moves, or a fixed number of times. So the readers of any one topic are balanced, and the whole
group nearly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from uuid import UUID

    from barnabas.machines.groups.assignors.spec import Assignment, GroupSpec

MAX_ROUNDS: Final = 16
"""Each round about halves what is left out of balance; where readers of a topic read the same topics, one is enough."""
NOBODY: Final = -1


def assign_uneven(spec: GroupSpec) -> Assignment:
    """Spread the partitions of all topics over their readers."""
    return _Uneven(spec).build()


class _Uneven:
    """One assignment in the making. Members are known by their place in the group."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.subscribers = spec.subscribers()
        self.sizes = [0] * len(spec.members)
        """How many partitions each member has."""
        self.owners = {topic_id: [NOBODY] * spec.topics[topic_id].partition_count for topic_id in self.subscribers}

    def build(self) -> Assignment:
        """Keep, hand out, balance."""
        self._keep()
        self._hand_out()
        self._balance()
        member_ids = list(self.spec.members)
        found: list[dict[UUID, list[int]]] = [{} for _ in member_ids]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                found[owner].setdefault(topic_id, []).append(partition)
        return {
            member_id: {topic_id: frozenset(partitions) for topic_id, partitions in mine.items()}
            for member_id, mine in zip(member_ids, found, strict=True)
        }

    def _in_order(self, topics: list[UUID]) -> list[UUID]:
        """The topics with the most partitions for each reader first, then those with the fewest readers."""

        def place(topic_id: UUID) -> tuple[float, int, int]:
            readers = len(self.subscribers[topic_id])
            return -self.spec.topics[topic_id].partition_count / readers, readers, topic_id.int

        return sorted(topics, key=place)

    def _keep(self) -> None:
        for index, member in enumerate(self.spec.members.values()):
            for topic_id, partitions in member.assigned.items():
                if topic_id in member.subscribed:
                    self.sizes[index] += len(partitions)
                    owners = self.owners[topic_id]
                    for partition in partitions:
                        owners[partition] = index

    def _hand_out(self) -> None:
        for topic_id in self._in_order([topic_id for topic_id, owners in self.owners.items() if NOBODY in owners]):
            owners = self.owners[topic_id]
            levels = _Levels(self.subscribers[topic_id], self.sizes)
            for partition, owner in enumerate(owners):
                if owner == NOBODY:
                    reader = levels.least()
                    owners[partition] = reader
                    self.sizes[reader] += 1

    def _balance(self) -> None:
        topics = self._in_order([topic_id for topic_id, readers in self.subscribers.items() if len(readers) > 1])
        last_moved: UUID | None = None
        for _ in range(MAX_ROUNDS):
            for topic_id in topics:
                if topic_id == last_moved:
                    return
                if self._balance_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Move partitions of one topic; whether any moved."""
        levels = _Levels(self.subscribers[topic_id], self.sizes)
        if levels.spread <= 1:
            return False
        owners = self.owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
        moved = False
        while (giver := levels.most()) is not None:
            if not owned.get(giver):
                levels.pass_over_most()
                continue
            partition = owned[giver].pop()
            taker = levels.least()
            if levels.balanced:
                break
            owners[partition] = taker
            self.sizes[giver] -= 1
            self.sizes[taker] += 1
            moved = True
        return moved


class _Levels:
    """The readers of a topic between those that have the least and those that have the most.

    Two ranges of the readers, sorted by size, grow towards each other. The lower one is filled member by member to its
    level, which then rises by one and takes in the readers that stand there; the upper one is emptied likewise. Sizes
    are those before what is under way at a level, so a reader is met once at each level.
    """

    __slots__ = ("high", "high_end", "high_next", "high_start", "low", "low_end", "low_next", "readers", "sizes")

    def __init__(self, readers: list[int], sizes: list[int]) -> None:
        self.sizes = sizes
        self.readers = sorted(readers, key=sizes.__getitem__)
        count = len(readers)
        self.low = sizes[self.readers[0]] - 1
        self.low_end = 0
        self.low_next = 0
        self.high = sizes[self.readers[-1]] + 1
        self.high_start = count
        self.high_end = count
        self.high_next = count - 1

    @property
    def spread(self) -> int:
        """By how much the sizes differ at the start."""
        return self.high - self.low - 2

    @property
    def balanced(self) -> bool:
        """Whether one more move would not help."""
        return self.high - self.low <= 1

    def least(self) -> int:
        """The next reader to get a partition."""
        readers, sizes = self.readers, self.sizes
        if self.low_next >= self.low_end:
            self.low += 1
            while self.low_end < len(readers) and sizes[readers[self.low_end]] == self.low:
                self.low_end += 1
            self.low_next = 0
        reader = readers[self.low_next]
        self.low_next += 1
        return reader

    def most(self) -> int | None:
        """The next reader to give a partition away; None if none is left."""
        readers, sizes = self.readers, self.sizes
        if self.high_next < self.high_start:
            if self.high_end <= self.high_start and self.high_start > 0:
                self.high = sizes[readers[self.high_start - 1]]
            else:
                self.high -= 1
            while self.high_start > 0 and sizes[readers[self.high_start - 1]] == self.high:
                self.high_start -= 1
            self.high_next = self.high_end - 1
        if self.high_next < 0:
            return None
        reader = readers[self.high_next]
        self.high_next -= 1
        return reader

    def pass_over_most(self) -> None:
        """Take the reader that `most` named last out of the range: it has nothing of this topic to give."""
        readers = self.readers
        self.high_end -= 1
        place = self.high_next + 1
        readers[place], readers[self.high_end] = readers[self.high_end], readers[place]
