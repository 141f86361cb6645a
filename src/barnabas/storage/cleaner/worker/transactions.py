"""Transactions as the cleaner walks through a log: which batches were aborted, which markers are of no use any more.

Everything below the last stable offset is decided, and the transaction indexes say which transactions were aborted. The
data of those goes at once, whatever its keys. A marker stays as long as a batch of its transaction does, and then, like
a tombstone, for delete.retention.ms: a reader that has seen the transaction's records must come to see its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.records import read_records

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.segments.txn_index import AbortedTransaction


class CleanedTransactions:
    """The transactions that are open where the cleaner is, batch after batch."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all that have a record in what will be walked through."""
        self._coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()
        """Producers of open transactions of which a batch was seen."""
        self.aborted: list[AbortedTransaction] = []
        """Aborted transactions that still have a batch, in the order of their markers; taken by whoever writes them."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take the next batch of data into account: whether it belongs to an aborted transaction."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        aborted = self._aborted.get(header.producer_id)
        return aborted is not None and header.base_offset <= aborted.last_offset

    def is_spent(self, header: BatchHeader, payload: bytes) -> bool:
        """Take the next control batch into account: whether it is a marker of which no data is left."""
        self._advance(header.last_offset)
        if header.record_count == 0:
            return True
        kind = control_type(next(read_records(payload, header.record_count)).key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return False
        has_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if kind is ControlType.ABORT:
            aborted = self._aborted.pop(header.producer_id, None)
            if aborted is not None and has_data and header.base_offset <= aborted.last_offset:
                self.aborted.append(aborted)
        return not has_data

    def _advance(self, offset: int) -> None:
        """Begin the transactions that begin at `offset` or before; they end with their markers, seen or not."""
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborted[transaction.producer_id] = transaction
