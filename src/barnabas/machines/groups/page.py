"""docs/group-states.md, drawn from the transition tables, with what holds the rules to each of them.

python -m barnabas.machines.groups.page > docs/group-states.md
"""

from __future__ import annotations

from barnabas.machines.groups.classic.states import CLASSIC_TRANSITIONS, ClassicGroupState
from barnabas.machines.groups.consumer.states import (
    GROUP_TRANSITIONS,
    MEMBER_TRANSITIONS,
    ConsumerGroupState,
    MemberState,
)
from barnabas.machines.groups.share.states import SHARE_TRANSITIONS, ShareGroupState
from barnabas.machines.state_page import section

INTRODUCTION = """\
# States of a group

A group is of one kind at a time: *classic*, where members join in rounds and one of them, the leader, assigns the
partitions; *consumer*, the new protocol (KIP-848), where the broker assigns them and moves each member to its
assignment step by step; or *share* (KIP-932), where the broker assigns them too, and members share them.
`barnabas groups --list --state --type` and `barnabas share-groups --list --state` show them; [Groups](groups.md) and
[Queues](queues.md) say what they are for.

The pictures are drawn from tables in the broker's source, and what binds each table stands above its picture. The
numbers at the arrows are those of the causes below it.

"""
CLASSIC = """\
A rebalance begins when a member joins or leaves. The others learn of it by the response to a heartbeat, join again, and
wait for each other. The leader gets the list of members and sends the assignment of each.

The group has this state, and the broker changes it through the table only, which refuses every other step. After a
restart a group is `Stable` or `Empty`, as its last record says, whatever it was doing.
"""
CONSUMER = """\
Such a group has no state that could be set. The state is computed when it is needed, from three numbers: the epoch of
the group, which grows when members or topics change; the epoch of the target assignment, which follows it; and the
epoch of each member, which follows the target. So there is no place where the broker could refuse a step. The table
says where one event may lead, and the project's tests hold the rules to it: no history that they make up leaves it, and
each of its steps is taken in one of them.
"""
MEMBER = """\
Each member moves to its part of the target assignment: first it revokes the partitions that it loses, then its epoch is
raised, then it gets the partitions that others have released. No partition has two owners on the way.

The state is stored with what the member has, and every step towards a target is checked against the table. What is not
such a step is not drawn: a member that leaves is gone; one that comes, in place of a static member or from the classic
protocol too, begins with what it is given.
"""
SHARE = """\
Members of a share group do not own partitions, so there is nothing that one has to give back before another may have
it. A group with members is stable, whatever its members have.

Of such a group, too, the state is computed. The table says what one event may do, and the tests hold the rules to it.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "\n".join(
        (
            *section("A classic group", CLASSIC, ClassicGroupState, CLASSIC_TRANSITIONS),
            *section("A consumer group", CONSUMER, ConsumerGroupState, GROUP_TRANSITIONS),
            *section("A member of a consumer group", MEMBER, MemberState, MEMBER_TRANSITIONS),
            *section("A share group", SHARE, ShareGroupState, SHARE_TRANSITIONS),
        )
    )


if __name__ == "__main__":
    print(page(), end="")
