"""Having other brokers lead before this one stops (controlled.shutdown.enable)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.metadata.images.cache import Delta

logger = logging.getLogger(__name__)


async def shut_down_controlled(broker: BrokerContext) -> None:
    """Ask the controller to move leadership to other brokers, as often as controlled.shutdown.max.retries says.

    A controller that stops at the same time may not answer. The next one is asked as soon as there is one. Where all
    brokers stop together, those that could lead are about to stop as well: once they are gone, nobody is waited for.
    """
    number = broker.settings.number
    is_member = broker.membership.broker_epoch >= 0 and broker.membership.duplicate is None
    if not is_member or not broker.settings.flag("controlled.shutdown.enable"):
        return
    pause = number("controlled.shutdown.retry.backoff.ms") / 1000
    has_changed = asyncio.Event()

    def look(delta: Delta) -> None:
        if delta.after.controller_epoch > delta.before.controller_epoch or _is_alone(broker):
            has_changed.set()

    broker.metadata.subscribe(look)
    for left in reversed(range(number("controlled.shutdown.max.retries"))):
        has_changed.clear()
        if _is_alone(broker):
            return
        try:
            remaining = await broker.controller_link.shut_down()
            if not remaining:
                logger.info("The leadership of all partitions moved to other brokers.")
                return
            logger.warning("%d partitions have no other replica in sync that could lead them.", remaining)
        except BarnabasError as error:
            logger.warning("The controller could not move this broker's leadership to other brokers: %s", error)
        if left:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(has_changed.wait(), pause)
    if not _is_alone(broker):
        logger.warning("This broker stops although it still leads partitions: they have no leader until it is back.")


def _is_alone(broker: BrokerContext) -> bool:
    """Whether no other broker is there to lead anything."""
    return broker.metadata.image.brokers.keys() <= {broker.broker_id}
