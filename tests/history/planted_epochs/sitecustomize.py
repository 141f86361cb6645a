"""A mistake for brokers: with this folder in their PYTHONPATH they take a late EndTxn for one of the open transaction.

As `planted/` beside it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.machines.transactions import coordinator
from barnabas.machines.transactions.states import TransactionState
from barnabas.machines.transactions.steps import state_of

if TYPE_CHECKING:
    from kio.schema.end_txn.v5.request import EndTxnRequest

    from barnabas.protocol.coordinator_records.transaction_state import TransactionLogValue

_is_done = coordinator._is_done_bumping


def _is_done_in_any_epoch(request: EndTxnRequest, before: TransactionLogValue) -> bool:
    if state_of(before) is TransactionState.ONGOING:
        request = replace(request, producer_epoch=before.producer_epoch)  # type: ignore[arg-type]  # a checked number
    return _is_done(request, before)


coordinator._is_done_bumping = _is_done_in_any_epoch
