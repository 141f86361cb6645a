"""docs/transaction-states.md, drawn from the transition table so that it cannot say anything else.

python -m barnabas.machines.transactions.page > docs/transaction-states.md
"""

from __future__ import annotations

from barnabas.machines.state_page import section
from barnabas.machines.transactions.states import TRANSITIONS, TransactionState

INTRODUCTION = """\
# States of a transactional id

A coordinator knows one state of each transactional id, and every record of its log is a step from one to the next.
`kafka-transactions.sh list` and `describe` show them under these names, and [Delivery semantics](delivery-semantics.md)
says what transactions are for.

This page is made from the table that the broker's own rules are held to: a step that is not here does not happen. The
numbers at the arrows are those of the causes below the picture.

"""
TEXT = """\
An id has one state, so it has one transaction at a time. With a step to `PrepareCommit` or `PrepareAbort` the end is
decided, and happens whichever broker or client crashes then.
"""


def page() -> str:
    """The whole page."""
    return INTRODUCTION + "\n".join(section("From one transaction to the next", TEXT, TransactionState, TRANSITIONS))


if __name__ == "__main__":
    print(page(), end="")
