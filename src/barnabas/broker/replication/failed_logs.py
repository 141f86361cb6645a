"""Replicas that have failed, alone or with their log directory.

The broker reports them to the controller, which elects other leaders and shrinks ISRs. The controller keeps the report
in memory only. So the broker reports whenever the image does not show the failures that it sees: a directory failed, a
failed one is used again, or another broker became the controller. A broker that is alone in its cluster reports nothing
and goes on as well as it can.

A directory that was full and has room again is used again: its partitions are led, followed and coordinated anew. Logs
that could not be created are created.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.controller.link import ControllerLink
    from barnabas.broker.replication.replicas import ReplicaManager
    from barnabas.metadata.images.cache import MetadataCache

logger = logging.getLogger(__name__)

_INTERVAL: Final = 0.5
"""Seconds between two checks of the log directories."""


class FailedLogs:
    """Reports failed logs to the controller, and uses those again that can be used."""

    def __init__(self, broker_id: int, replicas: ReplicaManager, link: ControllerLink, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._replicas = replicas
        self._link = link
        self._metadata = metadata

    async def watch(self) -> None:
        """Check the log directories until this task is cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                await self._replicas.retry_failed()
                await self.report()
            except BarnabasError as error:
                logger.warning("Could not report failed logs to the controller. It is tried again: %s", error)
            except Exception:
                logger.exception("The check of failed log directories failed. It is tried again.")

    async def report(self) -> None:
        """Report failed logs to the controller, unless its image shows them. Raises BarnabasError."""
        image = self._metadata.image
        if self._broker_id not in image.brokers or len(image.brokers) == 1:
            return
        reported = image.failed.get(self._broker_id, frozenset())
        if not reported and not self._replicas.logs.have_failed:
            return
        failed = self._replicas.unusable()
        if failed != reported:
            await self._link.log_dir_failed(failed)
