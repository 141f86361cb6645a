"""The shell around the controller's rules: membership, election, writes to the tree, and the image that clients see.

Every broker runs one. It registers the broker, takes part in elections, and keeps the `MetadataCache` up to date. While
it is in office, requests go through `ControllerMachine` one at a time: decide, store (guarded by the term), replay,
publish the new image, tell the other brokers (`couriers`), answer. So what a client was told is stored, and what is
stored is known to the cache's subscribers before the client hears of it.

If the store refuses a write because the tree is not what the image says, the tree is loaded anew and the request is
decided again. Out of office the broker loads the tree once, when it starts, and from then on believes what the
controller tells it (`news`).

A broker acts on its image only while it stands (`standing`). When its session is over, or its registration was removed,
it stands no longer, registers again, and waits to be told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from barnabas.broker.lookout import is_accepted
from barnabas.broker.news import News
from barnabas.broker.standing import Standing
from barnabas.machines.controller.changes import ConfigChanged, TopicChanged
from barnabas.machines.controller.image import NO_LEADER, ClusterImage, ConfigResource, TopicImage
from barnabas.machines.controller.machine import Answer, ControllerMachine, Key
from barnabas.machines.controller.requests import (
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MoveLeader,
    NewPartitions,
    NewTopic,
    Registered,
    Request,
)
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata import config_changes
from barnabas.metadata.election import Term, campaign, in_office
from barnabas.metadata.layout import lay_out, make_folders, unfinished_deletions
from barnabas.metadata.loading import Loaded, load, load_brokers
from barnabas.metadata.membership import register
from barnabas.metadata.store import (
    BadVersion,
    NodeError,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreError,
)
from barnabas.metadata.writes import operations, portions
from barnabas.metadata.znodes import (
    BrokerNode,
    BrokersNode,
    ConfigChangesNode,
    ControllerEpochNode,
    ControllerNode,
    FeaturesNode,
    ProducerIds,
    ProducerIdsNode,
    Registration,
)
from barnabas.model.errors import ApiError, BarnabasError, NotController, RequestTimedOut
from barnabas.model.ids import METADATA_TOPIC_ID, NO_ID, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from uuid import UUID

    from barnabas.broker.couriers import Couriers
    from barnabas.machines.controller.changes import Change
    from barnabas.machines.controller.image import BrokerImage, PartitionKey
    from barnabas.metadata.cache import MetadataCache
    from barnabas.metadata.store import MetadataStore, Operation
    from barnabas.model.clock import Clock
    from barnabas.protocol.internal import UpdateMetadataRequest

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000
_ATTEMPTS = 3
_RETRY_SECONDS = 1.0
_DELIVERY_SECONDS = 1.0
"""How long an answer waits for the other brokers to know of what was done."""


def new_id() -> UUID:
    """A random id whose text does not begin with a dash, which would read like an option on a command line."""
    while True:
        made = uuid.uuid4()
        if made not in (NO_ID, METADATA_TOPIC_ID) and not uuid_to_text(made).startswith("-"):
            return made


class Controller:
    """Every broker has one; of all brokers, one at a time is in office.

    `open_store` makes a new store, at the start and whenever a session is over. `patience` is how long (seconds) a
    start waits for another registration with its id to vanish.
    """

    def __init__(
        self,
        open_store: Callable[[], MetadataStore],
        cache: MetadataCache,
        clock: Clock,
        *,
        defaults: TopicDefaults | None = None,
        patience: float = 0.0,
        make_id: Callable[[], UUID] = new_id,
    ) -> None:
        self.cache = cache
        self._open_store = open_store
        self._clock = clock
        self._defaults = defaults or TopicDefaults()
        self._previous_incarnation: UUID | None = None
        self._patience = patience
        self._make_id = make_id
        self._store: MetadataStore | None = None
        self._registration: Registration | None = None
        self._term: Term | None = None
        self._machine: ControllerMachine | None = None
        self._active = False
        self._loaded: Loaded | None = None
        self._restarted: Mapping[PartitionKey, frozenset[int]] = {}
        """Replicas that were away while nobody was looking: what the tree showed when it was loaded last."""
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()
        self._expired = False
        self._following: asyncio.Task[None] | None = None
        self.news = News(cache, lambda: self._store)
        self.couriers: Couriers | None = None
        """Who tells the other brokers; None where there are none."""
        self.standing = Standing(self.news)

    @property
    def broker_epoch(self) -> int:
        """Creation id of this broker's registration; -1 before there is one."""
        return self.standing.broker_epoch

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._active

    async def open(self) -> ClusterImage:
        """Open the store and load the tree, without taking part yet: what a broker must know to open its logs.

        Makes the cluster's id if there is none. Raises StoreUnavailable.
        """
        async with self._lock:
            await self._open()
            await self.news.skip_settings(self.store)
            self._loaded = await load(self.store)
            self.cache.replace(self._loaded.image)
            return self.cache.image

    async def start(self, registration: Registration, previous_incarnation: UUID | None = None) -> None:
        """Register this broker and take part in elections. Raises DuplicateBroker, StoreUnavailable.

        A registration of `previous_incarnation`, whose process is known to be gone, is replaced.
        In office it stands when this returns; otherwise `standing` waits for what the controller tells.
        """
        self._registration = registration
        self._previous_incarnation = previous_incarnation
        async with self._lock:
            await self._open()
            if self._loaded is None:
                self._loaded = await load(self.store)
                self.cache.replace(self._loaded.image)
            await self._register()
            with contextlib.suppress(NotController):  # a term that ended at once; following looks after it
                await self._settle()
        self._following = asyncio.create_task(self._follow(), name="controller")

    async def stop(self) -> None:
        """End the session: the registration and the office go with it."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
            self._following = None
        async with self._lock:
            self._end_term()
            if self._store is not None:
                await self._store.close()
                self._store = None

    # Requests

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicImage | ApiError]:
        """Make topics; each is made or refused on its own. Raises NotController, RequestTimedOut."""
        made = _by_topic(await self.decide(CreateTopics(topics, validate_only)))
        await self.delivered()
        return made

    async def delete_topics(
        self, names: Sequence[str], ids: Mapping[str, UUID] | None = None
    ) -> dict[str, TopicImage | ApiError]:
        """Remove topics; gives each as it was. Raises NotController, RequestTimedOut.

        A topic in `ids` is removed only if it still has this id.
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

        A broker's own settings are written by itself, whether or not it is in office. Raises NotController,
        RequestTimedOut.
        """
        if not self._active and all(resource.kind == "brokers" and resource.name for resource in settings):
            return await self._write_own_settings(settings)
        answers = await self.decide(AlterConfigs(settings))
        return {resource: _error(answers[resource]) for resource in settings}

    async def move_leader(self, topic: str, partition: int) -> dict[str, TopicImage | ApiError]:
        """Let a partition be led anew; gives the topic as it is then. Raises NotController, RequestTimedOut."""
        return _by_topic(await self.decide(MoveLeader(topic, partition)))

    async def _write_own_settings(
        self, settings: Mapping[ConfigResource, Mapping[str, str]]
    ) -> dict[ConfigResource, ApiError | None]:
        try:
            await config_changes.write(self.store, settings)
            await self.news.follow_settings(self.store)
        except StoreError as error:
            raise RequestTimedOut(f"the metadata store did not take the change: {error}") from error
        return dict.fromkeys(settings)

    async def allocate_producer_ids(self) -> ProducerIds:
        """Take a block of producer ids that nobody had and nobody will have. Raises RequestTimedOut."""
        broker_id = -1 if self._registration is None else self._registration.broker_id
        try:
            while True:
                node = await self.store.find(ProducerIdsNode.path)
                last = None if node is None else ProducerIdsNode.decode(node.data)
                block = ProducerIds(0 if last is None else last.first + last.count, PRODUCER_ID_BLOCK)
                data = ProducerIdsNode.encode(broker_id, block)
                with contextlib.suppress(NodeExists, BadVersion, NoNode):
                    if node is None:
                        await self.store.create(ProducerIdsNode.path, data)
                    else:
                        await self.store.set(ProducerIdsNode.path, data, node.version)
                    return block
        except StoreError as error:
            raise RequestTimedOut(f"no producer ids can be given out now: {error}") from error

    async def delivered(self) -> None:
        """Give the other brokers a moment to take over what was decided."""
        if self.couriers is not None:
            await self.couriers.delivered(_DELIVERY_SECONDS)

    async def decide(self, request: Request) -> dict[Key, Answer]:
        """Let the controller's rules decide, and do it. Raises NotController, RequestTimedOut."""
        async with self._lock:
            try:
                return await self._decide(request)
            except SessionExpired as error:
                self._leave_office()
                raise self._not_controller() from error
            except StoreError as error:
                self._machine = None
                self._active = False
                self._news.set()
                raise RequestTimedOut(f"the metadata store did not take the change: {error}") from error

    async def _decide(self, request: Request) -> dict[Key, Answer]:
        """Let the machine decide, store what it decided, and publish it."""
        for _ in range(_ATTEMPTS):
            if self._term is not None and self.cache.image.controller_epoch > self._term.epoch:
                self._leave_office()
            if self._machine is None:
                raise self._not_controller()
            outcome = self._machine.handle(request)
            try:
                await self._write(outcome.changes)
            except NodeError as error:
                if error.path == ControllerEpochNode.path:
                    self._leave_office()
                else:
                    logger.warning("the tree is not what it was, loading it again: %s", error)
                    await self._load_in_office()
                continue
            if outcome.changes:
                self._machine.replay(outcome.changes)
            self._publish(self._machine.image)
            await self._note_settings(outcome.changes)
            return dict(outcome.replies)
        raise RequestTimedOut("the metadata tree kept changing: another program writes to it; try again")

    def _publish(self, image: ClusterImage) -> None:
        """Act on a new image here, and have it told to the others."""
        self.cache.replace(image)
        if self.couriers is not None:
            self.couriers.publish(image)
        own = None if self._registration is None else image.brokers.get(self._registration.broker_id)
        if own is not None and own.epoch == self.broker_epoch:
            self.standing.rise()

    async def _note_settings(self, changes: Sequence[Change]) -> None:
        """Leave notes of changed settings; topics that come or go need none."""
        touched = {change.before or change.after for change in changes if isinstance(change, TopicChanged)}
        names = {topic.name for topic in touched if topic is not None}
        await config_changes.note(
            self.store,
            [
                change.resource
                for change in changes
                if isinstance(change, ConfigChanged)
                and not (change.resource.kind == "topics" and change.resource.name in names)
            ],
        )

    def _not_controller(self) -> NotController:
        return NotController(f"This broker is not the controller; that is broker {self.cache.image.controller_id}.")

    # Writing

    async def _write(self, changes: Iterable[Change]) -> None:
        if self._term is not None:
            await self._write_operations(await operations(self.store, changes, self._term.epoch))

    async def _write_operations(self, wanted: Iterable[Operation]) -> None:
        if self._term is not None:
            for portion in portions(wanted, self._term.guard):
                await self.store.multi(portion)

    # Sessions and offices

    @property
    def store(self) -> MetadataStore:
        """The store of the present session. Raises StoreError when there is none."""
        if self._store is None:
            raise StoreError("the metadata store is not open")
        return self._store

    async def _open(self) -> None:
        if self._store is not None:
            return
        store = self._open_store()
        await store.start()
        self._store, self._expired = store, False
        store.on_expiry(self._session_expired)
        store.watch(ControllerNode.path, self._news.set)
        store.watch(BrokersNode.path, self._news.set)
        store.watch(ConfigChangesNode.path, self._news.set)
        store.watch(FeaturesNode.path, self._news.set)
        await lay_out(store, self._make_id)

    async def _register(self) -> None:
        if self._registration is None:
            return
        epoch = await register(
            self.store,
            self._registration,
            self._clock.now_ms(),
            previous_incarnation=self._previous_incarnation,
            patience=self._patience,
            answers=is_accepted,
        )
        self._previous_incarnation = self._registration.incarnation_id
        self.standing.registered(epoch)

    async def _is_registered(self) -> bool:
        if self._registration is None:
            return True
        node = await self.store.find(BrokerNode.path(self._registration.broker_id))
        return node is not None and node.czxid == self.broker_epoch

    def _session_expired(self) -> None:
        logger.warning("the session with the metadata store is over; registering again")
        self._expired = True
        self.standing.fall()
        self._leave_office()

    async def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """The controller tells of all partitions and brokers. Raises StaleControllerEpoch, StaleBrokerEpoch."""
        if await self.news.update_metadata(request):
            self.standing.rise()
            self._news.set()

    async def _follow(self) -> None:
        """Look after every change that a watch hints at."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                async with self._lock:
                    await self._settle()
            except BarnabasError as error:
                logger.warning("could not follow the metadata tree, trying again: %s", error)
            except Exception:
                logger.exception("could not follow the metadata tree, trying again")
            else:
                continue
            await asyncio.sleep(_RETRY_SECONDS)
            self._news.set()

    async def _settle(self) -> None:
        """Bring session, office and image in line with the tree."""
        if self._expired:
            if self._store is not None:
                await self._store.close()
                self._store = None
            await self._open()
            self.news.forget_settings()
            await self._register()
        elif not await self._is_registered():
            logger.warning("this broker's registration was removed; registering again")
            self.standing.fall()
            await self._register()
        if self._term is not None and not await in_office(self.store):
            self._leave_office()
        if self._term is None and self._registration is not None:
            self._term = await campaign(self.store, self._registration.broker_id, self._clock.now_ms())
        if self._term is None:
            await self.news.follow_settings(self.store)
        elif self._machine is None:
            await self._take_office(self._term)
        else:
            brokers = await load_brokers(self.store)
            if brokers != self._machine.image.brokers or self._restarted:
                await self._decide(self._registered(brokers))
            await self._follow_settings_in_office()

    async def _follow_settings_in_office(self) -> None:
        """Brokers write their own settings themselves."""
        configs, _ = await self.news.changes.news(self.store)
        if self._machine is not None:
            known = self._machine.image.configs
            changes = [
                ConfigChanged(resource, known.get(resource), settings)
                for resource, settings in configs.items()
                if resource.kind == "brokers" and settings != known.get(resource)
            ]
            if changes:
                self._machine.replay(changes)
                self._publish(self._machine.image)

    async def _take_office(self, term: Term) -> None:
        loaded, self._loaded = self._loaded, None
        if loaded is not None and not _untouched_until(loaded.image, term):
            loaded = None
        try:
            await self._load_in_office(loaded)
            self._active = True
            await self._decide(self._registered(await load_brokers(self.store)))
        except BaseException:
            self._machine, self._active = None, False
            raise
        logger.info("became controller with epoch %d", term.epoch)

    def _registered(self, brokers: Mapping[int, BrokerImage]) -> Registered:
        restarted, self._restarted = self._restarted, {}
        return Registered(brokers, restarted)

    def _leave_office(self) -> None:
        if self._term is not None:
            logger.info("no longer controller (epoch %d)", self._term.epoch)
            self.news.forget_settings()
        self._end_term()
        self._news.set()

    def _end_term(self) -> None:
        self._term = self._machine = None
        self._active = False
        if self.couriers is not None:
            self.couriers.dismiss()

    async def _load_in_office(self, loaded: Loaded | None = None) -> None:
        """Load the tree, unless it is known, and finish what a predecessor could not."""
        loaded = loaded or await load(self.store)
        if loaded.deleting:
            async for wanted in unfinished_deletions(self.store, loaded):
                await self._write_operations(wanted)
            loaded = await load(self.store)
        await make_folders(self.store, loaded.image)
        self._machine = self._new_machine(loaded.image)
        self._restarted = loaded.restarted

    def _new_machine(self, image: ClusterImage) -> ControllerMachine:
        if self._term is not None and self._registration is not None:
            image = replace(image, controller_id=self._registration.broker_id, controller_epoch=self._term.epoch)
        return ControllerMachine(image, self._defaults, self._make_id)


def _untouched_until(image: ClusterImage, term: Term) -> bool:
    """Whether nobody was in office, and so nobody wrote, between loading the image and this term."""
    return image.controller_id == NO_LEADER and image.controller_epoch == term.epoch - 1


def _by_topic(answers: Mapping[Key, Answer]) -> dict[str, TopicImage | ApiError]:
    return {str(name): answer for name, answer in answers.items() if isinstance(answer, TopicImage | ApiError)}


def _error(answer: Answer) -> ApiError | None:
    return answer if isinstance(answer, ApiError) else None
