"""A real server on a loopback port, with handlers that the test steers, and clients of it."""

from __future__ import annotations

import asyncio
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.net.server import Limits, Server

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


@dataclass
class Rig:
    """A server whose answers come from `reply`."""

    reply: Callable[[bytes], Answer | Parked] = answer
    limits: Limits = field(default_factory=Limits)
    seen: list[bytes] = field(default_factory=list)
    server: Any = None
    port: int = 0

    def serve(self, connection: Connection, data: memoryview) -> Answer | Parked:
        """What the server calls."""
        body = bytes(data[len(HEAD) :])
        self.seen.append(body)
        return self.reply(body)


def run(rig: Rig, executor: ThreadPoolExecutor, story: Callable[[Rig], Awaitable[None]]) -> None:
    """Tell a story of a server on a port of the system's choice."""

    async def main() -> None:
        rig.server = Server(rig.serve, rig.limits, executor)
        rig.port = rig.server.listen("PLAINTEXT", "127.0.0.1", 0)
        rig.server.accept()
        try:
            await asyncio.wait_for(story(rig), 90)
        finally:
            await rig.server.close(grace=0)

    asyncio.run(main())


async def connect(rig: Rig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A client."""
    return await asyncio.open_connection("127.0.0.1", rig.port)


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """The body of the next answer."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a deadline."""
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.005)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Let a client leave."""
    writer.close()
    await writer.wait_closed()
