"""What becomes of replicas that have failed, alone or with their log directory.

The controller is told which they are, so that others lead and count. It keeps that in memory only: it is told whenever
what it has published is not what this broker sees, be it that another directory failed, that one has come back, or that
another broker came to office. A broker that is alone has nobody to lead instead of it, and goes on as well as it can.

A directory that was full and has room again is used again: what this broker leads or follows there begins anew, as do
its coordinators. So do logs that could not be made.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.controller_link import ControllerLink
    from barnabas.broker.replicas import ReplicaManager
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

    async def watch(self) -> None:
        """Look now and then, until this is cancelled."""
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self._replicas.use_what_came_back()
                await self.report()
            except BarnabasError as error:
                logger.warning("the controller could not be told of a failed log directory: %s", error)
            except Exception:
                logger.exception("looking after failed log directories failed, trying again")

    async def report(self) -> None:
        """Tell the controller, unless it knows. Raises BarnabasError."""
        image = self._metadata.image
        if self._broker_id not in image.brokers or len(image.brokers) == 1:
            return
        known = image.failed.get(self._broker_id, frozenset())
        if not known and not self._replicas.logs.have_failed:
            return
        failed = self._replicas.unusable()
        if failed != known:
            await self._link.log_dir_failed(failed)
