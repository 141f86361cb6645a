"""Whether data may go: what the metadata tree says of replicas that a broker has set aside.

An image, or a controller's message, is not enough to remove data by: it may be old, or made up. The tree is: it has a
record for each topic id that was deleted, written in the transaction in which the topic begins to go, and it says which
brokers have a partition. A replica may be removed

- if its topic's id is recorded as deleted, and no topic has it, or
- if the controller sent its broker StopReplica, and the tree gives the partition of this very topic to other brokers
  only.

Records are kept for brokers that are away. There are at most MOST of them; a controller removes the oldest. A broker
that comes back later than that keeps its logs aside until somebody looks at them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.metadata.stores.store import Delete
from barnabas.metadata.topic_znodes import DeletedTopicNode, DeletedTopicsNode, TopicNode
from barnabas.model.ids import NO_ID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from barnabas.metadata.stores.store import MetadataStore, Operation, StoredNode

MOST: Final = 10_000
"""Names of that many records fit one answer of ZooKeeper, 1 MB at most, several times over."""
_KEPT: Final = 9_000
"""How many are left when there were too many, so that not every deletion has to look."""


class StrayReplica(NamedTuple):
    """A log that was set aside; `moved` if its partition moved to other brokers, as the controller said."""

    topic: str
    partition: int
    topic_id: UUID
    moved: bool


async def removable(store: MetadataStore, broker_id: int, replicas: Sequence[StrayReplica]) -> list[bool]:
    """Of each replica, whether it may be removed. Raises StoreError."""
    records = await store.find_many([DeletedTopicNode.path(each.topic_id) for each in replicas])
    topics = await store.find_many([TopicNode.path(each.topic) for each in replicas])
    return [
        each.topic_id != NO_ID and _is_removable(broker_id, each, record is not None, topic)
        for each, record, topic in zip(replicas, records, topics, strict=True)
    ]


def _is_removable(broker_id: int, replica: StrayReplica, recorded: bool, node: StoredNode | None) -> bool:
    topic_id, assignments = (None, ()) if node is None else TopicNode.decode(replica.topic, node.data)
    if topic_id != replica.topic_id:
        return recorded
    if recorded or not replica.moved or replica.partition >= len(assignments):
        return False  # there is such a topic: whatever a record says, it was not deleted
    assignment = assignments[replica.partition]
    return broker_id not in (*assignment.replicas, *assignment.adding, *assignment.removing)


async def recorded(store: MetadataStore, topic_ids: Sequence[UUID]) -> set[UUID]:
    """Those that the tree records as deleted. Raises StoreError."""
    found = await store.find_many([DeletedTopicNode.path(topic_id) for topic_id in topic_ids])
    return {topic_id for topic_id, node in zip(topic_ids, found, strict=True) if node is not None}


async def outdated(store: MetadataStore) -> list[Operation]:
    """Remove the oldest records, if there are too many."""
    if len(await store.children(DeletedTopicsNode.path)) <= MOST:
        return []
    records = sorted(await store.subtree(DeletedTopicsNode.path), key=lambda node: node.czxid)
    return [Delete(node.path) for node in records[:-_KEPT]]
