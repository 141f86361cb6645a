"""A decision about partitions in the making: who is up, who may lead, and what was decided so far.

Rules look partitions up here and put back what they make of them, so that two rules, or two parts of one request, never
decide from different states. What comes out is one change per topic, and an answer for everyone that asked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from barnabas.machines.controller.changes import BrokersChanged, Change, TopicChanged, apply
from barnabas.machines.controller.elections import Live, settle
from barnabas.machines.controller.image import (
    ALL_BROKERS,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    PartitionKey,
    TopicImage,
)
from barnabas.machines.outcome import Outcome
from barnabas.model.errors import ApiError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

UNCLEAN = "unclean.leader.election.enable"

Key = str | ConfigResource | PartitionKey | tuple[UUID, int] | int
"""Whom an answer is for: a topic, a resource, a partition (by its topic's name or id), a broker, a feature."""
Answer = TopicImage | PartitionImage | tuple[PartitionKey, ...] | ApiError | None
"""The topic or partition as it is now (a deleted topic: as it was); the partitions that a stopping broker still leads;
or why the request was refused."""


class Decision:
    """Gathers what is decided about the partitions of a cluster."""

    def __init__(self, image: ClusterImage, *, unclean_default: bool = False) -> None:
        self.image = image
        """The cluster with what was assumed so far, but without what was decided about partitions."""
        self.answers: dict[Key, Answer] = {}
        self._unclean_default = unclean_default
        self._assumed: list[Change] = []
        self._decided: dict[str, dict[int, PartitionImage]] = {}
        self._up = frozenset(image.brokers)

    def assume(self, *changes: Change) -> None:
        """Decide as if these changes were made; they become true with the decision."""
        self._assumed += changes
        self.image = apply(self.image, changes)
        self._up = frozenset(self.image.brokers)

    def assume_brokers(self, brokers: BrokersChanged) -> None:
        """Decide with other brokers, if they are others."""
        image = self.image
        if (brokers.brokers, brokers.leaving, brokers.failed) != (image.brokers, image.leaving, image.failed):
            self.assume(brokers)

    def live(self, topic: str, index: int, *, unclean: bool | None = None, preferred: bool = False) -> Live:
        """Who can hold a replica of a partition; whether an unclean election is allowed is the topic's unless given."""
        up, failed = self._up, self.image.failed
        if failed:
            up -= {broker for broker, partitions in failed.items() if (topic, index) in partitions}
        allowed = self.unclean(topic) if unclean is None else unclean
        return Live(up, self.image.leaving, allowed, preferred)

    def unclean(self, topic: str) -> bool:
        """Whether a replica of this topic may lead that is not in sync, when there is no other."""
        image = self.image
        for resource in (ConfigResource.topic(topic), ConfigResource.broker(image.controller_id), ALL_BROKERS):
            value = image.config(resource).get(UNCLEAN)
            if value is not None:
                return value.lower() == "true"
        return self._unclean_default

    def partitions(self) -> Iterator[tuple[str, PartitionImage]]:
        """Every partition as it stands."""
        for name, topic in self.image.topics.items():
            decided = self._decided.get(name)
            for partition in topic.partitions:
                yield name, partition if decided is None else decided.get(partition.index, partition)

    def find(self, topic: str, index: int) -> PartitionImage:
        """One partition as it stands. Raises UnknownTopicOrPartition."""
        partition = self.image.partition(topic, index)
        if partition is None:
            raise UnknownTopicOrPartition(f"There is no partition {topic}-{index}.")
        return self._decided.get(topic, {}).get(index, partition)

    def put(self, topic: str, partition: PartitionImage) -> None:
        """Decide that a partition is this."""
        self._decided.setdefault(topic, {})[partition.index] = partition

    def settle(
        self, topic: str, before: PartitionImage, wanted: PartitionImage, live: Live, *, by_leader: bool = False
    ) -> PartitionImage:
        """Decide what a partition becomes when it is to be as wanted."""
        after = settle(before, wanted, live, by_leader=by_leader)
        if after is not before:
            self.put(topic, after)
        return after

    def outcome(self) -> Outcome[Change, Key, Answer]:
        """All of it."""
        changes = [*self._assumed]
        for name, decided in self._decided.items():
            topic = self.image.topics[name]
            partitions = tuple(decided.get(partition.index, partition) for partition in topic.partitions)
            changes.append(TopicChanged(topic, replace(topic, partitions=partitions)))
        return Outcome(changes=tuple(changes), replies=tuple(self.answers.items()))
