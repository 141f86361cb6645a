"""Finding a dead broker before its session has timed out.

A ZooKeeper session outlives its process by seconds. But the process's connections end with it, and while its host is
up, new ones are refused. So the controller keeps a connection to every broker, and every broker one to the controller.
When it ends, and two new ones are refused, and another broker finds the same, the registration is removed, unless it is
another one by now; if the dead broker was the controller, so is its `/controller` node. What follows is what follows
when a session ends.

A broker that hangs, or whose host or network is gone, refuses nothing: its session decides. Should the registration of
a living broker be removed, it notices, and registers anew (`membership`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.controller.connection_probe import CONNECT_SECONDS
from barnabas.broker.tasks import TaskSet
from barnabas.metadata.membership import remove
from barnabas.metadata.znodes import BrokerNode
from barnabas.model.errors import BarnabasError
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from barnabas.broker.controller.connection_probe import ConnectionProbe
    from barnabas.broker.controller.membership import ClusterMembership
    from barnabas.broker.controller.peers import Peers
    from barnabas.metadata.images.cache import Delta, Endpoint, MetadataCache

logger = logging.getLogger(__name__)

REFUSALS: Final = 2
_BETWEEN: Final = 0.1
"""Seconds between two attempts to connect."""
_SHORTEST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 5.0
"""Seconds until the next connection; each time longer while there can be none, as where a login is refused."""


class FailureDetector:
    """Watches the brokers whose death this one must see."""

    def __init__(
        self,
        broker_id: int,
        membership: ClusterMembership,
        peers: Peers,
        metadata: MetadataCache,
        probe: ConnectionProbe,
    ) -> None:
        self._broker_id = broker_id
        self._membership = membership
        self._peers = peers
        self._metadata = metadata
        self._probe = probe
        self._watching: dict[tuple[int, Endpoint], asyncio.Task[None]] = {}
        self._tasks = TaskSet()

    def on_change(self, delta: Delta) -> None:
        """As the controller, watch every other broker; otherwise watch the controller."""
        image = delta.after
        watched = set(image.brokers) if self._membership.controller.is_active else {image.controller_id}
        wanted = {
            (broker_id, endpoint): None
            for broker_id in sorted(watched - {self._broker_id})
            if (endpoint := self._peers.endpoint(broker_id)) is not None
        }
        for key in [key for key in self._watching if key not in wanted]:
            self._watching.pop(key).cancel()
        for key in [key for key in wanted if key not in self._watching]:
            self._watching[key] = self._tasks.spawn(self._watch(*key), f"failure detector of broker {key[0]}")

    async def stop(self) -> None:
        """Watch nobody."""
        self._watching.clear()
        await self._tasks.cancel()

    async def _watch(self, broker_id: int, endpoint: Endpoint) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            was_connected = await self._until_disconnected(broker_id)
            pause = _SHORTEST_PAUSE if was_connected else min(2 * pause, _LONGEST_PAUSE)
            try:
                if await self._remove_if_dead(broker_id, endpoint):
                    continue
            except BarnabasError as error:
                logger.info(
                    "Broker %d refuses connections, but it is not known whether it is dead. Trying again in %g s: %s",
                    broker_id,
                    pause,
                    error,
                )
            await asyncio.sleep(pause)

    async def _until_disconnected(self, broker_id: int) -> bool:
        """Hold a connection for as long as it lasts; gives whether there was one.

        It begins with the brokers' handshake, without which the other broker would soon close it.
        """
        try:
            with contextlib.closing(self._peers.open(broker_id, "failure-detector")) as channel:
                await channel.until_broken()
        except ChannelBroken:
            return False
        return True

    async def _remove_if_dead(self, broker_id: int, endpoint: Endpoint) -> bool:
        """Look twice, ask another broker, and remove the registration of a broker that is dead."""
        registration = await self._membership.store.find(BrokerNode.path(broker_id))
        if registration is None:
            return False
        for _ in range(REFUSALS):
            if not await self._probe.is_refused(endpoint):
                return False
            await asyncio.sleep(_BETWEEN)
        if not await self._is_confirmed(broker_id):
            return False
        logger.warning(
            "Broker %d is dead: it refuses connections of two brokers. Its registration is removed.", broker_id
        )
        await remove(self._membership.store, broker_id, registration)
        return True

    async def _is_confirmed(self, broker_id: int) -> bool:
        """Whether another broker finds the same."""
        from kio.static.primitive import i32

        from barnabas.protocol.messages import inter_broker

        for other in self._metadata.image.brokers.keys() - {self._broker_id, broker_id}:
            with contextlib.suppress(BarnabasError):
                response = await self._peers.ask(
                    other,
                    inter_broker.ProbeRequest(broker_id=i32(broker_id)),
                    inter_broker.ProbeResponse,
                    seconds=2 * CONNECT_SECONDS,
                    purpose="failure-detector",
                )
                if response.is_refused:
                    return True
        return False
