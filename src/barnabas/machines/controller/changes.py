"""What the controller decides: steps from one image to the next, each with what was there before.

A change is at once the write to the tree (conditional on what was there: `metadata/images/writes.py` turns it into
operations) and the new image, so the metadata tree and the image cannot differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.machines.controller.image import BrokerImage, ClusterImage, ConfigResource, PartitionKey, TopicImage


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic came (`before` is None), went (`after` is None), or has other partitions."""

    before: TopicImage | None
    after: TopicImage | None


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    """A resource's dynamic settings; None means that it has no node."""

    resource: ConfigResource
    before: Mapping[str, str] | None
    after: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """Finalized feature levels; `epoch` is the version that the node has afterwards."""

    features: Mapping[str, int]
    epoch: int


@dataclass(frozen=True, slots=True)
class BrokersChanged:
    """Who is registered, who is about to stop, whose disks failed. Brokers say that themselves: nothing is stored.

    Whoever is registered is known from then on, by a record that it has written itself.
    """

    brokers: Mapping[int, BrokerImage]
    leaving: frozenset[int] = frozenset()
    failed: Mapping[int, frozenset[PartitionKey]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerForgotten:
    """A broker that is away does not come back: nothing is placed on it any more."""

    broker_id: int


Change = TopicChanged | ConfigChanged | FeaturesChanged | BrokersChanged | BrokerForgotten


def apply(image: ClusterImage, changes: Iterable[Change]) -> ClusterImage:
    """The image after all changes; what they do not touch is shared with the old one."""
    topics: dict[str, TopicImage | None] = {}
    configs: dict[ConfigResource, Mapping[str, str] | None] = {}
    brokers, leaving, failed, known = image.brokers, image.leaving, image.failed, image.known
    features, features_epoch = image.features, image.features_epoch
    for change in changes:
        match change:
            case TopicChanged(before, after):
                if before is not None:
                    topics[before.name] = None
                if after is not None:
                    topics[after.name] = after
            case ConfigChanged(resource, _, settings):
                configs[resource] = settings
            case FeaturesChanged(levels, epoch):
                features, features_epoch = levels, epoch
            case BrokersChanged():
                known = {**known, **brokers, **change.brokers}
                brokers, leaving, failed = change.brokers, change.leaving, change.failed
            case BrokerForgotten(broker_id):
                known = {other: broker for other, broker in known.items() if other != broker_id}
    return replace(
        image.with_topics(topics).with_configs(configs),
        brokers=brokers,
        known=known,
        leaving=leaving,
        failed=failed,
        features=features,
        features_epoch=features_epoch,
    )
