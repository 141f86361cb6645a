"""What kazoo logs of a broker's ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from barnabas.metadata.stores.zookeeper import Login, ZooKeeperStore
from tests.support.waiting import until

if TYPE_CHECKING:
    import pytest


async def test_no_password_is_logged_at_whatever_level(caplog: pytest.LogCaptureFixture) -> None:
    """kazoo logged each request at DEBUG: the broker's own login, and credentials of users."""
    caplog.set_level(1)
    caplog.set_level(1, "kazoo.client")
    asked: list[bytes] = []

    async def turn_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(100))
        writer.close()

    async with await asyncio.start_server(turn_away, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        store = ZooKeeperStore(f"127.0.0.1:{port}", login=Login("digest", "broker", "hunter2"))
        store._client.start_async()  # which `start` waits for, and here in vain
        await until(lambda: len(asked) > 1)
        await asyncio.to_thread(store._stop)
    kazoo = [record for record in caplog.records if record.name.startswith("kazoo")]
    assert kazoo, "what kazoo says of connections is logged"
    assert {record.levelno for record in kazoo} >= {logging.INFO}
    assert min(record.levelno for record in kazoo) >= logging.INFO
    assert "hunter2" not in caplog.text
