"""SyncGroup: the shape that handlers and machines know, responses written by hand, and requests read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Requests
of flexible versions without tagged fields are read here, all others by kio. Tests hold both directions equal to kio's.

The classes have the field names of kio's and are not frozen, as those of OffsetCommit (`offset_commit`). Annotations
are not postponed, since kio's messages are converted by the types of fields.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Final

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.messages.groups.offset_commit import kind
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.durations import NO_TIME
from barnabas.protocol.wire.packing import (
    INT16,
    INT32,
    add_bytes,
    add_text,
    finish,
    flexible_frame,
    milliseconds,
    start,
)
from barnabas.protocol.wire.reading import UNREADABLE, Unusual, read_bytes, read_text, read_text_or_null
from barnabas.protocol.wire.varint import read_uvarint, uvarint

FLEXIBLE: Final = 4
NAMES_PROTOCOL: Final = 5
"""From this version on a member names its protocol."""
SHORT: Final = 128
"""Bytes behind a member's id and instance id that are remembered: nobody but the leader has more to say."""


@dataclass(slots=True, kw_only=True)
class SyncGroupRequestAssignment:
    """What the leader gives a member."""

    member_id: str = field(metadata=kind("string"))
    assignment: bytes = field(metadata=kind("bytes"))


@dataclass(slots=True, kw_only=True)
class SyncGroupRequest:
    """A member asks for its assignment; the leader brings those of all."""

    group_id: str = field(metadata=kind("string"))
    generation_id: int = field(metadata=kind("int32"))
    member_id: str = field(metadata=kind("string"))
    group_instance_id: str | None = field(metadata=kind("string"), default=None)
    protocol_type: str | None = field(metadata=kind("string"), default=None)
    protocol_name: str | None = field(metadata=kind("string"), default=None)
    assignments: tuple[SyncGroupRequestAssignment, ...]


@dataclass(slots=True, kw_only=True)
class SyncGroupResponse:
    """A member's assignment."""

    throttle_time: timedelta = field(metadata=kind("timedelta_i32"), default=NO_TIME)
    error_code: ErrorCode = field(metadata=kind("error_code"), default=ErrorCode.none)
    protocol_type: str | None = field(metadata=kind("string"), default=None)
    protocol_name: str | None = field(metadata=kind("string"), default=None)
    assignment: bytes = field(metadata=kind("bytes"))


def unpack_plain(data: memoryview, position: int, version: int) -> SyncGroupRequest | None:
    """A request of a flexible version that is well-formed and has no tagged fields; None for any other."""
    if version < FLEXIBLE:
        return None
    raw = bytes(data)
    try:
        group_id, at = read_text(raw, position)
        (generation,) = INT32.unpack_from(raw, at)
        member_id, at = read_text(raw, at + 4)
        instance_id, at = read_text_or_null(raw, at)
        rest = raw[at:]
        protocol_type, protocol_name, assignments = (_remembered if len(rest) <= SHORT else _read_rest)(rest, version)
    except (*UNREADABLE, InvalidFrame, Unusual):
        return None
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=assignments,
    )


def _read_rest(raw: bytes, version: int) -> tuple[str | None, str | None, tuple[SyncGroupRequestAssignment, ...]]:
    """The protocol's type and name, and assignments. Raises Unusual, and what else reading by hand raises."""
    protocol_type, protocol_name, at = None, None, 0
    if version >= NAMES_PROTOCOL:
        protocol_type, at = read_text_or_null(raw, at)
        protocol_name, at = read_text_or_null(raw, at)
    count, at = read_uvarint(raw, at)
    if not 0 < count <= MAX_ELEMENTS:
        raise Unusual
    assignments = []
    for _ in range(count - 1):
        assigned, at = read_text(raw, at)
        assignment, at = read_bytes(raw, at)
        if raw[at]:
            raise Unusual
        at += 1
        assignments.append(SyncGroupRequestAssignment(member_id=assigned, assignment=assignment))
    if raw[at]:
        raise Unusual
    return protocol_type, protocol_name, tuple(assignments)


_remembered: Final = lru_cache(maxsize=256)(_read_rest)
"""All members of a group but its leader say the same."""


def pack(correlation_id: int, version: int, response: SyncGroupResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    told = _told_to_all(version, response.error_code, response.protocol_type, response.protocol_name)
    time, assignment = INT32.pack(milliseconds(response.throttle_time)), response.assignment
    if version >= FLEXIBLE:
        return flexible_frame(correlation_id, time, told, uvarint(len(assignment) + 1), assignment)
    out = start(correlation_id, False)
    if version >= 1:
        out += time
    out += told
    add_bytes(out, assignment, False)
    return finish(out, False)


@lru_cache(maxsize=64)
def _told_to_all(version: int, error_code: int, protocol_type: str | None, protocol_name: str | None) -> bytes:
    """What is the same for all members of a generation."""
    out = bytearray(INT16.pack(error_code))
    if version >= NAMES_PROTOCOL:
        add_text(out, protocol_type, True)
        add_text(out, protocol_name, True)
    return bytes(out)
