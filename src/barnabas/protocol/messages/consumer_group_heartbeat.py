"""ConsumerGroupHeartbeat responses, written by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. Tests hold
the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.wire.packing import INT16, INT32, add_text, finish, milliseconds, start
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse

_NUMBERS: Final = struct.Struct(">ii")


def pack(correlation_id: int, version: int, response: ConsumerGroupHeartbeatResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = True
    out = start(correlation_id, flexible)
    out += INT32.pack(milliseconds(response.throttle_time))
    out += INT16.pack(response.error_code.value)
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
