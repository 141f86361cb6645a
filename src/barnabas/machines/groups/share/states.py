"""The states of a share group, and what moves it from one to another.

A share group has no rebalance that members wait for: they share partitions, so nobody has to give one back before
another may have it. So a group with members is always stable.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from barnabas.machines.groups.classic.states import Transition, TransitionTable


class ShareGroupState(Enum):
    """What a group is doing; the values are the names in responses."""

    EMPTY = "Empty"
    """It has no members; where its messages stand is kept."""
    STABLE = "Stable"
    """It has members."""
    DEAD = "Dead"
    """It does not exist."""


_EMPTY: Final = ShareGroupState.EMPTY
_STABLE: Final = ShareGroupState.STABLE

SHARE_TRANSITIONS: Final = TransitionTable(
    _EMPTY,
    Transition(_EMPTY, _STABLE, "a first member joins"),
    Transition(_STABLE, _EMPTY, "the last member leaves or falls silent"),
    Transition(_EMPTY, ShareGroupState.DEAD, "the group is deleted"),
)
