"""A broker's membership in its cluster: the session with the metadata store, the registration, and elections.

Every broker has one. It registers the broker, takes part in the controller's elections, and keeps the `MetadataCache`
up to date. While this broker is the active controller, requests are decided here (`active_controller`). Otherwise it
loads the tree once, when it starts, and from then on applies what the controller sends (`metadata_updates`).

A broker acts on its image only while it is unfenced (`fencing`). When its session is over, or its registration was
removed, it is fenced, registers again, and waits for the controller's metadata updates. A broker that could not apply
an image is fenced, too, and registers again when it has applied all of it (`image_reload`); until then other brokers
lead in its place, if there are any. If another broker has taken its id meanwhile, and keeps it, this one is out of the
cluster for good (`duplicate`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.controller.active_controller import ActiveController
from barnabas.broker.controller.connection_probe import ConnectionProbe
from barnabas.broker.controller.fencing import BrokerFence
from barnabas.broker.controller.image_reload import ImageReload
from barnabas.broker.controller.local_controller import LocalController
from barnabas.broker.controller.metadata_updates import MetadataUpdates
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.metadata.election import campaign, is_controller
from barnabas.metadata.images.loading import load
from barnabas.metadata.layout import lay_out
from barnabas.metadata.membership import DuplicateBroker, register
from barnabas.metadata.stores.store import BadVersion, NodeExists, NoNode, StoreError, StoreRefused
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
from barnabas.model.errors import BarnabasError, CoordinatorLoadInProgress, NotController
from barnabas.model.ids import METADATA_TOPIC_ID, NO_ID, uuid_to_text
from barnabas.model.remedies import Remedy, RemedyKind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from uuid import UUID

    from barnabas.broker.controller.broker_updaters import BrokerUpdaters
    from barnabas.broker.permissions.following import AclFollower
    from barnabas.machines.controller.image import ClusterImage, Endpoint
    from barnabas.metadata.images.cache import MetadataCache
    from barnabas.metadata.stores.store import MetadataStore, StoredNode
    from barnabas.model.clock import Clock
    from barnabas.net.server import Address
    from barnabas.protocol.messages.inter_broker import UpdateMetadataRequest

logger = logging.getLogger(__name__)

PRODUCER_ID_BLOCK: Final = 1000
_RETRY_SECONDS: Final = 1.0


def new_id() -> UUID:
    """A random id whose text does not begin with a dash, which would read like an option on a command line."""
    while True:
        made = uuid.uuid4()
        if made not in (NO_ID, METADATA_TOPIC_ID) and not uuid_to_text(made).startswith("-"):
            return made


def _do_nothing() -> None:
    """Nobody has to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipOptions:
    """How a broker takes part in its cluster."""

    topic_defaults: TopicDefaults = field(default_factory=TopicDefaults)
    """For topics that are created while this broker is the controller."""
    id_timeout: float = 0.0
    """Seconds to wait for another registration with this broker's id to vanish."""
    on_duplicate: Callable[[], None] = _do_nothing
    """Called when another broker has taken this broker's id for good: this broker should stop."""
    updaters: BrokerUpdaters | None = None
    """Send the other brokers metadata updates; None where there are no others."""
    probe: ConnectionProbe = field(default_factory=ConnectionProbe)
    """Tells whether another broker answers at an address."""
    make_id: Callable[[], UUID] = new_id
    """Makes ids of topics and clusters."""
    acls: AclFollower | None = None
    """Follows the ACLs in the tree; None without an authorizer."""


