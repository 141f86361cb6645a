"""JoinGroup responses, written by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Tests hold
the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.wire.packing import INT32, add_bytes, add_count, add_text, finish, milliseconds, start

if TYPE_CHECKING:
    from kio.schema.join_group.v9.response import JoinGroupResponse

FLEXIBLE: Final = 6
_CODE_AND_NUMBER: Final = struct.Struct(">hi")


def pack(correlation_id: int, version: int, response: JoinGroupResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = start(correlation_id, flexible)
    if version >= 2:
        out += INT32.pack(milliseconds(response.throttle_time))
    out += _CODE_AND_NUMBER.pack(response.error_code.value, response.generation_id)
    if version >= 7:
        add_text(out, response.protocol_type, flexible)
        add_text(out, response.protocol_name, flexible)
    else:
        add_text(out, response.protocol_name or "", flexible)
    add_text(out, response.leader, flexible)
    if version >= 9:
        out.append(response.skip_assignment)
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
