"""OffsetCommit: the shape that handlers and machines know, read and written by hand.

It is the request that a busy group coordinator gets most of. Everything is read in one pass with its bounds checked;
tests hold both directions equal to kio's. A consumer's commits of one partition differ in little but the offset: what
stands before it is remembered, and not read again. Topics are those of TxnOffsetCommit, too (`txn_offset_commit`).

Version 10 names topics by id and the versions before by name, so no class of kio has both. These have, with the field
names of kio's. Requests and responses are not frozen: several objects are made for each, and freezing takes four times
as long as making. Tests convert kio's messages to these classes by the types of their fields, so annotations are not
postponed here.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from uuid import UUID

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.framing import MAX_STRING, skip_tags
from barnabas.protocol.wire.packing import INT16, INT32, NO_TAGS, add_count, add_text, finish, milliseconds, start
from barnabas.protocol.wire.reading import UNREADABLE, uuid_of
from barnabas.protocol.wire.varint import read_uvarint, uvarint

NO_RETENTION: Final = timedelta(milliseconds=-1)
"""As an offset's retention: offsets.retention.minutes of the broker."""

FLEXIBLE: Final = 8
TOPIC_IDS: Final = 10
INSTANCES: Final = 7
LEADER_EPOCHS: Final = 6
RETENTION: Final = range(2, 5)
THROTTLE: Final = 3

_ONE: Final = 2
"""Elements of a message with one topic and one partition."""
_INT64: Final = struct.Struct(">q")
_RESULT: Final = struct.Struct(">ih")
_OFFSET: Final = struct.Struct(">iq")
_OFFSET_AND_EPOCH: Final = struct.Struct(">iqi")
_PARTITION: Final = struct.Struct(">iqiBB")
"""A partition with its leader epoch, the length of its metadata and, if there is none of it, the count of its tags."""
_ONLY_OFFSET: Final = struct.Struct(">BiqiB3s")
"""The end of a flexible request with one partition: that it is one, the partition, its metadata's length, no tags."""
_NO_OFFSET: Final = _ONLY_OFFSET.pack(2, 0, 0, 0, 1, NO_TAGS)
_REMEMBERED: Final = 1024
"""How many members are remembered, and how many topics in responses."""
_LONGEST_REMEMBERED: Final = 512
"""Bytes of a request before its only offset. Longer ones are read each time."""
_FLEXIBLE_HEAD: Final = struct.Struct(">iiBi")
_FLEXIBLE_RESULT: Final = struct.Struct(">ihB")
_SMALLEST_PARTITION: Final = 14
_SMALLEST_TOPIC: Final = 2


def kind(name: str) -> Mapping[str, str]:
    """What a field of a message says of its type."""
    return {"kafka_type": name}


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestPartition:
    """An offset to be committed."""

    partition_index: int = field(metadata=kind("int32"))
    committed_offset: int = field(metadata=kind("int64"))
    committed_leader_epoch: int = field(metadata=kind("int32"), default=-1)
    committed_metadata: str | None = field(metadata=kind("string"), default=None)


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequestTopic:
    """A topic's offsets to be committed."""

    topic_id: UUID | None = field(metadata=kind("uuid"), default=None)
    name: str = field(metadata=kind("string"), default="")
    partitions: tuple[OffsetCommitRequestPartition, ...]


@dataclass(slots=True, kw_only=True)
class OffsetCommitRequest:
    """Offsets of one group; `retention_time` is asked for in versions 2 to 4 only."""

    group_id: str = field(metadata=kind("string"))
    generation_id_or_member_epoch: int = field(metadata=kind("int32"), default=-1)
    member_id: str = field(metadata=kind("string"), default="")
    group_instance_id: str | None = field(metadata=kind("string"), default=None)
    retention_time: timedelta = field(metadata=kind("timedelta_i64"), default=NO_RETENTION)
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitResponsePartition:
    """The result of a partition's commit."""

    partition_index: int = field(metadata=kind("int32"))
    error_code: ErrorCode = field(metadata=kind("error_code"), default=ErrorCode.none)


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponseTopic:
    """The results of a topic's commits."""

    topic_id: UUID | None = field(metadata=kind("uuid"), default=None)
    name: str = field(metadata=kind("string"), default="")
    partitions: tuple[OffsetCommitResponsePartition, ...]


@dataclass(slots=True, kw_only=True)
class OffsetCommitResponse:
    """The answer to a commit."""

    throttle_time: timedelta = field(metadata=kind("timedelta_i32"), default=timedelta(0))
    topics: tuple[OffsetCommitResponseTopic, ...]


def unpack(data: memoryview, position: int, version: int, max_elements: int = MAX_ELEMENTS) -> OffsetCommitRequest:
    """Read a request of any version that is served; raises InvalidFrame."""
    request = None
    if version >= FLEXIBLE:
        try:  # noqa: SIM105  # which costs nothing here, as `suppress` does not
            request = _unpack_one(data, position, version) or _unpack_short(
                bytes(data), position, version, max_elements
            )
        except UNREADABLE:
            pass  # the general way says what is wrong
    if request is None:
        try:
            request = _unpack(bytes(data), position, version, max_elements)
        except UNREADABLE as error:
            raise InvalidFrame(f"OFFSET_COMMIT request of version {version} cannot be read: {error}") from error
    return request