class ClusterMembership:
    """One broker's membership. `open_store` makes a new store, at the start and whenever a session is over."""

    def __init__(
        self,
        open_store: Callable[[], MetadataStore],
        cache: MetadataCache,
        clock: Clock,
        options: MembershipOptions | None = None,
    ) -> None:
        options = options or MembershipOptions()
        self.cache = cache
        self._open_store = open_store
        self._clock = clock
        self._options = options
        self._previous_incarnation: UUID | None = None
        self._listening: Collection[Address] = ()
        self._store: MetadataStore | None = None
        self._registration: Registration | None = None
        self._is_loaded = False
        self._secret: bytes | None = None
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        """Set when session, registration, controller or settings may have changed."""
        self._expired = False
        self._following: asyncio.Task[None] | None = None
        self.duplicate: DuplicateBroker | None = None
        """Why this broker will not be in the cluster again: another one has its id. It should stop."""
        self.updates = MetadataUpdates(cache, lambda: self._store, lambda: self._registration)
        self.fence = BrokerFence(self.updates)
        self._reload = ImageReload(cache, self.fence, self._changed.set)
        self._active_controller = ActiveController(
            cache,
            self.updates,
            self.fence,
            topic_defaults=options.topic_defaults,
            make_id=options.make_id,
            updaters=options.updaters,
            on_change=self._changed.set,
        )
        self.controller = LocalController(self._active_controller, self.updates, self._lock, lambda: self.store)
        """Takes requests while this broker is the active controller."""

    @property
    def broker_epoch(self) -> int:
        """Creation id of this broker's registration; -1 before there is one."""
        return self.fence.broker_epoch

    @property
    def store(self) -> MetadataStore:
        """The store of the present session. Raises StoreError when there is none."""
        if self._store is None:
            raise StoreError("the metadata store is not open")
        return self._store

    @property
    def secret(self) -> bytes:
        """The cluster's secret, which proves that a broker belongs to it. Raises StoreError before it was read."""
        if self._secret is None:
            raise StoreError("the metadata store is not open")
        return self._secret

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where clients of a listener reach this broker, whether or not it is registered now."""
        return None if self._registration is None else self._registration.endpoints.get(listener)

    async def open(self) -> ClusterImage:
        """Open the store and load the tree, without taking part yet: what a broker must know to open its logs.

        Makes the cluster's id if there is none. Raises StoreUnavailable.
        """
        async with self._lock:
            await self._open()
            await self.updates.skip_settings(self.store)
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
        If this broker becomes the controller it is unfenced when this returns; otherwise `fence` waits for what the
        controller sends.
        """
        self._registration = registration
        self._previous_incarnation = previous_incarnation
        self._listening = listening
        async with self._lock:
            await self._open()
            if not self._is_loaded:
                await self._load()
            with contextlib.suppress(NotController):  # a term that ended at once: `_follow` sees to it
                await self._settle()
        self._following = asyncio.create_task(self._follow(), name="cluster membership")

    async def stop(self) -> None:
        """End the session: the registration goes with it, and another broker becomes the controller."""
        if self._following is not None:
            self._following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._following
            self._following = None
        self._reload.stop()
        if self._options.acls is not None:
            await self._options.acls.stop()
        async with self._lock:
            self._active_controller.close()
            if self._store is not None:
                await self._store.close()
                self._store = None

    def give_up(self, reason: DuplicateBroker) -> None:
        """Another broker has taken this broker's id: have this one stop."""
        logger.error("This broker is out of the cluster and stops: %s", reason)
        self.duplicate = reason
        self._options.on_duplicate()

    async def update_metadata(self, request: UpdateMetadataRequest) -> None:
        """Apply the controller's UpdateMetadata. Raises StaleControllerEpoch, StaleBrokerEpoch."""
        if await self.updates.update_metadata(request):
            self.fence.unfence(request.broker_epoch)
            self._changed.set()

    async def catch_up_with_settings(self) -> None:
        """Know every setting whose change was answered before this call. Raises StoreError.

        The active controller decides about them itself. Nobody becomes it while settings are read: what was read before
        would replace what it has decided since.
        """
        if not self.controller.is_active:
            await self.updates.catch_up_with_settings(self._read_settings)

    async def _read_settings(self) -> None:
        async with self._lock:
            if not self.controller.is_active:
                await self.store.sync()
                await self.updates.follow_settings(self.store)

    async def allocate_producer_ids(self) -> ProducerIds:
        """Allocate a block of producer ids that nobody had and nobody will have.

        Raises CoordinatorLoadInProgress, upon which all producers ask again.
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
            raise CoordinatorLoadInProgress(f"No producer ids can be allocated now: {error}") from error

    # The session

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
        for path in (ControllerNode.path, BrokersNode.path, ConfigChangesNode.path, FeaturesNode.path):
            store.watch(path, self._changed.set)
        await lay_out(store, self._options.make_id)
        self._secret = SecretNode.decode((await store.get(SecretNode.path)).data)
        if self._options.acls is not None:
            await self._options.acls.open(store)

    async def _load(self) -> None:
        """Load what must be known before a controller sends more; who becomes the controller reads it again."""
        self.cache.replace((await load(self.store)).image)
        self._is_loaded = True

    async def _check_cluster(self, store: MetadataStore) -> None:
        """Refuse the tree of another cluster: this broker's logs would be strays there, and be set aside."""
        expected = self.cache.image.cluster_id
        if not expected:
            return
        node = await store.find(ClusterIdNode.path)
        found = None if node is None else ClusterIdNode.decode(node.data)
        if found != expected:
            raise StoreRefused(
                f"the metadata store has lost its tree: the cluster's id was {expected}, and is {found} now"
            ).with_remedy(Remedy(RemedyKind.IMPORT_METADATA))

    def _session_expired(self) -> None:
        logger.warning("The session with the metadata store has expired: this broker is fenced and registers again.")
        self._expired = True
        self.fence.fence()
        self._active_controller.resign()

    async def _follow(self) -> None:
        """Settle after every change that a watch hints at.

        Only the time in which the id was known to be taken, by a look a second ago at most, uses up `id_timeout`, and
        not that of a store which is slow or away: nobody can say meanwhile whether the other broker is still there.
        """
        refused = 0.0
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                async with self._lock:
                    await self._settle()
            except DuplicateBroker as error:
                refused += error.seconds
                left = self._options.id_timeout - refused
                if left <= 0:
                    self.give_up(error)
                    return
                logger.error("This broker cannot register, and stops in %.0f s if that stays so: %s", left, error)
                refused += _RETRY_SECONDS
            except BarnabasError as error:
                logger.warning("Could not follow the metadata tree, trying again in %g s: %s", _RETRY_SECONDS, error)
            except Exception:
                logger.exception("Could not follow the metadata tree, trying again in %g s.", _RETRY_SECONDS)
            else:
                refused = 0.0
                continue
            await asyncio.sleep(_RETRY_SECONDS)
            self._changed.set()

    async def _settle(self) -> None:
        """Bring session, registration, controller and image in line with the tree."""
        if self._expired:
            if self._store is not None:
                await self._store.close()
                self._store = None
            await self._open()
            self.updates.forget_settings()
            if not self._reload.is_needed:
                await self._register()
        elif not self._reload.is_needed and not await self._is_registered():
            if not self.fence.is_fenced:
                logger.warning("This broker's registration was removed: it is fenced and registers again.")
            self.fence.fence()
            await self._register()
        if self._reload.is_needed and self._is_among_others():
            await self._unregister()
        await self._take_part()
        if self._reload.is_needed and self._reload.try_again():
            await self._unregister()
            if self._reload.finish():
                await self._register()
                self._changed.set()

    # The registration

    async def _is_registered(self) -> bool:
        """Whether this session's registration is there, or this broker is not to register.

        One that was made, although the answer got lost, is as good: the controller may have sent its metadata updates
        already, and sends everything but once.
        """
        node = await self._own_node()
        if node is not None and node.czxid != self.broker_epoch:
            self.fence.registered(node.czxid)
        return node is not None or self._registration is None

    async def _register(self) -> None:
        registration = self._registration
        if registration is None:
            return
        epoch = await register(
            self.store,
            registration,
            self._clock.now_ms(),
            previous_incarnation=self._previous_incarnation,
            id_timeout=self._options.id_timeout,
            answers=partial(self._options.probe.is_accepted, listening=self._listening),
        )
        self._previous_incarnation = registration.incarnation_id
        self.fence.registered(epoch)

    async def _unregister(self) -> None:
        """Give the registration up: other brokers lead meanwhile, and the next registration begins anew."""
        if (node := await self._own_node()) is not None:
            logger.info("This broker gives up its registration with broker epoch %d.", node.czxid)
            self.fence.ended(node.czxid)
            with contextlib.suppress(NoNode):
                await self.store.delete(node.path)

    async def _own_node(self) -> StoredNode | None:
        """This session's registration, if it is there."""
        if self._registration is None:
            return None
        node = await self.store.find(BrokerNode.path(self._registration.broker_id))
        return None if node is None or node.owner != self.store.session_id else node

    def _is_among_others(self) -> bool:
        own = -1 if self._registration is None else self._registration.broker_id
        return bool(self.cache.image.brokers.keys() - {own})

    # The controller

    async def _take_part(self) -> None:
        """Run for controller; do the controller's work if elected, and otherwise read changed settings."""
        active, registration = self._active_controller, self._registration
        if active.term is not None and not await is_controller(self.store):
            active.resign()
        if active.term is None and registration is not None:
            active.term = await campaign(self.store, registration.broker_id, self._clock.now_ms())
        if active.term is None or registration is None:
            await self.updates.follow_settings(self.store)
        elif active.is_ready:
            await active.follow()
        else:
            await active.begin(self.store, registration.broker_id)
