"""Connections of browsers: those who send nothing, or half of something, or take nothing, keep nobody else out."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn

from barnabas.console import http, server
from barnabas.console.http import BoundedProtocol, BoundedServer
from tests.support.tls import Certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Reads a body, and answers with a little, or with more than anybody takes at once."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"connection", b"close")]})
    size = 200 if scope["path"] == "/large" else 1
    for _ in range(size):
        await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def serving(shown: Certificate | None = None) -> AsyncIterator[tuple[BoundedServer, int]]:
    listener = server.bind("127.0.0.1", 0)
    config = uvicorn.Config(app, http=BoundedProtocol, log_config=None, lifespan="off", ws="none")
    if shown is not None:
        config.ssl_certfile, config.ssl_keyfile = str(shown.certificate), str(shown.key)
    running = BoundedServer(config)
    task = asyncio.create_task(running._serve(sockets=[listener]))  # without taking over signals
    try:
        yield running, listener.getsockname()[1]
    finally:
        running.should_exit = running.force_exit = True
        await task


async def status(port: int, shown: Certificate | None = None) -> bytes:
    context = None if shown is None else ssl.create_default_context(cafile=shown.authority)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(HEAD + b"\r\n")
    async with asyncio.timeout(20):
        line = await reader.readline()
    writer.close()
    return line


@pytest.mark.parametrize("begun", [b"", HEAD, HALF_BODY], ids=["nothing", "half a head", "half a body"])
async def test_connections_that_wait_make_room(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 5)
    async with serving() as (running, port):
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for _, writer in waiting:
            writer.write(begun)
        assert (await status(port)).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await waiting[0][0].read() == b"", "the oldest has made room"
            while len(running.server_state.connections) > 5:
                await asyncio.sleep(0.01)
        for _, writer in waiting:
            writer.close()


@pytest.mark.parametrize("begun", [b"", HEAD, HALF_BODY], ids=["nothing", "half a head", "half a body"])
async def test_a_request_that_does_not_become_whole_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.2)
    async with serving() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()


async def test_who_takes_nothing_of_an_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALL_SECONDS", 0.2)
    async with serving() as (running, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
        writer.write(HEAD.replace(b"/ ", b"/large ") + b"\r\n")
        async with asyncio.timeout(20):
            while not running.server_state.connections:
                await asyncio.sleep(0.01)
            while running.server_state.connections:
                await asyncio.sleep(0.01)
        assert (await status(port)).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate.made(tmp_path_factory.mktemp("tls"), "console")


async def ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(20):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


async def test_handshakes_that_never_come_make_room(monkeypatch: pytest.MonkeyPatch, shown: Certificate) -> None:
    """They were no connections until they were done: whoever opened them took all descriptors of the console."""
    monkeypatch.setattr(http, "MOST_HANDSHAKES", 5)
    async with serving(shown) as (running, port):
        waiting = [await asyncio.open_connection("127.0.0.1", port) for _ in range(12)]
        for reader, _ in waiting[:7]:
            await ended(reader)
        assert (await status(port, shown)).startswith(b"HTTP/1.1 200")
        assert len(running._beginning) <= 5
        for _, writer in waiting:
            writer.close()


async def test_handshakes_that_never_come_push_no_connection_out(
    monkeypatch: pytest.MonkeyPatch, shown: Certificate
) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(http, "MOST_HANDSHAKES", 1)
    async with serving(shown) as (running, port):
        context = ssl.create_default_context(cafile=shown.authority)
        kept = [await asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(3)]
        async with asyncio.timeout(20):
            while len(running.server_state.connections) < 3:
                await asyncio.sleep(0.01)
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        for reader, _ in silent[:2]:
            await ended(reader)
        assert len(running.server_state.connections) == 3
        assert (await status(port, shown)).startswith(b"HTTP/1.1 200")
        await ended(kept[0][0])
        for _, writer in (*kept, *silent):
            writer.close()


@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01"], ids=["nothing", "a few bytes"])
async def test_a_handshake_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, shown: Certificate, begun: bytes) -> None:
    monkeypatch.setattr(http, "REQUEST_SECONDS", 0.2)
    async with serving(shown) as (running, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        await ended(reader)
        assert not running._beginning
        writer.close()


async def test_what_is_no_tls_ends_and_the_server_ends_in_the_middle_of_handshakes(shown: Certificate) -> None:
    async with serving(shown) as (running, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"\r\n")
        async with asyncio.timeout(20):
            with suppress(ConnectionResetError):
                assert b"HTTP/1.1" not in await reader.read()
        writer.close()
        last, other = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(20):
            while not running._beginning:
                await asyncio.sleep(0.01)
    await ended(last)
    other.close()
