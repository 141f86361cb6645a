"""The tree as an image, by a few bulk reads whatever its size.

Nodes are decoded some at a time: a broker that becomes the controller of twenty thousand topics serves its clients
meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from barnabas.machines.controller.elections import NO_STATE
from barnabas.machines.controller.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from barnabas.metadata.topic_znodes import Assignment, DeletionsNode, PartitionStateNode, TopicNode, TopicsNode
from barnabas.metadata.znodes import (
    BrokerNode,
    BrokersNode,
    ClusterIdNode,
    ConfigNode,
    ConfigsNode,
    ControllerEpochNode,
    ControllerNode,
    FeaturesNode,
    KnownBrokersNode,
    broker_of,
)
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
    from uuid import UUID

    from barnabas.machines.controller.image import ConfigResource, PartitionKey
    from barnabas.metadata.stores.store import MetadataStore, StoredNode

    Configs = dict[ConfigResource, Mapping[str, str] | None]

T = TypeVar("T")

PART: Final = 500
"""Nodes that are decoded in one turn of the event loop: some milliseconds."""


class Loaded(NamedTuple):
    """A tree's image, and what only a controller needs of it."""

    image: ClusterImage
    deleting: tuple[str, ...]
    """Topics whose deletion was cut short; they are not in the image."""
    restarted: Mapping[PartitionKey, frozenset[int]]
    """By partition, replicas in sync that registered after its state was written: nobody saw them go and come back."""


async def load_brokers(store: MetadataStore) -> dict[int, BrokerImage]:
    """Everyone that is registered."""
    return await _load_brokers(store, BrokersNode.path)


async def load_known_brokers(store: MetadataStore) -> dict[int, BrokerImage]:
    """Everyone that was registered once and is not forgotten; the epoch is no registration's."""
    if await store.find(KnownBrokersNode.path) is None:
        return {}
    return await _load_brokers(store, KnownBrokersNode.path)


async def _load_brokers(store: MetadataStore, folder: str) -> dict[int, BrokerImage]:
    brokers = {}
    for node in await store.subtree(folder):
        broker_id = broker_of(node.path)
        brokers[broker_id] = BrokerNode.decode(broker_id, node.data, node.path).image(node.czxid)
    return brokers


async def load(store: MetadataStore) -> Loaded:
    """Read the whole tree. A topic that Kafka made before it gave out ids has the zero id until a controller comes."""
    cluster_id = await store.find(ClusterIdNode.path)
    controller = await store.find(ControllerNode.path)
    epoch = await store.find(ControllerEpochNode.path)
    features, features_epoch = await load_features(store)
    brokers = await load_brokers(store)
    deleting = frozenset(await _children_if_any(store, DeletionsNode.path))
    kept, restarted = await _topics(store, deleting, brokers)
    image = ClusterImage(
        cluster_id="" if cluster_id is None else ClusterIdNode.decode(cluster_id.data),
        controller_id=NO_LEADER if controller is None else ControllerNode.decode(controller.data),
        controller_epoch=0 if epoch is None else ControllerEpochNode.decode(epoch.data),
        brokers=brokers,
        known={**await load_known_brokers(store), **brokers},
        topics=kept,
        topic_names=_names(kept),
        configs=await _configs(store),
        features=features,
        features_epoch=features_epoch,
    )
    return Loaded(image, tuple(sorted(deleting)), restarted)


async def load_configs(store: MetadataStore, resources: Sequence[ConfigResource] | None = None) -> Configs:
    """The dynamic settings of these resources (None for one that has no node), or of all there are."""
    if resources is None:
        return dict(await _configs(store))
    nodes = await store.find_many([ConfigNode.path(resource) for resource in resources])
    return {
        resource: None if node is None else ConfigNode.decode(node.path, node.data)
        for resource, node in zip(resources, nodes, strict=True)
    }


async def load_features(store: MetadataStore) -> tuple[Mapping[str, int], int]:
    """Finalized feature levels and their epoch."""
    node = await store.find(FeaturesNode.path)
    return ({}, -1) if node is None else (FeaturesNode.decode(node.data), node.version)


def _names(topics: Mapping[str, TopicImage]) -> dict[UUID, str]:
    return {topic.topic_id: name for name, topic in topics.items() if topic.topic_id != NO_ID}


async def _topics(
    store: MetadataStore, deleting: frozenset[str], brokers: Mapping[int, BrokerImage]
) -> tuple[dict[str, TopicImage], dict[PartitionKey, frozenset[int]]]:
    """The topics, and what was restarted unseen."""
    names = [name for name in await _children_if_any(store, TopicsNode.path) if name not in deleting]
    nodes = await store.find_many([TopicNode.path(name) for name in names])
    assigned = {
        name: TopicNode.decode(name, node.data)
        async for name, node in _in_turns(zip(names, nodes, strict=True))
        if node is not None
    }
    keys = [(name, index) for name, (_, assignments) in assigned.items() for index in range(len(assignments))]
    found = dict(zip(keys, await store.find_many([PartitionStateNode.path(*key) for key in keys]), strict=True))
    topics = {
        name: TopicImage(
            name,
            topic_id or NO_ID,
            tuple(_partition(index, assignment, found[name, index]) for index, assignment in enumerate(assignments)),
        )
        async for name, (topic_id, assignments) in _in_turns(assigned.items())
    }
    newest = max((broker.epoch for broker in brokers.values()), default=-1)
    late = [(key, node.mzxid) for key, node in found.items() if node is not None and node.mzxid < newest]
    return topics, {
        (name, index): restarted
        for (name, index), written in late
        if (restarted := _registered_since(written, topics[name].partitions[index], brokers))
    }


def _registered_since(written: int, partition: PartitionImage, brokers: Mapping[int, BrokerImage]) -> frozenset[int]:
    return frozenset(replica for replica in partition.isr if replica in brokers and brokers[replica].epoch > written)


async def _children_if_any(store: MetadataStore, path: str) -> list[str]:
    return await store.children(path) if await store.find(path) is not None else []


def _partition(index: int, assignment: Assignment, node: StoredNode | None) -> PartitionImage:
    replicas, adding, removing = assignment
    if node is None:
        return PartitionImage(index, NO_LEADER, NO_STATE, replicas, (), NO_STATE, adding, removing)
    leader, leader_epoch, isr, _ = PartitionStateNode.decode(node.path, node.data)
    return PartitionImage(index, leader, leader_epoch, replicas, isr, node.version, adding, removing)


async def _configs(store: MetadataStore) -> dict[ConfigResource, dict[str, str]]:
    return {
        resource: ConfigNode.decode(node.path, node.data)
        async for node in _in_turns(await store.subtree(ConfigsNode.path))
        if (resource := ConfigNode.resource(node.path)) is not None
    }


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, some in each turn of the event loop."""
    for number, item in enumerate(items, 1):
        yield item
        if not number % PART:
            await asyncio.sleep(0)
