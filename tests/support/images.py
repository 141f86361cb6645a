"""Clusters that exist only as an image, and a broker that knows nothing else: enough for handlers that only tell."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

from barnabas.broker.context import BrokerContext
from barnabas.broker.optional_parts import certificates
from barnabas.broker.security.quotas import ClientQuotas
from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.long_answers import LongAnswers
from barnabas.broker.settings import Settings
from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

CALLER = Caller(listener="PLAINTEXT", address=("127.0.0.1", 50_000), client_id="test")


def proved(broker_id: int) -> Caller:
    """Another broker, which has proved that it is one."""
    return replace(CALLER, session=Session(broker_id=broker_id))


@dataclass
class ClusterOf:
    """Brokers with their listeners, and topics with the leaders of their partitions."""

    listeners: Mapping[int, tuple[str, ...]] = field(default_factory=lambda: {1: ("PLAINTEXT",)})
    leaders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    replicas: tuple[int, ...] = (1,)
    controller_id: int = 1

    def image(self) -> ClusterImage:
        topics = {
            name: self._topic(name, number, leaders) for number, (name, leaders) in enumerate(self.leaders.items())
        }
        return ClusterImage(
            cluster_id="a-cluster",
            controller_id=self.controller_id,
            brokers={broker_id: self._broker(broker_id, names) for broker_id, names in self.listeners.items()},
            topics=topics,
            topic_names={topic.topic_id: topic.name for topic in topics.values()},
        )

    def _broker(self, broker_id: int, names: tuple[str, ...]) -> BrokerImage:
        endpoints = {name: Endpoint(f"{name.lower()}-{broker_id}", 9000 + broker_id) for name in names}
        return BrokerImage(broker_id=broker_id, epoch=5, endpoints=endpoints, rack=f"rack-{broker_id}")

    def _topic(self, name: str, number: int, leaders: tuple[int, ...]) -> TopicImage:
        return TopicImage(
            name,
            topic_id(number),
            tuple(
                PartitionImage(index, leader, 3, self.replicas, self.replicas) for index, leader in enumerate(leaders)
            ),
        )


def topic_id(number: int) -> UUID:
    """The id of a ClusterOf's topic, by its place."""
    return UUID(int=1000 + number)


def telling_broker(cluster: ClusterOf, /, properties: Mapping[str, str] | None = None, **parts: Any) -> BrokerContext:
    """A broker that can only tell what the image says, unless it is given more parts."""
    cache = MetadataCache(cluster.image())
    settings = Settings(BrokerConfig.load({"log.dirs": "/nowhere", **(properties or {})}), cache)
    given: dict[str, Any] = dict.fromkeys(BrokerContext.__dataclass_fields__)
    given |= {"broker_id": 1, "settings": settings, "clock": ManualClock(), "metadata": cache}
    given |= {"certificates": certificates(settings), "long_answers": LongAnswers()}
    given |= {"quotas": ClientQuotas(settings, given["clock"])} | parts
    return BrokerContext(**given)


def without(image: ClusterImage, topic: str) -> ClusterImage:
    """The same cluster without a topic."""
    topics = {name: found for name, found in image.topics.items() if name != topic}
    return replace(image, topics=topics, topic_names={found.topic_id: name for name, found in topics.items()})


def with_partition(image: ClusterImage, topic: TopicImage, partition: PartitionImage) -> ClusterImage:
    """The same cluster with another state of the one partition of a topic."""
    return replace(image, topics={**image.topics, topic.name: replace(topic, partitions=(partition,))})


def with_other_broker(image: ClusterImage) -> ClusterImage:
    """The same cluster with a second broker."""
    return replace(image, brokers={**image.brokers, 2: replace(image.brokers[1], broker_id=2)})
