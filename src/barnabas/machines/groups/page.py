"""docs/group-states.md, drawn from the transition tables, with what holds the rules to each of them.

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

The pictures are drawn from tables in the broker's source, and what binds each table stands above its picture. The
numbers at the arrows are those of the causes below it.

"""
CLASSIC = """\
A round begins when somebody joins or leaves. Members notice by the answer to a heartbeat, join again, and wait for
each other; the leader is told who has joined and sends back who reads what.

The group has this state, and the broker changes it through the table only, which refuses every other step. After a
restart a group is `Stable` or `Empty`, as its last record says, whatever it was doing.
"""
CONSUMER = """\
Such a group has no state that could be set. It is worked out whenever somebody asks, from three numbers: the epoch of
the group, which grows when members or topics change; the epoch of the target assignment, which follows it; and the
epoch of each member, which follows the target. So there is no place where the broker could refuse a step. The table
says where one event may lead, and the project's tests hold the rules to it: no history that they make up leaves it, and
each of its steps is taken in one of them.
"""
MEMBER = """\
Each member is led to its share of the target assignment: first it gives back what it is to lose, then its epoch moves
on, then it gets what others have given back. No partition has two owners on the way.

The state is stored with what the member has, and every step towards a target is checked against the table. What is not
such a step is not drawn: a member that leaves is gone; one that comes, in place of a static member or from the classic
protocol too, begins with what it is given.
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
