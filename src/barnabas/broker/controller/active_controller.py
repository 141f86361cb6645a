"""The active controller: it decides, writes to the metadata tree, and sends metadata updates to the other brokers.

Requests go through `ControllerMachine` one at a time: decide, store (guarded by the term), replay, publish the new
image, send it to the other brokers (`broker_updaters`), answer. So what a client is answered is stored, and what is
stored was applied by the cache's subscribers before the client is answered.

If the store refuses a write because the tree is not what the image says, the tree is loaded anew and the request is
decided again.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.machines.controller.changes import ConfigChanged, TopicChanged
from barnabas.machines.controller.image import NO_LEADER
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import Registered
from barnabas.metadata import config_changes
from barnabas.metadata.deletions import outdated
from barnabas.metadata.images.loading import load, load_brokers
from barnabas.metadata.images.writes import operations, portions
from barnabas.metadata.layout import make_folders, unfinished_deletions
from barnabas.metadata.stores.store import NodeError, StoreError
from barnabas.metadata.znodes import ControllerEpochNode
from barnabas.model.errors import NotController, RequestTimedOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from barnabas.broker.controller.broker_updaters import BrokerUpdaters
    from barnabas.broker.controller.fencing import BrokerFence
    from barnabas.broker.controller.metadata_updates import MetadataUpdates
    from barnabas.machines.controller.changes import Change
    from barnabas.machines.controller.image import BrokerImage, ClusterImage, PartitionKey
    from barnabas.machines.controller.machine import Answer, Key
    from barnabas.machines.controller.requests import Request
    from barnabas.machines.controller.topics import TopicDefaults
    from barnabas.metadata.election import Term
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.metadata.stores.store import MetadataStore, Operation

logger = logging.getLogger(__name__)

_ATTEMPTS = 3
_DELETIONS = 100
"""After how many deleted topics their records are counted."""


class ActiveController:
    """Decides while this broker is elected. Whoever calls sees to it that one call comes at a time.

    `on_change` is called when another broker turns out to be the controller, or the tree has to be read again.
    """

    def __init__(
        self,
        cache: MetadataCache,
        updates: MetadataUpdates,
        fence: BrokerFence,
        *,
        topic_defaults: TopicDefaults,
        make_id: Callable[[], UUID],
        updaters: BrokerUpdaters | None,
        on_change: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._updates = updates
        self._fence = fence
        self._topic_defaults = topic_defaults
        self._make_id = make_id
        self._on_change = on_change
        self.updaters = updaters
        """Send the other brokers metadata updates; None where there are no others."""
        self._store: MetadataStore | None = None
        self._broker_id = NO_LEADER
        self._machine: ControllerMachine | None = None
        self._restarted: Mapping[PartitionKey, frozenset[int]] = {}
        """Replicas that restarted while there was no controller, as the tree showed when it was loaded last."""
        self._deletions = 0
        self._unsettled = False
        """Whether nothing was decided yet about the brokers that came, went or restarted before that."""
        self.term: Term | None = None
        """The term for which this broker was elected."""
        self.is_active = False
        """Whether requests are decided here now: not before this broker itself knows what the controller does."""
        self.elections = 0
        """Partitions that got another leader by decisions of this broker."""
        self.unclean_elections = 0
        """Of these, those whose new leader was not in sync."""

    @property
    def is_ready(self) -> bool:
        """Whether the tree was loaded in this term."""
        return self._machine is not None

    async def begin(self, store: MetadataStore, broker_id: int) -> None:
        """Begin to decide, by what is read from the tree in this term: what was read before it proves nothing."""
        if self.term is None:
            raise self._not_controller()
        self._store, self._broker_id = store, broker_id
        try:
            await self._load()
            await self._decide_about(await load_brokers(store))
        except BaseException:
            self._machine, self.is_active = None, False
            raise
        logger.info("This broker is the active controller, with controller epoch %d.", self.term.epoch)

    def resign(self) -> None:
        """Another broker is the controller, or may be."""
        if self.term is not None:
            logger.info("This broker is no longer the controller (controller epoch %d).", self.term.epoch)
            self._updates.forget_settings()
        self.close()
        self._on_change()

    def close(self) -> None:
        """Decide nothing more, and send no more metadata updates."""
        self.term = self._machine = self._store = None
        self.is_active = False
        if self.updaters is not None:
            self.updaters.stop()

    def reload_later(self) -> None:
        """Whether a write took place is not known: read the tree again before the next decision."""
        self._machine, self.is_active = None, False
        self._on_change()

    # Deciding

    async def decide(self, request: Request) -> dict[Key, Answer]:
        """Let the machine decide, store what it decided, and publish it. Raises NotController, StoreError."""
        for _ in range(_ATTEMPTS):
            if self.term is not None and self._cache.image.controller_epoch > self.term.epoch:
                self.resign()
            machine = self._machine
            if machine is None:
                raise self._not_controller()
            outcome = machine.handle(request)
            try:
                await self._write(outcome.changes)
            except NodeError as error:
                if error.path == ControllerEpochNode.path:
                    self.resign()
                else:
                    logger.warning("Another program changed the metadata tree, loading it again: %s", error)
                    await self._load()
                    self._on_change()
                continue
            if machine is not self._machine:
                continue  # the session ended meanwhile, and the term with it
            if outcome.changes:
                machine.replay(outcome.changes)
                self._count_elections(outcome.changes)
            self._publish(machine.image)
            await self._note_settings(outcome.changes)
            await self._forget_deletions(outcome.changes)
            return dict(outcome.replies)
        raise RequestTimedOut("The metadata tree kept changing because another program writes to it. Try again.")

    def _count_elections(self, changes: Sequence[Change]) -> None:
        for change in changes:
            if not isinstance(change, TopicChanged) or change.before is None or change.after is None:
                continue
            for before, after in zip(change.before.partitions, change.after.partitions, strict=False):
                if after.leader not in (before.leader, NO_LEADER):
                    self.elections += 1
                    self.unclean_elections += after.leader not in before.isr

    async def follow(self) -> None:
        """Decide about brokers that came or went, and learn of settings that brokers wrote themselves."""
        brokers = await load_brokers(self._open_store())
        if self._machine is not None and (brokers != self._machine.image.brokers or self._unsettled):
            await self._decide_about(brokers)
        configs, _ = await self._updates.changes.read(self._open_store())
        if self._machine is None:
            return
        known = self._machine.image.configs
        changes = [
            ConfigChanged(resource, known.get(resource), settings)
            for resource, settings in configs.items()
            if resource.kind in ("brokers", "users") and settings != known.get(resource)
        ]
        if changes:
            self._machine.replay(changes)
            self._publish(self._machine.image)

    async def _decide_about(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Lead without brokers that went, and use those that came; if that fails, or the tree changes, once more."""
        self._unsettled = False
        try:
            await self.decide(Registered(brokers, self._restarted))
        except BaseException:
            self._unsettled = True
            raise
        if not self._unsettled:
            self._restarted = {}

    def _publish(self, image: ClusterImage) -> None:
        """Apply a new image here, and send it to the other brokers."""
        self.is_active = True
        self._cache.is_behind = False
        self._cache.replace(image)
        if self.updaters is not None:
            self.updaters.publish(image)
        own = image.brokers.get(self._broker_id)
        if own is not None and own.epoch == self._fence.broker_epoch:
            self._fence.unfence(own.epoch)

    async def _note_settings(self, changes: Sequence[Change]) -> None:
        """Write notes of changed settings for other brokers; topics that come or go need none."""
        touched = {change.before or change.after for change in changes if isinstance(change, TopicChanged)}
        names = {topic.name for topic in touched if topic is not None}
        await config_changes.note(
            self._open_store(),
            [
                change.resource
                for change in changes
                if isinstance(change, ConfigChanged)
                and not (change.resource.kind == "topics" and change.resource.name in names)
            ],
        )

    async def _forget_deletions(self, changes: Sequence[Change]) -> None:
        """Look now and then whether there are too many records of deleted topics; if that fails, look later."""
        self._deletions += sum(isinstance(change, TopicChanged) and change.after is None for change in changes)
        if self._deletions < _DELETIONS:
            return
        self._deletions = 0
        try:
            await self._write_operations(await outdated(self._open_store()))
        except StoreError as error:
            logger.warning(
                "Could not remove old records of deleted topics from the metadata tree, trying later: %s",
                error,
            )

    def _not_controller(self) -> NotController:
        return NotController(f"This broker is not the controller. Broker {self._cache.image.controller_id} is.")

    # The tree

    def _open_store(self) -> MetadataStore:
        if self._store is None:
            raise StoreError("the metadata store is not open")
        return self._store

    async def _write(self, changes: Iterable[Change]) -> None:
        if self.term is not None:
            await self._write_operations(await operations(self._open_store(), changes, self.term.epoch))

    async def _write_operations(self, wanted: Iterable[Operation]) -> None:
        if self.term is not None:
            for portion in portions(wanted, self.term.guard):
                await self._open_store().multi(portion)

    async def _load(self) -> None:
        """Load the tree, and finish what a predecessor could not.

        Nobody else writes what a controller writes for as long as the term lasts, so what was read is still true if the
        term is not over when all of it was.
        """
        store = self._open_store()
        loaded = await load(store)
        if loaded.deleting:
            async for wanted in unfinished_deletions(store, loaded):
                await self._write_operations(wanted)
            loaded = await load(store)
        await self._write_operations(await outdated(store))
        await make_folders(store, loaded.image)
        await self._check_term()
        self._machine = self._new_machine(self._with_reported_state(loaded.image))
        self._restarted, self._unsettled = loaded.restarted, True

    async def _check_term(self) -> None:
        """Resign if another broker was elected. Raises NotController."""
        if self.term is None:
            return
        try:
            await self._open_store().multi([self.term.guard])
        except NodeError:
            self.resign()
            raise self._not_controller() from None

    def _with_reported_state(self, image: ClusterImage) -> ClusterImage:
        """Add which brokers are about to stop and whose disks failed: reported by registrations that still exist."""
        known = self._cache.image
        same = {
            broker_id
            for broker_id, broker in image.brokers.items()
            if broker_id in known.brokers and known.brokers[broker_id].epoch == broker.epoch
        }
        return replace(
            image,
            leaving=known.leaving & same,
            failed={broker_id: keys for broker_id, keys in known.failed.items() if broker_id in same},
        )

    def _new_machine(self, image: ClusterImage) -> ControllerMachine:
        if self.term is not None:
            image = replace(image, controller_id=self._broker_id, controller_epoch=self.term.epoch)
        return ControllerMachine(image, self._topic_defaults, self._make_id)
