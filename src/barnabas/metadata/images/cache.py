"""The metadata cache: the newest image of the cluster, and the subscribers that apply each change of it.

Handlers read `cache.image` (or the lookups here) without waiting. Only `broker/controller` replaces the image, on the
event loop. Subscribers are called in the order in which they subscribed, before anyone else can run, so nobody sees an
image that the subscribers have not applied.

A subscriber that raises keeps the others from nothing: what is stored in the metadata tree stays stored. But it has
not applied the image, so whoever asked for failures (`on_failure`) must keep the broker from acting on it until
`apply_again` had every subscriber apply the whole image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.machines.controller.image import (
    ALL_BROKERS,
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from barnabas.model.sharded_map import differing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from uuid import UUID

__all__ = [
    "ALL_BROKERS",
    "NO_LEADER",
    "BrokerImage",
    "ClusterImage",
    "ConfigResource",
    "Delta",
    "Endpoint",
    "MetadataCache",
    "PartitionImage",
    "TopicImage",
]


class Delta(NamedTuple):
    """From one image to the next. A topic made again under its old name is both deleted and created."""

    before: ClusterImage
    after: ClusterImage
    created: tuple[TopicImage, ...]
    deleted: tuple[TopicImage, ...]
    changed: tuple[TopicImage, ...]
    """Topics whose partitions are not what they were (more of them, another leader or ISR), as they are now."""
    configs: frozenset[ConfigResource]
    """Resources whose dynamic settings are not what they were."""
    is_whole: bool = False
    """Whether this is the whole image, from an empty one on: what was applied before may be incomplete."""


class MetadataCache:
    """Holds the newest image."""

    def __init__(self, image: ClusterImage | None = None) -> None:
        self._image = image or ClusterImage()
        self._subscribers: list[Callable[[Delta], None]] = []
        self._on_failure: list[Callable[[str, Exception], None]] = []
        self.is_behind = False
        """Whether the controller has sent what is led here (LeaderAndIsr), and not yet the rest (UpdateMetadata)."""

    @property
    def image(self) -> ClusterImage:
        """The newest image; take it once per request to see one consistent cluster."""
        return self._image

    def subscribe(self, callback: Callable[[Delta], None]) -> None:
        """Call `callback` with every change from now on."""
        self._subscribers.append(callback)

    def on_failure(self, callback: Callable[[str, Exception], None]) -> None:
        """Call `callback` with the name of a subscriber that failed to apply an image, and its error.

        Where nobody asks for failures, `replace` raises them.
        """
        self._on_failure.append(callback)

    def replace(self, image: ClusterImage) -> None:
        """Make `image` the newest and have the subscribers apply what changed."""
        before, self._image = self._image, image
        if before is not image and self._subscribers:
            self._apply(difference(before, image))

    def apply_again(self) -> None:
        """Have every subscriber apply the whole image."""
        self._apply(difference(ClusterImage(), self._image)._replace(is_whole=True))

    def _apply(self, delta: Delta) -> None:
        for callback in self._subscribers:
            try:
                callback(delta)
            except Exception as error:  # whatever it was: the others apply the change all the same
                if not self._on_failure:
                    raise
                for failed in self._on_failure:
                    failed(getattr(callback, "__qualname__", repr(callback)), error)

    def topic(self, name: str) -> TopicImage | None:
        """The topic of this name."""
        return self._image.topics.get(name)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        """The topic of this id."""
        return self._image.topic_by_id(topic_id)

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """One partition, if topic and partition are there."""
        return self._image.partition(topic, index)

    def topic_config(self, name: str) -> Mapping[str, str]:
        """A topic's overrides."""
        return self._image.topic_config(name)

    def broker_config(self, broker_id: int) -> Mapping[str, str]:
        """A broker's own dynamic settings, without those for all brokers."""
        return self._image.config(ConfigResource.broker(broker_id))

    def default_broker_config(self) -> Mapping[str, str]:
        """The dynamic settings for all brokers."""
        return self._image.config(ALL_BROKERS)


def difference(before: ClusterImage, after: ClusterImage) -> Delta:
    """What changed between two images; what they share by identity is not looked into."""
    created: list[TopicImage] = []
    deleted: list[TopicImage] = []
    changed: list[TopicImage] = []
    for name in differing(before.topics, after.topics):
        old, new = before.topics.get(name), after.topics.get(name)
        if old is not None and new is not None and old.topic_id == new.topic_id:
            if old.partitions != new.partitions:
                changed.append(new)
            continue
        if old is not None:
            deleted.append(old)
        if new is not None:
            created.append(new)
    return Delta(before, after, tuple(created), tuple(deleted), tuple(changed), frozenset(_configs(before, after)))


def _configs(before: ClusterImage, after: ClusterImage) -> Iterator[ConfigResource]:
    """Resources whose settings differ; one without settings is as one that is not there."""
    for resource in differing(before.configs, after.configs):
        if before.config(resource) != after.config(resource):
            yield resource
