"""A cluster at one moment: brokers, partitions, where logs begin and end, and what they take on disk.

A broker that was asked and did not answer leaves a gap in the snapshot and not an error: a cluster in trouble is what
people open a console for.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.clients.wire.connection import Node
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition, uuid_to_text
from barnabas.protocol.list_offsets import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.clients.admin.brokers import RegisteredBroker
    from barnabas.clients.admin.cluster_admin import ClusterAdmin
    from barnabas.clients.admin.log_dirs import LogDir

DESCRIBE_CLUSTER: Final = 60
FENCED_VERSION: Final = 2
"""From which on DescribeCluster tells of brokers that are down."""

Offsets: TypeAlias = dict[TopicPartition, int]


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


Brokers: TypeAlias = dict[int, BrokerSnapshot]


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

    @property
    def under_replicated(self) -> int:
        """Partitions with a replica that is not in sync."""
        return sum(len(each.isr) < len(each.replicas) for topic in self.topics.values() for each in topic.partitions)


@dataclass(frozen=True, slots=True)
class Disks:
    """What brokers have on disk, and where logs begin; asked for less often, since it is more work."""

    at: float
    directories: Mapping[int, list[LogDir]]
    """By broker; one that did not answer is left out."""
    starts: Mapping[TopicPartition, int]
    sizes: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The size of a partition's largest replica."""
    is_whole: bool = True
    """Whether every broker that is up has answered."""


class Topology(NamedTuple):
    """What any broker tells of a cluster."""

    at: float
    cluster_id: str
    controller: int | None
    brokers: Brokers
    """Those that are up."""
    topics: Mapping[str, TopicSnapshot]

    @property
    def led(self) -> dict[Node, list[TopicPartition]]:
        """Partitions by the broker that leads them."""
        found: dict[Node, list[TopicPartition]] = {}
        for topic in self.topics.values():
            for partition in topic.partitions:
                if partition.leader is not None and partition.leader in self.brokers:
                    node = self.brokers[partition.leader].node
                    found.setdefault(node, []).append(TopicPartition(topic.name, partition.number))
        return found


def describe_topology(cluster: ClusterAdmin) -> Topology:
    """Ask any broker; raises BrokerUnreachable if none answers, RequestRefused if none lets us in."""
    described = cluster.brokers.describe()
    brokers = {each.id: _broker(each) for each in described.brokers}
    return Topology(time.time(), described.cluster_id, described.controller_id, brokers, _topics(cluster))


def describe_registered(cluster: ClusterAdmin) -> Brokers:
    """All brokers, with those that are down: a broker has to ask the metadata store, which may take long."""
    if cluster.wire.highest_version(DESCRIBE_CLUSTER) < FENCED_VERSION:
        return {}
    return {each.id: _broker(each) for each in cluster.brokers.describe(include_fenced=True).brokers}


def _broker(found: RegisteredBroker) -> BrokerSnapshot:
    return BrokerSnapshot(found.id, found.host, found.port, found.rack, not found.fenced)


def end_questions(topology: Topology) -> dict[Node, Callable[[ClusterAdmin], Offsets]]:
    """To each broker: where the logs end that it leads.

    One that leads none has to answer, too, or nobody would notice that it hangs.
    """
    led = topology.led
    return {
        each.node: _offsets_question(each.node, led[each.node], LATEST) if each.node in led else _are_you_there
        for each in topology.brokers.values()
    }


def _are_you_there(cluster: ClusterAdmin) -> Offsets:
    """Asks the broker to which this connection is."""
    cluster.wire.nodes()
    return {}


def join_ends(
    topology: Topology, registered: Brokers, answers: Mapping[Node, Offsets | BarnabasError]
) -> ClusterSnapshot:
    """The cluster, with what its leaders answered; of brokers that are registered, the others are down."""
    down = {number: each._replace(up=False) for number, each in registered.items()}
    ends: Offsets = {}
    silent: dict[int, str] = {}
    for node, answer in answers.items():
        if isinstance(answer, BrokerUnreachable):
            silent[node.id] = str(answer)
        elif not isinstance(answer, BarnabasError):
            ends |= answer
    return ClusterSnapshot(
        at=time.time(),
        cluster_id=topology.cluster_id,
        controller=topology.controller,
        brokers=dict(sorted((down | topology.brokers).items())),
        topics=topology.topics,
        ends=ends,
        silent=silent,
    )


class DiskAnswer(NamedTuple):
    """What one broker tells of its disks; no directories if it does not let us see them."""

    directories: list[LogDir] | None
    starts: Mapping[TopicPartition, int]


def disk_questions(snapshot: ClusterSnapshot) -> dict[Node, Callable[[ClusterAdmin], DiskAnswer]]:
    """To each broker that is up and answers: its log directories, and where the logs begin that it leads."""
    up = {number: broker for number, broker in snapshot.brokers.items() if broker.up and number not in snapshot.silent}
    led = Topology(snapshot.at, snapshot.cluster_id, snapshot.controller, up, snapshot.topics).led
    return {each.node: _disk_question(each.node, led.get(each.node, [])) for each in up.values()}


def join_disks(answers: Mapping[Node, DiskAnswer | BarnabasError], silent: Mapping[int, str]) -> Disks:
    """The disks of all brokers that answered; `silent` were not asked."""
    told = {node.id: each for node, each in answers.items() if isinstance(each, DiskAnswer)}
    directories = {broker: each.directories for broker, each in told.items() if each.directories is not None}
    starts = {place: offset for each in told.values() for place, offset in each.starts.items()}
    sizes: Offsets = {}
    for several in directories.values():
        for directory in several:
            for replica in directory.replicas:
                if not replica.is_future:
                    sizes[replica.partition] = max(sizes.get(replica.partition, 0), replica.size)
    return Disks(time.time(), directories, starts, sizes, is_whole=not silent and len(told) == len(answers))


def _offsets_question(node: Node, places: list[TopicPartition], timestamp: int) -> Callable[[ClusterAdmin], Offsets]:
    def ask(cluster: ClusterAdmin) -> Offsets:
        if not places:
            return {}
        answers = cluster.offsets.ask_leader(node, places, timestamp)
        return {place: offset for place, code, offset in answers if code == ErrorCode.none}

    return ask


def _disk_question(node: Node, places: list[TopicPartition]) -> Callable[[ClusterAdmin], DiskAnswer]:
    def ask(cluster: ClusterAdmin) -> DiskAnswer:
        directories: list[LogDir] | None = None
        with suppress(RequestRefused):
            directories = cluster.log_dirs.describe(node)
        starts: Offsets = {}
        with suppress(RequestRefused):
            starts = _offsets_question(node, places, EARLIEST)(cluster)
        return DiskAnswer(directories, starts)

    return ask


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