class OneOffset(NamedTuple):
    """A commit of one offset, of a partition that there is."""

    group_id: str
    epoch: int
    """The generation, or the member's epoch."""
    member_id: str
    instance_id: str | None
    topic_id: UUID
    topic: str
    partition: int
    offset: int
    leader_epoch: int


Head = tuple[str, int, str, str | None, UUID | None, str]
"""What stands before an only offset: group, epoch, member id, instance id, and the topic's id or name."""


def read_one(data: memoryview, position: int, version: int) -> tuple[Head, int, int, int, int] | None:
    """A flexible request with one offset and no metadata: head, partition, offset, leader epoch, if metadata is empty.

    None if it is another.
    """
    at = len(data) - _ONLY_OFFSET.size
    if not 0 < at - position <= _LONGEST_REMEMBERED:
        return None
    count, index, offset, epoch, length, tags = _ONLY_OFFSET.unpack_from(data, at)
    if count != 2 or length > 1 or tags != NO_TAGS:
        return None
    try:
        return _read_head(bytes(data[position:at]), version), index, offset, epoch, length
    except _NotOne:
        return None


def _unpack_one(data: memoryview, position: int, version: int) -> OffsetCommitRequest | None:
    """As `read_one`, as a request."""
    found = read_one(data, position, version)
    if found is None:
        return None
    (group_id, generation, member_id, instance_id, topic_id, name), index, offset, epoch, length = found
    partition = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata="" if length else None,
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=(OffsetCommitRequestTopic(topic_id=topic_id, name=name, partitions=(partition,)),),
    )


class _NotOne(Exception):
    """There is more than one offset in a request, or something else is unusual. This is not remembered."""


@lru_cache(maxsize=_REMEMBERED)
def _read_head(before: bytes, version: int) -> Head:
    """What stands before the partitions of a request with one of them. Raises _NotOne."""
    try:
        request = _unpack_short(before + _NO_OFFSET, 0, version, _ONE)
    except (*UNREADABLE, InvalidFrame):
        raise _NotOne from None
    if request is None or len(request.topics) != 1:
        raise _NotOne
    (topic,) = request.topics
    if len(topic.partitions) != 1 or topic.partitions[0].committed_metadata != "":  # it stands in `before` itself
        raise _NotOne
    epoch, member_id, instance_id = (
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
    )
    return request.group_id, epoch, member_id, instance_id, topic.topic_id, topic.name


def _unpack_short(data: bytes, at: int, version: int, left: int) -> OffsetCommitRequest | None:
    """A flexible request whose lengths take a byte each, without tagged fields; None if it is another, or is wrong.

    Each length counts its own byte. Reading only goes forward, and the last byte is looked at: so everything before it
    is there, too.
    """
    group_size = data[at]
    group_at, at = at + 1, at + group_size
    (generation,) = INT32.unpack_from(data, at)
    at += 4
    member_size = data[at]
    member_at, at = at + 1, at + member_size
    instance_at, instance_size = at + 1, data[at]
    topics_at = at + (instance_size or 1)
    if not (0 < group_size < 0x80 > member_size > 0 and instance_size < 0x80):
        return None
    topics = short_topics(data, topics_at, left, by_id=version >= TOPIC_IDS)
    if topics is None:
        return None
    return OffsetCommitRequest(
        group_id=data[group_at : group_at + group_size - 1].decode(),
        generation_id_or_member_epoch=generation,
        member_id=data[member_at : instance_at - 1].decode(),
        group_instance_id=data[instance_at:topics_at].decode() if instance_size else None,
        topics=topics,
    )


def short_topics(data: bytes, at: int, left: int, *, by_id: bool) -> tuple[OffsetCommitRequestTopic, ...] | None:
    """The topics with which such a request ends, and at most `left` of them and their partitions; None as above."""
    topic_count = data[at] - 1
    left -= topic_count
    if not 0 <= topic_count < 0x7F:
        return None
    at += 1
    topics = []
    for _ in range(topic_count):
        topic_id, name = None, ""
        if by_id:
            topic_id, at = _topic_id(data, at)
        else:
            size = data[at]
            if not 0 < size < 0x80:
                return None
            name = data[at + 1 : at + size].decode()
            at += size
        count = data[at] - 1
        left -= count
        if not 0 <= count < 0x7F or left < 0:
            return None
        at += 1
        partitions = []
        for _ in range(count):
            index, offset, epoch, length, tags = _PARTITION.unpack_from(data, at)
            at += _PARTITION.size
            metadata: str | None = ""
            if length != 1:
                metadata = None
                if length:
                    end = at + length - 2
                    metadata, tags, at = data[at - 1 : end].decode(), data[end], end + 1
            if tags or length >= 0x80:
                return None
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
            )
        if data[at]:
            return None
        at += 1
        topics.append(OffsetCommitRequestTopic(topic_id=topic_id, name=name, partitions=tuple(partitions)))
    return tuple(topics) if data[at:] == b"\0" else None


