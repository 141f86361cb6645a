"""The shell around the controller's rules: membership, election, writes to the tree, and the image that clients see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from barnabas.machines.controller.image import ConfigResource, TopicImage
    from barnabas.machines.controller.requests import NewPartitions, NewTopic
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.errors import ApiError


@dataclass(frozen=True, slots=True)
class ProducerIds:
    """A block of producer ids that nobody else is given."""

    first: int
    count: int


class Controller(Protocol):
    """Every broker has one; of all brokers, one at a time is elected to write."""

    @property
    def cache(self) -> MetadataCache:
        """The cluster as clients are told."""
        ...

    @property
    def broker_epoch(self) -> int:
        """Creation id of this broker's registration."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        ...

    async def start(self) -> None:
        """Register this broker, load the tree, take part in elections."""
        ...

    async def stop(self) -> None:
        """Give up what was registered."""
        ...

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicImage | ApiError]:
        """Make topics; each is made or refused on its own. Raises NotController."""
        ...

    async def delete_topics(self, names: Sequence[str]) -> dict[str, UUID | ApiError]:
        """Remove topics; gives the id that each had. Raises NotController."""
        ...

    async def create_partitions(
        self, requests: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, TopicImage | ApiError]:
        """Add partitions to topics; gives each topic as it is afterwards. Raises NotController."""
        ...

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Mapping[str, str]]
    ) -> dict[ConfigResource, ApiError | None]:
        """Replace each resource's whole map of dynamic settings (already validated). Raises NotController."""
        ...

    async def allocate_producer_ids(self) -> ProducerIds:
        """Take a block of producer ids. Any broker may."""
        ...
