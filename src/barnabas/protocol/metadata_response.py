"""Metadata responses, packed by hand: with ten thousand partitions, kio took a tenth of a second of the event loop.

Partitions share their sets of replicas, so these are packed once. A test holds the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from barnabas.protocol.varint import uvarint

if TYPE_CHECKING:
    from kio.schema.metadata.v13.response import MetadataResponseBroker, MetadataResponseTopic

    from barnabas.protocol.metadata import MetadataResponse

FLEXIBLE: Final = 9
CONTROLLER_RACK_INTERNAL: Final = 1
CLUSTER_ID: Final = 2
THROTTLE: Final = 3
OFFLINE: Final = 5
LEADER_EPOCH: Final = 7
TOPIC_OPERATIONS: Final = 8
CLUSTER_OPERATIONS: Final = range(8, 11)
TOPIC_IDS: Final = 10
ERROR: Final = 13

_HEAD: Final = struct.Struct(">ii")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">hii")
_PARTITION_V7: Final = struct.Struct(">hiii")
_NO_ID: Final = bytes(16)
_MILLISECOND: Final = timedelta(milliseconds=1)


def pack(correlation_id: int, version: int, response: MetadataResponse) -> bytes:
    """The whole frame of a response, in any version that is served, to which it was brought `down` before."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    parts = [_HEAD.pack(0, correlation_id), tags]
    if version >= THROTTLE:
        parts.append(_INT32.pack(response.throttle_time // _MILLISECOND))
    parts.append(_count(len(response.brokers), flexible))
    parts += (_broker(broker, version) for broker in response.brokers)
    if version >= CLUSTER_ID:
        parts.append(_text(response.cluster_id, flexible))
    if version >= CONTROLLER_RACK_INTERNAL:
        parts.append(_INT32.pack(response.controller_id))
    if response.packed_topics is None:
        parts.append(_count(len(response.topics), flexible))
        for topic in response.topics:
            _add_topic(parts, topic, version)
    else:
        parts += (_count(response.packed_topics.number, flexible), response.packed_topics.data)
    if version in CLUSTER_OPERATIONS:
        parts.append(_INT32.pack(response.cluster_authorized_operations))
    if version >= ERROR:
        parts.append(_INT16.pack(response.error_code))
    parts.append(tags)
    frame = bytearray().join(parts)
    _INT32.pack_into(frame, 0, len(frame) - 4)
    return bytes(frame)


def pack_topics(response: MetadataResponse, version: int) -> bytes:
    """The topics of a response, as they stand in that version, to which it was brought `down` before."""
    parts: list[bytes] = []
    for topic in response.topics:
        _add_topic(parts, topic, version)
    return b"".join(parts)


def _broker(broker: MetadataResponseBroker, version: int) -> bytes:
    flexible = version >= FLEXIBLE
    packed = _INT32.pack(broker.node_id) + _text(broker.host, flexible) + _INT32.pack(broker.port)
    if version >= CONTROLLER_RACK_INTERNAL:
        packed += _text(broker.rack, flexible)
    return packed + b"\0" if flexible else packed


def _add_topic(parts: list[bytes], topic: MetadataResponseTopic, version: int) -> None:
    flexible = version >= FLEXIBLE
    parts += (_INT16.pack(topic.error_code), _text(topic.name, flexible))
    if version >= TOPIC_IDS:
        parts.append(_NO_ID if topic.topic_id is None else topic.topic_id.bytes)
    if version >= CONTROLLER_RACK_INTERNAL:
        parts.append(b"\1" if topic.is_internal else b"\0")
    parts.append(_count(len(topic.partitions), flexible))
    for partition in topic.partitions:
        index, leader = partition.partition_index, partition.leader_id
        if version >= LEADER_EPOCH:
            parts.append(_PARTITION_V7.pack(partition.error_code, index, leader, partition.leader_epoch))
        else:
            parts.append(_PARTITION.pack(partition.error_code, index, leader))
        parts.append(_nodes(partition.replica_nodes, flexible))
        parts.append(_nodes(partition.isr_nodes, flexible))
        if version >= OFFLINE:
            parts.append(_nodes(partition.offline_replicas, flexible))
        if flexible:
            parts.append(b"\0")
    if version >= TOPIC_OPERATIONS:
        parts.append(_INT32.pack(topic.topic_authorized_operations))
    if flexible:
        parts.append(b"\0")


@lru_cache(maxsize=1024)
def _nodes(nodes: tuple[int, ...], flexible: bool) -> bytes:
    return _count(len(nodes), flexible) + struct.pack(f">{len(nodes)}i", *nodes)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else _INT16.pack(len(raw))) + raw
