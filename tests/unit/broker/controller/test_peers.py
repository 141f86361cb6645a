"""Asking other brokers: what becomes of a question when one of them hangs."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from kio.static.primitive import i32

from barnabas.broker.controller.broker_handshake import BrokerHandshake
from barnabas.broker.controller.peers import Peers
from barnabas.broker.settings import Settings
from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.messages.inter_broker import ProbeRequest, ProbeResponse


async def test_nobody_waits_for_a_broker_whose_registration_is_gone() -> None:
    asked = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        asked.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        other = BrokerImage(broker_id=2, epoch=5, endpoints={"PLAINTEXT": Endpoint("127.0.0.1", port)})
        cache = MetadataCache(ClusterImage(brokers={2: other}))
        handshake = BrokerHandshake(1, cache, lambda: bytes(32))
        peers = Peers(1, cache, Settings(BrokerConfig.load({"log.dirs": "/nowhere"}), cache), handshake)
        cache.subscribe(peers.on_change)
        asking = asyncio.create_task(peers.ask(2, ProbeRequest(broker_id=i32(3)), ProbeResponse, seconds=60))
        async with asyncio.timeout(30):
            await asked.wait()
            cache.replace(replace(cache.image, controller_id=1))
            await asyncio.sleep(0)
            assert not asking.done()
            cache.replace(replace(cache.image, brokers={}))
            with pytest.raises(ChannelBroken, match="closed the connection"):
                await asking
