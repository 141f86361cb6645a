"""Metadata updates from the active controller to the other brokers: one updater for each registration of a broker.

An updater knows the last image that its broker acknowledged, and sends the difference to the newest one; whatever
happened in between goes in one message. A message that was not answered may have been applied, so after it the whole
image is sent. A broker that hung may also read it after that: messages are numbered, so that it refuses what comes
late. An updater goes on until the broker's registration is gone, or the controller is replaced. Replicas that the
broker answers it has lost with a disk are reported to the controller's rules (`report_lost`).

Brokers that know the same image are sent the same difference: it is made and packed once, and a large one in a thread
(`OutgoingUpdates`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from itertools import count
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from barnabas.model.errors import BarnabasError, ErrorCode
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Any

    from barnabas.broker.controller.peers import Peers
    from barnabas.broker.settings import Settings
    from barnabas.machines.controller.image import PartitionKey
    from barnabas.metadata.images.announcements import Announcements, Packed
    from barnabas.metadata.images.cache import BrokerImage, ClusterImage

    ReportLost = Callable[[int, Sequence[PartitionKey]], Awaitable[object]]

logger = logging.getLogger(__name__)

_FIRST_RETRY: Final = 0.05
_LONGEST_RETRY: Final = 1.0
_OVER: Final = frozenset({ErrorCode.stale_controller_epoch, ErrorCode.stale_broker_epoch})
"""Answers that no repetition changes: there is another controller, or the broker has registered anew."""
LARGE: Final = 1000
"""Partitions in an update that is packed in a thread: some milliseconds, in which the event loop serves others."""


class OutgoingUpdates:
    """The updates that brokers are being sent: what several of them are sent is there once."""

    def __init__(self) -> None:
        self._current: WeakValueDictionary[tuple[int, int], Announcements] = WeakValueDictionary()
        """By the identities of both images, which live as long as the announcements; those as long as someone sends."""
        self._one_at_a_time = asyncio.Lock()
        self._numbers = count()

    def between(self, before: ClusterImage | None, after: ClusterImage) -> Announcements:
        """What brokers are sent that know `before`."""
        from barnabas.metadata.images.announcements import (
            Announcements,
        )  # here: a broker that is alone starts without it

        key = id(before), id(after)
        found = self._current.get(key)
        if found is None:
            found = self._current[key] = Announcements(before, after)
        return found

    async def packed(self, announcements: Announcements, broker: BrokerImage) -> list[Packed]:
        """The messages for one broker."""
        if announcements.size < LARGE:
            return announcements.packed(broker)
        async with self._one_at_a_time:  # what is shared is packed by the first, and one thread is enough
            return await asyncio.to_thread(announcements.packed, broker)  # not with those that wait for a disk

    def next_number(self) -> int:
        """The number of a message that is sent now."""
        return next(self._numbers)


class BrokerUpdaters:
    """The updaters of one controller."""

    def __init__(
        self,
        broker_id: int,
        peers: Peers,
        settings: Settings,
        report_lost: ReportLost,
    ) -> None:
        self._broker_id = broker_id
        self._peers = peers
        self._settings = settings
        self._report_lost = report_lost
        self._updaters: dict[tuple[int, int], BrokerUpdater] = {}
        self._outgoing = OutgoingUpdates()

    def publish(self, image: ClusterImage) -> None:
        """Send this image to every broker that is registered."""
        wanted = {
            (broker.broker_id, broker.epoch): broker
            for broker in image.brokers.values()
            if broker.broker_id != self._broker_id
        }
        for key in self._updaters.keys() - wanted.keys():
            self._updaters.pop(key).stop()
        for key, broker in wanted.items():
            updater = self._updaters.get(key)
            if updater is None:
                updater = self._updaters[key] = BrokerUpdater(
                    broker, self._peers, self._settings, self._report_lost, self._outgoing
                )
            updater.publish(image)

    def stop(self) -> None:
        """Send no more: this broker is no longer the controller."""
        for updater in self._updaters.values():
            updater.stop()
        self._updaters.clear()

    async def delivered(self, seconds: float) -> None:
        """Wait until every broker has applied what was published up to now, but no longer than this."""
        waiting = [updater.delivered() for updater in self._updaters.values()]
        if waiting:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await asyncio.gather(*waiting)


class BrokerUpdater:
    """Sends metadata updates to one registration of one broker."""

    def __init__(
        self,
        broker: BrokerImage,
        peers: Peers,
        settings: Settings,
        report_lost: ReportLost,
        outgoing: OutgoingUpdates,
    ) -> None:
        self._broker = broker
        self._peers = peers
        self._settings = settings
        self._report_lost = report_lost
        self._outgoing = outgoing
        self._newest: ClusterImage | None = None
        self._acknowledged: ClusterImage | None = None
        self._published = asyncio.Event()
        self._delivered = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"updater of broker {broker.broker_id}")

    def publish(self, image: ClusterImage) -> None:
        """Send this image instead of any that was not sent yet."""
        if self._task.done():
            return
        self._newest = image
        self._delivered.clear()
        self._published.set()

    def stop(self) -> None:
        """Send no more."""
        self._task.cancel()
        self._delivered.set()

    async def delivered(self) -> None:
        """Wait until the broker has applied the newest image, or never will."""
        await self._delivered.wait()

    async def _run(self) -> None:
        delay = _FIRST_RETRY
        while True:
            await self._published.wait()
            self._published.clear()
            image = self._newest
            if image is None:
                continue
            try:
                error = await self._send(image)
            except ChannelBroken as broken:
                logger.info(
                    "The metadata update to broker %d failed, trying again in %g s: %s",
                    self._broker.broker_id,
                    delay,
                    broken,
                )
                error = ErrorCode.network_exception
            except Exception:
                logger.exception(
                    "The metadata update to broker %d failed, trying again in %g s.", self._broker.broker_id, delay
                )
                error = ErrorCode.unknown_server_error
            if error is ErrorCode.none:
                self._acknowledged, delay = image, _FIRST_RETRY
                if self._newest is image:
                    self._delivered.set()
            elif error in _OVER:
                logger.info(
                    "Broker %d answers %s to a metadata update: this registration gets no more of them.",
                    self._broker.broker_id,
                    error.name,
                )
                self._delivered.set()
                return
            else:
                self._acknowledged = None
                await asyncio.sleep(delay)
                delay = min(2 * delay, _LONGEST_RETRY)
                self._published.set()

    async def _send(self, image: ClusterImage) -> ErrorCode:
        from barnabas.protocol.apis import ApiKey  # here: a broker that is alone starts without these
        from barnabas.protocol.messages.controller_updates import number_tag
        from barnabas.protocol.messages.inter_broker import RESPONSES

        seconds = self._settings.number("controller.socket.timeout.ms") / 1000
        announcements = self._outgoing.between(self._acknowledged, image)
        for message in await self._outgoing.packed(announcements, self._broker):
            response = await self._peers.ask_packed(
                self._broker.broker_id,
                message.api_key,
                message.version,
                (*message.body, number_tag(self._outgoing.next_number())),
                RESPONSES[message.api_key],
                seconds=seconds,
                purpose="controller",
            )
            if response.error_code is not ErrorCode.none:
                code: ErrorCode = response.error_code
                return code
            if message.api_key == ApiKey.LEADER_AND_ISR.value and response.topics:
                await self._report_lost_replicas(image, response)
        return ErrorCode.none

    async def _report_lost_replicas(self, image: ClusterImage, response: Any) -> None:
        lost = [
            (found.name, each.partition_index)
            for topic in response.topics
            if (found := image.topic_by_id(topic.topic_id)) is not None
            for each in topic.partition_errors
            if each.error_code is ErrorCode.kafka_storage_error
        ]
        with contextlib.suppress(BarnabasError):  # the broker reports it too
            await self._report_lost(self._broker.broker_id, lost)
