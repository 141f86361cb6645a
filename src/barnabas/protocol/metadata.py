"""Metadata in the shape that the handler knows: the newest version, and what older versions ask and tell besides.

Versions 8 to 10 can ask for the operations that the caller may do on the cluster; later ones ask DescribeCluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.metadata.v13 import request as newest_request
from kio.schema.metadata.v13 import response as newest_response
from kio.static.primitive import i32

from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.conversion import convert

if TYPE_CHECKING:
    from kio.schema.metadata.v13.response import MetadataResponsePartition

NOT_ASKED: Final = i32(-(2**31))
"""As authorized operations: nobody asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRequest(newest_request.MetadataRequest):
    """The newest request, and what versions 8 to 10 can ask besides. No topics at all (None) means every topic."""

    include_cluster_authorized_operations: bool = False


class PackedTopics(NamedTuple):
    """Topics as they stand in a response of one version."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataResponse(newest_response.MetadataResponse):
    """The newest response, and what versions 8 to 10 tell besides."""

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
