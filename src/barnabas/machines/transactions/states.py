"""The states of a transactional id, and the one table of what may follow what, with the cause of each step.

Every record of the coordinator's log is a step, and a step that is not in the table is refused before it is written.
Kafka has one state more, PrepareEpochFence, which is never stored: here fencing and aborting are one decision.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from barnabas.machines.groups.classic.states import Transition, TransitionTable


class TransactionState(IntEnum):
    """What a transactional id is doing, under Kafka's numbers."""

    EMPTY = 0
    """A producer has registered, and nothing was written yet."""
    ONGOING = 1
    """A transaction is open."""
    PREPARE_COMMIT = 2
    """It will be committed, whatever happens: markers are being written."""
    PREPARE_ABORT = 3
    """It will be aborted, whatever happens: markers are being written."""
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    """All markers are written."""
    DEAD = 6
    """It is forgotten."""

    @property
    def label(self) -> str:
        """The name that Kafka's tools show."""
        return self.name.title().replace("_", "")

    @property
    def is_ending(self) -> bool:
        """Whether the end of a transaction is decided, and not yet in every partition."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction whose end is not yet in every partition."""
        return self is TransactionState.ONGOING or self.is_ending


_EMPTY: Final = TransactionState.EMPTY
_ONGOING: Final = TransactionState.ONGOING
_PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
_PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
_DEAD: Final = TransactionState.DEAD

TRANSITIONS: Final = TransitionTable(
    _EMPTY,
    Transition(_EMPTY, _EMPTY, "a producer registers again"),
    Transition(_COMPLETE_COMMIT, _EMPTY, "a producer registers again"),
    Transition(_COMPLETE_ABORT, _EMPTY, "a producer registers again"),
    Transition(_EMPTY, _ONGOING, "a first partition is added"),
    Transition(_COMPLETE_COMMIT, _ONGOING, "a first partition is added"),
    Transition(_COMPLETE_ABORT, _ONGOING, "a first partition is added"),
    Transition(_ONGOING, _ONGOING, "another partition is added"),
    Transition(_ONGOING, _PREPARE_COMMIT, "the producer commits"),
    Transition(_ONGOING, _PREPARE_ABORT, "the producer aborts"),
    Transition(_ONGOING, _PREPARE_ABORT, "the transaction takes longer than its timeout"),
    Transition(_ONGOING, _PREPARE_ABORT, "this or another producer registers under the id"),
    Transition(_EMPTY, _PREPARE_ABORT, "the producer aborts, not knowing whether it has written"),
    Transition(_COMPLETE_COMMIT, _PREPARE_ABORT, "the producer aborts, not knowing whether it has written"),
    Transition(_COMPLETE_ABORT, _PREPARE_ABORT, "the producer aborts, not knowing whether it has written"),
    Transition(_PREPARE_COMMIT, _COMPLETE_COMMIT, "all markers are written"),
    Transition(_PREPARE_ABORT, _COMPLETE_ABORT, "all markers are written"),
    Transition(_EMPTY, _DEAD, "the id was not used for transactional.id.expiration.ms"),
    Transition(_COMPLETE_COMMIT, _DEAD, "the id was not used for transactional.id.expiration.ms"),
    Transition(_COMPLETE_ABORT, _DEAD, "the id was not used for transactional.id.expiration.ms"),
)
