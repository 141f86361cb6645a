"""A small HTTP/1.1 server for the metrics listener: GET and HEAD, no bodies, and a limit on everything.

Those who scrape come seldom and are few, so clarity counts and not speed. What counts more is that nobody can hold up
or fill up the broker through this door:

    connections   at most MOST_CONNECTIONS; one more takes the place of the one that has been idle for longest, and is
                  closed at once if all are busy
    requests      a head of HEAD_BYTES, whole within HEAD_SECONDS; no body
    responses     large ones (pages of figures): at most MOST_RESPONSES are made or sent at once, others wait, and
                  who would be the one after MOST_WAITING is told to come again; each has RESPONSE_SECONDS to leave
    probes        do not wait for large responses, whose clients hold but some of the connections

Responses come as parts, of which no more is handed to the socket than the client takes. With TLS, handshakes count as
connections, and have HEAD_SECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
from asyncio import StreamReader, StreamReaderProtocol, StreamWriter
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.tasks import TaskSet
from barnabas.net.server import open_sockets

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

logger = logging.getLogger(__name__)

NAME: Final = "metrics"
"""What errors call this listener."""
MOST_CONNECTIONS: Final = 64
MOST_RESPONSES: Final = 4
MOST_WAITING: Final = 16
"""Requests for large responses at once, those that are being sent included: the other connections are for probes."""
HEAD_BYTES: Final = 8192
MOST_HEADERS: Final = 64
HEAD_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 90.0
"""How long a connection is kept for its next request: longer than the minute between most scrapes."""
RESPONSE_SECONDS: Final = 20.0
ACCEPT_AGAIN_SECONDS: Final = 0.1
BACKLOG: Final = 64
END_OF_HEAD: Final = b"\r\n\r\n"
TEXT: Final = "text/plain; charset=utf-8"


class HttpRequest(NamedTuple):
    """What a client asks for."""

    method: str
    path: str
    headers: Mapping[str, str]
    """By their names in small letters; the last one counts."""
    keep_alive: bool


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What it is answered."""

    status: HTTPStatus
    content_type: str = TEXT
    parts: Sequence[bytes] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """What is found at a path."""

    answer: Callable[[HttpRequest], Awaitable[HttpResponse]]
    is_open: bool = False
    """Whether no token is needed."""
    is_large: bool = False
    """Whether its responses are large or take long, so that only some are made at a time."""


