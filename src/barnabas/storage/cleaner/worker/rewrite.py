"""What becomes of each batch of a log that is cleaned: it stays as it is, loses records, becomes empty, or goes.

The rules, which are Kafka's:

- Of a key, the record with the highest offset stays. Records without a key go.
- A tombstone (a null value) that is the last of its key stays for delete.retention.ms from its first cleaning on. That
  moment, the *delete horizon*, is written into the batch: an attribute bit says that the base timestamp is the horizon,
  and the records' timestamps are told relative to it. Markers of transactions without data go the same way.
- Data of aborted transactions goes at once.
- A batch that lost everything stays as a bare header if it is the last of a known producer, or of its segment.

A batch that loses nothing is not opened for writing, let alone compressed again: its bytes are copied. One that loses
records is compressed with its own codec.

Dirty batches are judged by offset alone, since the key map has told which offsets survive; what was cleaned before is
judged by key.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol.records.batch import (
    CONTROL,
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from barnabas.protocol.records.builder import seal
from barnabas.protocol.records.compression import MAX_UNPACKED, compress, decompress
from barnabas.storage.cleaner.worker.payload import (
    Kept,
    keep_by_delta,
    keep_by_key,
    keep_by_number,
    largest_timestamp_delta,
    restamp,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.protocol.records.batch import BatchHeader
    from barnabas.storage.cleaner.worker.key_map import KeyMap
    from barnabas.storage.cleaner.worker.transactions import CleanedTransactions

_KEPT_WHEN_EMPTY: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


class ProducerEnd(NamedTuple):
    """The last offset of a known producer's data, -1 if there is none, and its epoch."""

    last_offset: int
    epoch: int


class Rewritten(NamedTuple):
    """A batch as it is written: its records, its largest timestamp, its bytes; None: those it had."""

    records: int
    max_timestamp: int
    data: bytes | None


class Payload(NamedTuple):
    """The records of a batch, not compressed: from `start` to `end` of `data`."""

    data: bytes
    start: int
    end: int


def unpacked(header: BatchHeader, data: bytes, at: int) -> Payload:
    """The records of the batch that begins at `at` of `data`."""
    if not header.codec:
        return Payload(data, at + HEADER_SIZE, at + header.size)
    payload = decompress(header.codec, memoryview(data)[at + HEADER_SIZE : at + header.size], MAX_UNPACKED)
    return Payload(payload, 0, len(payload))


