"""When a broker that stops asks for its leadership to be moved."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from barnabas.broker.controller.controlled_shutdown import shut_down_controlled
from barnabas.broker.settings import Settings
from barnabas.machines.controller.image import BrokerImage, ClusterImage
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    import pytest


class Link:
    """The first controller stops, too, and does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Queue[int]()
        self._count = 0

    async def shut_down(self) -> int:
        self._count += 1
        self.asked.put_nowait(self._count)
        if self._count == 1:
            raise ChannelBroken("connection refused")
        return 0


class LeftLink:
    """A controller that finds nobody else to lead."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def shut_down(self) -> int:
        self.asked.set()
        return 3


def stopping_broker(metadata: MetadataCache, link: Link | LeftLink) -> Any:
    settings = {"log.dirs": "/nowhere", "controlled.shutdown.retry.backoff.ms": "3600000"}
    return SimpleNamespace(
        broker_id=1,
        settings=Settings(BrokerConfig.load(settings), metadata),
        metadata=metadata,
        membership=SimpleNamespace(broker_epoch=1, duplicate=None),
        controller_link=link,
    )


async def test_the_next_controller_is_asked_as_soon_as_there_is_one() -> None:
    brokers = {number: BrokerImage(broker_id=number, epoch=1, endpoints={}) for number in (1, 2)}
    metadata = MetadataCache(ClusterImage(controller_id=2, controller_epoch=1, brokers=brokers))
    link = Link()
    async with asyncio.timeout(30):
        stopping = asyncio.create_task(shut_down_controlled(stopping_broker(metadata, link)))
        assert await link.asked.get() == 1
        metadata.replace(replace(metadata.image, controller_id=1, controller_epoch=2))
        assert await link.asked.get() == 2
        await stopping


async def test_nobody_is_waited_for_once_all_others_have_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """As when all brokers stop together: the last one leads everything, and has nobody to hand it to."""
    brokers = {number: BrokerImage(broker_id=number, epoch=1, endpoints={}) for number in (1, 2, 3)}
    metadata = MetadataCache(ClusterImage(controller_id=1, controller_epoch=1, brokers=brokers))
    link = LeftLink()
    async with asyncio.timeout(30):
        stopping = asyncio.create_task(shut_down_controlled(stopping_broker(metadata, link)))
        await link.asked.wait()
        for gone in (2, 3):
            assert not stopping.done()
            left = {number: each for number, each in metadata.image.brokers.items() if number != gone}
            metadata.replace(replace(metadata.image, brokers=left))
            await asyncio.sleep(0)
        await stopping
    assert "stops although" not in caplog.text
