"""The tree as an image: three bulk reads, whatever its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.machines.controller.elections import NO_STATE
from barnabas.machines.controller.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.znodes import (
    Assignment,
    BrokerNode,
    BrokersNode,
    ClusterIdNode,
    ConfigNode,
    ConfigsNode,
    ControllerEpochNode,
    ControllerNode,
    DeletionsNode,
    FeaturesNode,
    PartitionStateNode,
    TopicNode,
    TopicsNode,
)
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from barnabas.machines.controller.image import ConfigResource
    from barnabas.metadata.store import MetadataStore, Node


@dataclass(frozen=True, slots=True)
class Loaded:
    """A tree's image, and what only a controller needs of it."""

    image: ClusterImage
    deleting: tuple[str, ...]
    """Topics whose deletion was cut short; they are not in the image."""


async def load_brokers(store: MetadataStore) -> dict[int, BrokerImage]:
    """Everyone that is registered."""
    brokers = {}
    for node in await store.subtree(BrokersNode.path):
        broker_id = int(node.path.rpartition("/")[2])
        brokers[broker_id] = BrokerNode.decode(broker_id, node.data).image(node.czxid)
    return brokers


async def load(store: MetadataStore) -> Loaded:
    """Read the whole tree. A topic that Kafka made before it gave out ids has the zero id until a controller comes."""
    cluster_id = await store.find(ClusterIdNode.path)
    controller = await store.find(ControllerNode.path)
    epoch = await store.find(ControllerEpochNode.path)
    features = await store.find(FeaturesNode.path)
    brokers = await load_brokers(store)
    deleting = (
        frozenset(await store.children(DeletionsNode.path)) if await store.find(DeletionsNode.path) else frozenset()
    )
    topics = _topics(await store.subtree(TopicsNode.path))
    kept = {name: topic for name, topic in topics.items() if name not in deleting}
    image = ClusterImage(
        cluster_id="" if cluster_id is None else ClusterIdNode.decode(cluster_id.data),
        controller_id=NO_LEADER if controller is None else ControllerNode.decode(controller.data),
        controller_epoch=0 if epoch is None else ControllerEpochNode.decode(epoch.data),
        brokers=brokers,
        topics=kept,
        topic_names=_names(kept),
        configs=_configs(await store.subtree(ConfigsNode.path)),
        features={} if features is None else FeaturesNode.decode(features.data),
        features_epoch=-1 if features is None else features.version,
    )
    return Loaded(image, tuple(sorted(deleting)))


def _names(topics: Mapping[str, TopicImage]) -> dict[UUID, str]:
    return {topic.topic_id: name for name, topic in topics.items() if topic.topic_id != NO_ID}


def _topics(nodes: list[Node]) -> dict[str, TopicImage]:
    skip = len(TopicsNode.path) + 1
    states: dict[str, Node] = {}
    assigned: dict[str, Node] = {}
    for node in nodes:
        if "/" not in (name := node.path[skip:]):
            assigned[name] = node
        elif name.endswith("/state"):
            states[node.path] = node
    return {name: _topic(name, node, states) for name, node in assigned.items()}


def _topic(name: str, node: Node, states: Mapping[str, Node]) -> TopicImage:
    topic_id, assignments = TopicNode.decode(name, node.data)
    partitions = tuple(
        _partition(index, assignment, states.get(PartitionStateNode.path(name, index)))
        for index, assignment in enumerate(assignments)
    )
    return TopicImage(name, topic_id or NO_ID, partitions)


def _partition(index: int, assignment: Assignment, node: Node | None) -> PartitionImage:
    replicas, adding, removing = assignment
    if node is None:
        return PartitionImage(index, NO_LEADER, NO_STATE, replicas, (), NO_STATE, adding, removing)
    leader, leader_epoch, isr, _ = PartitionStateNode.decode(node.data)
    return PartitionImage(index, leader, leader_epoch, replicas, isr, node.version, adding, removing)


def _configs(nodes: list[Node]) -> dict[ConfigResource, dict[str, str]]:
    return {
        resource: ConfigNode.decode(node.path, node.data)
        for node in nodes
        if (resource := ConfigNode.resource(node.path)) is not None
    }
