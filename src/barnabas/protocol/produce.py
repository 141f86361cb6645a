"""Produce, packed and unpacked by hand: the hottest request there is, where kio's copies and objects would show.

Record batches are handed on as views into the frame: they are copied once, into the page cache. A test holds both
directions equal to kio, byte for byte.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.framing import skip_tags
from barnabas.protocol.varint import read_uvarint, uvarint

FLEXIBLE: Final = 9
TOPIC_IDS: Final = 13
RECORD_ERRORS: Final = 8
LOG_START: Final = 5

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
ACKS_TIMEOUT: Final = struct.Struct(">hi")
INDEX_SIZE: Final = struct.Struct(">ii")
RESULT_V2: Final = struct.Struct(">ihqq")
RESULT_V5: Final = struct.Struct(">ihqqq")


class PartitionRecords(NamedTuple):
    """What one partition is to be given; `records` is None where the client sent null."""

    partition: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    """A topic, by name up to version 12 and by id from 13 on, and its partitions."""

    topic: str | UUID
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    """A Produce request of any version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class PartitionResult(NamedTuple):
    """What became of one partition's records."""

    partition: int
    error: int = ErrorCode.none
    base_offset: int = -1
    append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None


class TopicResult(NamedTuple):
    """A topic, named as in the request, and its partitions' results."""

    topic: str | UUID
    partitions: list[PartitionResult]


def unpack(data: memoryview, position: int, version: int) -> ProduceRequest:
    """Read the request whose body starts at `position`; raises InvalidFrame."""
    try:
        if version >= FLEXIBLE:
            return _unpack_flexible(data, position, version)
        return _unpack_legacy(data, position)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidFrame(f"PRODUCE request of version {version} cannot be read: {error}") from error


def _unpack_flexible(data: memoryview, position: int, version: int) -> ProduceRequest:
    end = len(data)
    length, position = read_uvarint(data, position)
    transactional_id = None
    if length:
        transactional_id, position = _text(data, position, length - 1)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(data, position)
    topic_count, position = _count(data, position + 6)
    topics = []
    for _ in range(topic_count):
        topic: str | UUID
        if version >= TOPIC_IDS:
            topic = UUID(bytes=bytes(data[position : position + 16])) if position + 16 <= end else _short()
            position += 16
        else:
            length, position = read_uvarint(data, position)
            topic, position = _text(data, position, length - 1)
        partition_count, position = _count(data, position)
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(data, position)
            size, position = read_uvarint(data, position + 4)
            records = None
            if size:
                start = position
                position += size - 1
                if position > end:
                    _short()
                records = data[start:position]
            position = position + 1 if data[position] == 0 else skip_tags(data, position)
            partitions.append(PartitionRecords(index, records))
        position = skip_tags(data, position)
        topics.append(TopicRecords(topic, partitions))
    skip_tags(data, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _unpack_legacy(data: memoryview, position: int) -> ProduceRequest:
    end = len(data)
    (length,) = INT16.unpack_from(data, position)
    position += 2
    transactional_id = None
    if length >= 0:
        transactional_id, position = _text(data, position, length)
    acks, timeout_ms = ACKS_TIMEOUT.unpack_from(data, position)
    topic_count, position = _legacy_count(data, position + 6)
    topics = []
    for _ in range(topic_count):
        (length,) = INT16.unpack_from(data, position)
        topic, position = _text(data, position + 2, length)
        partition_count, position = _legacy_count(data, position)
        partitions = []
        for _ in range(partition_count):
            index, size = INDEX_SIZE.unpack_from(data, position)
            position += 8
            records = None
            if size >= 0:
                start = position
                position += size
                if position > end:
                    _short()
                records = data[start:position]
            partitions.append(PartitionRecords(index, records))
        topics.append(TopicRecords(topic, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _short() -> UUID:
    raise InvalidFrame("the PRODUCE request ends inside a field")


def _text(data: memoryview, position: int, length: int) -> tuple[str, int]:
    end = position + length
    if length < 0 or end > len(data):
        raise InvalidFrame(f"a string of {length} bytes at byte {position} does not fit the PRODUCE request")
    return str(data[position:end], "utf-8"), end


def _count(data: memoryview, position: int) -> tuple[int, int]:
    count, position = read_uvarint(data, position)
    if count > len(data) - position + 1:
        raise InvalidFrame(f"an array of {count - 1} elements goes beyond the end of the PRODUCE request")
    return max(count - 1, 0), position


def _legacy_count(data: memoryview, position: int) -> tuple[int, int]:
    (count,) = INT32.unpack_from(data, position)
    if count > len(data) - position:
        raise InvalidFrame(f"an array of {count} elements goes beyond the end of the PRODUCE request")
    return max(count, 0), position + 4


def pack(correlation_id: int, version: int, topics: list[TopicResult]) -> bytes:
    """The whole frame of the response."""
    flexible = version >= FLEXIBLE
    out = bytearray(b"\0\0\0\0")
    out += INT32.pack(correlation_id)
    out += b"\0" + uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    for topic, partitions in topics:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            name = topic.encode()
            out += uvarint(len(name) + 1) if flexible else INT16.pack(len(name))
            out += name
        out += uvarint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
        for result in partitions:
            _pack_result(out, version, result)
        if flexible:
            out.append(0)
    out += b"\0\0\0\0\0" if flexible else b"\0\0\0\0"
    out[:4] = INT32.pack(len(out) - 4)
    return bytes(out)


def _pack_result(out: bytearray, version: int, result: PartitionResult) -> None:
    partition, error, base_offset, append_time, log_start_offset, message = result
    if version < LOG_START:
        out += RESULT_V2.pack(partition, error, base_offset, append_time)
        return
    out += RESULT_V5.pack(partition, error, base_offset, append_time, log_start_offset)
    if version < RECORD_ERRORS:
        return
    text = None if message is None else message.encode()[:32_000]
    if version < FLEXIBLE:
        out += b"\0\0\0\0" + (b"\xff\xff" if text is None else INT16.pack(len(text)) + text)
        return
    out += b"\x01" + (b"\0" if text is None else uvarint(len(text) + 1) + text)
    out.append(0)
