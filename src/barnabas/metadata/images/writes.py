"""Changes as operations on the tree, in portions that ZooKeeper takes.

Every portion is a multi of its own that begins with a check of `/controller_epoch`, so a controller that was replaced
while it slept writes nothing more. Small requests fit one portion and are atomic. Larger ones may be cut anywhere by a
crash; the order of the operations makes every cut harmless: a topic's settings come before it, its partitions after it
(a partition without state gets one from the next controller), and a deletion leaves its mark until all is gone. With
the mark comes the record that this topic id was deleted, without which no broker removes its logs. Who is in sync comes
before who has a replica: a reassignment that was cut goes on, and nobody leads who has no replica.

Users and quotas are written by other programs, too (`metadata/users`, Kafka's tools). They are replaced only if they
are what the controller takes them for: otherwise what another program has just written would be lost.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.machines.controller.changes import (
    BrokerForgotten,
    BrokersChanged,
    Change,
    ConfigChanged,
    FeaturesChanged,
    TopicChanged,
)
from barnabas.machines.controller.elections import NO_STATE
from barnabas.metadata.stores.store import ANY_VERSION, BadVersion, Check, Create, Delete, Operation, Set
from barnabas.metadata.topic_znodes import (
    Assignment,
    DeletedTopicNode,
    DeletionNode,
    PartitionNode,
    PartitionsNode,
    PartitionState,
    PartitionStateNode,
    TopicNode,
)
from barnabas.metadata.znodes import ConfigNode, FeaturesNode, KnownBrokerNode
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from uuid import UUID

    from barnabas.machines.controller.image import PartitionImage, TopicImage
    from barnabas.metadata.stores.store import MetadataStore

SHARED = frozenset({"users", "clients", "ips"})
"""Kinds of settings that other programs write, too."""
_MULTI_BYTES = 400_000
"""How large a multi may be: ZooKeeper takes at most 1 MB in one request by default."""
_AT_ONCE = 200
"""Operations that are made in one turn of the event loop: some milliseconds of work."""
_OPERATION_BYTES = 60
"""What an operation costs on the wire beside path and data, generously."""


def _cost(operation: Operation) -> int:
    """What an operation adds to the size of a multi."""
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data) + _OPERATION_BYTES


def portions(operations: Iterable[Operation], guard: Check | None = None) -> Iterator[list[Operation]]:
    """Cut operations into multis that a store takes, each beginning with `guard`."""
    start = [] if guard is None else [guard]
    portion: list[Operation] = [*start]
    size = 0
    for operation in operations:
        size += _cost(operation)
        if len(portion) > len(start) and size > _MULTI_BYTES:
            yield portion
            portion, size = [*start], _cost(operation)
        portion.append(operation)
    if len(portion) > len(start):
        yield portion


async def operations(store: MetadataStore, changes: Iterable[Change], controller_epoch: int) -> list[Operation]:
    """What must be written for changes to become true. A deletion looks at what is there, to leave nothing behind."""
    found: list[Operation] = []
    changes = tuple(changes)
    versions = await _shared_versions(store, changes)
    for change in changes:
        match change:
            case TopicChanged(before, None) if before is not None:
                found += await deletion(store, before.name, before.topic_id)
            case TopicChanged(None, after) if after is not None:
                await _add(found, _creation(after, controller_epoch))
            case TopicChanged(before, after) if before is not None and after is not None:
                await _add(found, _difference(before, after, controller_epoch))
            case ConfigChanged():
                found += await _folder(store, change, found)
                found += _config(change, versions.get(ConfigNode.path(change.resource), ANY_VERSION))
            case FeaturesChanged(features, epoch):
                data = FeaturesNode.encode(features)
                found.append(Set(FeaturesNode.path, data, epoch - 1) if epoch else Create(FeaturesNode.path, data))
            case BrokerForgotten(broker_id):
                found += await _forget(store, broker_id)
            case BrokersChanged():
                pass
    return found


async def _add(found: list[Operation], more: Iterable[Operation]) -> None:
    """Add the operations of one topic, which may have thousands of partitions, some in each turn of the event loop."""
    for operation in more:
        found.append(operation)
        if len(found) % _AT_ONCE == 0:
            await asyncio.sleep(0)


async def deletion(store: MetadataStore, topic: str, topic_id: UUID, *, marked: bool = False) -> list[Operation]:
    """Remove a topic and everything below it, and record that; `marked` if an earlier attempt left its mark."""
    mark, path = DeletionNode.path(topic), TopicNode.path(topic)
    begin: list[Operation] = [] if marked else [Create(mark)]
    if topic_id != NO_ID and await store.find(DeletedTopicNode.path(topic_id)) is None:
        begin.append(Create(DeletedTopicNode.path(topic_id), DeletedTopicNode.encode(topic)))
    nodes = [node.path for node in await store.subtree(path)]
    if await store.find(path) is not None:
        nodes.insert(0, path)
    return [*begin, *(Delete(node) for node in reversed(nodes)), Delete(mark)]


async def _forget(store: MetadataStore, broker_id: int) -> list[Operation]:
    """Remove the record of a broker, unless it registers meanwhile: that raises the record's version."""
    record = await store.find(KnownBrokerNode.path(broker_id))
    return [] if record is None else [Delete(record.path, record.version)]


