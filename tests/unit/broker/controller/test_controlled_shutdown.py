"""When a broker that stops asks for its leadership to be moved."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from barnabas.broker.controller.controlled_shutdown import shut_down_controlled
from barnabas.broker.settings import Settings
from barnabas.machines.controller.image import BrokerImage, ClusterImage
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.channel import ChannelBroken


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


async def test_the_next_controller_is_asked_as_soon_as_there_is_one() -> None:
    brokers = {number: BrokerImage(broker_id=number, epoch=1, endpoints={}) for number in (1, 2)}
    metadata = MetadataCache(ClusterImage(controller_id=2, controller_epoch=1, brokers=brokers))
    settings = {"log.dirs": "/nowhere", "controlled.shutdown.retry.backoff.ms": "3600000"}
    link = Link()
    broker: Any = SimpleNamespace(
        broker_id=1,
        settings=Settings(BrokerConfig.load(settings), metadata),
        metadata=metadata,
        membership=SimpleNamespace(broker_epoch=1, duplicate=None),
        controller_link=link,
    )
    async with asyncio.timeout(30):
        stopping = asyncio.create_task(shut_down_controlled(broker))
        assert await link.asked.get() == 1
        metadata.replace(replace(metadata.image, controller_id=1, controller_epoch=2))
        assert await link.asked.get() == 2
        await stopping
