"""The offsets of the records that were handed out and that nobody has committed.

The promise: what a commit or a transaction is given are offsets of records that the program has got, of partitions that
this consumer still has. Such offsets can be dropped: by a rebalance, or by a seek backwards. A transaction that has
used their records then cannot be committed (`require_complete`).

Partitions are plain tuples here (topic, partition), which are faster to make than `TopicPartition` and equal to it.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.errors import TransactionAborted
from barnabas.clients.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.clients.consumer.fetched import FetchedRecords

_PLACE: Final = itemgetter(0, 1)
"""Topic and partition of a record, as `attrgetter` has them in three times as long."""
_OFFSET: Final = itemgetter(2)
REVOKED: Final = "the partition was revoked or assigned anew"


class HandedOut:
    """What the program has got, as offsets."""

    def __init__(self, fetched: FetchedRecords[Any, Any], *, auto_commit: bool) -> None:
        """With `auto_commit` no transaction commits the offsets, so that none has to know what was dropped."""
        self._fetched = fetched
        self._auto_commit = auto_commit
        self.in_transaction = False
        """Whether a transaction is open that will commit what is handed out."""
        self.next: dict[tuple[str, int], int] = {}
        """The offset after the last record that was handed out and is not committed."""
        self.first: dict[tuple[str, int], int] = {}
        """The offset of the first such record."""
        self.following: dict[tuple[str, int], int] = {}
        """The offset after the last record that was handed out, committed or not; or where reading started."""
        self.dropped: dict[tuple[str, int], str] = {}
        """Partitions whose uncommitted offsets were dropped, and why."""

    def count(self) -> None:
        """Count the records that were handed out since the last time."""
        fetched = self._fetched
        if fetched.counted == fetched.at:
            return
        new = fetched.records[fetched.counted : fetched.at]
        last = dict(zip(map(_PLACE, new), map(_OFFSET, new), strict=True))
        for place, offset in last.items():
            self.next[place] = self.following[place] = offset + 1
            if place not in self.first:
                self.first[place] = next(record.offset for record in new if _PLACE(record) == place)
        fetched.counted = fetched.at

    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset of each partition from which something was handed out and not committed."""
        self.count()
        return {TopicPartition(*partition): offset for partition, offset in self.next.items()}

    def return_unprocessed(self) -> None:
        """What is in hand was not processed: it will be read again, here or by another member."""
        self.count()
        fetched = self._fetched
        for record in reversed(fetched.records[fetched.at - fetched.hand : fetched.at]):
            place = (record.topic, record.partition)
            if place in self.next:  # not if a seek or a rebalance dropped it since
                self.next[place] = record.offset
        fetched.hand = 0

    def forget(self) -> None:
        """Everything is committed, or will not be."""
        self.count()
        self.next.clear()
        self.first.clear()
        self.dropped.clear()
        self._fetched.hand = 0

    def drop(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """Drop the uncommitted offsets of these partitions.

        A transaction that was begun still goes back to where it began, unless the partition was revoked.
        """
        self.count()
        for partition in partitions:
            if why == REVOKED or not self.in_transaction:
                self.first.pop(partition, None)
            if self.next.pop(partition, None) is not None and self._concerns_transaction(why):
                self.dropped[partition] = why

    def drop_all(self, why: str) -> None:
        """Drop all uncommitted offsets, and keep what was dropped in mind."""
        self.count()
        self.drop([TopicPartition(*place) for place in self.next], why)
        dropped = dict(self.dropped)
        self.forget()
        self.dropped = dropped

    def refuse_transaction(self, why: str) -> None:
        """No transaction may commit what was handed out so far."""
        if not self._auto_commit:
            self.count()
            self.dropped |= dict.fromkeys(self.next, why)

    def require_complete(self) -> None:
        """Raise TransactionAborted if offsets of records that were handed out were dropped."""
        if self.dropped:
            places = ", ".join(f"{TopicPartition(*place)} ({why})" for place, why in sorted(self.dropped.items()))
            raise TransactionAborted(
                f"offsets of records that were handed out cannot be committed with the transaction: {places}. "
                "The transaction was aborted, and the records will be read again"
            )

    def _concerns_transaction(self, why: str) -> bool:
        """Whether a transaction has to know: rebalances also come before its block, with records that it writes."""
        return not self._auto_commit and (self.in_transaction or why == REVOKED)
