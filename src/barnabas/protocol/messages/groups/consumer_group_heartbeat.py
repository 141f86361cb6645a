"""ConsumerGroupHeartbeat: the shape that handlers and machines know, responses written and requests read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Requests
with tagged fields are left to kio. Tests hold both directions equal to kio's.

The classes have the field names of kio's and are not frozen, as those of OffsetCommit (`offset_commit`). Annotations
are not postponed, since kio's messages are converted by the types of fields.
"""

import struct
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Final
from uuid import UUID

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.model.ids import LONGEST_REMEMBERED
from barnabas.protocol.messages.groups import idle_heartbeat
from barnabas.protocol.messages.groups.idle_heartbeat import LONGEST, REMEMBERED
from barnabas.protocol.messages.groups.offset_commit import kind
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.durations import NO_TIME, NOT_GIVEN, of_milliseconds
from barnabas.protocol.wire.packing import INT32, add_text, finish, milliseconds
from barnabas.protocol.wire.reading import UNREADABLE, Unusual, read_text, read_text_or_null, read_uuid
from barnabas.protocol.wire.varint import read_uvarint, uvarint

PATTERNS: Final = 1
"""The version from which on members may subscribe to a pattern."""
_NULLS: Final = (b"\0\0\xff\xff\xff\xff\0\0\0\0", b"\0\0\xff\xff\xff\xff\0\0\0\0\0")
"""By version: no instance id and rack; the rebalance timeout as before; the same topics, pattern (from version 1 on),
assignor and partitions; no tagged fields."""
_HEAD: Final = struct.Struct(">iiBih")
_NUMBERS: Final = struct.Struct(">ii")
_NO_ERROR: Final = bytes(8)
"""No tagged fields, no throttle time, no error and no message."""
_NO_ASSIGNMENT: Final = b"\xff\0"
"""Null, and no tagged fields."""


@dataclass(slots=True, kw_only=True)
class TopicPartitions:
    """Partitions of a topic."""

    topic_id: UUID | None = field(metadata=kind("uuid"))
    partitions: tuple[int, ...] = field(metadata=kind("int32"), default=())


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatRequest:
    """A member joins, leaves, or is still there; what it leaves out is as it was."""

    group_id: str = field(metadata=kind("string"))
    member_id: str = field(metadata=kind("string"))
    member_epoch: int = field(metadata=kind("int32"))
    instance_id: str | None = field(metadata=kind("string"), default=None)
    rack_id: str | None = field(metadata=kind("string"), default=None)
    rebalance_timeout: timedelta = field(metadata=kind("timedelta_i32"), default=NOT_GIVEN)
    subscribed_topic_names: tuple[str, ...] | None = field(metadata=kind("string"), default=None)
    subscribed_topic_regex: str | None = field(metadata=kind("string"), default=None)
    server_assignor: str | None = field(metadata=kind("string"), default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None


@dataclass(slots=True, kw_only=True)
class HeartbeatAssignment:
    """What a member may read."""

    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(slots=True, kw_only=True)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment if that is new."""

    throttle_time: timedelta = field(metadata=kind("timedelta_i32"), default=NO_TIME)
    error_code: ErrorCode = field(metadata=kind("error_code"), default=ErrorCode.none)
    error_message: str | None = field(metadata=kind("string"), default=None)
    member_id: str | None = field(metadata=kind("string"), default=None)
    member_epoch: int = field(metadata=kind("int32"))
    heartbeat_interval: timedelta = field(metadata=kind("timedelta_i32"))
    assignment: HeartbeatAssignment | None = None


def unpack_plain(data: memoryview, position: int, version: int) -> ConsumerGroupHeartbeatRequest | None:
    """A request that is well-formed and has no tagged fields, in any version that is served; None for any other."""
    if (idle := read_idle(data, position, version)) is not None:
        return idle_request(*idle)
    try:
        return _unpack(bytes(data[position:]), 0, version)
    except (*UNREADABLE, InvalidFrame, Unusual):
        return None


def read_idle(data: memoryview, position: int, version: int) -> tuple[str, str, int] | None:
    """Group, member and epoch of a request that brings nothing new; None for any other."""
    nulls = _NULLS[version]
    epoch_at = len(data) - len(nulls) - INT32.size
    if not position < epoch_at <= position + LONGEST or data[epoch_at + INT32.size :] != nulls:
        return None
    names = _read_names_before(bytes(data[position:epoch_at]))
    return None if names is None else (*names, INT32.unpack_from(data, epoch_at)[0])


@lru_cache(maxsize=REMEMBERED)
def _read_names_before(raw: bytes) -> tuple[str, str] | None:
    """Group and member, where nothing else stands before the epoch: the same bytes in each epoch of the member."""
    found = idle_heartbeat.unpack(raw + bytes(INT32.size), b"")
    return None if found is None else found[:2]


def idle_request(group_id: str, member_id: str, epoch: int) -> ConsumerGroupHeartbeatRequest:
    """A request that brings nothing new."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=None
    )


