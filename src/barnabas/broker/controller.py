"""A broker's part in the cluster: its session with the metadata store, its registration, elections, and requests.

Every broker runs one. It registers the broker, takes part in elections, and keeps the `MetadataCache` up to date. While
it is in office, requests are decided (`office`). Out of office the broker loads the tree once, when it starts, and from
then on believes what the controller tells it (`news`).

A broker acts on its image only while it stands (`standing`). When its session is over, or its registration was removed,
it stands no longer, registers again, and waits to be told. If another broker has taken its id meanwhile, and keeps it,
this one is out of the cluster for good (`ousted`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from functools import partial
from typing import TYPE_CHECKING

from barnabas.broker.lookout import is_accepted
from barnabas.broker.news import News
from barnabas.broker.office import Office
from barnabas.broker.standing import Standing
from barnabas.machines.controller.image import ClusterImage, ConfigResource, TopicImage
from barnabas.machines.controller.requests import (
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MoveLeader,
    NewPartitions,
    NewTopic,
    Request,
)
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata import config_changes
from barnabas.metadata.election import campaign, in_office
from barnabas.metadata.layout import lay_out
from barnabas.metadata.loading import load
from barnabas.metadata.membership import DuplicateBroker, register
from barnabas.metadata.store import (
    BadVersion,
    NodeExists,
    NoNode,
    SessionExpired,
    StoreError,
    StoreRefused,
)
from barnabas.metadata.znodes import (
    BrokerNode,
    BrokersNode,
    ClusterIdNode,
    ConfigChangesNode,
    ControllerNode,
    FeaturesNode,
    ProducerIds,
    ProducerIdsNode,
    Registration,
    SecretNode,
)
from barnabas.model.errors import ApiError, BarnabasError, CoordinatorLoadInProgress, NotController, RequestTimedOut
from barnabas.model.ids import METADATA_TOPIC_ID, NO_ID, uuid_to_text

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from barnabas.broker.couriers import Couriers
    from barnabas.machines.controller.machine import Answer, Key
    from barnabas.metadata.cache import MetadataCache
    from barnabas.metadata.store import MetadataStore
    from barnabas.model.clock import Clock
    from barnabas.net.server import Address
    from barnabas.protocol.internal import UpdateMetadataRequest

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK = 1000
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

    `open_store` makes a new store, at the start and whenever a session is over. `patience` is how long (seconds) it
    waits for another registration with its id to vanish.
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
        self._previous_incarnation: UUID | None = None
        self._listening: Collection[Address] = ()
        self._patience = patience
        self._make_id = make_id
        self._store: MetadataStore | None = None
        self._registration: Registration | None = None
        self._is_loaded = False
        self._secret: bytes | None = None
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()
        self._expired = False
        self._following: asyncio.Task[None] | None = None
        self.ousted: DuplicateBroker | None = None
        """Why this broker will not be in the cluster again: another one has its id. It should stop."""
        self.on_ousted: Callable[[], None] = lambda: None
        self.news = News(cache, lambda: self._store, lambda: self._registration)
        self.standing = Standing(self.news)
        self._office = Office(
            cache,
            self.news,
            self.standing,
            defaults=defaults or TopicDefaults(),
            make_id=make_id,
            left=self._news.set,
        )

    def employ(self, couriers: Couriers) -> None:
        """Have the other brokers told what is decided in office."""
        self._office.couriers = couriers

    @property
    def broker_epoch(self) -> int:
        """Creation id of this broker's registration; -1 before there is one."""
        return self.standing.broker_epoch

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._office.is_active

    async def open(self) -> ClusterImage:
        """Open the store and load the tree, without taking part yet: what a broker must know to open its logs.

        Makes the cluster's id if there is none. Raises StoreUnavailable.
        """
        async with self._lock:
            await self._open()
            await self.news.skip_settings(self.store)
            await self._load()
            return self.cache.image

    async def start(
        self,
        registration: Registration,
        previous_incarnation: UUID | None = None,
        listening: Collection[Address] = (),
    ) -> None:
        """Register this broker and take part in elections. Raises DuplicateBroker, StoreUnavailable.

        A registration of `previous_incarnation`, whose process is known to be gone, is replaced. It may name an address
        that leads to this process, which is `listening` already: what answers there is not another broker.
        In office it stands when this returns; otherwise `standing` waits for what the controller tells.
        """
        self._registration = registration
        self._previous_incarnation = previous_incarnation
        self._listening = listening
        async with self._lock:
            await self._open()
            if not self._is_loaded:
                await self._load()
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
            self._office.close()
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
        if not self.is_active and all(resource.kind == "brokers" and resource.name for resource in settings):
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
        """Take a block of producer ids that nobody had and nobody will have.

        Raises CoordinatorLoadInProgress, Kafka's word for it, upon which all producers ask again.
        """
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
            raise CoordinatorLoadInProgress(f"no producer ids can be given out now: {error}") from error

    async def delivered(self) -> None:
        """Give the other brokers a moment to take over what was decided."""
        if self._office.couriers is not None:
            await self._office.couriers.delivered(_DELIVERY_SECONDS)

    async def decide(self, request: Request) -> dict[Key, Answer]:
        """Let the controller's rules decide, and do it. Raises NotController, RequestTimedOut."""
        async with self._lock:
            try:
                return await self._office.decide(request)
            except SessionExpired as error:
                self._office.leave()
                raise NotController("The session with the metadata store is over, and this broker's office.") from error
            except StoreError as error:
                self._office.doubt()
                raise RequestTimedOut(f"the metadata store did not take the change: {error}") from error

    # Sessions and offices

    @property
    def store(self) -> MetadataStore:
        """The store of the present session. Raises StoreError when there is none."""
        if self._store is None:
            raise StoreError("the metadata store is not open")
        return self._store

    @property
    def secret(self) -> bytes:
        """What proves that a broker is one of this cluster. Raises StoreError before the tree was opened."""
        if self._secret is None:
            raise StoreError("the metadata store is not open")
        return self._secret

    async def _open(self) -> None:
        if self._store is not None:
            return
        store = self._open_store()
        await store.start()
        try:
            await self._check_cluster(store)
        except BaseException:
            await store.close()
            raise
        self._store, self._expired = store, False
        store.on_expiry(self._session_expired)
        store.watch(ControllerNode.path, self._news.set)
        store.watch(BrokersNode.path, self._news.set)
        store.watch(ConfigChangesNode.path, self._news.set)
        store.watch(FeaturesNode.path, self._news.set)
        await lay_out(store, self._make_id)
        self._secret = SecretNode.decode((await store.get(SecretNode.path)).data)

    async def _load(self) -> None:
        """What to know before a controller tells more; in office it is read again."""
        self.cache.replace((await load(self.store)).image)
        self._is_loaded = True

    async def _check_cluster(self, store: MetadataStore) -> None:
        """Refuse a tree that is not the one this broker was in: its logs would be nobody's there, and be set aside."""
        known = self.cache.image.cluster_id
        if not known:
            return
        node = await store.find(ClusterIdNode.path)
        found = None if node is None else ClusterIdNode.decode(node.data)
        if found != known:
            raise StoreRefused(
                f"the metadata store has lost its tree: the cluster's id was {known}, and is {found} now. "
                "Stop all brokers, and bring the tree back with `barnabas metadata import`"
            )

    async def _register(self) -> None:
        if self._registration is None:
            return
        epoch = await register(
            self.store,
            self._registration,
            self._clock.now_ms(),
            previous_incarnation=self._previous_incarnation,
            patience=self._patience,
            answers=partial(is_accepted, listening=self._listening),
        )
        self._previous_incarnation = self._registration.incarnation_id
        self.standing.registered(epoch)

    async def _is_registered(self) -> bool:
        """Whether this session's registration is there.

        One that was made, although the answer got lost, is as good: the controller may have told of it already, and
        tells everything but once.
        """
        if self._registration is None:
            return True
        node = await self.store.find(BrokerNode.path(self._registration.broker_id))
        if node is None or node.owner != self.store.session_id:
            return False
        if node.czxid != self.broker_epoch:
            self.standing.registered(node.czxid)
        return True

    def _session_expired(self) -> None:
        logger.warning("the session with the metadata store is over; registering again")
        self._expired = True
        self.standing.fall()
        self._office.leave()

    async def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """The controller tells of all partitions and brokers. Raises StaleControllerEpoch, StaleBrokerEpoch."""
        if await self.news.update_metadata(request):
            self.standing.rise()
            self._news.set()

    async def _follow(self) -> None:
        """Look after every change that a watch hints at.

        Only the time in which the id was known to be taken, by a look a second ago at most, uses up the patience, and
        not that of a store which is slow or away: nobody can say meanwhile whether the other broker is still there.
        """
        refused = 0.0
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                async with self._lock:
                    await self._settle()
            except DuplicateBroker as error:
                refused += error.seconds
                left = self._patience - refused
                if left <= 0:
                    logger.error("this broker is out of the cluster, and has to stop: %s", error)
                    self.ousted = error
                    self.on_ousted()
                    return
                logger.error("this broker is out of the cluster, and has to stop in %.0f s: %s", left, error)
                refused += _RETRY_SECONDS
            except BarnabasError as error:
                logger.warning("could not follow the metadata tree, trying again: %s", error)
            except Exception:
                logger.exception("could not follow the metadata tree, trying again")
            else:
                refused = 0.0
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
        office, registration = self._office, self._registration
        if office.term is not None and not await in_office(self.store):
            office.leave()
        if office.term is None and registration is not None:
            office.term = await campaign(self.store, registration.broker_id, self._clock.now_ms())
        if office.term is None or registration is None:
            await self.news.follow_settings(self.store)
        elif office.is_ready:
            await office.follow()
        else:
            await office.take(self.store, registration.broker_id)


def _by_topic(answers: Mapping[Key, Answer]) -> dict[str, TopicImage | ApiError]:
    return {str(name): answer for name, answer in answers.items() if isinstance(answer, TopicImage | ApiError)}


def _error(answer: Answer) -> ApiError | None:
    return answer if isinstance(answer, ApiError) else None
