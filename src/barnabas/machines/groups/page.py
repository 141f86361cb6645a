"""docs/group-states.md, drawn from the transition tables so that it cannot say anything else.

python -m barnabas.machines.groups.page > docs/group-states.md
"""

from __future__ import annotations

from barnabas.machines.groups.consumer_states import (
    GROUP_TRANSITIONS,
    MEMBER_TRANSITIONS,
    ConsumerGroupState,
    MemberState,
)
from barnabas.machines.groups.states import CLASSIC_TRANSITIONS, ClassicGroupState
from barnabas.machines.state_page import section

INTRODUCTION = """\
# States of a group

A group is of one kind at a time: *classic*, where members join in rounds and one of them, the leader, shares out the
partitions; or *consumer*, the new protocol (KIP-848), where the broker shares them out and moves each member to its
share step by step. `barnabas groups --list --state --type` shows both, and [Groups](groups.md) says what they are for.

This page is made from the tables that the broker's own rules are held to: a step that is not here does not happen. The
numbers at the arrows are those of the causes below each picture.

"""
CLASSIC = """\
A round begins when somebody joins or leaves. Members notice by the answer to a heartbeat, join again, and wait for
each other; the leader is told who has joined and sends back who reads what.
"""
CONSUMER = """\
The state of the group follows from three numbers: the epoch of the group, which grows when members or topics change;
the epoch of the target assignment, which follows it; and the epoch of each member, which follows the target.
"""
MEMBER = """\
Each member is led to its share of the target assignment: first it gives back what it is to lose, then its epoch moves
on, then it gets what others have given back. No partition has two owners on the way.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "\n".join(
        (
            *section("A classic group", CLASSIC, ClassicGroupState, CLASSIC_TRANSITIONS),
            *section("A consumer group", CONSUMER, ConsumerGroupState, GROUP_TRANSITIONS),
            *section("A member of a consumer group", MEMBER, MemberState, MEMBER_TRANSITIONS),
        )
    )


if __name__ == "__main__":
    print(page(), end="")
