"""OffsetCommit: the shape that handlers and machines know, read and written by hand.

It is the request that a busy group coordinator gets most of. Everything is read in one pass with its bounds checked;
tests hold both directions equal to kio's.

Version 10 names topics by id and the versions before by name, so no class of kio has both. These have, with the field
names of kio's. Requests and responses are not frozen: several objects are made for each, and freezing takes four times
as long as making. Tests convert kio's messages to these classes by the types of their fields, so annotations are not
postponed here.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.durations import MILLISECOND
from barnabas.protocol.wire.framing import MAX_STRING, skip_tags
from barnabas.protocol.wire.packing import INT16, INT32
from barnabas.protocol.wire.varint import read_uvarint, uvarint

NO_RETENTION: Final = timedelta(milliseconds=-1)
"""As an offset's retention: offsets.retention.minutes of the broker."""

FLEXIBLE: Final = 8
TOPIC_IDS: Final = 10
INSTANCES: Final = 7
LEADER_EPOCHS: Final = 6
RETENTION: Final = range(2, 5)
THROTTLE: Final = 3

_INT64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">ii")
_RESULT: Final = struct.Struct(">ih")
_OFFSET: Final = struct.Struct(">iq")
_OFFSET_AND_EPOCH: Final = struct.Struct(">iqi")
_SMALLEST_PARTITION: Final = 14
_SMALLEST_TOPIC: Final = 2


def _of(kind: str) -> Mapping[str, str]:
    return {"kafka_type": kind}


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    """An offset to be committed."""

    partition_index: int = field(metadata=_of("int32"))
    committed_offset: int = field(metadata=_of("int64"))
    committed_leader_epoch: int = field(metadata=_of("int32"), default=-1)
    committed_metadata: str | None = field(metadata=_of("string"), default=None)


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """A topic's offsets to be committed."""

    topic_id: UUID | None = field(metadata=_of("uuid"), default=None)
    name: str = field(metadata=_of("string"), default="")
    partitions: tuple[OffsetCommitRequestPartition, ...]


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    """Offsets of one group; `retention_time` is asked for in versions 2 to 4 only."""

    group_id: str = field(metadata=_of("string"))
    generation_id_or_member_epoch: int = field(metadata=_of("int32"), default=-1)
    member_id: str = field(metadata=_of("string"), default="")
    group_instance_id: str | None = field(metadata=_of("string"), default=None)
    retention_time: timedelta = field(metadata=_of("timedelta_i64"), default=NO_RETENTION)
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    """The result of a partition's commit."""

    partition_index: int = field(metadata=_of("int32"))
    error_code: ErrorCode = field(metadata=_of("error_code"), default=ErrorCode.none)


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """The results of a topic's commits."""

    topic_id: UUID | None = field(metadata=_of("uuid"), default=None)
    name: str = field(metadata=_of("string"), default="")
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    """The answer to a commit."""

    throttle_time: timedelta = field(metadata=_of("timedelta_i32"), default=timedelta(0))
    topics: tuple[OffsetCommitResponseTopic, ...]


def unpack(data: memoryview, position: int, version: int, max_elements: int = MAX_ELEMENTS) -> OffsetCommitRequest:
    """Read a request of any version that is served; raises InvalidFrame."""
    try:
        return _unpack(bytes(data), position, version, max_elements)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidFrame(f"OFFSET_COMMIT request of version {version} cannot be read: {error}") from error


