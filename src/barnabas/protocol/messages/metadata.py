"""Metadata: the shape that the handler knows, the versions, and responses packed by hand.

The handler's shape is the newest version and the fields that only versions 8 to 10 have: the operations that the caller
may do on the cluster. Newer clients ask DescribeCluster for them.

Responses are packed by hand because kio took a tenth of a second of the event loop for ten thousand partitions.
Partitions share their sets of replicas, so these are packed once. A test holds the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.metadata.v13 import request as newest_request
from kio.schema.metadata.v13 import response as newest_response
from kio.static.primitive import i32

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.wire.conversion import convert
from barnabas.protocol.wire.durations import MILLISECOND
from barnabas.protocol.wire.packing import HEAD, INT16, INT32, NO_ID
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from kio.schema.metadata.v13.response import (
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

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

_PARTITION: Final = struct.Struct(">hii")
_PARTITION_V7: Final = struct.Struct(">hiii")
NOT_ASKED: Final = i32(-(2**31))
"""As authorized operations: the request did not ask for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(newest_request.MetadataRequest):
    """The newest request, and the extra field of versions 8 to 10. None as `topics` means every topic."""

    include_cluster_authorized_operations: bool = False


class PackedTopics(NamedTuple):
    """Topics as they stand in a response of one version."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(newest_response.MetadataResponse):
    """The newest response, and the extra field of versions 8 to 10."""

    cluster_authorized_operations: i32 = field(metadata={"kafka_type": "int32"}, default=NOT_ASKED)
    packed_topics: PackedTopics | None = None
    """In the place of `topics`, where there are many."""


def up(request: Any, version: int) -> MetadataRequest:
    """A request of any version. In version 0 an empty list means every topic, since there was no null yet.

    Versions 10 and 11 have a place for topic ids, but brokers never took them there.
    """
    if version in (10, 11) and any(topic.name is None or topic.topic_id is not None for topic in request.topics or ()):
        raise InvalidFrame(f"METADATA of version {version} must name its topics; ids are taken from version 12 on")
    newest = convert(request, newest_request.MetadataRequest)
    values = {each.name: getattr(newest, each.name) for each in fields(newest)}
    if version == 0 and not newest.topics:
        values["topics"] = None
    return MetadataRequest(
        **values,
        include_cluster_authorized_operations=getattr(request, "include_cluster_authorized_operations", False),
    )


def down(response: MetadataResponse, version: int) -> MetadataResponse:
    """A response for any version.

    Up to version 5 a leader without the caller's listener is not available. Version 0 names no replicas that the caller
    cannot reach: it leaves them out and says so.
    """
    if version > 5:
        return response
    brokers = {broker.node_id for broker in response.brokers} if version == 0 else None
    topics = tuple(
        replace(topic, partitions=tuple(_down_partition(partition, brokers) for partition in topic.partitions))
        for topic in response.topics
    )
    return replace(response, topics=topics)


def _down_partition(partition: MetadataResponsePartition, brokers: set[Any] | None) -> MetadataResponsePartition:
    error = partition.error_code
    if error is ErrorCode.listener_not_found:
        error = ErrorCode.leader_not_available
    if brokers is None:
        return partition if error is partition.error_code else replace(partition, error_code=error)
    replicas = tuple(node for node in partition.replica_nodes if node in brokers)
    isr = tuple(node for node in partition.isr_nodes if node in brokers)
    if error is ErrorCode.none and (replicas != partition.replica_nodes or isr != partition.isr_nodes):
        error = ErrorCode.replica_not_available
    return replace(partition, error_code=error, replica_nodes=replicas, isr_nodes=isr)


def pack(correlation_id: int, version: int, response: MetadataResponse) -> bytes:
    """The whole frame of a response, in any version that is served, to which it was brought `down` before."""
    flexible = version >= FLEXIBLE
    tags = b"\0" if flexible else b""
    parts = [HEAD.pack(0, correlation_id), tags]
    if version >= THROTTLE:
        parts.append(INT32.pack(response.throttle_time // MILLISECOND))
    parts.append(_count(len(response.brokers), flexible))
    parts += (_broker(broker, version) for broker in response.brokers)
    if version >= CLUSTER_ID:
        parts.append(_text(response.cluster_id, flexible))
    if version >= CONTROLLER_RACK_INTERNAL:
        parts.append(INT32.pack(response.controller_id))
    if response.packed_topics is None:
        parts.append(_count(len(response.topics), flexible))
        for topic in response.topics:
            _add_topic(parts, topic, version)
    else:
        parts += (_count(response.packed_topics.number, flexible), response.packed_topics.data)
    if version in CLUSTER_OPERATIONS:
        parts.append(INT32.pack(response.cluster_authorized_operations))
    if version >= ERROR:
        parts.append(INT16.pack(response.error_code))
    parts.append(tags)
    frame = bytearray().join(parts)
    INT32.pack_into(frame, 0, len(frame) - 4)
    return bytes(frame)


def pack_topics(response: MetadataResponse, version: int) -> bytes:
    """The topics of a response, as they stand in that version, to which it was brought `down` before."""
    parts: list[bytes] = []
    for topic in response.topics:
        _add_topic(parts, topic, version)
    return b"".join(parts)


def _broker(broker: MetadataResponseBroker, version: int) -> bytes:
    flexible = version >= FLEXIBLE
    packed = INT32.pack(broker.node_id) + _text(broker.host, flexible) + INT32.pack(broker.port)
    if version >= CONTROLLER_RACK_INTERNAL:
        packed += _text(broker.rack, flexible)
    return packed + b"\0" if flexible else packed


def _add_topic(parts: list[bytes], topic: MetadataResponseTopic, version: int) -> None:
    flexible = version >= FLEXIBLE
    parts += (INT16.pack(topic.error_code), _text(topic.name, flexible))
    if version >= TOPIC_IDS:
        parts.append(NO_ID if topic.topic_id is None else topic.topic_id.bytes)
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
        parts.append(INT32.pack(topic.topic_authorized_operations))
    if flexible:
        parts.append(b"\0")


@lru_cache(maxsize=1024)
def _nodes(nodes: tuple[int, ...], flexible: bool) -> bytes:
    return _count(len(nodes), flexible) + struct.pack(f">{len(nodes)}i", *nodes)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else INT32.pack(count)


def _text(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    raw = text.encode()
    return (uvarint(len(raw) + 1) if flexible else INT16.pack(len(raw))) + raw