def _unpack(raw: bytes, at: int, version: int) -> ConsumerGroupHeartbeatRequest:
    """A request that says something of its member. Raises Unusual, and what else reading by hand raises."""
    group_id, at = read_text(raw, at)
    member_id, at = read_text(raw, at)
    (epoch,) = INT32.unpack_from(raw, at)
    instance_id, at = read_text_or_null(raw, at + 4)
    rack_id, at = read_text_or_null(raw, at)
    (timeout_ms,) = INT32.unpack_from(raw, at)
    names, at = _read_names(raw, at + 4)
    regex = None
    if version >= PATTERNS:
        regex, at = read_text_or_null(raw, at)
    assignor, at = read_text_or_null(raw, at)
    partitions, at = _read_partitions(raw, at, MAX_ELEMENTS - len(names or ()))
    if raw[at]:
        raise Unusual
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance_id,
        rack_id=rack_id,
        rebalance_timeout=of_milliseconds(timeout_ms),
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=partitions,
    )


def _read_names(raw: bytes, at: int) -> tuple[tuple[str, ...] | None, int]:
    count, at = _read_count(raw, at, MAX_ELEMENTS)
    if count is None:
        return None, at
    names = []
    for _ in range(count):
        name, at = read_text(raw, at)
        names.append(name)
    return tuple(names), at


def _read_partitions(raw: bytes, at: int, left: int) -> tuple[tuple[TopicPartitions, ...] | None, int]:
    """Topics with their partitions, at most `left` of both together."""
    count, at = _read_count(raw, at, left)
    if count is None:
        return None, at
    left -= count
    topics = []
    for _ in range(count):
        topic_id, at = read_uuid(raw, at)
        indexes, at = _read_count(raw, at, left)
        if indexes is None:
            raise Unusual
        left -= indexes
        partitions = struct.unpack_from(f">{indexes}i", raw, at)
        at += 4 * indexes
        if raw[at]:
            raise Unusual
        at += 1
        topics.append(TopicPartitions(topic_id=topic_id, partitions=partitions))
    return tuple(topics), at


def _read_count(raw: bytes, at: int, most: int) -> tuple[int | None, int]:
    """The length of an array or null; of one with more elements, Unusual."""
    count, at = read_uvarint(raw, at)
    if count > most + 1:
        raise Unusual
    return (count - 1 if count else None), at


def pack(correlation_id: int, version: int, response: ConsumerGroupHeartbeatResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    if (
        response.assignment is None
        and response.member_id is not None
        and response.throttle_time is NO_TIME
        and response.error_code is ErrorCode.none
        and response.error_message is None
    ):
        interval_ms = milliseconds(response.heartbeat_interval)
        return pack_still_there(correlation_id, response.member_id, response.member_epoch, interval_ms)
    flexible = True
    out = bytearray(_HEAD.pack(0, correlation_id, 0, milliseconds(response.throttle_time), response.error_code))
    add_text(out, response.error_message, flexible)
    add_text(out, response.member_id, flexible)
    out += _NUMBERS.pack(response.member_epoch, milliseconds(response.heartbeat_interval))
    if response.assignment is None:
        out.append(0xFF)
        return finish(out, flexible)
    out.append(1)
    topics = response.assignment.topic_partitions
    out += uvarint(len(topics) + 1)
    for topic in topics:
        out += bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        out += uvarint(len(topic.partitions) + 1)
        out += struct.pack(f">{len(topic.partitions)}i", *topic.partitions)
        out.append(0)
    out.append(0)
    return finish(out, flexible)


def pack_still_there(correlation_id: int, member_id: str, epoch: int, interval_ms: int) -> bytes:
    """The whole frame of a response that says nothing but the member's epoch and when its next heartbeat is due."""
    pack_rest = _remembered if len(member_id) <= LONGEST_REMEMBERED else _still_there
    rest = pack_rest(member_id, epoch, interval_ms)
    return _NUMBERS.pack(4 + len(rest), correlation_id) + rest


def _still_there(member_id: str, epoch: int, interval_ms: int) -> bytes:
    """What stands behind the correlation id of such a frame."""
    encoded = member_id.encode()
    numbers = _NUMBERS.pack(epoch, interval_ms)
    return b"".join((_NO_ERROR, uvarint(len(encoded) + 1), encoded, numbers, _NO_ASSIGNMENT))


_remembered = lru_cache(maxsize=REMEMBERED)(_still_there)
