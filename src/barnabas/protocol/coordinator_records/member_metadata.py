"""Members of classic groups, packed by hand: a rebalance of a thousand members writes a thousand of them at once.

Tests hold the bytes equal to what the schema writes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.coordinator_records.fields import FieldType, Schema
from barnabas.protocol.wire.framing import MAX_STRING
from barnabas.protocol.wire.packing import INT16, INT32

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.coordinator_records.messages import MemberMetadata

_TIMEOUTS: Final = struct.Struct(">ii")
_NO_INSTANCE: Final = b"\xff\xff"


def packed_by_hand(schema: Schema) -> FieldType:
    """The type of a member that this schema describes."""
    return FieldType(_writer(schema), schema.read)


def _writer(schema: Schema) -> Callable[[bytearray, MemberMetadata, bool], None]:
    def write(out: bytearray, member: MemberMetadata, flexible: bool) -> None:
        member_id, client_id = member.member_id.encode(), member.client_id.encode()
        client_host = member.client_host.encode()
        longest = max(len(member_id), len(client_id), len(client_host))
        if flexible or member.group_instance_id is not None or longest > MAX_STRING:
            schema.write(out, member, flexible)
            return
        subscription, assignment = member.subscription, member.assignment
        out += b"".join(
            (
                INT16.pack(len(member_id)),
                member_id,
                _NO_INSTANCE,
                INT16.pack(len(client_id)),
                client_id,
                INT16.pack(len(client_host)),
                client_host,
                _TIMEOUTS.pack(member.rebalance_timeout, member.session_timeout),
                INT32.pack(len(subscription)),
                subscription,
                INT32.pack(len(assignment)),
                assignment,
            )
        )

    return write
