"""Telling the controller which replicas have failed, alone or with their directory, so that others lead and count.

The controller keeps that in memory only, so it is told again when another broker comes to office. A broker that is
alone has nobody to lead instead of it, and goes on as well as it can.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.controller_link import ControllerLink
    from barnabas.broker.replicas import ReplicaManager
    from barnabas.machines.controller.image import PartitionKey
    from barnabas.metadata.cache import MetadataCache

logger = logging.getLogger(__name__)

_EVERY: Final = 0.5
"""Seconds between two looks at the log directories."""


class FailedLogs:
    """Looks after the log directories of this broker."""

    def __init__(self, broker_id: int, replicas: ReplicaManager, link: ControllerLink, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._link = link
        self._metadata = metadata
        self._told: tuple[int, frozenset[PartitionKey]] = -1, frozenset()
        """Which term's controller was told what."""

    async def watch(self) -> None:
        """Look now and then, until this is cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            if self._replicas.logs.have_failed:
                try:
                    await self.report()
                except BarnabasError as error:
                    logger.warning("the controller could not be told of a failed log directory: %s", error)

    async def report(self) -> None:
        """Tell the controller, unless it knows. Raises BarnabasError."""
        image = self._metadata.image
        if image.brokers.keys() <= {self._broker_id}:
            return
        failed = self._replicas.unusable()
        wanted = image.controller_epoch, failed
        if failed and wanted != self._told:
            await self._link.log_dir_failed(failed)
            self._told = wanted
