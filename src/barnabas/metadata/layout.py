"""What must be in a tree before it is used, and what a controller finishes that its predecessor could not."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from barnabas.machines.controller.elections import NO_STATE
from barnabas.machines.controller.image import ClusterImage, ConfigResource
from barnabas.metadata.images.writes import deletion
from barnabas.metadata.stores.store import Create, Delete, NodeExists
from barnabas.metadata.topic_znodes import DeletedTopicsNode, DeletionsNode, PartitionNode, TopicNode, TopicsNode
from barnabas.metadata.znodes import (
    BrokersNode,
    ClusterIdNode,
    ConfigChangesNode,
    ConfigNode,
    KnownBrokersNode,
    ProducerIdsNode,
    SecretNode,
)
from barnabas.model.ids import NO_ID, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from uuid import UUID

    from barnabas.metadata.images.loading import Loaded
    from barnabas.metadata.stores.store import MetadataStore, Operation

logger = logging.getLogger(__name__)

PERSISTENT_PATHS = (
    "/consumers",
    BrokersNode.path,
    TopicsNode.path,
    "/brokers/seqid",
    ConfigChangesNode.path,
    "/config/topics",
    "/config/brokers",
    "/config/clients",
    "/config/users",
    "/config/ips",
    "/config/groups",
    DeletionsNode.path,
    "/isr_change_notification",
    ProducerIdsNode.path,
    "/log_dir_event_notification",
    DeletedTopicsNode.path,
    KnownBrokersNode.path,
)
"""What Kafka's brokers expect to find, and make themselves when they start; and what only ours know."""


async def lay_out(store: MetadataStore, make_id: Callable[[], UUID]) -> None:
    """Make the folders, the cluster's id and its secret, where they are missing; another broker may do so at once."""
    folders = {parent for path in PERSISTENT_PATHS for parent in _with_parents(path)} | {"/cluster"}
    wanted = [*sorted(folders), ClusterIdNode.path, SecretNode.path]
    while True:
        found = await store.find_many(wanted)
        missing = [path for path, node in zip(wanted, found, strict=True) if node is None]
        if not missing:
            return
        cluster_id = uuid_to_text(make_id())
        data = {ClusterIdNode.path: ClusterIdNode.encode(cluster_id), SecretNode.path: SecretNode.encode(_new_secret())}
        with contextlib.suppress(NodeExists):
            await store.multi([Create(path, data.get(path, b"")) for path in missing])
            if ClusterIdNode.path in missing:
                logger.info("Created a new cluster with id %s", cluster_id)


def _new_secret() -> bytes:
    from barnabas.protocol.messages.broker_proof import SECRET_BYTES  # here: a cluster gets its secret once

    return os.urandom(SECRET_BYTES)


def _with_parents(path: str) -> list[str]:
    return [path[:at] for at in range(1, len(path)) if path[at] == "/"] + [path]


async def unfinished_deletions(store: MetadataStore, loaded: Loaded) -> AsyncIterator[list[Operation]]:
    """What is left to do for each topic whose deletion was cut short."""
    for name in loaded.deleting:
        logger.info("Finishing the deletion of topic %s, which an earlier controller began.", name)
        node = await store.find(TopicNode.path(name))
        topic_id = None if node is None else TopicNode.decode(name, node.data)[0]
        wanted: list[Operation] = await deletion(store, name, topic_id or NO_ID, marked=True)
        if (resource := ConfigResource.topic(name)) in loaded.image.configs:
            wanted.insert(0, Delete(ConfigNode.path(resource)))
        yield wanted


async def make_folders(store: MetadataStore, image: ClusterImage) -> None:
    """A partition whose creation was cut short may lack the folder that its state goes into."""
    for topic in image.topics.values():
        for partition in topic.partitions:
            if partition.partition_epoch == NO_STATE:
                with contextlib.suppress(NodeExists):
                    await store.create(PartitionNode.path(topic.name, partition.index), parents=True)
