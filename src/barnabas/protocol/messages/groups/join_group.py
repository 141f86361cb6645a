"""JoinGroup: the shape that handlers and machines know, responses written by hand, and requests read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Requests
of flexible versions without tagged fields are read here, all others by kio. What all members of a group say is read
once, and what all members of a generation are told is packed once. Tests hold both directions equal to kio's.

The classes have the field names of kio's and are not frozen, as those of OffsetCommit (`offset_commit`). Annotations
are not postponed, since kio's messages are converted by the types of fields.
"""

import struct
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Final

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.coordinator_records.messages import ClassicProtocol
from barnabas.protocol.messages.groups.offset_commit import kind
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.durations import NO_TIME, NOT_GIVEN, of_milliseconds
from barnabas.protocol.wire.packing import (
    INT32,
    add_bytes,
    add_count,
    add_text,
    finish,
    flexible_frame,
    milliseconds,
    start,
    text,
)
from barnabas.protocol.wire.reading import UNREADABLE, Unusual, read_bytes, read_text, read_text_or_null
from barnabas.protocol.wire.varint import read_uvarint, uvarint

FLEXIBLE: Final = 6
INSTANCES: Final = 5
REASON: Final = 8
SURELY_SHORT: Final = 0x7F
"""From so many bytes on a length takes more than one byte."""
SHORT: Final = 512
"""Bytes of what a member says of itself that are remembered."""
_CODE_AND_NUMBER: Final = struct.Struct(">hi")
_TIMEOUTS: Final = struct.Struct(">ii")


@dataclass(slots=True, kw_only=True)
class JoinGroupRequest:
    """A client joins a group, or joins again."""

    group_id: str = field(metadata=kind("string"))
    session_timeout: timedelta = field(metadata=kind("timedelta_i32"))
    rebalance_timeout: timedelta = field(metadata=kind("timedelta_i32"), default=NOT_GIVEN)
    member_id: str = field(metadata=kind("string"))
    group_instance_id: str | None = field(metadata=kind("string"), default=None)
    protocol_type: str = field(metadata=kind("string"))
    protocols: tuple[ClassicProtocol, ...]
    reason: str | None = field(metadata=kind("string"), default=None)


@dataclass(slots=True, kw_only=True)
class JoinGroupResponseMember:
    """A member, for the leader."""

    member_id: str = field(metadata=kind("string"))
    group_instance_id: str | None = field(metadata=kind("string"), default=None)
    metadata: bytes = field(metadata=kind("bytes"))


@dataclass(slots=True, kw_only=True)
class JoinGroupResponse:
    """The generation that begins, or why a client is not in it."""

    throttle_time: timedelta = field(metadata=kind("timedelta_i32"), default=NO_TIME)
    error_code: ErrorCode = field(metadata=kind("error_code"), default=ErrorCode.none)
    generation_id: int = field(metadata=kind("int32"), default=-1)
    protocol_type: str | None = field(metadata=kind("string"), default=None)
    protocol_name: str | None = field(metadata=kind("string"))
    leader: str = field(metadata=kind("string"))
    skip_assignment: bool = field(metadata=kind("bool"), default=False)
    member_id: str = field(metadata=kind("string"))
    members: tuple[JoinGroupResponseMember, ...]


def unpack_plain(data: memoryview, position: int, version: int) -> JoinGroupRequest | None:
    """A request of a flexible version that is well-formed and has no tagged fields; None for any other."""
    if version < FLEXIBLE:
        return None
    raw = bytes(data)
    try:
        group_id, at = read_text(raw, position)
        session_ms, rebalance_ms = _TIMEOUTS.unpack_from(raw, at)
        member_id, at = read_text(raw, at + 8)
        instance_id, at = read_text_or_null(raw, at)
        rest = raw[at:]
        protocol_type, protocols, reason = (_remembered if len(rest) <= SHORT else _read_rest)(rest, version)
    except (*UNREADABLE, InvalidFrame, Unusual):
        return None
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout=of_milliseconds(session_ms),
        rebalance_timeout=of_milliseconds(rebalance_ms),
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=protocols,
        reason=reason,
    )


def _read_rest(raw: bytes, version: int) -> tuple[str, tuple[ClassicProtocol, ...], str | None]:
    """Protocol type, protocols and reason. Raises Unusual, and what else reading by hand raises."""
    protocol_type, at = read_text(raw, 0)
    count, at = read_uvarint(raw, at)
    if not 0 < count <= MAX_ELEMENTS:
        raise Unusual
    protocols = []
    for _ in range(count - 1):
        name, at = read_text(raw, at)
        metadata, at = read_bytes(raw, at)
        if raw[at]:
            raise Unusual
        at += 1
        protocols.append(ClassicProtocol(name, metadata))
    reason = None
    if version >= REASON:
        reason, at = read_text_or_null(raw, at)
    if raw[at]:
        raise Unusual
    return protocol_type, tuple(protocols), reason


_remembered: Final = lru_cache(maxsize=256)(_read_rest)
"""Most members of a group say the same, each time. What they say is then one object, which takes memory once."""


def pack(correlation_id: int, version: int, response: JoinGroupResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    told = _told_to_all(
        version,
        response.error_code,
        response.generation_id,
        response.protocol_type,
        response.protocol_name,
        response.leader,
        response.skip_assignment,
    )
    time = INT32.pack(milliseconds(response.throttle_time))
    if version >= FLEXIBLE:
        members = response.members
        parts = [_member(each) for each in members] if members else ()
        return flexible_frame(correlation_id, time, told, text(response.member_id), uvarint(len(members) + 1), *parts)
    out = start(correlation_id, False)
    if version >= 2:
        out += time
    out += told
    add_text(out, response.member_id, False)
    add_count(out, len(response.members), False)
    for member in response.members:
        add_text(out, member.member_id, False)
        if version >= INSTANCES:
            add_text(out, member.group_instance_id, False)
        add_bytes(out, member.metadata, False)
    return finish(out, False)


def _member(member: JoinGroupResponseMember) -> bytes:
    """A member in a flexible version."""
    member_id, metadata, instance_id = member.member_id.encode(), member.metadata, member.group_instance_id
    if instance_id is None and len(member_id) < SURELY_SHORT and len(metadata) < SURELY_SHORT:
        return b"%c%b\0%c%b\0" % (len(member_id) + 1, member_id, len(metadata) + 1, metadata)
    out = bytearray(text(member.member_id))
    add_text(out, instance_id, True)
    add_bytes(out, metadata, True)
    out.append(0)
    return bytes(out)


@lru_cache(maxsize=64)
def _told_to_all(
    version: int,
    error_code: int,
    generation: int,
    protocol_type: str | None,
    protocol_name: str | None,
    leader: str,
    skip_assignment: bool,
) -> bytes:
    """What is the same for all members of a generation."""
    flexible = version >= FLEXIBLE
    out = bytearray(_CODE_AND_NUMBER.pack(error_code, generation))
    if version >= 7:
        add_text(out, protocol_type, flexible)
        add_text(out, protocol_name, flexible)
    else:
        add_text(out, protocol_name or "", flexible)
    add_text(out, leader, flexible)
    if version >= 9:
        out.append(skip_assignment)
    return bytes(out)
