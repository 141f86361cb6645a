"""Plans of where replicas shall be: on other brokers, on more or fewer of them, and spread evenly, with few moves.

A replica that is on a wanted broker stays there, unless another one holds less. So emptying a broker moves what it has
and nothing else, and a new broker gets its share and no partition is moved between the others. Racks come before
evenness: a partition gets its replicas in as many racks as there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.model.ids import TopicPartition


class PlannedMove(NamedTuple):
    """A partition, where it is, and where it shall be."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """Brokers that have to copy it."""
        return tuple(each for each in self.after if each not in self.before)


class ImpossiblePlan(ValueError):
    """What was asked for cannot be: the message says why."""


def plan_moves(
    replicas: Mapping[TopicPartition, tuple[int, ...]],
    chosen: Collection[TopicPartition],
    racks: Mapping[int, str | None],
    factor: int | None = None,
) -> list[PlannedMove]:
    """Have the chosen partitions on the brokers of `racks`, with `factor` replicas, or as many as each has.

    `replicas` are those of all partitions: what is not chosen stays, and counts for how much a broker holds. Partitions
    that stay where they are have no move. Raises ImpossiblePlan.
    """
    if not racks:
        raise ImpossiblePlan("Choose at least one broker.")
    most = max((factor or len(replicas[each]) for each in chosen), default=0)
    if most > len(racks):
        raise ImpossiblePlan(f"{most} replicas need {most} brokers, and {len(racks)} are chosen.")
    spread = _Spread(racks, replicas, chosen)
    for place in sorted(chosen):
        spread.settle(place, factor or len(replicas[place]))
    spread.even_out()
    spread.even_out_leaders()
    moves = (PlannedMove(place, replicas[place], tuple(spread.placed[place])) for place in sorted(chosen))
    return [move for move in moves if move.before != move.after]


@dataclass(slots=True)
class _Load:
    """What a broker holds: replicas, and partitions that it would lead."""

    holds: int = 0
    leads: int = 0


class _Spread:
    """A plan in the making."""

    def __init__(
        self,
        racks: Mapping[int, str | None],
        replicas: Mapping[TopicPartition, tuple[int, ...]],
        chosen: Collection[TopicPartition],
    ) -> None:
        self._racks = racks
        self._loads = {broker: _Load() for broker in racks}
        self.placed: dict[TopicPartition, list[int]] = {}
        self._on: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in racks}
        """The chosen partitions on each broker, in order."""
        wanted = set(chosen)
        for place, brokers in replicas.items():
            if place not in wanted:
                self._count(brokers, 1)
                continue
            self.placed[place] = [each for each in brokers if each in racks]
            self._count(self.placed[place], 1)

    def _count(self, brokers: Iterable[int], by: int) -> None:
        for position, broker in enumerate(brokers):
            if broker in self._loads:
                self._loads[broker].holds += by
                self._loads[broker].leads += by if position == 0 else 0

    def settle(self, place: TopicPartition, factor: int) -> None:
        """Give a partition as many replicas as it shall have, on wanted brokers."""
        brokers = self.placed[place]
        self._count(brokers, -1)
        while len(brokers) > factor:
            brokers.remove(
                max(brokers[1:], key=lambda each: (self._crowd(brokers, each), self._loads[each].holds, each))
            )
        while len(brokers) < factor:
            free = [each for each in self._racks if each not in brokers]
            brokers.append(min(free, key=lambda each: (self._crowd(brokers, each), self._loads[each].holds, each)))
        self._spread_over_racks(brokers)
        self._count(brokers, 1)
        for broker in brokers:
            self._on[broker][place] = None

    def _spread_over_racks(self, brokers: list[int]) -> None:
        """Have replicas that share a rack in another one, where there is one with fewer of them."""
        while True:
            crowded = max(reversed(brokers), key=lambda each: self._crowd(brokers, each))
            others = [each for each in brokers if each != crowded]
            free = [each for each in self._racks if each not in brokers]
            best = min(free, default=None, key=lambda each: (self._crowd(others, each), self._loads[each].holds, each))
            if best is None or self._crowd(others, best) >= self._crowd(others, crowded):
                return
            brokers[brokers.index(crowded)] = best

    def _crowd(self, brokers: Collection[int], broker: int) -> int:
        """How many other replicas are in the rack of a broker."""
        rack = self._racks[broker]
        return 0 if rack is None else sum(self._racks[each] == rack for each in brokers if each != broker)

    def even_out(self) -> None:
        """Move replicas from brokers that hold much to those that hold little, as long as that helps."""
        full = set[int]()
        while len(full) < len(self._loads):
            heavy = max((each for each in self._loads if each not in full), key=lambda each: self._loads[each].holds)
            if not self._relieve(heavy):
                full.add(heavy)

    def _relieve(self, heavy: int) -> bool:
        """Move one replica off a broker; False if none can go to one that holds less."""
        holds = self._loads[heavy].holds
        lighter = [each for each in self._loads if self._loads[each].holds < holds - 1]
        for light in sorted(lighter, key=lambda each: (self._loads[each].holds, each)):
            for place in self._on[heavy]:
                brokers = self.placed[place]
                others = [each for each in brokers if each != heavy]
                if light not in brokers and self._crowd(others, light) <= self._crowd(others, heavy):
                    self._replace(place, heavy, light)
                    return True
        return False

    def _replace(self, place: TopicPartition, old: int, new: int) -> None:
        brokers = self.placed[place]
        self._count(brokers, -1)
        brokers[brokers.index(old)] = new
        self._count(brokers, 1)
        del self._on[old][place]
        self._on[new][place] = None

    def even_out_leaders(self) -> None:
        """Let other replicas be the preferred leaders, where that spreads them better. Nothing is copied for it."""
        for brokers in self.placed.values():
            first = min(brokers, key=lambda each: (self._loads[each].leads, brokers.index(each)))
            if self._loads[first].leads + 1 < self._loads[brokers[0]].leads:
                self._count(brokers, -1)
                brokers.remove(first)
                brokers.insert(0, first)
                self._count(brokers, 1)
