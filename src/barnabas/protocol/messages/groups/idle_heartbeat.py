"""Heartbeats that bring nothing new, read by hand: nearly all heartbeats are such.

A member that has nothing to say sends its group, its id and its epoch, and then nulls, which are the same bytes each
time. Any other request, and one that is wrong, is left to the general way of reading messages; tests hold the two
equal. The length of a text counts its own byte; texts whose lengths take more than one are left to it, too.

A member at rest sends the same bytes every few seconds, so the requests that were read last are remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.protocol.wire.packing import INT32
from barnabas.protocol.wire.reading import UNREADABLE

if TYPE_CHECKING:
    from kio.schema.types import GroupId
    from kio.static.primitive import i32

LONGEST: Final = 2 * 0x7F + 32
"""Bytes of a request that can be such a heartbeat; none of more is remembered."""
REMEMBERED: Final = 4096
"""How many are remembered of each API."""


def unpack(raw: bytes, nulls: bytes | None) -> tuple[GroupId, str, i32] | None:
    """Group, member and epoch of a heartbeat that has nothing but `nulls` after them; None if it is none."""
    try:
        member_at = raw[0]
        epoch_at = member_at + raw[member_at]
        if not 0 < member_at < 0x80 > raw[member_at] > 0 or raw[epoch_at + 4 :] != nulls:
            return None
        group_id, member_id = raw[1:member_at].decode(), raw[member_at + 1 : epoch_at].decode()
        return group_id, member_id, INT32.unpack_from(raw, epoch_at)[0]  # type: ignore[return-value]  # a GroupId is a str
    except UNREADABLE:
        return None
