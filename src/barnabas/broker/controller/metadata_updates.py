"""Metadata updates, as a broker that is not the controller applies them: the controller's messages, and settings.

Messages are applied one at a time. Those of a controller that was replaced, or that are for an earlier registration of
this broker, are refused. So are those that the controller sent before one that was applied: a broker that hung is sent
everything anew over another connection, and may read the earlier messages after that. Epochs are not believed for
being high: a controller, its term, and the registration that it means are looked up in the tree before the first
message with them is applied.

Topics that a message brings come with their settings, read from the tree before anyone sees the topic; later changes of
settings come by notes in the tree (`metadata/config_changes`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.machines.controller.image import ConfigResource
from barnabas.metadata.config_changes import ConfigChanges
from barnabas.metadata.images.loading import load_configs, load_features
from barnabas.metadata.stores.store import StoreError
from barnabas.metadata.znodes import BrokerNode, ControllerEpochNode, ControllerNode
from barnabas.model.errors import (
    BrokerIdNotRegistered,
    InvalidUpdateVersion,
    StaleBrokerEpoch,
    StaleControllerEpoch,
    UnknownControllerId,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.metadata.images.loading import Configs
    from barnabas.metadata.stores.store import MetadataStore
    from barnabas.metadata.znodes import Registration
    from barnabas.protocol.messages.inter_broker import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

    Message = LeaderAndIsrRequest | StopReplicaRequest | UpdateMetadataRequest

logger = logging.getLogger(__name__)


class MetadataUpdates:
    """Applies metadata updates to the cache."""

    def __init__(
        self,
        cache: MetadataCache,
        store: Callable[[], MetadataStore | None],
        registration: Callable[[], Registration | None] = lambda: None,
    ) -> None:
        self._cache = cache
        self._store = store
        self._registration = registration
        self._verified: tuple[int, int, int] | None = None
        """The controller, its epoch and this broker's epoch that the tree confirmed last."""
        self.changes = ConfigChanges()
        self._one_at_a_time = asyncio.Lock()
        self._catching_up = asyncio.Lock()
        self._asked = self._served = 0
        """How often somebody had to know all settings, and how many of these calls are served."""
        self.lowest_broker_epoch = -1
        """The broker epoch that messages must be for; those for an earlier one are late."""
        self._last = (-1, -1, -1)
        """The message that was applied last: its controller epoch, its broker epoch, its number."""

    def _note(self, message: Message) -> None:
        """From now on, refuse what was sent before this. Raises as `check`."""
        self.check(message)
        self._last = _place(message)

    def check(self, message: Message) -> None:
        """Refuse a message that is late. Raises StaleControllerEpoch, StaleBrokerEpoch, InvalidUpdateVersion."""
        known = self._cache.image.controller_epoch
        if message.controller_epoch < known:
            raise _stale_controller(message, known)
        if message.broker_epoch < self.lowest_broker_epoch:
            raise StaleBrokerEpoch(
                f"The message is for broker epoch {message.broker_epoch}, and this broker has "
                f"{self.lowest_broker_epoch}."
            )
        if message.number >= 0 and _place(message) < self._last:
            raise InvalidUpdateVersion(
                f"Message {message.number} is older than message {self._last[-1]}, which was applied already."
            )

    async def _verify(self, message: Message) -> None:
        """Refuse a message that is late, or whose epochs the metadata tree does not confirm.

        What a ZooKeeper answers may be a moment old, so a controller that it does not know yet may send again.
        Raises as `check`, and UnknownControllerId, BrokerIdNotRegistered.
        """
        self.check(message)
        claim = message.controller_id, message.controller_epoch, message.broker_epoch
        if claim == self._verified:
            return
        store, own = self._store(), self._registration()
        if store is None:
            raise UnknownControllerId("The metadata tree cannot be asked who the controller is: it is not open.")
        paths = [
            ControllerEpochNode.path,
            ControllerNode.path,
            *([] if own is None else [BrokerNode.path(own.broker_id)]),
        ]
        try:
            term, controller, *registered = await store.find_many(paths)
        except StoreError as error:
            raise UnknownControllerId(f"The metadata tree cannot be asked who the controller is: {error}") from error
        self.check(message)
        epoch = 0 if term is None else ControllerEpochNode.decode(term.data)
        if message.controller_epoch < epoch:
            raise _stale_controller(message, epoch)
        is_other = controller is not None and ControllerNode.decode(controller.data) != message.controller_id
        if message.controller_epoch > epoch or is_other:
            raise UnknownControllerId(
                f"Broker {message.controller_id} is not the controller with epoch {message.controller_epoch}: "
                f"the metadata tree has controller epoch {epoch}."
            )
        for node in registered:
            if node is None or node.czxid != message.broker_epoch:
                raise BrokerIdNotRegistered(f"This broker is not registered with epoch {message.broker_epoch}.")
        self._verified = claim

    async def verify_stop(self, request: StopReplicaRequest) -> None:
        """Check StopReplica. It overtakes a message that waits for the metadata tree."""
        await self._verify(request)
        self._note(request)

    def stop_replica(self, request: StopReplicaRequest, broker_id: int) -> None:
        """Apply StopReplica: which partitions this broker has no more.

        The message that says who has them comes later. Until then the image must not give them to this broker: it would
        create their logs anew, and lead empty ones.
        """
        from barnabas.metadata.images import updates  # here, for the same reason as below

        self._cache.is_behind = True
        self._cache.replace(updates.stopped(self._cache.image, request, broker_id))

    async def leader_and_isr(self, request: LeaderAndIsrRequest) -> None:
        """Apply LeaderAndIsr: who leads the partitions that this broker has."""
        from barnabas.metadata.images import updates  # here: a broker that is alone starts without it

        async with self._one_at_a_time:
            await self._verify(request)
            configs = await self._load_new_configs(request)
            self._note(request)
            self._cache.is_behind = True
            self._cache.replace(updates.led(self._cache.image, request).with_configs(configs))

    async def update_metadata(self, request: UpdateMetadataRequest) -> bool:
        """Apply UpdateMetadata: all partitions and brokers; True if it is the whole image for this registration."""
        from barnabas.metadata.images import updates  # here, for the same reason
        from barnabas.protocol.messages.inter_broker import FULL

        async with self._one_at_a_time:
            await self._verify(request)
            configs = await self._load_new_configs(request)
            self._note(request)
            if request.controller_epoch > self._cache.image.controller_epoch:
                logger.info(
                    "Broker %d is the controller, with controller epoch %d.",
                    request.controller_id,
                    request.controller_epoch,
                )
                self.changes.forget()
            self._cache.is_behind = False
            self._cache.replace(updates.updated(self._cache.image, request).with_configs(configs))
            return bool(request.type == FULL)

    async def _load_new_configs(self, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> Configs:
        image, store = self._cache.image, self._store()
        new = [
            ConfigResource.topic(state.topic_name)
            for state in request.topic_states
            if (known := image.topics.get(state.topic_name)) is None or known.topic_id != state.topic_id
        ]
        if not new or store is None:
            return {}
        try:
            return await load_configs(store, new)
        except StoreError as error:
            logger.warning("The settings of %d new topics cannot be read, trying again soon: %s", len(new), error)
            self.changes.forget()
            return {}

    # Settings

    async def skip_settings(self, store: MetadataStore) -> None:
        """Everything is about to be read: earlier notes say nothing new."""
        await self.changes.skip(store)

    def forget_settings(self) -> None:
        """Read all settings the next time."""
        self.changes.forget()

    async def catch_up_with_settings(self, read: Callable[[], Awaitable[None]]) -> None:
        """Know every setting whose change was answered before this call. Many calls at once share a look at the tree.

        Notes come a moment later: whoever does once and for all what a setting says cannot go by them.
        """
        self._asked += 1
        number = self._asked
        async with self._catching_up:
            if self._served < number:
                asked = self._asked
                await read()
                self._served = asked

    async def follow_settings(self, store: MetadataStore) -> None:
        """Read again what notes in the tree name, and feature levels."""
        async with self._one_at_a_time:
            configs, is_all = await self.changes.read(store)
            features, features_epoch = await load_features(store)
            image = self._cache.image
            if is_all:
                image = replace(image, configs={})
                configs = {of: found for of, found in configs.items() if of.kind != "topics" or of.name in image.topics}
            if configs or is_all or features_epoch != image.features_epoch:
                image = replace(image, features=features, features_epoch=features_epoch)
                self._cache.replace(image.with_configs(configs))


def _stale_controller(message: Message, known: int) -> StaleControllerEpoch:
    return StaleControllerEpoch(
        f"The message has controller epoch {message.controller_epoch}, and the controller has {known}."
    )


def _place(message: Message) -> tuple[int, int, int]:
    return message.controller_epoch, message.broker_epoch, message.number
