"""ShareGroupHeartbeat requests that bring nothing new, read by hand."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest

from barnabas.protocol.messages.groups import idle_heartbeat
from barnabas.protocol.messages.groups.idle_heartbeat import LONGEST, REMEMBERED

_NULLS: Final = b"\0\0\0"
"""No rack, the same topics as before, no tagged fields."""


def unpack_idle(data: memoryview, position: int, version: int) -> ShareGroupHeartbeatRequest | None:
    """A request that brings nothing new, in any version that is served; None for any other."""
    raw = bytes(data[position:])
    return _read_idle(raw) if len(raw) <= LONGEST and raw.endswith(_NULLS) else None


@lru_cache(maxsize=REMEMBERED)
def _read_idle(raw: bytes) -> ShareGroupHeartbeatRequest | None:
    found = idle_heartbeat.unpack(raw, _NULLS)
    if found is None:
        return None
    group_id, member_id, epoch = found
    return ShareGroupHeartbeatRequest(group_id=group_id, member_id=member_id, member_epoch=epoch)
