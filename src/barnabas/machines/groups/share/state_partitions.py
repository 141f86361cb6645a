"""Of which partitions the share coordinator keeps state for a group: the record ShareGroupStatePartitionMetadata.

A partition is written down as initializing before the share coordinator is asked to make its state, and as
initialized once it has. Only initialized partitions are given to members. A topic is deleting from the moment at which
the group gives its state up until the share coordinator has deleted it. So whatever state there may be is known here,
and whoever deletes the group finds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareTopicInfo,
    ShareTopicPartitionsInfo,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from barnabas.machines.groups.assignors.spec import Partitions

UNKNOWN_NAME: Final = "<UNKNOWN>"
"""Kafka's word for the name of a topic that is gone."""


@dataclass(frozen=True, slots=True)
class NamedPartitions:
    """Partitions of a topic, and its name."""

    name: str
    partitions: frozenset[int]


ByTopic = Mapping[UUID, NamedPartitions]
_NONE: Final[ByTopic] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePartitions:
    """What there is, or may be, at the share coordinator."""

    initializing: ByTopic = field(default_factory=lambda: _NONE)
    initialized: ByTopic = field(default_factory=lambda: _NONE)
    deleting: Mapping[UUID, str] = field(default_factory=lambda: MappingProxyType({}))
    """Names of topics by their ids."""

    @classmethod
    def read(cls, value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
        """What a record says."""
        return cls(
            initializing=_read(value.initializing_topics),
            initialized=_read(value.initialized_topics),
            deleting={topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )

    def record(self, group_id: str) -> CoordinatorRecord:
        """The record that says this."""
        return CoordinatorRecord(
            ShareGroupStatePartitionMetadataKey(group_id),
            ShareGroupStatePartitionMetadataValue(
                initializing_topics=_written(self.initializing),
                initialized_topics=_written(self.initialized),
                deleting_topics=tuple(ShareTopicInfo(topic, self.deleting[topic]) for topic in sorted(self.deleting)),
            ),
        )

    def initialize(self, topics: ByTopic) -> StatePartitions:
        """These are going to have state; a topic whose state was being deleted has it again."""
        deleting = {topic: name for topic, name in self.deleting.items() if topic not in topics}
        return replace(self, initializing=joined(self.initializing, topics), deleting=deleting)

    def initialize_done(self, partitions: Partitions, names: Mapping[UUID, str]) -> StatePartitions:
        """These have state."""
        done = {topic: NamedPartitions(names.get(topic, UNKNOWN_NAME), found) for topic, found in partitions.items()}
        return replace(
            self, initializing=_without(self.initializing, partitions), initialized=joined(self.initialized, done)
        )

    def initialize_failed(self, partitions: Partitions) -> StatePartitions:
        """These could not be given state: they may be tried again at once."""
        return replace(self, initializing=_without(self.initializing, partitions))

    def give_up(self, topics: Mapping[UUID, str]) -> StatePartitions:
        """The state of these topics is to be deleted."""
        return replace(
            self,
            initialized={topic: found for topic, found in self.initialized.items() if topic not in topics},
            deleting={**self.deleting, **topics},
        )

    def give_all_up(self, topics: Mapping[UUID, str]) -> StatePartitions:
        """The state of these topics is to be deleted, and there is no other."""
        return StatePartitions(deleting=topics)

    def delete_done(self, topics: Collection[UUID]) -> StatePartitions:
        """The state of these topics is deleted."""
        return replace(self, deleting={topic: name for topic, name in self.deleting.items() if topic not in topics})

    def without_topics(self, topics: Collection[UUID]) -> StatePartitions:
        """These topics are gone, and their state with them."""
        return StatePartitions(
            initializing={topic: found for topic, found in self.initializing.items() if topic not in topics},
            initialized={topic: found for topic, found in self.initialized.items() if topic not in topics},
            deleting={topic: name for topic, name in self.deleting.items() if topic not in topics},
        )

    def assignable(self) -> dict[UUID, frozenset[int]]:
        """Partitions that members may be given."""
        return {topic: found.partitions for topic, found in self.initialized.items()}


NO_STATE: Final = StatePartitions()


def joined(first: ByTopic, second: ByTopic) -> dict[UUID, NamedPartitions]:
    """The partitions of both; names are those of the second."""
    both = dict(first)
    for topic, found in second.items():
        had = both.get(topic)
        both[topic] = found if had is None else replace(found, partitions=had.partitions | found.partitions)
    return both


def _without(topics: ByTopic, partitions: Partitions) -> dict[UUID, NamedPartitions]:
    left = {}
    for topic, found in topics.items():
        rest = found.partitions - partitions.get(topic, frozenset())
        if rest:
            left[topic] = replace(found, partitions=rest)
    return left


def _read(topics: Iterable[ShareTopicPartitionsInfo]) -> ByTopic:
    return {topic.topic_id: NamedPartitions(topic.topic_name, frozenset(topic.partitions)) for topic in topics}


def _written(topics: ByTopic) -> tuple[ShareTopicPartitionsInfo, ...]:
    return tuple(
        ShareTopicPartitionsInfo(topic, topics[topic].name, tuple(sorted(topics[topic].partitions)))
        for topic in sorted(topics)
    )
