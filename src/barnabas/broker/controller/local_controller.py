"""Requests to the controller, as long as this broker is the active controller.

Handlers call it after a request was found to be for the controller; whoever needs the controller wherever it is uses
`link`. Each request is decided and stored by `active_controller`, one at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.machines.controller.image import TopicImage
from barnabas.machines.controller.requests import (
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    EditConfigs,
    MoveLeader,
    NewPartitions,
    Request,
    TopicToCreate,
)
from barnabas.metadata import config_changes
from barnabas.metadata.stores.store import SessionExpired, StoreError
from barnabas.model.errors import ApiError, NotController, RequestTimedOut

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping, Sequence
    from uuid import UUID

    from barnabas.broker.controller.active_controller import ActiveController
    from barnabas.broker.controller.metadata_updates import MetadataUpdates
    from barnabas.machines.controller.image import ConfigResource
    from barnabas.machines.controller.machine import Answer, Key
    from barnabas.metadata.stores.store import MetadataStore

_DELIVERY_SECONDS: Final = 1.0
"""How long an answer waits for the other brokers to apply what was decided."""


class LocalController:
    """The controller of this process; `lock` is held while session or controller change hands."""

    def __init__(
        self,
        active: ActiveController,
        updates: MetadataUpdates,
        lock: asyncio.Lock,
        store: Callable[[], MetadataStore],
    ) -> None:
        self._active = active
        self._updates = updates
        self._lock = lock
        self._store = store

    @property
    def is_active(self) -> bool:
        """Whether this broker is the active controller."""
        return self._active.is_active

    @property
    def elections(self) -> tuple[int, int]:
        """How often this broker decided that a partition gets another leader, and how often one that lacked records."""
        return self._active.elections, self._active.unclean_elections

    async def decide(self, request: Request) -> dict[Key, Answer]:
        """Have the controller's rules decide, and store it. Raises NotController, RequestTimedOut."""
        async with self._lock:
            try:
                return await self._active.decide(request)
            except SessionExpired as error:
                self._active.resign()
                raise NotController(
                    "This broker is no longer the controller: its session with the metadata store is over."
                ) from error
            except StoreError as error:
                self._active.reload_later()
                raise RequestTimedOut(f"The metadata store did not take the change: {error}") from error

    async def delivered(self) -> None:
        """Give the other brokers a moment to apply what was decided."""
        if self._active.updaters is not None:
            await self._active.updaters.delivered(_DELIVERY_SECONDS)

    async def create_topics(
        self, topics: Sequence[TopicToCreate], *, validate_only: bool = False
    ) -> dict[str, TopicImage | ApiError]:
        """Create topics; each is created or refused on its own. Raises NotController, RequestTimedOut."""
        created = _by_topic(await self.decide(CreateTopics(topics, validate_only)))
        await self.delivered()
        return created

    async def delete_topics(
        self, names: Sequence[str], ids: Mapping[str, UUID] | None = None
    ) -> dict[str, TopicImage | ApiError]:
        """Delete topics; gives each as it was. Raises NotController, RequestTimedOut.

        A topic in `ids` is deleted only if it still has this id.
        """
        deleted = _by_topic(await self.decide(DeleteTopics(names, ids or {})))
        await self.delivered()
        return deleted

    async def create_partitions(
        self, topics: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> dict[str, TopicImage | ApiError]:
        """Add partitions to topics; gives each topic as it is then. Raises NotController, RequestTimedOut."""
        extended = _by_topic(await self.decide(CreatePartitions(topics, validate_only)))
        await self.delivered()
        return extended

    async def alter_configs(
        self, settings: Mapping[ConfigResource, Mapping[str, str]]
    ) -> dict[ConfigResource, ApiError | None]:
        """Replace each resource's whole map of dynamic settings (already validated).

        A broker writes its own settings itself, whether or not it is the controller. Raises NotController,
        RequestTimedOut.
        """
        if not self.is_active and all(resource.kind == "brokers" and resource.name for resource in settings):
            return await self._write_own_settings(settings)
        answers = await self.decide(AlterConfigs(settings))
        return {resource: _error(answers[resource]) for resource in settings}

    async def edit_configs(
        self, edits: Mapping[ConfigResource, Callable[[Mapping[str, str]], dict[str, str]]]
    ) -> dict[ConfigResource, ApiError | None]:
        """Change settings by what makes new ones of those that are there (`EditConfigs`).

        Raises NotController, RequestTimedOut.
        """
        answers = await self.decide(EditConfigs(edits))
        return {resource: _error(answers[resource]) for resource in edits}

    async def _write_own_settings(
        self, settings: Mapping[ConfigResource, Mapping[str, str]]
    ) -> dict[ConfigResource, ApiError | None]:
        try:
            await config_changes.write(self._store(), settings)
            async with self._lock:
                if not self.is_active:  # an active controller finds the notes itself, and its image must get them
                    await self._updates.follow_settings(self._store())
        except StoreError as error:
            raise RequestTimedOut(f"The metadata store did not take the change: {error}") from error
        return dict.fromkeys(settings)

    async def move_leader(self, topic: str, partition: int) -> dict[str, TopicImage | ApiError]:
        """Elect a leader anew; gives the topic as it is then. Raises NotController, RequestTimedOut."""
        return _by_topic(await self.decide(MoveLeader(topic, partition)))


def _by_topic(answers: Mapping[Key, Answer]) -> dict[str, TopicImage | ApiError]:
    return {str(name): answer for name, answer in answers.items() if isinstance(answer, TopicImage | ApiError)}


def _error(answer: Answer) -> ApiError | None:
    return answer if isinstance(answer, ApiError) else None
