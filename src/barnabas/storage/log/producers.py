"""What a log remembers of its producers, and up to where their transactions are decided.

Two things hold for as long as the log is open. `states` is what the batches before the log's end offset say: an append
notes its batch here before it moves the end. And no reader of committed records is told of a transaction before its
marker is committed: `last_stable_offset` never passes the first offset of one that is open, or whose marker is not.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ApiError, OutOfOrderSequence
from barnabas.protocol.records.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL
from barnabas.storage.log.part import LogPart
from barnabas.storage.producers.recall import ReadBackNeeded, read_back
from barnabas.storage.producers.replaying import replay
from barnabas.storage.producers.snapshots import Snapshots
from barnabas.storage.producers.state import ProducerStates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.protocol.records.batch import BatchHeader, HeaderFields
    from barnabas.storage.log.log import Log
    from barnabas.storage.producers.state import CompletedTransaction, Duplicate, ProducerInfo
    from barnabas.storage.recovery.loading import LoadedLog
    from barnabas.storage.segments.segment import Segment

RECALLED_AT_ONCE: Final = 500
"""Producers that are filled up while the log is locked."""


class LogProducers(LogPart):
    """The producers and transactions of one log.

    The methods in the first part load the log and take its lock; those in the second are for the log's other parts,
    which have the lock.
    """

    __slots__ = ("ended", "first_unstable_offset", "has_aborted", "snapshots", "states")

    def __init__(self, log: Log) -> None:
        super().__init__(log)
        self.states = ProducerStates()
        self.snapshots = Snapshots(log.store.files, log.path)
        self.ended: list[CompletedTransaction] = []
        """Transactions whose markers were not known to be committed, in the order of their markers."""
        self.first_unstable_offset: int | None = None
        """Where the oldest open transaction begins, if there is one; known once the log is open."""
        self.has_aborted = False
        """Whether a transaction was ever aborted; known once the log is open."""

    # Asked by others

    def ends(self) -> dict[int, tuple[int, int]]:
        """For every producer that the log remembers, the last offset of its data (-1 for none) and its epoch."""
        self._log.open()
        with self._log.lock:
            return self.states.ends()

    def ids(self) -> list[int]:
        """The producers that the log remembers."""
        self._log.open()
        with self._log.lock:
            return self.states.ids()

    def describe(self, producer_ids: Iterable[int] | None = None) -> list[ProducerInfo]:
        """What the log remembers of these producers, as far as it still does, or of all."""
        self._log.open()
        with self._log.lock:
            return self.states.describe(producer_ids)

    def knows(self, producer_id: int) -> bool:
        """Whether the log remembers anything of a producer."""
        self._log.open()
        with self._log.lock:
            return producer_id in self.states

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer, in this epoch, has a transaction here that was not ended."""
        self._log.open()
        with self._log.lock:
            return self.states.has_open_transaction(producer_id, epoch)

    def expects(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Whether the next batch of a producer, which is known, must begin with this sequence number."""
        self._log.open()
        with self._log.lock:
            return self.states.expects(producer_id, epoch, base_sequence)

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, *, bumped: bool, by_broker: bool
    ) -> None:
        """Refuse a marker that comes too late, or from too far ahead; see ProducerStates."""
        self._log.open()
        with self._log.lock:
            self.states.check_marker(producer_id, epoch, coordinator_epoch, bumped, by_broker)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to here every transaction is decided, and the decision is committed, as is all before `high_watermark`.

        A marker that is not committed is of no account: if the next leader does not have it, the transaction is open
        again, and what readers were told would be taken back.
        """
        unstable = self.first_unstable_offset
        stable = high_watermark if unstable is None else min(unstable, high_watermark)
        if self.ended:
            self._forget_committed(high_watermark)
            for ended in self.ended:
                stable = min(stable, max(ended.first_offset, self._log.log_start_offset))
        return stable

    def recall(self) -> None:
        """Read back what a snapshot left out, after ReadBackNeeded. Waits for the disk; runs in a thread.

        Appends go on meanwhile: producers are filled up a few at a time.
        """
        segments, states = self._log.open(), self.states
        if states.snapshot_offset:
            older = iter(read_back(states, segments.all).items())
            while some := list(islice(older, RECALLED_AT_ONCE)):
                with self._log.lock:
                    for (producer_id, epoch), batches in some:
                        states.remember(producer_id, epoch, batches)
            states.snapshot_offset = 0

    def recall_for(self, header: HeaderFields) -> None:
        """The same, if it must be before this batch can be appended."""
        if self.states.snapshot_offset and header[9] >= 0:
            try:
                self.find_duplicate(header, True)
            except ReadBackNeeded:
                self.recall()
            except ApiError:
                return  # the append says so

    def expire(self, now_ms: int) -> None:
        """Forget producers that wrote nothing for producer.id.expiration.ms."""
        if self._log.is_open and len(self.states):
            with self._log.lock:
                self.states.expire(now_ms - self._log.store.producer_expiration_ms)

    # For the log's other parts, with its lock

    def use(self, loaded: LoadedLog) -> None:
        """The log was loaded: remember what its files say."""
        self.states = loaded.producers
        self.snapshots = loaded.snapshots
        self.ended = loaded.ended
        self.has_aborted = any(not segment.txn_index.is_empty for segment in loaded.segments)
        self.find_unstable()

    def find_duplicate(self, header: HeaderFields, in_sequence: bool) -> Duplicate | None:
        """The batch that this one repeats, if it does. Raises ApiError for one that must not follow."""
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        if attributes & CONTROL:
            return None
        if not in_sequence:
            self.states.check_epoch(producer_id, epoch)
            return None
        transactional = bool(attributes & TRANSACTIONAL)
        try:
            return self.states.check(producer_id, epoch, sequence, delta, transactional)
        except OutOfOrderSequence as error:
            if self.states.snapshot_offset:
                raise ReadBackNeeded(str(error)) from None
            raise

    def add(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        """A batch, of a producer, of its transaction, or the marker that ends one, was written to `segment`."""
        payload = bytes(batch[HEADER_SIZE:]) if header.is_control else b""
        ended = replay(self.states, header, payload, None)
        if ended is not None:
            self._forget_committed(self._log.high_watermark)
            self.ended.append(ended)
        if header.is_transactional:
            self.find_unstable()
            self.has_aborted = self.has_aborted or not segment.txn_index.is_empty

    def note_snapshot(self, offset: int) -> None:
        """A segment begins at `offset`, or the log is closed: the next flush writes a snapshot of the producers."""
        self.states.end_offset = offset
        self.snapshots.note(self.states)

    def thaw(self) -> None:
        """Put the producers together again, if no snapshot of them is still to be encoded."""
        if not self.snapshots.to_encode():
            self.states.thaw()

    def truncate_to(self, states: ProducerStates, offset: int, end_offset: int) -> None:
        """The log was cut at `offset`, and ends at `end_offset`: `states` is what the rest says."""
        self.snapshots.remove_after(offset)
        self.states = states
        while self.ended and self.ended[-1].last_offset >= end_offset:
            self.ended.pop()
        self.find_unstable()

    def start_anew(self, start_offset: int) -> None:
        """The log is empty, and goes on at `start_offset`."""
        self.snapshots.remove_after(-1)
        self.states = ProducerStates(start_offset)
        self.ended.clear()
        self.find_unstable()

    def find_unstable(self) -> None:
        """Find where the oldest open transaction begins now."""
        first = self.states.first_open_transaction()
        self.first_unstable_offset = None if first is None else max(first, self._log.log_start_offset)

    def _forget_committed(self, high_watermark: int) -> None:
        """Forget the ended transactions whose markers are committed."""
        committed = 0
        for ended in self.ended:
            if ended.last_offset >= high_watermark:
                break
            committed += 1
        del self.ended[:committed]