def _unpack(data: bytes, position: int, version: int, left: int) -> OffsetCommitRequest:
    """Read a request with at most `left` topics and partitions."""
    flexible = version >= FLEXIBLE
    read_text, read_count = (_compact_text, _compact_count) if flexible else (_text, _count)
    group_id, position = read_text(data, position)
    (generation,) = INT32.unpack_from(data, position)
    member_id, position = read_text(data, position + 4)
    instance_id = None
    if version >= INSTANCES:
        instance_id, position = read_text(data, position)
    retention = NO_RETENTION
    if version in RETENTION:
        retention = _duration(_INT64.unpack_from(data, position)[0])
        position += 8
    topic_count, position = read_count(data, position, _SMALLEST_TOPIC, left)
    left -= topic_count
    topics = []
    for _ in range(topic_count):
        topic_id, name = None, ""
        if version >= TOPIC_IDS:
            topic_id, position = _topic_id(data, position)
        else:
            text, position = read_text(data, position)
            name = _not_null(text)
        count, position = read_count(data, position, _SMALLEST_PARTITION, left)
        left -= count
        partitions = []
        for _ in range(count):
            epoch = -1
            if version >= LEADER_EPOCHS:
                index, offset, epoch = _OFFSET_AND_EPOCH.unpack_from(data, position)
                position += _OFFSET_AND_EPOCH.size
            else:
                index, offset = _OFFSET.unpack_from(data, position)
                position += _OFFSET.size
            metadata, position = read_text(data, position)
            if flexible:
                position = _end(data, position)
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
            )
        if flexible:
            position = _end(data, position)
        topics.append(OffsetCommitRequestTopic(topic_id=topic_id, name=name, partitions=tuple(partitions)))
    if flexible:
        _end(data, position)
    return OffsetCommitRequest(
        group_id=_not_null(group_id),
        generation_id_or_member_epoch=generation,
        member_id=_not_null(member_id),
        group_instance_id=instance_id,
        retention_time=retention,
        topics=tuple(topics),
    )


# Each of these gives what stands at a position, and the position after it.


def _compact_text(data: bytes, position: int) -> tuple[str | None, int]:
    length = data[position]
    if length < 0x80:
        position += 1
    else:
        length, position = read_uvarint(data, position)
    return _text_of(data, position, length - 1)


def _text(data: bytes, position: int) -> tuple[str | None, int]:
    return _text_of(data, position + 2, INT16.unpack_from(data, position)[0])


def _text_of(data: bytes, position: int, length: int) -> tuple[str | None, int]:
    end = position + length
    if 0 <= length <= MAX_STRING and end <= len(data):
        return data[position:end].decode(), end
    if length == -1:
        return None, position
    raise InvalidFrame(
        f"a string of {length} bytes at byte {position} of {len(data)}; Kafka's have {MAX_STRING} at most"
    )


def _compact_count(data: bytes, position: int, smallest: int, most: int) -> tuple[int, int]:
    count, position = read_uvarint(data, position)
    return _checked(count - 1, position, smallest, most, len(data)), position


def _count(data: bytes, position: int, smallest: int, most: int) -> tuple[int, int]:
    (count,) = INT32.unpack_from(data, position)
    return _checked(count, position + 4, smallest, most, len(data)), position + 4


def _checked(count: int, position: int, smallest: int, most: int, size: int) -> int:
    if not 0 <= count <= most or position + count * smallest > size:
        raise InvalidFrame(f"array length {count} before byte {position} is more than the message can have")
    return count


def _topic_id(data: bytes, position: int) -> tuple[UUID | None, int]:
    raw = data[position : position + 16]
    if len(raw) < 16:
        raise InvalidFrame("the message ends inside a topic's id")
    return UUID(bytes=raw) if any(raw) else None, position + 16


def _end(data: bytes, position: int) -> int:
    """Pass over tagged fields, of which the protocol has none here."""
    return position + 1 if data[position] == 0 else skip_tags(memoryview(data), position)


def _not_null(text: str | None) -> str:
    if text is None:
        raise InvalidFrame("null where a string must be")
    return text


def _duration(milliseconds: int) -> timedelta:
    """A retention time; one that Python cannot hold becomes the longest that it can."""
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError:
        return timedelta.max if milliseconds > 0 else NO_RETENTION


def pack(correlation_id: int, version: int, response: OffsetCommitResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = bytearray(_HEAD.pack(0, correlation_id))
    if flexible:
        out.append(0)
    if version >= THROTTLE:
        out += INT32.pack(response.throttle_time // MILLISECOND)
    out += _length(len(response.topics), flexible)
    for topic in response.topics:
        if version >= TOPIC_IDS:
            out += bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        else:
            name = topic.name.encode()
            out += uvarint(len(name) + 1) if flexible else INT16.pack(len(name))
            out += name
        out += _length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            out += _RESULT.pack(partition.partition_index, partition.error_code.value)
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)
