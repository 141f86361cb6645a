"""Who reads which partition: the assignors that run in the broker, with the results of Kafka 4.3.0's.

An assignor is a function of the group alone, so that the same group is always assigned in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.machines.groups.assignors.ranges import assign_ranges
from barnabas.machines.groups.assignors.spec import GroupSpec, MemberSpec, TopicSpec
from barnabas.machines.groups.assignors.uniform import assign_uniform

if TYPE_CHECKING:
    from barnabas.machines.groups.assignors.spec import Assignment, Assignor

__all__ = ["ASSIGNORS", "RANGE", "UNIFORM", "GroupSpec", "MemberSpec", "TopicSpec", "assign"]

UNIFORM: Final = "uniform"
RANGE: Final = "range"
ASSIGNORS: Final[dict[str, Assignor]] = {UNIFORM: assign_uniform, RANGE: assign_ranges}


def assign(name: str, spec: GroupSpec) -> Assignment:
    """The assignment of the group by the assignor of this name: for every member, what it is to read."""
    return ASSIGNORS[name](spec)
