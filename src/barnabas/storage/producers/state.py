"""What a log remembers of idempotent producers: the rule that a batch is stored once and in order.

For every producer id: its epoch, its last five batches, and the transaction that is open. A batch whose sequence
numbers are those of one of the five is a repetition and answered like the first time. Otherwise it must go on where
the last one ended; a new epoch begins at 0. A producer id of which nothing is known may begin anywhere, since its
batches may have been removed by retention.

The state is a function of the log. Snapshots (`.snapshot`, named by the offset up to which they speak) save reading all
of it again: one is written when a segment begins and one when the log is closed. They have the last batch of a producer
only; the four before it are read back from the log when somebody repeats one (see `recall`). `snapshots` has the files.

    snapshot: version int16 (1), CRC-32C uint32 of the rest, count int32, and 46 bytes a producer:
    id int64, epoch int16, last sequence int32, last offset int64, offset delta int32, timestamp int64,
    coordinator epoch int32, first offset of the open transaction int64 (-1: none)
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from barnabas.model.errors import (
    ClusterAuthorizationFailed,
    CorruptMessage,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from barnabas.protocol.records.batch import MAX_PRODUCER_EPOCH, NO_SEQUENCE
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.control import ControlType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.protocol.records.control import EndOfTransaction

logger = logging.getLogger(__name__)

NO_TRANSACTION: Final = -1
NO_COORDINATOR: Final = -1
"""As the epoch of a coordinator: no transaction of the producer was ended yet."""

_BATCHES: Final = 5
MAX_SEQUENCE: Final = 2**31 - 1
SNAPSHOT_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")


Batch: TypeAlias = tuple[int, int, int, int]
"""Last sequence, last offset, offset delta and timestamp of a batch."""
Older: TypeAlias = "dict[tuple[int, int], deque[Batch]]"
"""Batches, oldest first, by the id and the epoch of their producer."""


class ProducerInfo(NamedTuple):
    """What DescribeProducers tells of one producer."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class Duplicate(NamedTuple):
    """A batch that is in the log already."""

    base_offset: int
    last_offset: int
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class ProducerEntry:
    """What is known of one producer id."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "next_sequence")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: deque[Batch] = deque(maxlen=_BATCHES)
        """Last sequence, last offset, offset delta and timestamp of the newest batches, oldest first."""
        self.last_timestamp = -1
        self.coordinator_epoch = NO_COORDINATOR

    def copy(self) -> ProducerEntry:
        """The same, to be changed without changing this one."""
        copied = ProducerEntry(self.epoch)
        copied.next_sequence = self.next_sequence
        copied.batches = self.batches.copy()
        copied.last_timestamp = self.last_timestamp
        copied.coordinator_epoch = self.coordinator_epoch
        return copied

    @property
    def last_sequence(self) -> int:
        """The last sequence number, or -1 when this epoch has no batch yet."""
        return self.batches[-1][0] if self.batches else NO_SEQUENCE

    def move_to(self, epoch: int) -> None:
        """Go on with another epoch: sequences start again."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0

    def add(self, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int) -> None:
        """Note a batch of the present epoch."""
        self.batches.append((last_sequence, last_offset, offset_delta, timestamp))
        self.next_sequence = (last_sequence + 1) & MAX_SEQUENCE
        self.last_timestamp = timestamp

    def find(self, base_sequence: int, offset_delta: int) -> Duplicate | None:
        """The remembered batch with these sequence numbers."""
        last = (base_sequence + offset_delta) & MAX_SEQUENCE
        for last_sequence, last_offset, delta, timestamp in self.batches:
            if last_sequence == last and delta == offset_delta:
                return Duplicate(last_offset - delta, last_offset, timestamp)
        return None


