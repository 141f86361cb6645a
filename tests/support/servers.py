"""A real server on a loopback port, with handlers that the test steers, and clients of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.net.contexts import TlsContext
from barnabas.net.keystores import KeyPair
from barnabas.net.server import Limits, Server
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import ThreadPoolExecutor

    from barnabas.net.connection import Connection
    from barnabas.net.reply import Answer, Parked

HEAD = b"\0\x12\0\0\0\0\0\x07\xff\xff"
"""A well-formed request header, so that frames pass the shortest length."""


def frame(body: bytes) -> bytes:
    """A request with this body, as it goes over the wire."""
    return struct.pack(">i", len(HEAD) + len(body)) + HEAD + body


def answer(body: bytes) -> bytes:
    """An answer with this body, as it goes over the wire."""
    return struct.pack(">i", len(body)) + body


FAREWELL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class TlsSides:
    """What the two ends of a connection over TLS use."""

    server: TlsContext
    client: ssl.SSLContext

    @staticmethod
    def made(**server_settings: Any) -> TlsSides:
        """With certificates that only this test has; `server_settings` are attributes of the server's context."""
        authority = Authority()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        issued = authority.issue("127.0.0.1")
        KeyPair(issued.key, (issued.certificate,), None).load_into(server)
        for name, value in server_settings.items():
            setattr(server, name, value)
        client = ssl.create_default_context(cadata=authority.pem)
        return TlsSides(TlsContext(server, None), client)


class DefaultSides:
    """What a Rig uses that is not told: plaintext, unless a fixture sets it."""

    value: TlsSides | None = None


@dataclass
class Rig:
    """A server whose answers come from `reply`."""

    reply: Callable[[bytes], Answer | Parked] = answer
    limits: Limits = field(default_factory=Limits)
    tls: TlsSides | None = field(default_factory=lambda: DefaultSides.value)
    """Both ends of TLS; None for plaintext."""
    delay_connection: Callable[[str], float] = lambda ip: 0.0
    """Gives the seconds after which a connection of an address is closed; 0 if it may come in."""
    seen: list[bytes] = field(default_factory=list)
    server: Any = None
    port: int = 0

    def serve(self, connection: Connection, data: memoryview) -> Answer | Parked:
        """What the server calls."""
        body = bytes(data[len(HEAD) :])
        self.seen.append(body)
        return self.reply(body)


async def run(rig: Rig, executor: ThreadPoolExecutor, story: Callable[[Rig], Awaitable[None]]) -> None:
    """Tell a story of a server on a port of the system's choice."""

    rig.server = Server(rig.serve, rig.limits, executor, lambda ip: rig.delay_connection(ip))
    both = rig.tls
    rig.port = rig.server.listen("CLIENTS", "127.0.0.1", 0, None if both is None else lambda: both.server)
    rig.server.accept()
    try:
        await asyncio.wait_for(story(rig), 90)
    finally:
        await rig.server.close(grace=0)


async def connect(rig: Rig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client."""
    if rig.tls is None:
        return await asyncio.open_connection("127.0.0.1", rig.port)
    return await asyncio.open_connection(
        "127.0.0.1", rig.port, ssl=rig.tls.client, ssl_shutdown_timeout=FAREWELL_SECONDS
    )


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The body of the next answer."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Let a client leave; over TLS it waits a moment for the server's farewell."""
    writer.close()
    with contextlib.suppress(TimeoutError):
        await writer.wait_closed()


def in_thread(work: Callable[[], bytes]) -> asyncio.Future[bytes]:
    """What blocks, beside the server's loop."""
    return asyncio.ensure_future(asyncio.to_thread(work))


def blocking(rig: Rig) -> ssl.SSLSocket:
    """A client that does what the test says, for a thread."""
    assert rig.tls is not None
    plain = socket.create_connection(("127.0.0.1", rig.port), timeout=20)
    return rig.tls.client.wrap_socket(plain, server_hostname="127.0.0.1")


def tls_rig(sides: TlsSides, reply: Callable[[bytes], Answer | Parked] = answer, limits: Limits | None = None) -> Rig:
    """A server that speaks TLS."""
    return Rig(reply, limits or Limits(), sides)
