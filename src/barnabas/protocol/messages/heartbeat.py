"""Heartbeat responses, written by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Tests hold
the bytes equal to kio's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.protocol.wire.packing import INT16, INT32, finish, milliseconds, start

if TYPE_CHECKING:
    from kio.schema.heartbeat.v4.response import HeartbeatResponse

FLEXIBLE: Final = 4


def pack(correlation_id: int, version: int, response: HeartbeatResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = start(correlation_id, flexible)
    if version >= 1:
        out += INT32.pack(milliseconds(response.throttle_time))
    out += INT16.pack(response.error_code.value)
    return finish(out, flexible)
