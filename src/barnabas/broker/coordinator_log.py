"""A coordinator's log: a partition of an internal topic, as records instead of batches.

`append` writes records as one batch: all of them or none. Its size has the limit that clients' batches have.
`replay_log` reads a whole log, oldest first, when a broker takes a partition over; records of transactions that clients
wrote are handed on with their producer's id, and so are the markers that end them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from barnabas.model.errors import MessageTooLarge
from barnabas.protocol.records.batch import HEADER, HEADER_SIZE, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, read_header
from barnabas.protocol.records.builder import NO_PRODUCER_EPOCH, build_batch
from barnabas.protocol.records.compression import decompress
from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.records import Record, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.broker.partition import Partition
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.log import Log

_MAX_UNPACKED: Final = 1 << 30
_RECORD_OVERHEAD: Final = 24
"""Bytes of a record beside its key and value, at most."""


class Replayed(Protocol):
    """Whoever reads a log."""

    def replay_bytes(self, key: bytes, value: bytes | None, producer_id: int) -> None:
        """One record; `producer_id` is that of the transaction it belongs to, or -1."""
        ...

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """The marker that ends a producer's transaction."""
        ...


def size_of(records: Sequence[tuple[bytes, bytes | None]]) -> int:
    """How much records add to a batch, at most."""
    size = len(records) * _RECORD_OVERHEAD
    for key, value in records:
        size += len(key) + (0 if value is None else len(value))
    return size


def room(config: LogConfig) -> int:
    """How much records of `size_of` a batch has room for."""
    return min(config.max_message_bytes, config.segment_bytes) - HEADER_SIZE


def divided(records: Iterable[tuple[bytes, bytes | None]], size: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """The records in parts of at most this size, unless one record alone is larger."""
    part: list[tuple[bytes, bytes | None]] = []
    left = size
    for record in records:
        needed = size_of([record])
        if part and needed > left:
            yield part
            part, left = [], size
        part.append(record)
        left -= needed
    if part:
        yield part


def append(
    partition: Partition,
    records: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
    codec: int,
    producer: tuple[int, int] | None = None,
) -> int:
    """Store records as one batch; returns the log end offset after them. Raises ApiError when that cannot be.

    A coordinator writes for its clients, so as many replicas must be in sync as with acks=all. `producer`, an id and an
    epoch, says whose transaction the records are part of.
    """
    partition.check_enough_replicas()
    batch = build_batch(
        [Record(number, 0, key, value) for number, (key, value) in enumerate(records)],
        base_timestamp=now_ms,
        codec=codec,
        producer_id=NO_PRODUCER_ID if producer is None else producer[0],
        producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer[1],
        base_sequence=NO_SEQUENCE if producer is None else 0,  # as Kafka's coordinator has it, for every batch
        transactional=producer is not None,
    )
    limit = partition.log.config.max_message_bytes
    if len(batch) > limit:
        raise MessageTooLarge(
            f"{len(records)} records make a batch of {len(batch)} bytes, max.message.bytes is {limit}"
        )
    return partition.append(batch, HEADER.unpack_from(batch), now_ms, in_sequence=False).last_offset + 1


def replay_log(log: Log, reader: Replayed, buffer_bytes: int, is_wanted: Callable[[], bool]) -> int:
    """Hand every record to `reader`; returns how many there were. Reads files; runs in a thread.

    It ends early when it `is_wanted` no more.
    """
    count = 0
    for header, payload in _batches(log, buffer_bytes):
        if not is_wanted():
            break
        unpacked = decompress(header.codec, payload, _MAX_UNPACKED) if header.codec else payload
        transaction = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for record in read_records(unpacked, header.record_count):
            if header.is_control:
                kind = control_type(record.key)
                if kind in (ControlType.COMMIT, ControlType.ABORT):
                    reader.end_transaction(header.producer_id, kind is ControlType.COMMIT)
            elif record.key is not None:
                reader.replay_bytes(record.key, record.value, transaction)
                count += 1
    return count


def _batches(log: Log, buffer_bytes: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Header and payload of each batch, from the log's start to what is its end at the beginning."""
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        found = log.read(offset, buffer_bytes, end, min_one=True)
        if not found.slices:
            return
        for part in found.slices:
            data = part.file.read(part.length, part.position)
            position = 0
            while position + HEADER_SIZE <= len(data):
                header = read_header(data, position)
                if position + header.size > len(data):
                    break  # cut by buffer_bytes: it comes again
                if header.last_offset >= offset:
                    yield header, data[position + HEADER_SIZE : position + header.size]
                position += header.size
                offset = header.last_offset + 1