class BadRequest(Exception):
    """A request that is answered with an error, after which the connection is closed."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def text(status: HTTPStatus, message: str, **headers: str) -> HttpResponse:
    """A response in plain words."""
    return HttpResponse(status, parts=(f"{message}\n".encode(),), headers=headers)


TOO_MANY: Final = text(HTTPStatus.SERVICE_UNAVAILABLE, "Too many scrapes are under way.", **{"Retry-After": "1"})


class HttpServer:
    """Serves the endpoints of one listener."""

    def __init__(
        self,
        endpoints: Mapping[str, HttpEndpoint],
        token: str | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._token = None if token is None else token.encode()
        self._tls = tls
        self._listening: list[socket.socket] = []
        self._connections: dict[_Connection, None] = {}
        """The one that has been idle for longest first; those that are busy come last."""
        self._slots = asyncio.Semaphore(MOST_RESPONSES)
        self._waiting = 0
        """Requests for large responses."""
        self._tasks = TaskSet()
        self.refused = 0
        """Connections for which there was no room."""

    def listen(self, host: str, port: int) -> int:
        """Open the listener and take connections; port 0 takes a free one. Returns the port; raises StartupError."""
        self._listening = open_sockets(NAME, host, port, BACKLOG)
        for listening in self._listening:
            self._tasks.spawn(self._accept(listening), "metrics listener")
        bound: int = self._listening[0].getsockname()[1]
        return bound

    async def close(self) -> None:
        """End the listener and every connection."""
        await self._tasks.cancel()
        for listening in self._listening:
            listening.close()
        self._listening.clear()

    @property
    def connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listening)
            except OSError as error:
                logger.warning("The metrics listener cannot accept connections, trying again: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            if not self._make_room():
                self.refused += 1
                sock.close()
                continue
            connection = _Connection(sock)
            self._connections[connection] = None
            connection.task = self._tasks.spawn(self._serve(connection))

    def _make_room(self) -> bool:
        """Whether another connection can be taken, if need be in the place of an idle one."""
        if len(self._connections) < MOST_CONNECTIONS:
            return True
        idle = next((one for one in self._connections if not one.is_busy), None)
        if idle is None:
            return False
        self._connections.pop(idle)
        if idle.task is not None:
            idle.task.cancel()
        return True

    async def _serve(self, connection: _Connection) -> None:
        try:
            reader, writer = await connection.open(self._tls)
            while await self._serve_one(connection, reader, writer):
                pass
        except (OSError, TimeoutError, EOFError, asyncio.CancelledError):
            pass  # the client left, was too slow, or has to make room
        except Exception:
            logger.exception("A request to the metrics listener failed; closed its connection.")
        finally:
            self._connections.pop(connection, None)
            connection.close()

    async def _serve_one(self, connection: _Connection, reader: StreamReader, writer: StreamWriter) -> bool:
        """Answer one request; whether the connection stays for another."""
        try:
            request = await _read_request(reader)
        except BadRequest as error:
            async with asyncio.timeout(HEAD_SECONDS):
                await _send(writer, text(error.status, str(error)), with_body=True, keep_alive=False)
            return False
        async with asyncio.timeout(RESPONSE_SECONDS), self._turn(connection, request) as is_turn:
            response = await self._answer(request) if is_turn else TOO_MANY
            await _send(writer, response, with_body=request.method != "HEAD", keep_alive=request.keep_alive)
        connection.is_busy = False
        if connection in self._connections:  # it is the last one to have to make room now
            self._connections[connection] = self._connections.pop(connection)
        return request.keep_alive

    @contextlib.asynccontextmanager
    async def _turn(self, connection: _Connection, request: HttpRequest) -> AsyncIterator[bool]:
        """Wait for the turn of a request, if its response is large; False if too many wait already."""
        endpoint = self._endpoints.get(request.path)
        is_large = endpoint is not None and endpoint.is_large
        if is_large and self._waiting >= MOST_WAITING:
            yield False  # its connection makes room for others like an idle one
            return
        connection.is_busy = True
        if not is_large:
            yield True
            return
        self._waiting += 1
        try:
            async with self._slots:
                yield True
        finally:
            self._waiting -= 1

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD"):
            return text(HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are served.", Allow="GET, HEAD")
        endpoint = self._endpoints.get(request.path)
        if endpoint is None:
            return text(HTTPStatus.NOT_FOUND, f"There is nothing here. Try {', '.join(self._endpoints)}.")
        if self._token is not None and not endpoint.is_open and not self._has_token(request):
            return text(
                HTTPStatus.UNAUTHORIZED, "Send metrics.token as a bearer token.", **{"WWW-Authenticate": "Bearer"}
            )
        return await endpoint.answer(request)

    def _has_token(self, request: HttpRequest) -> bool:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self._token or b"")


class _Connection:
    """One client."""

    def __init__(self, sock: socket.socket) -> None:
        self.task: asyncio.Task[None] | None = None
        self.is_busy = False
        """Whether a request is being answered."""
        self._sock: socket.socket | None = sock
        self._writer: StreamWriter | None = None

    async def open(self, tls: Callable[[], ssl.SSLContext] | None) -> tuple[StreamReader, StreamWriter]:
        """Begin, with a TLS handshake if there is one."""
        loop = asyncio.get_running_loop()
        assert self._sock is not None
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = StreamReader(limit=HEAD_BYTES)
        protocol = StreamReaderProtocol(reader)
        context = None if tls is None else tls()
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol,
            self._sock,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HEAD_SECONDS,
            ssl_shutdown_timeout=None if context is None else 1.0,
        )
        self._sock = None  # the transport's now
        self._writer = StreamWriter(transport, protocol, reader, loop)
        return reader, self._writer

    def close(self) -> None:
        """End it, whatever was not sent yet."""
        if self._writer is not None:
            self._writer.transport.abort() if self.is_busy else self._writer.close()
        if self._sock is not None:
            self._sock.close()


async def _read_request(reader: StreamReader) -> HttpRequest:
    """The next request; raises BadRequest, TimeoutError, or EOFError when the client has left."""
    async with asyncio.timeout(IDLE_SECONDS):
        first = await reader.read(1)
    if not first:
        raise EOFError
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            head = first + await reader.readuntil(END_OF_HEAD)
    except asyncio.LimitOverrunError:
        raise BadRequest(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"The head of a request may have {HEAD_BYTES} bytes."
        ) from None
    return parse_request(head)


def parse_request(head: bytes) -> HttpRequest:
    """A request by its head, which ends with an empty line. Raises BadRequest."""
    first, *lines = head[: -len(END_OF_HEAD)].decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.0", "HTTP/1.1") or not words[1].startswith("/"):
        raise BadRequest(HTTPStatus.BAD_REQUEST, "This is no request of HTTP/1.1.")
    if len(lines) > MOST_HEADERS:
        raise BadRequest(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"A request may have {MOST_HEADERS} headers.")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise BadRequest(HTTPStatus.BAD_REQUEST, "A header cannot be read.")
        headers[name.lower()] = value.strip()
    if "transfer-encoding" in headers or headers.get("content-length", "0") != "0":
        raise BadRequest(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "A request may have no body.")
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection if words[2] == "HTTP/1.1" else "keep-alive" in connection
    path = words[1].partition("?")[0]
    return HttpRequest(words[0], path.rstrip("/") or "/", headers, keep_alive)


async def _send(writer: StreamWriter, response: HttpResponse, *, with_body: bool, keep_alive: bool) -> None:
    status = response.status
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(sum(map(len, response.parts))),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "Connection": "keep-alive" if keep_alive else "close",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    for part in response.parts if with_body else ():
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0)  # a client that reads as fast as we write would keep the event loop for the whole page
    with contextlib.suppress(ConnectionError):
        await writer.drain()
