"""Watching another broker: the connection on which its death is seen begins with the handshake, and is held."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from barnabas.broker.controller.failure_detector import FailureDetector
from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint
from barnabas.metadata.images.cache import MetadataCache
from barnabas.net.channel import ChannelBroken

if TYPE_CHECKING:
    import pytest

THERE = Endpoint("127.0.0.1", 1)
OTHER = BrokerImage(broker_id=2, epoch=5, endpoints={"PLAINTEXT": THERE})


class Held:
    """A channel whose connection ends when the test says so."""

    def __init__(self, *, is_reachable: bool) -> None:
        self.is_reachable = is_reachable
        self.ended = asyncio.Event()
        self.is_closed = False

    async def until_broken(self) -> None:
        if not self.is_reachable:
            raise ChannelBroken("the other broker refused the login")
        await self.ended.wait()

    def close(self) -> None:
        self.is_closed = True


class OtherBroker:
    """Peers, and a store and a probe, of which the test knows what they were asked."""

    def __init__(self) -> None:
        self.is_reachable = True
        self.opened: asyncio.Queue[Held] = asyncio.Queue()
        self.controller = SimpleNamespace(is_active=True)
        self.store = self

    def endpoint(self, broker_id: int) -> Endpoint:
        return THERE

    def open(self, broker_id: int, purpose: str) -> Held:
        channel = Held(is_reachable=self.is_reachable)
        self.opened.put_nowait(channel)
        return channel

    async def find(self, path: str) -> bytes:
        return b"its registration"

    async def is_refused(self, endpoint: Endpoint) -> bool:
        return False


async def test_one_connection_is_held_for_as_long_as_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def note(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", note)
    other = cast("Any", OtherBroker())
    cache = MetadataCache(ClusterImage())
    detector = FailureDetector(1, other, other, cache, other)
    try:
        async with asyncio.timeout(30):
            cache.subscribe(detector.on_change)
            cache.replace(ClusterImage(brokers={2: OTHER}))
            first = await other.opened.get()
            assert other.opened.empty()
            first.ended.set()
            other.is_reachable = False
            for _ in range(7):
                await other.opened.get()
    finally:
        await detector.stop()
    assert first.is_closed
    assert pauses[:7] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
