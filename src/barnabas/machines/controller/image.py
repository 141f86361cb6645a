"""A cluster as the controller and the metadata responses see it: immutable images.

An image is never changed; a change makes a new image that shares what stayed the same. So a request handler that took
an image sees one consistent cluster for as long as it likes. Neither a change nor the comparison of two images depends
on how much there is beside what changed (`model/sharded_map`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple
from zlib import crc32

from barnabas.model.internal_topics import INTERNAL_TOPICS
from barnabas.model.sharded_map import sharded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

NO_LEADER = -1
"""As a leader or controller id: there is none at the moment."""
DELETED = -2
"""As a leader: the partition is being deleted, or is gone."""

PartitionKey = tuple[str, int]
"""A partition by its topic's name and its index."""

EMPTY: Mapping[str, str] = MappingProxyType({})


class Endpoint(NamedTuple):
    """Where clients reach a broker's listener."""

    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    """A registered broker."""

    broker_id: int
    epoch: int
    """Creation id of its registration: a broker that registers again has a higher one."""
    endpoints: Mapping[str, Endpoint]
    """Advertised addresses by listener name."""
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Supported feature levels: name to (lowest, highest)."""


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition's replicas and its leadership."""

    index: int
    leader: int
    """Broker id, or NO_LEADER."""
    leader_epoch: int
    replicas: tuple[int, ...]
    """The first is the preferred leader."""
    isr: tuple[int, ...]
    partition_epoch: int = 0
    """Version of the partition's state: raised with each change of leader or ISR."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment brings; they are among `replicas` already."""
    removing: tuple[int, ...] = ()
    """Replicas that go when those that it brings are in sync; they are among `replicas` still."""

    @property
    def is_reassigned(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions; `partitions[i].index == i`."""

    name: str
    topic_id: UUID
    partitions: tuple[PartitionImage, ...]

    @property
    def is_internal(self) -> bool:
        """Whether brokers keep their own state in it."""
        return self.name in INTERNAL_TOPICS


class ConfigResource(NamedTuple):
    """What a dynamic configuration belongs to.

    A broker's name is its id in digits. "" stands for all brokers, and for the default among users, client ids and
    addresses. Of a user, its SCRAM credentials and quotas are kept there.
    """

    kind: Literal["topics", "brokers", "groups", "users", "clients", "ips"]
    name: str
    client_id: str | None = None
    """Of a user, the client id that the settings are for; None if they are for all."""

    @staticmethod
    def topic(name: str) -> ConfigResource:
        """The overrides of one topic."""
        return ConfigResource("topics", name)

    @staticmethod
    def broker(broker_id: int) -> ConfigResource:
        """The dynamic settings of one broker."""
        return ConfigResource("brokers", str(broker_id))

    @staticmethod
    def user(name: str) -> ConfigResource:
        """What is kept of one user."""
        return ConfigResource("users", name)


ALL_BROKERS = ConfigResource("brokers", "")
"""The dynamic settings that hold for every broker without one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """The metadata of a cluster."""

    cluster_id: str = ""
    controller_id: int = NO_LEADER
    controller_epoch: int = 0
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    known: Mapping[int, BrokerImage] = field(default_factory=dict)
    """Brokers that were registered once and are not forgotten, those in `brokers` among them. Controllers know them."""
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[UUID, str] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configuration by resource; a resource without an entry has none."""
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized feature levels; 0 for one that was switched off."""
    features_epoch: int = -1
    leaving: frozenset[int] = frozenset()
    """Brokers that are about to stop: they lead nothing that another one can lead. Not stored: they ask again."""
    failed: Mapping[int, frozenset[PartitionKey]] = field(default_factory=dict)
    """By broker, replicas that lie in log directories which failed. Not stored: brokers report them again."""

    @property
    def assignable(self) -> Mapping[int, BrokerImage]:
        """Brokers that may have replicas: those that are up, and those that are away and not forgotten."""
        return {**self.known, **self.brokers}

    def topic(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        return self.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of this id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition, if topic and partition are there."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def offline_replicas(self, topic: str, partition: PartitionImage) -> tuple[int, ...]:
        """Replicas that cannot be read now: their broker is down, or their log directory has failed."""
        key = topic, partition.index
        return tuple(
            replica
            for replica in partition.replicas
            if replica not in self.brokers or key in self.failed.get(replica, ())
        )

    def config(self, resource: ConfigResource) -> Mapping[str, str]:
        """The dynamic settings of a resource; empty if it has none."""
        return self.configs.get(resource, EMPTY)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """A topic's overrides."""
        return self.configs.get(ConfigResource("topics", name), EMPTY)

    def with_topics(self, changes: Mapping[str, TopicImage | None]) -> ClusterImage:
        """The image with these topics by their names; None says that there is none."""
        topics: dict[str, TopicImage | None] = {}
        gone: dict[UUID, str | None] = {}
        new: dict[UUID, str | None] = {}
        for name, topic in changes.items():
            known = self.topics.get(name)
            if known is topic:
                continue
            topics[name] = topic
            if known is not None and topic is not None and known.topic_id == topic.topic_id:
                continue
            if known is not None:
                gone[known.topic_id] = None
            if topic is not None:
                new[topic.topic_id] = name
        if not topics:
            return self
        return replace(
            self,
            topics=sharded(self.topics, _place_of_name).changed(topics),
            topic_names=sharded(self.topic_names, hash).changed({**gone, **new}),
        )

    def with_configs(self, changes: Mapping[ConfigResource, Mapping[str, str] | None]) -> ClusterImage:
        """The image with these dynamic settings; None says that a resource has none."""
        if not changes:
            return self
        return replace(self, configs=sharded(self.configs, _place_of_resource).changed(changes))


def _place_of_name(name: str) -> int:
    return crc32(name.encode("utf-8", "surrogatepass"))


def _place_of_resource(resource: ConfigResource) -> int:
    return _place_of_name(resource.name)
