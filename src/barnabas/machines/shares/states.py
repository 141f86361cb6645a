"""The one table of what may become of a record in a share partition, with the cause of each step.

The share partition keeps states in runs of records, and the tests hold each record's steps to this table. The page
about queues draws it.
"""

from __future__ import annotations

from typing import Final

from barnabas.machines.groups.classic.states import Transition, TransitionTable
from barnabas.machines.shares.state_batches import ACKNOWLEDGED, ACQUIRED, ARCHIVED, ARCHIVING, AVAILABLE, DeliveryState
from barnabas.machines.state_page import section

DELIVERY_TRANSITIONS: Final = TransitionTable(
    AVAILABLE,
    Transition(AVAILABLE, ACQUIRED, "a worker fetches it: its lock begins, and it counts as one more delivery"),
    Transition(ACQUIRED, ACQUIRED, "the worker renews the lock"),
    Transition(ACQUIRED, ACKNOWLEDGED, "the worker accepts it: `done()`"),
    Transition(ACQUIRED, AVAILABLE, "the worker releases it: `retry()`, or an exception in its `with`"),
    Transition(ACQUIRED, AVAILABLE, "the lock is over"),
    Transition(ACQUIRED, AVAILABLE, "the worker leaves, or its connection ends"),
    Transition(ACQUIRED, AVAILABLE, "another broker leads the partition: locks are not stored"),
    Transition(ACQUIRED, ARCHIVING, "the worker rejects it: `reject()`"),
    Transition(ACQUIRED, ARCHIVING, "it would be available again, but its deliveries are used up"),
    Transition(ARCHIVING, ARCHIVED, "its dead letter is stored"),
    Transition(ARCHIVING, ARCHIVED, "the log does not have it any more, or the group has no dead letters any more"),
    Transition(ACQUIRED, ARCHIVED, "the same two as for `Archiving`, of a group without dead letters"),
    Transition(ACQUIRED, ARCHIVED, "it is a marker of a transaction, or a record of one that was aborted"),
    Transition(AVAILABLE, ARCHIVED, "retention or compaction has removed it from the log"),
)

LIFE: Final = """\
The state is kept for each message of each group, by the broker that leads the partition. `Acknowledged`,
`Archiving` and `Archived` are stored in the topic `__share_group_state` before the worker hears that its word counts;
`Acquired` is never stored.
"""


def life_of_a_message() -> str:
    """The section of docs/queues.md that draws the table."""
    return "\n".join(section("The life of a message", LIFE, DeliveryState, DELIVERY_TRANSITIONS))


if __name__ == "__main__":
    print(life_of_a_message(), end="")
