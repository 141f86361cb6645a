"""A coordinator's log: a partition of an internal topic, as records instead of batches.

`append` writes records as one batch: all of them or none. The batch has the size limit of clients' batches.
`replay_log` reads a whole log, oldest record first, when a broker begins to lead the partition. Records of clients'
transactions are replayed with their producer id, and so are the markers that end these transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import MessageTooLarge
from barnabas.protocol.records.batch import (
    HEADER,
    HEADER_SIZE,
    NO_PRODUCER_ID,
    BatchHeader,
    read_header,
)
from barnabas.protocol.records.compression import MAX_UNPACKED, decompress
from barnabas.protocol.records.control import ControlType, control_type
from barnabas.protocol.records.pairs import build_batch_of_pairs
from barnabas.protocol.records.records import RECORD_OVERHEAD, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.broker.replication.leader_partition import LeaderPartition
    from barnabas.machines.outcome import Replayed
    from barnabas.model.log_config import LogConfig
    from barnabas.storage.log.log import Log


def size_of(records: Sequence[tuple[bytes, bytes | None]]) -> int:
    """The bytes that records add to a batch, at most."""
    size = len(records) * RECORD_OVERHEAD
    for key, value in records:
        size += len(key) + (0 if value is None else len(value))
    return size


def room(config: LogConfig) -> int:
    """The bytes of records, as `size_of` counts them, that fit into a batch."""
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
    partition: LeaderPartition,
    records: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
    codec: int,
    producer: tuple[int, int] | None = None,
) -> None:
    """Append records as one batch. Raises ApiError.

    The append needs as many replicas in sync as a Produce with acks=all. `producer`, an id and an epoch, names the
    producer whose transaction the records are part of.
    """
    partition.check_acks()
    batch = build_batch_of_pairs(records, now_ms, codec, producer)
    if len(batch) > (limit := partition.log.config.max_message_bytes):
        raise MessageTooLarge(
            f"A batch of {len(records)} records has {len(batch)} bytes, but max.message.bytes of "
            f"{partition.tp.topic} is {limit}."
        )
    partition.append(batch, HEADER.unpack_from(batch), now_ms, in_sequence=False)


def replay_log(log: Log, reader: Replayed, buffer_bytes: int, is_wanted: Callable[[], bool]) -> int:
    """Replay every record into `reader`; returns how many there were. Reads files; runs in a thread.

    It ends early when `is_wanted` returns False.
    """
    count = 0
    for header, payload in _batches(log, buffer_bytes):
        if not is_wanted():
            break
        unpacked = decompress(header.codec, payload, MAX_UNPACKED) if header.codec else payload
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
    """Header and payload of each batch, from the log's start to its end at the time of the call."""
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
                    break  # buffer_bytes ended within the batch: the next read begins with it
                if header.last_offset >= offset:
                    yield header, data[position + HEADER_SIZE : position + header.size]
                position += header.size
                offset = header.last_offset + 1
