"""JoinGroup: responses, written by hand, and requests of flexible versions without tagged fields, read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. What all
members of a generation are told is packed once. Tests hold both directions equal to kio's.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.durations import of_milliseconds
from barnabas.protocol.wire.packing import INT32, add_bytes, add_count, add_text, finish, milliseconds, start
from barnabas.protocol.wire.reading import UNREADABLE, Unusual, read_bytes, read_text, read_text_or_null
from barnabas.protocol.wire.varint import read_uvarint

if TYPE_CHECKING:
    from kio.schema.join_group.v9.response import JoinGroupResponse

FLEXIBLE: Final = 6
REASON: Final = 8
_CODE_AND_NUMBER: Final = struct.Struct(">hi")
_TIMEOUTS: Final = struct.Struct(">ii")


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
        protocol_type, at = read_text(raw, at)
        count, at = read_uvarint(raw, at)
        if not 0 < count <= MAX_ELEMENTS:
            return None
        protocols = []
        for _ in range(count - 1):
            name, at = read_text(raw, at)
            metadata, at = read_bytes(raw, at)
            if raw[at]:
                return None
            at += 1
            protocols.append(JoinGroupRequestProtocol(name=name, metadata=metadata))
        reason = None
        if version >= REASON:
            reason, at = read_text_or_null(raw, at)
        if raw[at]:
            return None
    except (*UNREADABLE, InvalidFrame, Unusual):
        return None
    return JoinGroupRequest(
        group_id=group_id,  # type: ignore[arg-type]  # a name for str
        session_timeout=of_milliseconds(session_ms),
        rebalance_timeout=of_milliseconds(rebalance_ms),
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=tuple(protocols),
        reason=reason,
    )


def pack(correlation_id: int, version: int, response: JoinGroupResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = start(correlation_id, flexible)
    if version >= 2:
        out += INT32.pack(milliseconds(response.throttle_time))
    out += _told_to_all(
        version,
        response.error_code,
        response.generation_id,
        response.protocol_type,
        response.protocol_name,
        response.leader,
        response.skip_assignment,
    )
    add_text(out, response.member_id, flexible)
    add_count(out, len(response.members), flexible)
    for member in response.members:
        add_text(out, member.member_id, flexible)
        if version >= 5:
            add_text(out, member.group_instance_id, flexible)
        add_bytes(out, member.metadata, flexible)
        if flexible:
            out.append(0)
    return finish(out, flexible)


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
