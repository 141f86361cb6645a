"""Telling the other brokers what the controller has decided: one courier for each registration of a broker.

A courier knows the last image that its broker acknowledged, and tells the difference to the newest one; whatever
happened in between goes in one message. A message that was not answered may have been taken, so after it everything is
told anew. A broker that hung may also read it after that: messages are numbered, so that it refuses what comes late. A
courier goes on until the broker's registration is gone, or the controller is replaced. Replicas that the broker answers
it has lost with a disk are handed back to the controller's rules (`lost`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import BarnabasError, ErrorCode
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence
    from typing import Any

    from barnabas.broker.peers import Peers
    from barnabas.broker.settings import Settings
    from barnabas.machines.controller.image import PartitionKey
    from barnabas.metadata.cache import BrokerImage, ClusterImage

    Lost = Callable[[int, Sequence[PartitionKey]], Awaitable[object]]

logger = logging.getLogger(__name__)

_FIRST_RETRY: Final = 0.05
_LONGEST_RETRY: Final = 1.0
_OVER: Final = frozenset({ErrorCode.stale_controller_epoch, ErrorCode.stale_broker_epoch})
"""Answers that no repetition changes: another controller is in office, or the broker has registered anew."""


class Couriers:
    """Those of one term of office."""

    def __init__(self, broker_id: int, peers: Peers, settings: Settings, lost: Lost) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._settings = settings
        self._lost = lost
        self._couriers: dict[tuple[int, int], Courier] = {}
        self._numbers = count()

    def publish(self, image: ClusterImage) -> None:
        """Tell everyone who is registered."""
        wanted = {
            (broker.broker_id, broker.epoch): broker
            for broker in image.brokers.values()
            if broker.broker_id != self._broker_id
        }
        for key in self._couriers.keys() - wanted.keys():
            self._couriers.pop(key).dismiss()
        for key, broker in wanted.items():
            courier = self._couriers.get(key)
            if courier is None:
                courier = self._couriers[key] = Courier(broker, self._peers, self._settings, self._lost, self._numbers)
            courier.publish(image)

    def dismiss(self) -> None:
        """The term is over."""
        for courier in self._couriers.values():
            courier.dismiss()
        self._couriers.clear()

    async def delivered(self, seconds: float) -> None:
        """Wait until everyone has taken over what was published up to now, but no longer than this."""
        waiting = [courier.delivered() for courier in self._couriers.values()]
        if waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*waiting)


class Courier:
    """Tells one broker, in one of its registrations."""

    def __init__(
        self, broker: BrokerImage, peers: Peers, settings: Settings, lost: Lost, numbers: Iterator[int]
    ) -> None:
        self._broker = broker
        self._peers = peers
        self._settings = settings
        self._lost = lost
        self._numbers = numbers
        self._newest: ClusterImage | None = None
        self._acknowledged: ClusterImage | None = None
        self._published = asyncio.Event()
        self._taken = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"courier to {broker.broker_id}")

    def publish(self, image: ClusterImage) -> None:
        """Tell this image instead of any that was not told yet."""
        if self._task.done():
            return
        self._newest = image
        self._taken.clear()
        self._published.set()

    def dismiss(self) -> None:
        """Tell nothing more."""
        self._task.cancel()
        self._taken.set()

    async def delivered(self) -> None:
        """Wait until the newest image was taken over, or never will be."""
        await self._taken.wait()

    async def _run(self) -> None:
        delay = _FIRST_RETRY
        while True:
            await self._published.wait()
            self._published.clear()
            image = self._newest
            if image is None:
                continue
            try:
                error = await self._tell(image)
            except ChannelBroken as broken:
                logger.info("broker %d could not be told, trying again: %s", self._broker.broker_id, broken)
                error = ErrorCode.network_exception
            except Exception:
                logger.exception("telling broker %d failed, trying again", self._broker.broker_id)
                error = ErrorCode.unknown_server_error
            if error is ErrorCode.none:
                self._acknowledged, delay = image, _FIRST_RETRY
                if self._newest is image:
                    self._taken.set()
            elif error in _OVER:
                logger.info("broker %d answers %s: it is told nothing more", self._broker.broker_id, error.name)
                self._taken.set()
                return
            else:
                self._acknowledged = None
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_RETRY)
                self._published.set()

    async def _tell(self, image: ClusterImage) -> ErrorCode:
        from kio.static.primitive import i64  # here: a broker that is alone starts without it

        from barnabas.metadata.announcements import announcements
        from barnabas.protocol.internal import LEADER_AND_ISR, RESPONSES

        seconds = self._settings.number("controller.socket.timeout.ms") / 1000
        for message in announcements(self._acknowledged, image, self._broker):
            numbered = replace(message, number=i64(next(self._numbers)))
            response = await self._peers.ask(
                self._broker.broker_id, numbered, RESPONSES[message.__api_key__], seconds=seconds, purpose="controller"
            )
            if response.error_code is not ErrorCode.none:
                code: ErrorCode = response.error_code
                return code
            if message.__api_key__ == LEADER_AND_ISR and response.topics:
                await self._hand_back(image, response)
        return ErrorCode.none

    async def _hand_back(self, image: ClusterImage, response: Any) -> None:
        lost = [
            (found.name, each.partition_index)
            for topic in response.topics
            if (found := image.topic_by_id(topic.topic_id)) is not None
            for each in topic.partition_errors
            if each.error_code is ErrorCode.kafka_storage_error
        ]
        with contextlib.suppress(BarnabasError):  # the broker reports it too
            await self._lost(self._broker.broker_id, lost)