def _unpack(data: bytes, position: int, version: int, left: int) -> OffsetCommitRequest:
    """Read a request with at most `left` topics and partitions."""
    flexible = version >= FLEXIBLE
    read_text = text_reader(flexible)
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
    topics = read_topics(
        data, position, left, flexible=flexible, epochs=version >= LEADER_EPOCHS, by_id=version >= TOPIC_IDS
    )
    return OffsetCommitRequest(
        group_id=not_null(group_id),
        generation_id_or_member_epoch=generation,
        member_id=not_null(member_id),
        group_instance_id=instance_id,
        retention_time=retention,
        topics=topics,
    )


def text_reader(flexible: bool) -> Callable[[bytes, int], tuple[str | None, int]]:
    """What reads a text or null at a position, and tells the position after it."""
    return _compact_text if flexible else _text


def read_topics(
    data: bytes, position: int, left: int, *, flexible: bool, epochs: bool, by_id: bool
) -> tuple[OffsetCommitRequestTopic, ...]:
    """The topics with which a request ends, at most `left` of them and their partitions."""
    read_text, read_count = (_compact_text, _compact_count) if flexible else (_text, _count)
    topic_count, position = read_count(data, position, _SMALLEST_TOPIC, left)
    left -= topic_count
    topics = []
    for _ in range(topic_count):
        topic_id, name = None, ""
        if by_id:
            topic_id, position = _topic_id(data, position)
        else:
            text, position = read_text(data, position)
            name = not_null(text)
        count, position = read_count(data, position, _SMALLEST_PARTITION, left)
        left -= count
        partitions = []
        for _ in range(count):
            epoch = -1
            if epochs:
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
    return tuple(topics)


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
    return uuid_of(raw), position + 16


def _end(data: bytes, position: int) -> int:
    """Pass over tagged fields, of which the protocol has none here."""
    return position + 1 if data[position] == 0 else skip_tags(memoryview(data), position)


def not_null(text: str | None) -> str:
    """A text that must be there. Raises InvalidFrame."""
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
    throttle_ms = milliseconds(response.throttle_time) if response.throttle_time else 0
    if version >= FLEXIBLE:
        return pack_flexible(correlation_id, throttle_ms, response.topics, version >= TOPIC_IDS)
    return pack_plain(correlation_id, throttle_ms if version >= THROTTLE else None, response.topics)


def pack_plain(correlation_id: int, throttle_ms: int | None, topics: tuple[OffsetCommitResponseTopic, ...]) -> bytes:
    """A response of a version that is not flexible, with a throttle time if there is one."""
    out = start(correlation_id, False)
    if throttle_ms is not None:
        out += INT32.pack(throttle_ms)
    add_count(out, len(topics), False)
    for topic in topics:
        add_text(out, topic.name, False)
        add_count(out, len(topic.partitions), False)
        for partition in topic.partitions:
            out += _RESULT.pack(partition.partition_index, partition.error_code)
    return finish(out, False)


def pack_flexible(
    correlation_id: int, throttle_ms: int, topics: tuple[OffsetCommitResponseTopic, ...], by_id: bool
) -> bytes:
    """A response of a flexible version."""
    if len(topics) == 1 and len((topic := topics[0]).partitions) == 1 and len(topic.name) <= LONGEST_REMEMBERED:
        only = topic.partitions[0]
        layout, size, named = _one_result(topic.topic_id if by_id else topic.name)
        return layout.pack(size, correlation_id, throttle_ms, named, only.partition_index, only.error_code)
    out = bytearray(_FLEXIBLE_HEAD.pack(0, correlation_id, 0, throttle_ms))
    out += uvarint(len(topics) + 1)
    for topic in topics:
        out += _topic_bytes(topic.topic_id if by_id else topic.name)
        out += uvarint(len(topic.partitions) + 1)
        for partition in topic.partitions:
            out += _FLEXIBLE_RESULT.pack(partition.partition_index, partition.error_code, 0)
        out.append(0)
    return finish(out, True)


def pack_one(correlation_id: int, version: int, one: OneOffset, code: ErrorCode) -> bytes:
    """A response of a flexible version to a commit of one offset, which is not throttled."""
    layout, size, named = _one_result(one.topic_id if version >= TOPIC_IDS else one.topic)
    return layout.pack(size, correlation_id, 0, named, one.partition, code)


@lru_cache(maxsize=_REMEMBERED)
def _one_result(topic: str | UUID | None) -> tuple[struct.Struct, int, bytes]:
    """The layout of a frame with one result, its size, and what stands between its throttle time and its result."""
    named = b"\2" + _topic_bytes(topic) + b"\2"
    layout = struct.Struct(f">iixi{len(named)}sih3x")
    return layout, layout.size - 4, named


def _topic_bytes(topic: str | UUID | None) -> bytes:
    """A topic's name or id."""
    if isinstance(topic, str):
        name = topic.encode()
        return uvarint(len(name) + 1) + name
    return bytes(16) if topic is None else topic.bytes