def _creation(topic: TopicImage, controller_epoch: int) -> Iterator[Operation]:
    yield Create(TopicNode.path(topic.name), _encode_topic(topic))
    yield Create(PartitionsNode.path(topic.name))
    for partition in topic.partitions:
        yield from _new_partition(topic.name, partition, controller_epoch)


def _difference(before: TopicImage, after: TopicImage, controller_epoch: int) -> Iterator[Operation]:
    for old, new in zip(before.partitions, after.partitions, strict=False):
        if new.partition_epoch == old.partition_epoch:
            continue
        path, data = PartitionStateNode.path(after.name, new.index), _encode_state(new, controller_epoch)
        yield Create(path, data) if old.partition_epoch == NO_STATE else Set(path, data, old.partition_epoch)
    if before.topic_id != after.topic_id or _assignments(before) != _assignments(after):
        yield Set(TopicNode.path(after.name), _encode_topic(after))
    for new in after.partitions[len(before.partitions) :]:
        yield from _new_partition(after.name, new, controller_epoch)


def _new_partition(topic: str, partition: PartitionImage, controller_epoch: int) -> Iterator[Operation]:
    yield Create(PartitionNode.path(topic, partition.index))
    if partition.partition_epoch != NO_STATE:
        yield Create(PartitionStateNode.path(topic, partition.index), _encode_state(partition, controller_epoch))


async def _folder(store: MetadataStore, change: ConfigChanged, before: Collection[Operation]) -> list[Operation]:
    """Make the folder for the client ids of a user, where nothing before does so."""
    if change.resource.client_id is None or change.before is not None:
        return []
    create = Create(ConfigNode.path(change.resource).rpartition("/")[0])
    return [] if create in before or await store.find(create.path) is not None else [create]


async def _shared_versions(store: MetadataStore, changes: Iterable[Change]) -> dict[str, int]:
    """The versions of settings that other programs write, too, by path. Raises BadVersion if they have done so."""
    known = {
        ConfigNode.path(change.resource): change.before
        for change in changes
        if isinstance(change, ConfigChanged) and change.before is not None and change.resource.kind in SHARED
    }
    versions: dict[str, int] = {}
    for path, node in zip(known, await store.find_many(list(known)) if known else (), strict=True):
        if node is None or ConfigNode.decode(path, node.data) != known[path]:
            raise BadVersion(path)
        versions[path] = node.version
    return versions


def _config(change: ConfigChanged, version: int) -> Iterator[Operation]:
    path = ConfigNode.path(change.resource)
    if change.after is None:
        if change.before is not None:
            yield Delete(path, version)
    elif change.before is None:
        yield Create(path, ConfigNode.encode(change.after))
    else:
        yield Set(path, ConfigNode.encode(change.after), version)


def _assignments(topic: TopicImage) -> list[Assignment]:
    return [Assignment(p.replicas, p.adding, p.removing) for p in topic.partitions]


def _encode_topic(topic: TopicImage) -> bytes:
    return TopicNode.encode(topic.topic_id, _assignments(topic))


def _encode_state(partition: PartitionImage, controller_epoch: int) -> bytes:
    return PartitionStateNode.encode(
        PartitionState(partition.leader, partition.leader_epoch, partition.isr, controller_epoch)
    )
