"""A whole broker in this process, whose dispatcher can be handed frames without a socket in between."""

from __future__ import annotations

import contextlib
import time
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

from barnabas.broker.app import App
from barnabas.broker.assembly import BrokerOptions
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.refusals import RefusalLog
from barnabas.net.server import Server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from barnabas.broker.faults.interceptor import Serve
    from barnabas.net.connection import Connection
    from barnabas.net.reply import Answer, Parked

SETTINGS: Final = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "telemetry.otlp.endpoint": "http://127.0.0.1:9/v1/metrics",  # where nobody listens: clients may push nevertheless
}


class FakeConnection:
    """What a dispatcher knows of a connection: where it comes from, and what it remembered there."""

    server: Final = SimpleNamespace(refusals=RefusalLog(time.monotonic))
    """Where it is said why a connection is closed."""

    def __init__(self) -> None:
        self.listener = "PLAINTEXT"
        self.address = ("127.0.0.1", 1)
        self.state: object = None
        self.certificate: bytes | None = None
        self.on_close: Callable[[], object] | None = None

    def close(self) -> None:
        """Tell the broker that it has ended."""
        if self.on_close is not None:
            self.on_close()


class FuzzedBroker:
    """A broker that serves frames from this process."""

    def __init__(self, serve: Serve, port: int, app: App) -> None:
        self._serve = serve
        self.bootstrap = f"127.0.0.1:{port}"
        self.app = app

    def serve(self, connection: FakeConnection, frame: bytes) -> Answer | Parked:
        """Answer a frame as if it had come over this connection; raises InvalidFrame."""
        return self._serve(cast("Connection", connection), memoryview(frame))


@asynccontextmanager
async def running_broker(directory: Path, settings: dict[str, str] | None = None) -> AsyncIterator[FuzzedBroker]:
    """A broker that was started as `barnabas start` does it, and is stopped cleanly at the end."""
    serves: list[Serve] = []

    def make_server(serve: Serve, *parts: Any) -> Server:
        serves.append(serve)
        return Server(serve, *parts)

    texts: dict[str, Any] = {"log.dirs": str(directory / "data"), **SETTINGS, **(settings or {})}
    app = App(BrokerConfig.load(texts), BrokerOptions(make_server=make_server))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(app.stop)
        ready = await app.start()
        yield FuzzedBroker(serves[0], ready.listeners[0].port, app)
