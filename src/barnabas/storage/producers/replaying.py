"""Producer state from the batches of a log: as they are written, and read back from the newest snapshot on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.records.batch import CONTROL, HEADER_SIZE, TRANSACTIONAL, BatchHeader
from barnabas.protocol.records.control import ControlType, control_type, read_marker
from barnabas.protocol.records.records import read_records
from barnabas.storage.producers.state import ProducerStates
from barnabas.storage.segments.segments import segment_number
from barnabas.storage.segments.txn_index import AbortedTransaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.protocol.records.control import EndOfTransaction
    from barnabas.storage.producers.snapshots import Snapshots
    from barnabas.storage.producers.state import CompletedTransaction
    from barnabas.storage.segments.segment import Segment
    from barnabas.storage.segments.txn_index import TransactionIndex


def load_producers(
    segments: Sequence[Segment], snapshots: Snapshots, first_offset: int, end_offset: int
) -> ProducerStates:
    """The producer state at `end_offset`: from the newest snapshot before it, and the batches since.

    `segments` begin at `first_offset`. A snapshot from before that is of no use: what came after it is gone in part.
    """
    states = snapshots.load(end_offset)
    if states is None or states.end_offset < first_offset:
        states = ProducerStates(first_offset)
    _replay_up_to(states, segments, end_offset)
    return states


def ended_after(
    segments: Sequence[Segment], snapshots: Snapshots, offset: int, end_offset: int
) -> list[CompletedTransaction]:
    """The transactions that are ended by markers from `offset` on.

    Where they begin is known by the producer state at `offset`, which is made only if there are markers.
    """
    if not any(header.is_control for _, _, header in _batches(segments, offset, end_offset)):
        return []
    states = load_producers(segments, snapshots, segments[0].base_offset, offset)
    return _replay_up_to(states, segments, end_offset)


def _replay_up_to(states: ProducerStates, segments: Sequence[Segment], end_offset: int) -> list[CompletedTransaction]:
    """Bring the producer state to `end_offset`; returns the transactions that ended on the way."""
    ended = []
    for segment, position, header in _batches(segments, states.end_offset, end_offset):
        payload = b""
        if header.is_control:
            payload = segment.file.read(header.size - HEADER_SIZE, position + HEADER_SIZE)
        completed = replay(states, header, payload, None)
        if completed is not None:
            ended.append(completed)
    states.end_offset = end_offset
    return ended


def _batches(segments: Sequence[Segment], offset: int, end_offset: int) -> Iterator[tuple[Segment, int, BatchHeader]]:
    """The batches from the one that holds `offset` on that begin before `end_offset`, with their positions."""
    if offset >= end_offset:
        return
    for segment in segments[max(segment_number(segments, offset), 0) :]:
        if segment.base_offset >= end_offset:
            return
        found = segment.locate(max(offset, segment.base_offset), segment.size)
        if found is None:
            continue
        for position, header in segment.headers(found.position, segment.size):
            if header.base_offset >= end_offset:
                return
            yield segment, position, header


def aborted_by(states: ProducerStates, header: BatchHeader, payload: bytes) -> AbortedTransaction | None:
    """The transaction that a control batch would abort, if it came next; changes nothing. Raises InvalidRecord."""
    marker = _read_marker(header, payload)
    first_offset = states.open_since(header.producer_id)
    if marker is None or marker.type is not ControlType.ABORT or first_offset is None:
        return None
    stable = states.first_open_transaction(but=header.producer_id)
    stable = header.base_offset + 1 if stable is None else stable
    return AbortedTransaction(header.producer_id, first_offset, header.base_offset, stable)


def replay(
    states: ProducerStates, header: BatchHeader, payload: bytes, txn_index: TransactionIndex | None
) -> CompletedTransaction | None:
    """Note a batch of the log in the producer state; `payload` is only looked at in control batches.

    Returns the transaction that the batch ends, if it does. Where there is a `txn_index`, it is noted there, if it was
    aborted. Without one nothing is written.
    """
    ended = None
    base_offset, _, _, _, _, attributes, delta, _, timestamp, producer_id, epoch, sequence, _ = header
    if producer_id >= 0:
        if attributes & CONTROL:
            ended = _replay_control(states, header, payload, txn_index)
        else:
            transactional = bool(attributes & TRANSACTIONAL)
            states.record(producer_id, epoch, sequence, base_offset, delta, timestamp, transactional)
    states.end_offset = base_offset + delta + 1
    return ended


def _replay_control(
    states: ProducerStates, header: BatchHeader, payload: bytes, txn_index: TransactionIndex | None
) -> CompletedTransaction | None:
    marker = _read_marker(header, payload)
    if marker is None:
        return None
    if txn_index is not None and (aborted := aborted_by(states, header, payload)) is not None:
        txn_index.append(aborted)
    return states.end_transaction(header, marker)


def _read_marker(header: BatchHeader, payload: bytes) -> EndOfTransaction | None:
    """The end of a transaction in a control batch; None for a control batch of another kind."""
    if header.producer_id < 0 or header.record_count == 0:
        return None
    record = next(read_records(payload, header.record_count))
    if control_type(record.key) not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return read_marker(record)
