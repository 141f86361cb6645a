"""ConsumerGroupHeartbeat: responses, written by hand, and requests that bring nothing new, read by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Tests hold
both equal to kio's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest

from barnabas.protocol.messages.groups import idle_heartbeat
from barnabas.protocol.wire.packing import add_text, finish, milliseconds
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

_NULLS: Final = (b"\0\0\xff\xff\xff\xff\0\0\0\0", b"\0\0\xff\xff\xff\xff\0\0\0\0\0")
"""By version: no instance id and rack; the rebalance timeout as before; the same topics, pattern (from version 1 on),
assignor and partitions; no tagged fields."""
_HEAD: Final = struct.Struct(">iiBih")
_NUMBERS: Final = struct.Struct(">ii")


def unpack_idle(data: memoryview, position: int, version: int) -> ConsumerGroupHeartbeatRequest | None:
    """A request that brings nothing new, in any version that is served; None for any other."""
    found = idle_heartbeat.unpack(data, position, _NULLS[version])
    if found is None:
        return None
    group_id, member_id, epoch = found
    return ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=None
    )


def pack(correlation_id: int, version: int, response: ConsumerGroupHeartbeatResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = True
    out = bytearray(_HEAD.pack(0, correlation_id, 0, milliseconds(response.throttle_time), response.error_code))
    add_text(out, response.error_message, flexible)
    add_text(out, response.member_id, flexible)
    out += _NUMBERS.pack(response.member_epoch, milliseconds(response.heartbeat_interval))
    if response.assignment is None:
        out.append(0xFF)
        return finish(out, flexible)
    out.append(1)
    topics = response.assignment.topic_partitions
    out += uvarint(len(topics) + 1)
    for topic in topics:
        out += bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        out += uvarint(len(topic.partitions) + 1)
        out += struct.pack(f">{len(topic.partitions)}i", *topic.partitions)
        out.append(0)
    out.append(0)
    return finish(out, flexible)
