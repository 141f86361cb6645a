"""The nodes of topics in the tree: assignments, partitions, deletions; see `znodes`."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from barnabas.metadata.znodes import MalformedNode, dump, load, number_of
from barnabas.model.ids import uuid_from_text, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID


def _broker_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list of broker ids")
    return tuple(map(number_of, value))


class TopicsNode:
    """The folder of topics."""

    path = "/brokers/topics"


class Assignment(NamedTuple):
    """A partition's replicas, and those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicNode:
    """A topic's id and which brokers have its partitions."""

    @staticmethod
    def path(topic: str) -> str:
        """Below the folder of topics."""
        return f"{TopicsNode.path}/{topic}"

    @staticmethod
    def encode(topic_id: UUID, assignments: Sequence[Assignment]) -> bytes:
        """Version 3; partitions in order."""
        numbered = [(str(index), assignment) for index, assignment in enumerate(assignments)]
        return dump(
            {
                "version": 3,
                "topic_id": uuid_to_text(topic_id),
                "partitions": {index: assignment.replicas for index, assignment in numbered},
                "adding_replicas": {index: found.adding for index, found in numbered if found.adding},
                "removing_replicas": {index: found.removing for index, found in numbered if found.removing},
            }
        )

    @staticmethod
    def decode(topic: str, data: bytes) -> tuple[UUID | None, tuple[Assignment, ...]]:
        """Versions 1 to 3; a topic made by Kafka before 2.8 has no id."""
        path = TopicNode.path(topic)
        value = load(path, data)
        try:
            partitions = value["partitions"]
            adding, removing = value.get("adding_replicas") or {}, value.get("removing_replicas") or {}
            topic_id = value.get("topic_id")
            return (
                None if topic_id is None else uuid_from_text(topic_id),
                tuple(
                    Assignment(
                        _broker_ids(partitions[index]),
                        _broker_ids(adding.get(index, [])),
                        _broker_ids(removing.get(index, [])),
                    )
                    for index in map(str, range(len(partitions)))
                ),
            )
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise MalformedNode(path, data, error) from error


class PartitionsNode:
    """The folder of a topic's partitions."""

    @staticmethod
    def path(topic: str) -> str:
        """Below the topic."""
        return f"{TopicNode.path(topic)}/partitions"


class PartitionNode:
    """The folder of one partition; it holds the state and no data."""

    @staticmethod
    def path(topic: str, index: int) -> str:
        """Below the topic's partitions."""
        return f"{PartitionsNode.path(topic)}/{index}"


class PartitionState(NamedTuple):
    """Who leads a partition and who is in sync."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int


class PartitionStateNode:
    """A partition's leadership; its version is the partition epoch."""

    @staticmethod
    def path(topic: str, index: int) -> str:
        """Below the partition."""
        return f"{PartitionNode.path(topic, index)}/state"

    @staticmethod
    def encode(state: PartitionState) -> bytes:
        """Version 1."""
        return dump(
            {
                "version": 1,
                "leader": state.leader,
                "leader_epoch": state.leader_epoch,
                "controller_epoch": state.controller_epoch,
                "isr": state.isr,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> PartitionState:
        """Version 1."""
        try:
            return _partition_state(data)
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise MalformedNode(path, data, error) from error


@functools.lru_cache(maxsize=1024)
def _partition_state(data: bytes) -> PartitionState:
    """Most partitions of a cluster have a state that others have too: loading them decodes few."""
    value = json.loads(data)
    return PartitionState(
        number_of(value["leader"]),
        number_of(value["leader_epoch"]),
        _broker_ids(value["isr"]),
        number_of(value["controller_epoch"]),
    )


class DeletionsNode:
    """The folder of topics that are being deleted."""

    path = "/admin/delete_topics"


class DeletionNode:
    """A mark: what is left of this topic must go."""

    @staticmethod
    def path(topic: str) -> str:
        """Below the folder of deletions."""
        return f"{DeletionsNode.path}/{topic}"


class DeletedTopicsNode:
    """The folder of records of topics that were deleted. Kafka, which has no such folder, leaves it alone."""

    path = "/barnabas/deleted_topics"


class DeletedTopicNode:
    """A record that the topic with this id was deleted: what brokers still have of it may go."""

    @staticmethod
    def path(topic_id: UUID) -> str:
        """Below the folder of records."""
        return f"{DeletedTopicsNode.path}/{uuid_to_text(topic_id)}"

    @staticmethod
    def encode(topic: str) -> bytes:
        """The name is there for people."""
        return dump({"version": 1, "topic": topic})
