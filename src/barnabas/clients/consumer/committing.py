"""Commits: which offsets go to the group, and when.

The promise: only offsets of records that the program is done with are committed automatically. It is done with a record
when it asks for the next one, or says so (`done`). What it was working on when it failed is read again, however it
failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.clients.errors import ClientFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from barnabas.clients.consumer.fetched import FetchedRecords
    from barnabas.clients.consumer.handed_out import HandedOut
    from barnabas.clients.consumer.native import NativeConsumer
    from barnabas.clients.records import TopicPartition
    from barnabas.model.base_error import BarnabasError

    CommitCallback: TypeAlias = "Callable[[Mapping[TopicPartition, int], BarnabasError | None], object]"


class Commits:
    """Commits what was handed out, automatically or when asked."""

    def __init__(
        self, native: NativeConsumer, fetched: FetchedRecords[Any, Any], handed_out: HandedOut, *, automatic: bool
    ) -> None:
        self.automatic = automatic
        self._native = native
        self._fetched = fetched
        self._handed_out = handed_out
        self._under_way: dict[tuple[str, int], int] = {}
        """Offsets that are stored for an automatic commit, or were committed without waiting: `commit` repeats them."""

    def done(self) -> None:
        """Everything that was handed out is processed: store its offsets for the next commit."""
        handed_out = self._handed_out
        self._native.require_open()
        self._fetched.hand = 0
        handed_out.count()
        if self.automatic and handed_out.next:
            self._store()
            handed_out.first.clear()

    def leave_hand(self) -> None:
        """Store what is done with, and only that: the program has not come back from what is in hand."""
        self._handed_out.return_unprocessed()
        self.store_automatic()

    def store_automatic(self) -> None:
        """Store what was handed out, if commits are automatic."""
        if self.automatic:
            self._store()

    def mark_committed(self) -> None:
        """What was handed out is committed, by other means than a commit here."""
        self._under_way.clear()
        self._handed_out.forget()

    def commit(self, offsets: Mapping[TopicPartition, int] | None, *, wait: bool) -> None:
        """Commit these offsets, or all that was handed out.

        librdkafka is always given the offsets: of those that are stored with it, it leaves out what lies before the
        committed ones, as after a seek backwards.
        """
        handed_out = self._handed_out
        self._native.require_open()
        self._native.require_group("commit")
        if handed_out.in_transaction:
            raise ClientFailed("_STATE", "commit: the transaction that is open commits what was handed out")
        handed_out.count()
        if offsets is None:
            self._fetched.hand = 0
            self.store_automatic()  # or an automatic commit would repeat what was stored before
        wanted = {**self._under_way, **handed_out.next} if offsets is None else offsets
        if not wanted:
            return
        self._native.commit(wanted, wait=wait)
        if offsets is None:
            self._under_way = {} if wait else {**self._under_way, **handed_out.next}
            handed_out.next.clear()
            handed_out.dropped.clear()
        handed_out.first.clear()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Repeat no commit of partitions that another member may have now: that could take it back."""
        for partition in partitions:
            self._under_way.pop(partition, None)

    def forget_all(self) -> None:
        """Repeat no commit any more."""
        self._under_way.clear()

    def _store(self) -> None:
        offsets = dict(self._handed_out.next)
        if offsets:
            self._under_way |= offsets
            self._handed_out.next.clear()
            self._native.store(offsets)
