"""Everything that a broker has to do with other brokers, put together: channels, couriers, replication, forwarding.

A broker that is alone in its cluster has all of it too, at rest.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.broker.controller_link import ControllerLink
from barnabas.broker.couriers import Couriers
from barnabas.broker.failed_logs import FailedLogs
from barnabas.broker.introductions import Introducer
from barnabas.broker.lookout import Lookout
from barnabas.broker.peers import Peers
from barnabas.broker.replication import Replication
from barnabas.broker.replication_throttle import ReplicationThrottle
from barnabas.broker.strays import Strays
from barnabas.machines.controller.leaders import balance
from barnabas.machines.controller.requests import LogDirFailed
from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from barnabas.broker.controller import Controller
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.broker.settings import Settings
    from barnabas.metadata.cache import MetadataCache
    from barnabas.model.clock import Clock

logger = logging.getLogger(__name__)


class Cluster:
    """This broker among the others."""

    def __init__(
        self,
        broker_id: int,
        *,
        controller: Controller,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        settings: Settings,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._broker_id = broker_id
        self._settings = settings
        self._metadata = metadata
        self._controller = controller
        self._tasks: list[asyncio.Task[None]] = []
        self.introducer = Introducer(broker_id, metadata, lambda: controller.secret)
        self.peers = Peers(broker_id, metadata, settings, self.introducer)
        self.link = ControllerLink(broker_id, controller, self.peers, metadata, settings)
        self.leader_throttle = ReplicationThrottle(broker_id, settings, leads=True)
        self._replication = Replication(
            broker_id,
            replicas,
            self.peers,
            self.link,
            settings,
            clock,
            lambda: controller.broker_epoch,
            executor,
            ReplicationThrottle(broker_id, settings, leads=False),
        )
        self._failed_logs = FailedLogs(broker_id, replicas, self.link, metadata)
        self._lookout = Lookout(broker_id, controller, self.peers, metadata)
        controller.employ(
            Couriers(
                broker_id, self.peers, settings, lambda lost_by, keys: controller.decide(LogDirFailed(lost_by, keys))
            )
        )
        controller.standing.actor = replicas
        replicas.replication = self._replication
        replicas.strays = self._strays = Strays(
            broker_id, replicas.logs, lambda: controller.store, executor, in_office=lambda: controller.is_active
        )

    def start(self) -> None:
        """Begin; the replicas already follow the image."""
        self._metadata.subscribe(self.peers.on_change)
        self._metadata.subscribe(self._replication.on_change)
        self._metadata.subscribe(self._lookout.on_change)
        self._replication.start()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._balance(), name="leader balance"),
            loop.create_task(self._failed_logs.watch(), name="failed log directories"),
        ]

    async def _balance(self) -> None:
        """In office: give partitions back to their preferred leaders (auto.leader.rebalance.enable)."""
        settings = self._settings
        while True:
            await asyncio.sleep(settings.number("leader.imbalance.check.interval.seconds"))
            if not self._controller.is_active or not settings.flag("auto.leader.rebalance.enable"):
                continue
            wanted = balance(self._metadata.image, settings.number("leader.imbalance.per.broker.percentage"))
            try:
                if wanted is not None:
                    await self._controller.decide(wanted)
            except BarnabasError as error:
                logger.warning("preferred leaders could not be elected, trying again later: %s", error)

    async def leave(self) -> None:
        """Before a stop: have others lead what this broker leads (controlled.shutdown.enable)."""
        alone = self._metadata.image.brokers.keys() <= {self._broker_id}
        is_member = self._controller.broker_epoch >= 0 and self._controller.ousted is None
        if alone or not is_member or not self._settings.flag("controlled.shutdown.enable"):
            return
        tries = self._settings.number("controlled.shutdown.max.retries")
        pause = self._settings.number("controlled.shutdown.retry.backoff.ms") / 1000
        for left in reversed(range(tries)):
            try:
                remaining = await self.link.shut_down()
                if not remaining:
                    logger.info("others lead what this broker has led")
                    return
                logger.warning("%d partitions have no other replica in sync that could lead them", remaining)
            except BarnabasError as error:
                logger.warning("the controller could not give this broker's partitions to others: %s", error)
            if left:
                await asyncio.sleep(pause)
        logger.warning("stopping although some partitions then have no leader")

    async def stop(self) -> None:
        """Ask and fetch no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._lookout.stop()
        await self._replication.stop()
        await self._strays.stop()
        self.peers.close()
