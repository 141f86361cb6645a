"""The input and the output of an assignor."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import UnknownTopicId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    Partitions = Mapping[UUID, frozenset[int]]
    """Partitions by the id of their topic; a topic without any is left out."""
    Assignment = Mapping[str, Partitions]
    """The partitions of each member, by its id."""
    Assignor = Callable[["GroupSpec"], Assignment]


_NOTHING: Final[Partitions] = MappingProxyType({})


class MemberSpec(NamedTuple):
    """A member of a group. A tuple, since each assignment makes one for each member."""

    subscribed: frozenset[UUID]
    """The topics that it wants to read; each is one of the spec's topics."""
    assigned: Partitions = _NOTHING
    """What it was to read until now."""
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic that a member of the group wants to read."""

    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] | None = None
    """The racks of each partition's replicas; None if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group: its members, in an order that makes the assignment, and all topics that they want to read."""

    members: Mapping[str, MemberSpec]
    topics: Mapping[UUID, TopicSpec]

    def subscribers(self) -> dict[UUID, list[int]]:
        """For each subscribed topic its subscribers, each by its place among the members."""
        subscribers: dict[UUID, list[int]] = {}
        for index, member in enumerate(self.members.values()):
            for topic_id in member.subscribed:
                if (of_topic := subscribers.get(topic_id)) is None:
                    self.topic(topic_id)
                    subscribers[topic_id] = [index]
                else:
                    of_topic.append(index)
        return subscribers

    def topic(self, topic_id: UUID) -> TopicSpec:
        """The topic with this id."""
        topic = self.topics.get(topic_id)
        if topic is None:
            raise UnknownTopicId(f"A member subscribes to topic id {topic_id}, but no topic has it.")
        return topic
