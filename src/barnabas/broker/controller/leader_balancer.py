"""Giving partitions back to their preferred leaders (auto.leader.rebalance.enable).

After a broker has died and come back, others still lead what it led before. The controller checks now and then
(leader.imbalance.check.interval.seconds) how many partitions are not led by their preferred leader, and elects those.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.machines.controller.leaders import balance
from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.controller.local_controller import LocalController
    from barnabas.broker.settings import Settings
    from barnabas.metadata.images.cache import MetadataCache

logger = logging.getLogger(__name__)


class LeaderBalancer:
    """Elects preferred leaders while this broker is the active controller."""

    def __init__(self, controller: LocalController, metadata: MetadataCache, settings: Settings) -> None:
        self._controller = controller
        self._metadata = metadata
        self._settings = settings

    async def run(self) -> None:
        """Check again and again, until cancelled."""
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
                logger.warning("Preferred leaders could not be elected, trying again at the next check: %s", error)
