"""The states of a classic group, and the one table of what may follow what, with the cause of each step.

Code that changes a state asks the table, which refuses what is not in it; the page that draws the states is made from
the same rows. So a state that the page does not show cannot be reached.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.model.errors import BarnabasError

State = TypeVar("State", bound=Enum)


class IllegalTransition(BarnabasError):
    """A state was to follow another that it cannot follow: a mistake in the rules."""


class Transition(NamedTuple, Generic[State]):
    """One way from a state to another."""

    before: State
    after: State
    cause: str


class TransitionTable(Generic[State]):
    """All ways from state to state; several rows may join the same two, for several causes."""

    __slots__ = ("_allowed", "initial", "rows")

    def __init__(self, initial: State, *rows: Transition[State]) -> None:
        self.initial = initial
        self.rows = rows
        self._allowed = frozenset((before, after) for before, after, _ in rows)

    def allows(self, before: State, after: State) -> bool:
        """Whether one state may follow the other."""
        return (before, after) in self._allowed

    def check(self, before: State, after: State) -> None:
        """Refuse a step that is not in the table."""
        if (before, after) not in self._allowed:
            raise IllegalTransition(f"{after.name} cannot follow {before.name}.")


class ClassicGroupState(Enum):
    """What a classic group is doing; the values are the names that Kafka's tools show."""

    EMPTY = "Empty"
    """It has no members; its offsets stay until they expire. Groups that only commit offsets are always empty."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The coordinator waits for members to join; those that have joined wait too."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The members of the new generation are known; its leader is expected to send their assignments."""
    STABLE = "Stable"
    """Every member has its assignment."""
    DEAD = "Dead"
    """It was removed, or another broker coordinates it."""


_EMPTY: Final = ClassicGroupState.EMPTY
_PREPARING: Final = ClassicGroupState.PREPARING_REBALANCE
_COMPLETING: Final = ClassicGroupState.COMPLETING_REBALANCE
_STABLE: Final = ClassicGroupState.STABLE
_DEAD: Final = ClassicGroupState.DEAD

CLASSIC_TRANSITIONS: Final = TransitionTable(
    _EMPTY,
    Transition(_EMPTY, _PREPARING, "a first member joins"),
    Transition(_PREPARING, _COMPLETING, "all members have joined, or the time to join is over"),
    Transition(_PREPARING, _EMPTY, "no member is left"),
    Transition(_COMPLETING, _STABLE, "the leader sends the assignments"),
    Transition(_COMPLETING, _PREPARING, "a member joins, or joins again with other metadata"),
    Transition(_COMPLETING, _PREPARING, "a member leaves or falls silent"),
    Transition(_COMPLETING, _PREPARING, "a member does not ask for its assignment in time"),
    Transition(_STABLE, _PREPARING, "a member joins, or joins again with other metadata"),
    Transition(_STABLE, _PREPARING, "the leader joins again"),
    Transition(_STABLE, _PREPARING, "a member leaves or falls silent"),
    Transition(_STABLE, _PREPARING, "a member does not ask for its assignment in time"),
    Transition(_STABLE, _PREPARING, "a loaded group is larger than group.max.size"),
    Transition(_EMPTY, _DEAD, "the group is deleted, or its last offset expires"),
    Transition(_EMPTY, _DEAD, "the coordinator moves to another broker"),
    Transition(_PREPARING, _DEAD, "the coordinator moves to another broker"),
    Transition(_COMPLETING, _DEAD, "the coordinator moves to another broker"),
    Transition(_STABLE, _DEAD, "the coordinator moves to another broker"),
    Transition(_PREPARING, _DEAD, "a member of the consumer protocol joins: the group changes its protocol"),
    Transition(_COMPLETING, _DEAD, "a member of the consumer protocol joins: the group changes its protocol"),
    Transition(_STABLE, _DEAD, "a member of the consumer protocol joins: the group changes its protocol"),
    Transition(_EMPTY, _DEAD, "a member of the consumer protocol joins: the group changes its protocol"),
)
