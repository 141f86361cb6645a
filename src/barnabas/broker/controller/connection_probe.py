"""Whether a process listens at an address: a connection is opened, and closed at once.

A refused connection proves that nothing listens there, as long as the host is up. An accepted one proves that something
does, unless it is this process itself, reached by an address that it did not know to be its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from barnabas.machines.controller.image import Endpoint
    from barnabas.net.server import Address

    OpenConnection = Callable[..., Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
    """asyncio.open_connection, or what stands for it."""

CONNECT_SECONDS: Final = 2.0


class ConnectionProbe:
    """Opens connections to other brokers to see whether they are up."""

    def __init__(self, open_connection: OpenConnection = asyncio.open_connection) -> None:
        self._open_connection = open_connection

    async def is_refused(self, endpoint: Endpoint) -> bool:
        """Whether a connection is refused now: nothing listens there, and the host says so."""
        try:
            async with self._connection(endpoint):
                return False
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False

    async def is_accepted(self, endpoint: Endpoint, listening: Collection[Address] = ()) -> bool:
        """Whether a connection is accepted now by another process than this one, which is `listening` here."""
        try:
            async with self._connection(endpoint) as writer:
                return not _leads_to(listening, writer)
        except ConnectionResetError:
            return True  # What is reset was accepted before.
        except (OSError, TimeoutError):
            return False

    @contextlib.asynccontextmanager
    async def _connection(self, endpoint: Endpoint) -> AsyncIterator[asyncio.StreamWriter]:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await self._open_connection(endpoint.host, endpoint.port)
        try:
            yield writer
        finally:
            writer.close()


def _leads_to(listening: Collection[Address], writer: asyncio.StreamWriter) -> bool:
    """Whether a connection came in at one of these addresses of this machine, as far as it is known where it ends."""
    try:
        here, there = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
    except (OSError, AttributeError):  # uvloop's, of a connection that the other side has reset already
        return False
    if here is None or there is None:
        return False
    host, port = there[:2]
    address = ip_address(host)
    is_local = address.is_loopback or host == here[0]
    everywhere = "0.0.0.0" if address.version == 4 else "::"
    return (host, port) in listening or (is_local and (everywhere, port) in listening)
