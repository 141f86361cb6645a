"""SyncGroup: responses, written by hand, and requests of flexible versions without tagged fields, read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Tests hold
both directions equal to kio's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.packing import INT16, INT32, add_bytes, add_text, finish, milliseconds, start
from barnabas.protocol.wire.reading import UNREADABLE, Unusual, read_bytes, read_text, read_text_or_null
from barnabas.protocol.wire.varint import read_uvarint

if TYPE_CHECKING:
    from kio.schema.sync_group.v5.response import SyncGroupResponse

FLEXIBLE: Final = 4
NAMES_PROTOCOL: Final = 5
"""From this version on a member names its protocol."""


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
        protocol_type = protocol_name = None
        if version >= NAMES_PROTOCOL:
            protocol_type, at = read_text_or_null(raw, at)
            protocol_name, at = read_text_or_null(raw, at)
        count, at = read_uvarint(raw, at)
        if not 0 < count <= MAX_ELEMENTS:
            return None
        assignments = []
        for _ in range(count - 1):
            assigned, at = read_text(raw, at)
            assignment, at = read_bytes(raw, at)
            if raw[at]:
                return None
            at += 1
            assignments.append(SyncGroupRequestAssignment(member_id=assigned, assignment=assignment))
        if raw[at]:
            return None
    except (*UNREADABLE, InvalidFrame, Unusual):
        return None
    return SyncGroupRequest(
        group_id=group_id,  # type: ignore[arg-type]  # a name for str
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments=tuple(assignments),
    )


def pack(correlation_id: int, version: int, response: SyncGroupResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = start(correlation_id, flexible)
    if version >= 1:
        out += INT32.pack(milliseconds(response.throttle_time))
    out += _told_to_all(version, response.error_code, response.protocol_type, response.protocol_name)
    add_bytes(out, response.assignment, flexible)
    return finish(out, flexible)


@lru_cache(maxsize=64)
def _told_to_all(version: int, error_code: int, protocol_type: str | None, protocol_name: str | None) -> bytes:
    """What is the same for all members of a generation."""
    out = bytearray(INT16.pack(error_code))
    if version >= NAMES_PROTOCOL:
        add_text(out, protocol_type, True)
        add_text(out, protocol_name, True)
    return bytes(out)
