"""Heartbeat: responses, written by hand, and requests of members without an instance id, read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Tests hold
both equal to kio's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kio.schema.heartbeat.v4.request import HeartbeatRequest

from barnabas.protocol.messages.groups.idle_heartbeat import LONGEST, REMEMBERED
from barnabas.protocol.wire.packing import INT16, INT32, finish, milliseconds, start

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.response import HeartbeatResponse

FLEXIBLE: Final = 4
_NULLS: Final = b"\0\0"
"""No instance id, no tagged fields."""


def unpack_idle(data: memoryview, position: int, version: int) -> HeartbeatRequest | None:
    """A flexible request of a member without an instance id; None for any other. See `idle_heartbeat`."""
    if version < FLEXIBLE:
        return None
    raw = bytes(data[position:])
    return _read_idle(raw) if len(raw) <= LONGEST and raw.endswith(_NULLS) else None


@lru_cache(maxsize=REMEMBERED)
def _read_idle(raw: bytes) -> HeartbeatRequest | None:
    try:
        group_end = raw[0]
        member_at = group_end + 4
        member_end = member_at + raw[member_at]
        if not 0 < group_end < 0x80 > raw[member_at] > 0 or raw[member_end:] != _NULLS:
            return None
        group_id, member_id = raw[1:group_end].decode(), raw[member_at + 1 : member_end].decode()
    except (IndexError, UnicodeDecodeError):
        return None
    (generation,) = INT32.unpack_from(raw, group_end)
    return HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id)  # type: ignore[arg-type]


def pack(correlation_id: int, version: int, response: HeartbeatResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = start(correlation_id, flexible)
    if version >= 1:
        out += INT32.pack(milliseconds(response.throttle_time))
    out += INT16.pack(response.error_code)
    return finish(out, flexible)
