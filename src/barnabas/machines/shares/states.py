"""The one table of what may become of a record in a share partition, with the cause of each step.

The share partition keeps states in runs of records, and the tests hold each record's steps to this table. The page
about queues draws it.
"""

from __future__ import annotations

from typing import Final

from barnabas.machines.groups.classic.states import Transition, TransitionTable
from barnabas.machines.shares.state_batches import DeliveryState
from barnabas.machines.state_page import section

_AVAILABLE: Final = DeliveryState.AVAILABLE
_ACQUIRED: Final = DeliveryState.ACQUIRED
_ACKNOWLEDGED: Final = DeliveryState.ACKNOWLEDGED
_ARCHIVED: Final = DeliveryState.ARCHIVED

DELIVERY_TRANSITIONS: Final = TransitionTable(
    _AVAILABLE,
    Transition(_AVAILABLE, _ACQUIRED, "a worker fetches it: its lock begins, and it counts as one more delivery"),
    Transition(_ACQUIRED, _ACQUIRED, "the worker renews the lock"),
    Transition(_ACQUIRED, _ACKNOWLEDGED, "the worker accepts it: `done()`"),
    Transition(_ACQUIRED, _AVAILABLE, "the worker releases it: `retry()`, or an exception in its `with`"),
    Transition(_ACQUIRED, _AVAILABLE, "the lock is over"),
    Transition(_ACQUIRED, _AVAILABLE, "the worker leaves, or its connection ends"),
    Transition(_ACQUIRED, _AVAILABLE, "another broker leads the partition: locks are not stored"),
    Transition(_ACQUIRED, _ARCHIVED, "the worker rejects it: `reject()`"),
    Transition(_ACQUIRED, _ARCHIVED, "it would be available again, but its deliveries are used up"),
    Transition(_ACQUIRED, _ARCHIVED, "it is a marker of a transaction, or a record of one that was aborted"),
    Transition(_AVAILABLE, _ARCHIVED, "retention or compaction has removed it from the log"),
)

LIFE: Final = """\
The state is kept for each message of each group, by the broker that leads the partition. `Acknowledged` and `Archived`
are stored in the topic `__share_group_state` before the worker hears that its word counts; `Acquired` is never stored.
"""


def life_of_a_message() -> str:
    """The section of docs/queues.md that draws the table."""
    return "\n".join(section("The life of a message", LIFE, DeliveryState, DELIVERY_TRANSITIONS))


if __name__ == "__main__":
    print(life_of_a_message(), end="")