class FrozenProducers(NamedTuple):
    """The producers of one log at one moment: nothing in it changes, so a thread may read it while the log goes on."""

    layers: tuple[dict[int, ProducerEntry], ...]
    """A producer is known by the last one that has it."""
    opened: dict[int, int]

    def entries(self) -> dict[int, ProducerEntry]:
        """Every producer."""
        if len(self.layers) == 1:
            return self.layers[0]
        entries: dict[int, ProducerEntry] = {}
        for layer in self.layers:
            entries.update(layer)
        return entries

    def encode(self) -> bytes:
        """The content of a snapshot."""
        entries = self.entries()
        parts = [_COUNT.pack(len(entries))]
        for producer_id, entry in entries.items():
            last_sequence, last_offset, delta, _ = entry.batches[-1] if entry.batches else (NO_SEQUENCE, -1, 0, -1)
            parts.append(
                SNAPSHOT_ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    last_sequence,
                    last_offset,
                    delta,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    self.opened.get(producer_id, NO_TRANSACTION),
                )
            )
        body = b"".join(parts)
        return _HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body


class ProducerStates:
    """The producers of one log, as of `end_offset`.

    `freeze` takes a picture of all of them at the cost of none: what is known is put under a layer that is empty, and
    from then on a producer is copied into that layer before it is changed. `thaw` puts the layers together again.
    """

    __slots__ = ("_entries", "_frozen", "_open", "end_offset", "snapshot_offset")

    def __init__(self, end_offset: int = 0) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        """Those that may be changed; all, unless some are frozen."""
        self._frozen: tuple[dict[int, ProducerEntry], ...] = ()
        """Layers that do not change, the oldest first."""
        self._open: dict[int, int] = {}
        """Where the open transaction of a producer begins, the oldest first: batches come in the order of offsets."""
        self.end_offset = end_offset
        self.snapshot_offset = 0
        """Of the batches before this offset one of each producer is known; 0 when nothing is missing."""

    def __len__(self) -> int:
        return len(self._all())

    def __contains__(self, producer_id: int) -> bool:
        return self._find(producer_id) is not None

    def freeze(self) -> FrozenProducers:
        """All producers as they are now."""
        if self._entries:
            self._frozen = (*self._frozen, self._entries)
            self._entries = {}
        return FrozenProducers(self._frozen, dict(self._open))

    def thaw(self) -> None:
        """Nobody looks at what was frozen any more."""
        if self._frozen:
            entries, *later = (*self._frozen, self._entries)
            for layer in later:
                entries.update(layer)
            self._entries, self._frozen = entries, ()

    def _all(self) -> dict[int, ProducerEntry]:
        """Every producer, to look at."""
        return FrozenProducers((*self._frozen, self._entries), self._open).entries()

    def _find(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer, to look at; also in a thread (`older_batches`), while layers come and go."""
        while True:
            entries, frozen = self._entries, self._frozen
            if (entry := entries.get(producer_id)) is not None:
                return entry
            for layer in reversed(frozen):
                if (entry := layer.get(producer_id)) is not None:
                    return entry
            if entries is self._entries and frozen is self._frozen:
                return None

    def _own(self, producer_id: int) -> ProducerEntry | None:
        """What is known of a producer, to be changed."""
        entry = self._entries.get(producer_id)
        if entry is None and (frozen := self._find(producer_id)) is not None:
            entry = self._entries[producer_id] = frozen.copy()
        return entry

    @property
    def have_markers(self) -> bool:
        """Whether a transaction of one of the producers ever ended."""
        return any(entry.coordinator_epoch != NO_COORDINATOR for entry in self._all().values())

    def hold_since(self, offset: int) -> bool:
        """Whether the producers are known to be the same as at an earlier `offset`, because none has written since."""
        return not self.have_markers and all(last_offset < offset for last_offset, _ in self.ends().values())

    def next_of(self, producer_id: int, epoch: int, base_sequence: int) -> ProducerEntry | None:
        """Who sent a batch that simply follows its last one, outside of transactions; None if `check` must look."""
        entry = self._entries.get(producer_id)
        if (
            entry is not None
            and entry.epoch == epoch
            and entry.next_sequence == base_sequence
            and producer_id not in self._open
        ):
            return entry
        return None

    def expects(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Whether a producer is known, and this is the number that its next batch must begin with."""
        entry = self._find(producer_id)
        return entry is not None and entry.epoch == epoch and entry.next_sequence == base_sequence

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse a batch of an earlier epoch."""
        entry = self._find(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise InvalidProducerEpoch(f"producer {producer_id} uses epoch {epoch}, but {entry.epoch} has taken over")

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, offset_delta: int, transactional: bool
    ) -> Duplicate | None:
        """Whether a batch may be stored; returns the first one when it is a repetition."""
        self.check_epoch(producer_id, epoch)
        entry = self._find(producer_id)
        if entry is None:
            return None
        if epoch == entry.epoch:
            if base_sequence != entry.next_sequence:
                duplicate = entry.find(base_sequence, offset_delta)
                if duplicate is not None:
                    return duplicate
                raise OutOfOrderSequence(
                    f"producer {producer_id} sent sequence {base_sequence} where {entry.next_sequence} should follow"
                )
        elif base_sequence != 0:
            raise OutOfOrderSequence(
                f"producer {producer_id} begins its epoch {epoch} with sequence {base_sequence} instead of 0"
            )
        if not transactional and producer_id in self._open:
            raise InvalidTxnState(f"producer {producer_id} has an open transaction, but its batch is not part of one")
        return None

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        offset_delta: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Note a batch of data that is in the log now."""
        entry = self._own(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.move_to(epoch)
        last_sequence = NO_SEQUENCE if base_sequence == NO_SEQUENCE else (base_sequence + offset_delta) & MAX_SEQUENCE
        entry.add(last_sequence, base_offset + offset_delta, offset_delta, timestamp)
        if transactional:
            self._open.setdefault(producer_id, base_offset)

    def give_sequences(self) -> bool:
        """Let batches without a sequence number begin at 0, as those of coordinators do; False if all have one."""
        changed = False
        for entry in self._entries.values():
            for number, (last_sequence, last_offset, delta, timestamp) in enumerate(entry.batches):
                if last_sequence == NO_SEQUENCE:
                    entry.batches[number] = delta, last_offset, delta, timestamp
                    changed = True
        return changed

    def older_batches(self, headers: Iterable[BatchHeader]) -> Older:
        """Of the batches before the snapshot, oldest first, the last ones of each producer that are not known."""
        older: Older = {}
        for header in headers:
            entry = self._find(header.producer_id)
            if entry is None or not entry.batches or header.producer_epoch != entry.epoch:
                continue
            if header.base_sequence != NO_SEQUENCE and header.last_offset < entry.batches[0][1]:
                batches = older.setdefault((header.producer_id, entry.epoch), deque(maxlen=_BATCHES))
                batches.append(
                    (header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
                )
        return older

    def remember(self, producer_id: int, epoch: int, batches: Iterable[Batch]) -> None:
        """Fill up what is remembered of a producer with batches from before the snapshot, if it is in their epoch."""
        entry = self._own(producer_id)
        if entry is not None and entry.batches and entry.epoch == epoch:
            first = entry.batches[0][1]
            older = [batch for batch in batches if batch[1] < first]
            entry.batches = deque([*older, *entry.batches], maxlen=_BATCHES)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer, in this epoch, has a transaction that was written to and not ended."""
        entry = self._find(producer_id)
        return entry is not None and entry.epoch == epoch and producer_id in self._open

    def check_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, bumped: bool, by_broker: bool = True
    ) -> None:
        """Refuse a marker that is late: of a coordinator that was replaced, or for a transaction that is over.

        With `bumped` a marker has an epoch that none of the transaction's batches has. The same marker may come twice.

        Only a broker may bring a coordinator epoch that is not in the log: one that no coordinator has would fence them
        all. An administrator who ends a hanging transaction names the epoch of the log, or 0 if it has none.
        """
        entry = self._find(producer_id)
        if not by_broker:
            highest = 0 if entry is None else max(0, entry.coordinator_epoch)
            if coordinator_epoch > highest:
                raise ClusterAuthorizationFailed(
                    f"only a coordinator may write a marker of coordinator epoch {coordinator_epoch} for producer "
                    f"{producer_id}, whose epoch in the log is {highest}"
                )
        if entry is None:
            return
        is_late = epoch < entry.epoch
        if bumped and epoch == entry.epoch != MAX_PRODUCER_EPOCH:
            is_late = producer_id in self._open
        if is_late:
            raise InvalidProducerEpoch(f"a marker of producer {producer_id} has epoch {epoch}, the log {entry.epoch}")
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"a marker of producer {producer_id} is of coordinator epoch {coordinator_epoch}, "
                f"but {entry.coordinator_epoch} has taken over"
            )

    def end_transaction(self, header: BatchHeader, marker: EndOfTransaction) -> CompletedTransaction | None:
        """Note the end of a transaction; returns it, unless it had no records here."""
        entry = self._own(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_epoch)
        entry.move_to(header.producer_epoch)
        first_offset = self._open.pop(header.producer_id, None)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        if first_offset is None:
            return None
        aborted = marker.type is ControlType.ABORT
        return CompletedTransaction(header.producer_id, first_offset, header.base_offset, aborted)

    def open_since(self, producer_id: int) -> int | None:
        """The first offset of a producer's open transaction; None if it has none."""
        return self._open.get(producer_id)

    def first_open_transaction(self, *, but: int | None = None) -> int | None:
        """The first offset of the oldest open transaction, those of the producer `but` left out."""
        return next((first for producer_id, first in self._open.items() if producer_id != but), None)

    def expire(self, before_ms: int) -> None:
        """Forget producers that wrote nothing since `before_ms` and have no open transaction.

        None while a snapshot is encoded: the next call finds them.
        """
        if self._frozen:
            return
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.last_timestamp <= before_ms and producer_id not in self._open
        ]
        for producer_id in expired:
            del self._entries[producer_id]

    def ends(self) -> dict[int, tuple[int, int]]:
        """The last offset of each producer's data (-1 for none) and its epoch."""
        return {
            producer_id: (entry.batches[-1][1] if entry.batches else -1, entry.epoch)
            for producer_id, entry in self._all().items()
        }

    def ids(self) -> list[int]:
        """Whoever is known."""
        return list(self._all())

    def describe(self, producer_ids: Iterable[int] | None = None) -> list[ProducerInfo]:
        """What is known of these producers, or of all, for people."""
        return [
            ProducerInfo(
                producer_id,
                entry.epoch,
                entry.last_sequence,
                entry.last_timestamp,
                entry.coordinator_epoch,
                self._open.get(producer_id, NO_TRANSACTION),
            )
            for producer_id in (self._all() if producer_ids is None else producer_ids)
            if (entry := self._find(producer_id)) is not None
        ]

    def encode(self) -> bytes:
        """The content of a snapshot."""
        return FrozenProducers((*self._frozen, self._entries), self._open).encode()

    @classmethod
    def decode(cls, data: bytes, end_offset: int) -> ProducerStates:
        """Read a snapshot; raises CorruptMessage when it is damaged."""
        if len(data) < _HEAD.size + _COUNT.size:
            raise CorruptMessage(f"a snapshot of {len(data)} bytes is too short")
        version, crc = _HEAD.unpack_from(data)
        body = memoryview(data)[_HEAD.size :]
        if version != SNAPSHOT_VERSION:
            raise CorruptMessage(
                f"a snapshot of version {version} is unknown; this program reads version {SNAPSHOT_VERSION}"
            )
        if crc32c(body) != crc:
            raise CorruptMessage("the snapshot's CRC does not fit its content")
        (count,) = _COUNT.unpack_from(body)
        if count * SNAPSHOT_ENTRY.size != len(body) - _COUNT.size:
            raise CorruptMessage(f"the snapshot's length does not fit its {count} producers")
        states = cls(end_offset)
        states.snapshot_offset = end_offset if count else 0
        opened: dict[int, int] = {}
        for fields in SNAPSHOT_ENTRY.iter_unpack(body[_COUNT.size :]):
            producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
            entry = states._entries[producer_id] = ProducerEntry(epoch)
            if last_offset >= 0:
                entry.add(sequence, last_offset, delta, timestamp)
            entry.last_timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            if txn_first_offset != NO_TRANSACTION:
                opened[producer_id] = txn_first_offset
        states._open = dict(sorted(opened.items(), key=itemgetter(1)))
        return states
