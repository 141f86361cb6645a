"""A cluster at one moment: brokers, partitions, where logs begin and end, and what they take on disk.

A broker that was asked and did not answer leaves a gap in the snapshot and not an error: a cluster in trouble is what
people open a console for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.clients.wire.connection import Node
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition, uuid_to_text
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.log_dirs import LogDir


class BrokerSnapshot(NamedTuple):
    """A broker; one that is down is registered, and fenced."""

    id: int
    host: str
    port: int
    rack: str | None
    up: bool

    @property
    def node(self) -> Node:
        """Where it is asked."""
        return Node(self.id, self.host, self.port)


class PartitionSnapshot(NamedTuple):
    """Who has a partition; `leader` is None while there is none."""

    number: int
    leader: int | None
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicSnapshot(NamedTuple):
    """A topic and its partitions in order."""

    name: str
    id: str
    internal: bool
    partitions: tuple[PartitionSnapshot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """A cluster at one moment."""

    at: float
    """Seconds since 1970."""
    cluster_id: str
    controller: int | None
    brokers: Mapping[int, BrokerSnapshot]
    topics: Mapping[str, TopicSnapshot]
    ends: Mapping[TopicPartition, int]
    silent: Mapping[int, str]
    """Brokers that are taken to be up and did not answer, and what happened."""


@dataclass(frozen=True, slots=True)
class Disks:
    """What brokers have on disk, and where logs begin; asked for less often, since it is more work."""

    at: float
    directories: Mapping[int, list[LogDir]]
    """By broker; one that did not answer is left out."""
    starts: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The size of a partition's largest replica."""


def take_snapshot(cluster: ClusterAdmin) -> ClusterSnapshot:
    """Ask for everything; raises BrokerUnreachable if no broker answers, RequestRefused if none lets us in."""
    described = cluster.brokers.describe(include_fenced=cluster.wire.highest_version(60) >= 2)
    brokers = {
        each.id: BrokerSnapshot(each.id, each.host, each.port, each.rack, not each.fenced) for each in described.brokers
    }
    cluster.wire.remember(broker.node for broker in brokers.values() if broker.up)
    topics = _topics(cluster)
    silent: dict[int, str] = {}
    ends = _offsets(cluster, topics, brokers, LATEST, silent)
    return ClusterSnapshot(
        at=time.time(),
        cluster_id=described.cluster_id,
        controller=described.controller_id,
        brokers=brokers,
        topics=topics,
        ends=ends,
        silent=silent,
    )


def describe_disks(cluster: ClusterAdmin, snapshot: ClusterSnapshot) -> Disks:
    """The log directories of all brokers, and where logs begin."""
    directories: dict[int, list[LogDir]] = {}
    for broker in snapshot.brokers.values():
        if broker.up and broker.id not in snapshot.silent:
            found = _or_nothing(lambda node=broker.node: cluster.log_dirs.describe(node))  # type: ignore[misc]
            if found is not None:
                directories[broker.id] = found
    starts = _offsets(cluster, snapshot.topics, snapshot.brokers, EARLIEST, dict(snapshot.silent))
    sizes: dict[TopicPartition, int] = {}
    for several in directories.values():
        for directory in several:
            for replica in directory.replicas:
                if not replica.is_future:
                    sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size)
    return Disks(time.time(), directories, starts, sizes)


def _or_nothing(ask: Callable[[], list[LogDir]]) -> list[LogDir] | None:
    try:
        return ask()
    except (BrokerUnreachable, RequestRefused):
        return None


def _topics(cluster: ClusterAdmin) -> dict[str, TopicSnapshot]:
    from kio.schema.metadata.v13.request import MetadataRequest

    answer = cluster.wire.ask(
        MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False),
        at_least=4,
    )
    return {
        topic.name: TopicSnapshot(
            topic.name,
            "" if topic.topic_id is None else uuid_to_text(topic.topic_id),
            topic.is_internal,
            tuple(sorted(map(_partition, topic.partitions))),
        )
        for topic in sorted(answer.topics, key=lambda topic: topic.name)
    }


def _partition(found: Any) -> PartitionSnapshot:
    leader = None if found.leader_id < 0 else found.leader_id
    return PartitionSnapshot(
        found.partition_index, leader, found.leader_epoch, tuple(found.replica_nodes), tuple(found.isr_nodes)
    )


def _offsets(
    cluster: ClusterAdmin,
    topics: Mapping[str, TopicSnapshot],
    brokers: Mapping[int, BrokerSnapshot],
    timestamp: int,
    silent: dict[int, str],
) -> dict[TopicPartition, int]:
    """An offset of each partition that has a leader; brokers that do not answer are added to `silent`."""
    led: dict[int, list[TopicPartition]] = {}
    for topic in topics.values():
        for partition in topic.partitions:
            if partition.leader in brokers and partition.leader is not None:
                led.setdefault(partition.leader, []).append(TopicPartition(topic.name, partition.number))
    found: dict[TopicPartition, int] = {}
    for leader, partitions in led.items():
        if leader in silent:
            continue
        try:
            answers = cluster.offsets.ask_leader(brokers[leader].node, partitions, timestamp)
            found |= {place: offset for place, code, offset in answers if code == ErrorCode.none}
        except BrokerUnreachable as error:
            silent[leader] = str(error)
        except RequestRefused:
            continue
    return found
