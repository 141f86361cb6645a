"""Finding a dead broker before its session has timed out.

A ZooKeeper session outlives its process by seconds. But the process's connections end with it, and while its host is
up, new ones are refused. So the controller keeps a connection to every broker, and every broker one to the controller.
When it ends, and two new ones are refused, and another broker finds the same, the registration is removed, unless it is
another one by now; the controller's office goes with it. What follows is what follows when a session ends.

A broker that hangs, or whose host or network is gone, refuses nothing: its session decides. Should the registration of
a living broker be removed, it notices, and registers anew (`controller`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from barnabas.metadata import membership
from barnabas.metadata.znodes import BrokerNode
from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection

    from barnabas.broker.controller import Controller
    from barnabas.broker.peers import Peers
    from barnabas.metadata.cache import Delta, Endpoint, MetadataCache
    from barnabas.net.server import Address

logger = logging.getLogger(__name__)

REFUSALS: Final = 2
_BETWEEN: Final = 0.1
"""Seconds between two attempts to connect."""
_CONNECT_SECONDS: Final = 2.0
_AFTER_FAILURE: Final = 0.2


async def is_refused(endpoint: Endpoint) -> bool:
    """Whether a connection is refused now: nothing listens there, and the host says so."""
    try:
        async with _connection(endpoint):
            return False
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False


async def is_accepted(endpoint: Endpoint, listening: Collection[Address] = ()) -> bool:
    """Whether a connection is accepted now: something listens there, and not this process, at these addresses."""
    try:
        async with _connection(endpoint) as (_, writer):
            return not _leads_to(listening, writer)
    except ConnectionResetError:
        return True  # What is reset was accepted before.
    except (OSError, TimeoutError):
        return False


@contextlib.asynccontextmanager
async def _connection(endpoint: Endpoint) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with asyncio.timeout(_CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        yield reader, writer
    finally:
        writer.close()


def _leads_to(listening: Collection[Address], writer: asyncio.StreamWriter) -> bool:
    """Whether a connection came in at one of these addresses of this machine, as far as it is known where it ends."""
    try:
        here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    except (OSError, AttributeError):  # uvloop's, of a connection that the other side has reset already
        return False
    if here is None or there is None:
        return False
    host, port = there[:2]
    address = ip_address(host)
    is_local = address.is_loopback or host == here[0]
    everywhere = "0.0.0.0" if address.version == 4 else "::"
    return (host, port) in listening or (is_local and (everywhere, port) in listening)


class Lookout:
    """Watches the brokers whose death this one must see."""

    def __init__(self, broker_id: int, controller: Controller, peers: Peers, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._controller = controller
        self._peers = peers
        self._metadata = metadata
        self._tasks: dict[tuple[int, Endpoint], asyncio.Task[None]] = {}

    def on_change(self, delta: Delta) -> None:
        """Watch whom there is to watch now."""
        image = delta.after
        watched = set(image.brokers) if self._controller.is_active else {image.controller_id}
        wanted = {
            (broker_id, endpoint)
            for broker_id in watched - {self._broker_id}
            if (endpoint := self._peers.endpoint(broker_id)) is not None
        }
        for key in self._tasks.keys() - wanted:
            self._tasks.pop(key).cancel()
        for key in wanted - self._tasks.keys():
            self._tasks[key] = asyncio.get_running_loop().create_task(self._watch(*key), name=f"lookout for {key[0]}")

    async def stop(self) -> None:
        """Watch nobody."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, broker_id: int, endpoint: Endpoint) -> None:
        while True:
            await self._until_gone(endpoint)
            try:
                if await self._is_dead(broker_id, endpoint):
                    continue
            except BarnabasError as error:
                logger.info("broker %d refuses connections, but nobody can be asked about it: %s", broker_id, error)
            await asyncio.sleep(_AFTER_FAILURE)

    @staticmethod
    async def _until_gone(endpoint: Endpoint) -> None:
        """Hold a connection for as long as it lasts."""
        with contextlib.suppress(OSError, TimeoutError):
            async with _connection(endpoint) as (reader, _):
                await reader.read(1)

    async def _is_dead(self, broker_id: int, endpoint: Endpoint) -> bool:
        """Look twice, ask another one, and remove the registration of a broker that is dead."""
        registration = await self._controller.store.find(BrokerNode.path(broker_id))
        if registration is None:
            return False
        for _ in range(REFUSALS):
            if not await is_refused(endpoint):
                return False
            await asyncio.sleep(_BETWEEN)
        if not await self._is_confirmed(broker_id):
            return False
        logger.warning("broker %d is dead: two brokers find that it refuses connections", broker_id)
        await membership.remove(self._controller.store, broker_id, registration)
        return True

    async def _is_confirmed(self, broker_id: int) -> bool:
        """Whether another broker finds the same."""
        from kio.static.primitive import i32

        from barnabas.protocol import internal

        for other in self._metadata.image.brokers.keys() - {self._broker_id, broker_id}:
            with contextlib.suppress(BarnabasError):
                response = await self._peers.ask(
                    other,
                    internal.ProbeRequest(broker_id=i32(broker_id)),
                    internal.ProbeResponse,
                    seconds=2 * _CONNECT_SECONDS,
                    purpose="lookout",
                )
                if response.is_refused:
                    return True
        return False