class Rewriter:
    """Decides on the batches of one log, which it is given in their order."""

    def __init__(
        self,
        keys: KeyMap,
        first_dirty: int,
        transactions: CleanedTransactions,
        producers: Mapping[int, ProducerEnd],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._last = keys.last
        self._end_offset = keys.end_offset
        self._survivors = keys.survivors()
        self._survivor = 0
        self._first_dirty = first_dirty
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms

    def rewrite(self, header: BatchHeader, data: bytes, at: int, *, is_last: bool) -> Rewritten | None:
        """What to write of the batch that begins at `at` of `data`; None if it goes. `is_last`: of its segment."""
        if header.lacks_sequence:
            return self._with_sequence(header, data, at, is_last)
        return self._rewrite(header, data, at, is_last)

    def _with_sequence(self, header: BatchHeader, data: bytes, at: int, is_last: bool) -> Rewritten | None:
        """A batch that a coordinator wrote without a sequence number, as earlier versions did, gets Kafka's."""
        right = header._replace(base_sequence=0)
        kept = self._rewrite(right, data, at, is_last)
        if kept is None or kept.data is not None:
            return kept
        return kept._replace(data=seal(right, memoryview(data)[at + HEADER_SIZE : at + header.size]))

    def _rewrite(self, header: BatchHeader, data: bytes, at: int, is_last: bool) -> Rewritten | None:
        if header.is_control:
            kept = self._control(header, data, at)
        elif self._transactions.is_aborted(header):
            kept = None
        elif header.base_offset >= self._end_offset:
            kept = _as_it_is(header)
        elif header.base_offset >= self._first_dirty:
            kept = self._dirty(header, data, at)
        else:
            kept = self._clean(header, data, at)
        if kept is not None and kept.records:
            return kept
        if is_last or self._is_last_of_producer(header):
            return _empty_batch(header)
        return None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        end = self._producers.get(header.producer_id)
        if end is None:
            return False
        if end.last_offset >= 0:
            return header.last_offset == end.last_offset
        return header.is_control and header.producer_epoch == end.epoch

    def _control(self, header: BatchHeader, data: bytes, at: int) -> Rewritten | None:
        payload = unpacked(header, data, at)
        if not self._transactions.is_spent(header, payload.data[payload.start : payload.end]):
            return _as_it_is(header)
        if header.attributes & HAS_DELETE_HORIZON:
            return None if header.base_timestamp <= self._now_ms else _as_it_is(header)
        if header.record_count == 0:
            return None
        return self._built(header, payload, Kept(header.record_count, [(payload.start, payload.end)], True))

    def _dirty(self, header: BatchHeader, data: bytes, at: int) -> Rewritten | None:
        survivors = self._survivors
        first = bisect_left(survivors, header.base_offset << 1, self._survivor)
        after = bisect_left(survivors, (header.last_offset + 1) << 1, first)
        self._survivor = after
        wanted = survivors[first:after]
        if not self._keeps_tombstones(header):
            wanted = array("q", (each for each in wanted if not each & 1))
        if not wanted:
            return None
        tombstones = any(each & 1 for each in wanted)
        if len(wanted) == header.record_count and (not tombstones or header.attributes & HAS_DELETE_HORIZON):
            return _as_it_is(header)
        payload = unpacked(header, data, at)
        deltas = [(each >> 1) - header.base_offset for each in wanted]
        runs = None
        if header.record_count == header.last_offset_delta + 1:
            runs = keep_by_number(*payload, deltas)
        if runs is None:
            runs = keep_by_delta(payload.data, payload.start, payload.end, frozenset(deltas))
        return self._built(header, payload, Kept(len(deltas), runs, tombstones))

    def _clean(self, header: BatchHeader, data: bytes, at: int) -> Rewritten | None:
        if header.record_count == 0:
            return None
        payload = unpacked(header, data, at)
        kept = keep_by_key(*payload, header.base_offset, self._last, keep_tombstones=self._keeps_tombstones(header))
        if kept.records == header.record_count and (not kept.tombstones or header.attributes & HAS_DELETE_HORIZON):
            return _as_it_is(header)
        return self._built(header, payload, kept) if kept.records else None

    def _keeps_tombstones(self, header: BatchHeader) -> bool:
        return not header.attributes & HAS_DELETE_HORIZON or self._now_ms < header.base_timestamp

    def _built(self, header: BatchHeader, payload: Payload, kept: Kept) -> Rewritten:
        """The batch with what is kept of it, and with a delete horizon if it needs one and has none yet."""
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        max_timestamp = append_time
        if max_timestamp is None:
            max_timestamp = header.base_timestamp + largest_timestamp_delta(payload.data, kept.runs)
        attributes, base_timestamp = header.attributes, header.base_timestamp
        if kept.tombstones and not attributes & HAS_DELETE_HORIZON:
            attributes, base_timestamp = attributes | HAS_DELETE_HORIZON, self._horizon_ms
            fixed = None if append_time is None else append_time - base_timestamp
            records = restamp(payload.data, kept.runs, header.base_timestamp - base_timestamp, fixed)
        else:
            records = b"".join([payload.data[start:end] for start, end in kept.runs])
        batch = seal(
            header._replace(
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                record_count=kept.records,
            ),
            compress(header.codec, records) if header.codec else records,
        )
        return Rewritten(kept.records, max_timestamp, batch)


def _as_it_is(header: BatchHeader) -> Rewritten:
    return Rewritten(header.record_count, header.max_timestamp, None)


def _empty_batch(header: BatchHeader) -> Rewritten:
    """The batch's header alone, as Kafka writes it."""
    if header.record_count == 0:
        return _as_it_is(header)
    bare = header._replace(attributes=header.attributes & _KEPT_WHEN_EMPTY, base_timestamp=NO_TIMESTAMP, record_count=0)
    return Rewritten(0, header.max_timestamp, seal(bare, b""))
