"""Responses of JoinGroup, SyncGroup, Heartbeat and ConsumerGroupHeartbeat, written by hand.

A rebalance of a hundred members is some hundreds of these at once, and kio takes ten times as long for each. They are
written in one pass, in every version that is served; tests hold them equal to kio's.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from barnabas.protocol.apis import FLEXIBLE_FROM, ApiKey
from barnabas.protocol.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ii")
_CODE_AND_NUMBER: Final = struct.Struct(">hi")
_NUMBERS: Final = struct.Struct(">ii")
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_TIME: Final = timedelta(0)


def pack(key: ApiKey, correlation_id: int, version: int, response: Any) -> bytes:
    """The whole frame of a response; `key` is one of those in `WRITERS`."""
    flexible = version >= FLEXIBLE_FROM[key]
    out = bytearray(_HEAD.pack(0, correlation_id))
    if flexible:
        out.append(0)
    WRITERS[key](out, version, flexible, response)
    if flexible:
        out.append(0)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _join_group(out: bytearray, version: int, flexible: bool, response: Any) -> None:
    if version >= 2:
        out += _INT32.pack(_milliseconds(response.throttle_time))
    out += _CODE_AND_NUMBER.pack(response.error_code.value, response.generation_id)
    if version >= 7:
        _text(out, response.protocol_type, flexible)
        _text(out, response.protocol_name, flexible)
    else:
        _text(out, response.protocol_name or "", flexible)
    _text(out, response.leader, flexible)
    if version >= 9:
        out.append(response.skip_assignment)
    _text(out, response.member_id, flexible)
    _count(out, len(response.members), flexible)
    for member in response.members:
        _text(out, member.member_id, flexible)
        if version >= 5:
            _text(out, member.group_instance_id, flexible)
        _blob(out, member.metadata, flexible)
        if flexible:
            out.append(0)


def _sync_group(out: bytearray, version: int, flexible: bool, response: Any) -> None:
    if version >= 1:
        out += _INT32.pack(_milliseconds(response.throttle_time))
    out += _INT16.pack(response.error_code.value)
    if version >= 5:
        _text(out, response.protocol_type, flexible)
        _text(out, response.protocol_name, flexible)
    _blob(out, response.assignment, flexible)


def _heartbeat(out: bytearray, version: int, flexible: bool, response: Any) -> None:
    if version >= 1:
        out += _INT32.pack(_milliseconds(response.throttle_time))
    out += _INT16.pack(response.error_code.value)


def _consumer_group_heartbeat(out: bytearray, version: int, flexible: bool, response: Any) -> None:
    out += _INT32.pack(_milliseconds(response.throttle_time))
    out += _INT16.pack(response.error_code.value)
    _text(out, response.error_message, flexible)
    _text(out, response.member_id, flexible)
    out += _NUMBERS.pack(response.member_epoch, _milliseconds(response.heartbeat_interval))
    if response.assignment is None:
        out.append(0xFF)
        return
    out.append(1)
    topics = response.assignment.topic_partitions
    out += uvarint(len(topics) + 1)
    for topic in topics:
        out += bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        out += uvarint(len(topic.partitions) + 1)
        out += struct.pack(f">{len(topic.partitions)}i", *topic.partitions)
        out.append(0)
    out.append(0)


WRITERS: Final[dict[ApiKey, Callable[[bytearray, int, bool, Any], None]]] = {
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _sync_group,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
}
"""What writes the body of a response, up to its last tagged fields."""


def _milliseconds(time: timedelta) -> int:
    return 0 if time == _NO_TIME else time // _MILLISECOND


def _text(out: bytearray, text: str | None, flexible: bool) -> None:
    if text is None:
        out += b"\0" if flexible else b"\xff\xff"
        return
    data = text.encode()
    out += uvarint(len(data) + 1) if flexible else _INT16.pack(len(data))
    out += data


def _blob(out: bytearray, data: bytes, flexible: bool) -> None:
    out += uvarint(len(data) + 1) if flexible else _INT32.pack(len(data))
    out += data


def _count(out: bytearray, count: int, flexible: bool) -> None:
    out += uvarint(count + 1) if flexible else _INT32.pack(count)
