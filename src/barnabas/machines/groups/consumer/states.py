"""The states of a consumer group and of its members, and what moves each of them from one to another.

A member's state is stored with its assignment. A group has no state of its own: it follows from the epochs of the
group, of its target assignment and of its members, so it cannot contradict them; its table says which steps are seen.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from barnabas.machines.groups.classic.states import Transition, TransitionTable


class MemberState(Enum):
    """How far a member is on its way to its target assignment; the values are those of the stored records."""

    STABLE = 0
    """It has all that it is to have in its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions, and stays in its epoch until it has."""
    UNRELEASED_PARTITIONS = 2
    """It is in the new epoch, and waits for partitions that others have not released."""
    UNKNOWN = 127
    """A newer broker stored a state that this one does not know: the member has to join again."""

    @staticmethod
    def of(value: int) -> MemberState:
        """The state that a record names."""
        return _BY_VALUE.get(value, _UNKNOWN)


_STABLE: Final = MemberState.STABLE
_UNREVOKED: Final = MemberState.UNREVOKED_PARTITIONS
_UNRELEASED: Final = MemberState.UNRELEASED_PARTITIONS
_UNKNOWN: Final = MemberState.UNKNOWN
_BY_VALUE: Final = {state.value: state for state in MemberState}

MEMBER_TRANSITIONS: Final = TransitionTable(
    _STABLE,
    Transition(
        _STABLE,
        _STABLE,
        "a new target assignment adds partitions that are free, or takes away partitions that were revoked",
    ),
    Transition(_STABLE, _UNREVOKED, "a new target assignment takes partitions away"),
    Transition(_STABLE, _UNREVOKED, "the member no longer subscribes to a topic that it reads"),
    Transition(_STABLE, _UNRELEASED, "a new target assignment adds partitions that others still have"),
    Transition(
        _UNREVOKED, _UNREVOKED, "the member has revoked its partitions, and a newer target assignment takes more away"
    ),
    Transition(_UNREVOKED, _UNREVOKED, "the member no longer subscribes to a topic that it reads"),
    Transition(_UNREVOKED, _STABLE, "the member has revoked its partitions, and those that it gets are free"),
    Transition(
        _UNREVOKED, _UNRELEASED, "the member has revoked its partitions, and others still have those that it gets"
    ),
    Transition(
        _UNRELEASED,
        _UNRELEASED,
        "some of the others have released their partitions, or a newer target assignment is made",
    ),
    Transition(_UNRELEASED, _STABLE, "the others have released their partitions"),
    Transition(_UNRELEASED, _UNREVOKED, "a newer target assignment takes partitions away"),
    Transition(_UNKNOWN, _STABLE, "the member joins again without partitions"),
    Transition(_UNKNOWN, _UNRELEASED, "the member joins again without partitions, and others have those it gets"),
)


class ConsumerGroupState(Enum):
    """What a group is doing; the values are the names in responses."""

    EMPTY = "Empty"
    """It has no members."""
    ASSIGNING = "Assigning"
    """Members or topics changed, and no target assignment was made for that yet."""
    RECONCILING = "Reconciling"
    """There is a target assignment, and members are on their way to it."""
    STABLE = "Stable"
    """Every member has what the target assignment gives it."""
    DEAD = "Dead"
    """It does not exist."""


_EMPTY: Final = ConsumerGroupState.EMPTY
_ASSIGNING: Final = ConsumerGroupState.ASSIGNING
_RECONCILING: Final = ConsumerGroupState.RECONCILING
_SETTLED: Final = ConsumerGroupState.STABLE
_DEAD: Final = ConsumerGroupState.DEAD

GROUP_TRANSITIONS: Final = TransitionTable(
    _EMPTY,
    Transition(_EMPTY, _SETTLED, "a first member joins and is given all partitions"),
    Transition(_EMPTY, _ASSIGNING, "a first member joins, and the last assignment is too recent for a new one"),
    Transition(_EMPTY, _RECONCILING, "a member joins a classic group, whose members come along"),
    Transition(_ASSIGNING, _RECONCILING, "a heartbeat makes the target assignment"),
    Transition(_ASSIGNING, _SETTLED, "a heartbeat makes the target assignment, and no other member has to change"),
    Transition(_ASSIGNING, _EMPTY, "the last member leaves or falls silent"),
    Transition(_RECONCILING, _SETTLED, "the last member reaches its target"),
    Transition(_RECONCILING, _ASSIGNING, "members or topics change"),
    Transition(_RECONCILING, _EMPTY, "the last member leaves or falls silent"),
    Transition(_SETTLED, _RECONCILING, "members or topics change, and a target assignment is made at once"),
    Transition(_SETTLED, _RECONCILING, "a static member leaves for a while"),
    Transition(_SETTLED, _ASSIGNING, "members or topics change"),
    Transition(_SETTLED, _EMPTY, "the last member leaves or falls silent"),
    Transition(_EMPTY, _DEAD, "the group is deleted, or a classic member joins it"),
    Transition(_ASSIGNING, _DEAD, "the last member of the consumer protocol leaves classic members behind"),
    Transition(_RECONCILING, _DEAD, "the last member of the consumer protocol leaves classic members behind"),
    Transition(_SETTLED, _DEAD, "the last member of the consumer protocol leaves classic members behind"),
)
