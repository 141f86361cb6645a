"""The HTTP server of the metrics listener: what it answers, and what nobody can make it do."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

import pytest

from barnabas.broker.metrics import http
from barnabas.broker.metrics.http import BadRequest, HttpEndpoint, HttpRequest, HttpResponse, HttpServer, parse_request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, parts=(b"hel", b"lo"))


async def large(request: HttpRequest) -> HttpResponse:
    return HttpResponse(HTTPStatus.OK, parts=[b"x" * 1_000_000] * 20)


async def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("a defect")


@asynccontextmanager
async def serving(token: str | None = None) -> AsyncIterator[tuple[HttpServer, int]]:
    endpoints = {
        "/hello": HttpEndpoint(hello),
        "/open": HttpEndpoint(hello, is_open=True),
        "/large": HttpEndpoint(large, is_large=True),
        "/broken": HttpEndpoint(broken),
    }
    server = HttpServer(endpoints, token)
    port = server.listen("127.0.0.1", 0)
    try:
        yield server, port
    finally:
        await server.close()


async def ask(port: int, request: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


def get(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Connection: close", *headers, "", "")).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


async def test_a_path_is_answered() -> None:
    async with serving() as (_, port):
        answer = await ask(port, get("/hello?name=x"))
        assert status(answer) == 200
        assert answer.endswith(b"\r\n\r\nhello")
        assert b"Content-Length: 5\r\n" in answer


async def test_head_has_no_body() -> None:
    async with serving() as (_, port):
        answer = await ask(port, b"HEAD /hello HTTP/1.0\r\n\r\n")
        assert status(answer) == 200
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (get("/nothing"), 404),
        (b"POST /hello HTTP/1.0\r\n\r\n", 405),
        (b"POST /hello HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 413),
        (b"GET /hello HTTP/2.0\r\n\r\n", 400),
        (b"GET hello HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n : x\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n" + b"a: b\r\n" * 100 + b"\r\n", 431),
        (b"GET /hello HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n", 431),
        (b"G" * 100_000, 431),
    ],
)
async def test_what_is_no_request_is_refused(request_bytes: bytes, expected: int) -> None:
    async with serving() as (_, port):
        assert status(await ask(port, request_bytes)) == expected


async def test_several_requests_on_one_connection() -> None:
    async with serving() as (_, port):
        answer = await ask(port, b"GET /hello HTTP/1.1\r\n\r\n" * 2 + get("/hello"))
        assert answer.count(b"hello") == 3


async def test_a_token_is_asked_for_where_there_is_one() -> None:
    async with serving("secret") as (_, port):
        assert status(await ask(port, get("/hello"))) == 401
        assert status(await ask(port, get("/hello", "Authorization: Bearer secre"))) == 401
        assert status(await ask(port, get("/hello", "Authorization: Basic secret"))) == 401
        assert status(await ask(port, get("/hello", "Authorization: Bearer \xe9"))) == 401
        assert status(await ask(port, get("/hello", "authorization: bearer secret"))) == 200
        assert status(await ask(port, get("/open"))) == 200


async def test_a_defect_closes_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with serving() as (_, port):
        assert await ask(port, get("/broken")) == b""
        assert "a defect" in caplog.text
        assert status(await ask(port, get("/hello"))) == 200


async def test_idle_connections_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 4)
    async with serving() as (server, port):
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        assert status(await ask(port, get("/hello"))) == 200
        assert server.connections <= 4
        for _, writer in idle:
            writer.close()


async def test_a_slow_head_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.05)
    async with serving() as (_, port):
        assert await ask(port, b"GET /hello HTTP/1.1\r\n") == b""


async def test_who_does_not_read_is_cut_off_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RESPONSE_SECONDS", 0.3)
    async with serving() as (server, port):
        lazy = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(http.MOST_RESPONSES)]
        async with asyncio.timeout(10):
            while server.connections < len(lazy):
                await asyncio.sleep(0.01)
            for _, writer in lazy:
                writer.write(get("/large"))
            while server.connections:
                await asyncio.sleep(0.01)
        assert status(await ask(port, get("/hello"))) == 200
        for _, writer in lazy:
            writer.close()


async def test_slow_scrapers_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapers that take nothing of their pages held all connections: a probe was closed, or waited for them."""
    monkeypatch.setattr(http, "MOST_CONNECTIONS", 24)
    async with serving() as (server, port):
        lazy = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(3 * http.MOST_CONNECTIONS)]
        for _, writer in lazy:
            writer.write(get("/large"))
        for _ in range(10):
            assert status(await ask(port, get("/open"))) == 200
        assert server.refused == 0
        for _, writer in lazy:
            writer.close()


async def test_who_scrapes_while_many_do_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MOST_WAITING", 0)
    async with serving() as (_, port):
        answer = await ask(port, get("/large"))
        assert status(answer) == 503
        assert b"Retry-After" in answer


async def test_a_large_page_leaves_the_event_loop_to_others() -> None:
    """Whatever the client reads: between two parts, everybody else has a turn."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    class Swallowing:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *_: None

        async def drain(self) -> None:
            """All was taken at once."""

    others = asyncio.create_task(count())
    try:
        response = HttpResponse(HTTPStatus.OK, parts=[b"x"] * 50)
        await http._send(cast("asyncio.StreamWriter", Swallowing()), response, with_body=True, keep_alive=False)
        assert turns >= 49
    finally:
        others.cancel()


def test_a_head_is_read() -> None:
    request = parse_request(b"GET /metrics/?x=1 HTTP/1.1\r\nAccept: a\r\nACCEPT:  b \r\n\r\n")
    assert request == HttpRequest("GET", "/metrics", {"accept": "b"}, True)
    with pytest.raises(BadRequest):
        parse_request(b"\r\n\r\n")
