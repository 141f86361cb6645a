"""Being a member of the cluster: a broker's ephemeral registration.

Its creation id is the broker's epoch, so each registration of a broker differs from those before. Two brokers with one
id are never registered at once: the node is there, and the second one is refused.

After kill -9 the old registration stays until its session times out. A broker that starts again meanwhile replaces it
if it is its own: the node carries the incarnation id of the process that made it, and who holds the data directory's
lock and knows that id from there knows that the process is gone. Otherwise it waits, in case the other one is about to
vanish. But where that one answers, at an address that is not ours, it is up, and the directory is a copy of its own.
An address that is not the one we give now, since the configuration was changed, may be ours all the same: whoever
connects to it has to find out whether this process answers.

Addresses alone decide that, for a broker says nothing of itself before the handshake. So there are limits. Where ports
are mapped or addresses translated, a connection to ourselves does not show that it is one: a broker whose advertised
address was changed takes itself for another, and is refused until its old session has timed out. And a broker on
another machine that gives an address like localhost cannot be found there: it counts as one that does not answer, and
is replaced by a copy of its directory.

With the registration goes a record that stays when the broker goes (`KnownBrokerNode`): partitions can be placed on a
broker that is away. Whoever removes the registration of another broker has the record checked in the same transaction,
so that one which was made anew a moment ago is not removed for the one before it. `forget` removes the record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from barnabas.metadata.stores.store import BadVersion, Check, Create, Delete, NodeExists, NoNode, Set
from barnabas.metadata.znodes import BrokerNode, ControllerEpochNode, ControllerNode, KnownBrokerNode, Registration
from barnabas.model.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from barnabas.machines.controller.image import Endpoint
    from barnabas.metadata.stores.store import MetadataStore, StoredNode

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
"""How long an id counts as taken without another look."""


class DuplicateBroker(StartupError):
    """Another broker with this id is up."""

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds
        """For how long that was known when it was given up; how long the store was slow or away does not count."""


async def register(
    store: MetadataStore,
    registration: Registration,
    now_ms: int,
    *,
    previous_incarnation: UUID | None = None,
    id_timeout: float = 0.0,
    answers: Callable[[Endpoint], Awaitable[bool]] | None = None,
) -> int:
    """Register and return the broker's epoch.

    A node of `previous_incarnation` is replaced; for any other to vanish, `id_timeout` seconds are waited (a little
    more than the session timeout outlasts a dead broker) from when it was found, and it is looked for again every
    second and at the end. The time that the store takes for that does not count. Neither is done if it `answers` at an
    address that is not ours; `answers` is not true of this process itself. Raises DuplicateBroker.
    """
    path = BrokerNode.path(registration.broker_id)
    data = BrokerNode.encode(registration, now_ms)
    clock = asyncio.get_running_loop().time
    taken = 0.0
    changed = asyncio.Event()
    watch = store.watch(path, changed.set)
    try:
        while True:
            changed.clear()
            record = await _record(store, registration.broker_id, data)
            with contextlib.suppress(NodeExists, NoNode):
                await store.multi([Create(path, data, ephemeral=True), Set(record.path, data)])
            node = await store.find(path)
            if node is None:
                continue
            if node.owner == store.session_id:
                return node.czxid
            found = clock()
            if answers is not None and await _is_up(registration, node, answers):
                raise _duplicate(registration, node, taken + clock() - found)
            if _incarnation(registration.broker_id, node) == previous_incarnation is not None:
                logger.info(
                    "Replacing the registration that the last run of broker %d left behind.", registration.broker_id
                )
                await _remove(store, node, record)
                continue
            if taken >= id_timeout:
                raise _duplicate(registration, node, taken)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(found + min(_LOOK_SECONDS, id_timeout - taken)):
                    await changed.wait()
            taken += clock() - found
    finally:
        watch.cancel()


async def remove(store: MetadataStore, broker_id: int, found: StoredNode) -> None:
    """Remove a dead broker's registration, and its `/controller` node, unless it has registered anew since `found`."""
    record = await store.find(KnownBrokerNode.path(broker_id))
    node = await store.find(BrokerNode.path(broker_id))
    if node is not None and node.czxid == found.czxid:
        await _remove(store, node, record)


async def _record(store: MetadataStore, broker_id: int, data: bytes) -> StoredNode:
    """The record of a broker, made if there is none."""
    path = KnownBrokerNode.path(broker_id)
    while (found := await store.find(path)) is None:
        with contextlib.suppress(NodeExists):
            await store.create(path, data, parents=True)
    return found


async def _remove(store: MetadataStore, node: StoredNode, record: StoredNode | None) -> None:
    """Remove a registration, if its broker has made no other since its record was read, before the registration was."""
    unchanged = [] if record is None else [Check(record.path, record.version)]
    with contextlib.suppress(NoNode, BadVersion):
        await store.multi([*unchanged, Delete(node.path)])
    await _remove_controller(store, node.owner)


async def _remove_controller(store: MetadataStore, session: int) -> None:
    """If the dead session was the controller's, remove `/controller` too: nobody waits for it to time out."""
    epoch = await store.find(ControllerEpochNode.path)
    controller = await store.find(ControllerNode.path)
    if epoch is not None and controller is not None and controller.owner == session:
        with contextlib.suppress(NoNode, BadVersion):
            await store.multi([Check(epoch.path, epoch.version), Delete(controller.path)])


async def _is_up(registration: Registration, other: StoredNode, answers: Callable[[Endpoint], Awaitable[bool]]) -> bool:
    found = BrokerNode.decode(registration.broker_id, other.data)
    own = set(registration.endpoints.values())
    return any([await answers(endpoint) for endpoint in found.endpoints.values() if endpoint not in own])


def _duplicate(registration: Registration, other: StoredNode, seconds: float) -> DuplicateBroker:
    found = BrokerNode.decode(registration.broker_id, other.data)
    where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in found.endpoints.values())
    return DuplicateBroker(
        f"a broker with id {registration.broker_id} is already up at {where}: "
        "give this one another broker.id, or stop the other one",
        seconds,
    )


def _incarnation(broker_id: int, node: StoredNode) -> UUID | None:
    return BrokerNode.decode(broker_id, node.data).incarnation_id
