"""Connections of browsers, each with a limit on what it may take: uvicorn's own have none before the first request.

connections   at most MOST_CONNECTIONS; one more takes the place of the one that has been idle or incomplete for
              longest, and is closed at once if all are being answered
handshakes    of TLS, at most MOST_HANDSHAKES at a time, each within REQUEST_SECONDS; one more ends the oldest
requests      whole, with their body, within REQUEST_SECONDS of the first byte, or of the connection
responses     a client that takes nothing of one for STALL_SECONDS is gone
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

log = logging.getLogger(__name__)

MOST_CONNECTIONS: Final = 256
MOST_HANDSHAKES: Final = 64
REQUEST_SECONDS: Final = 10.0
STALL_SECONDS: Final = 30.0
ACCEPT_AGAIN_SECONDS: Final = 1.0
"""How long nothing is accepted after an error, such as no descriptor that is free."""


class BoundedServer(uvicorn.Server):
    """A server with a limit on handshakes, too: with TLS, uvicorn knows a connection only when it is past that."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._accepting: list[asyncio.Task[None]] = []
        self._beginning: dict[asyncio.Task[None], None] = {}
        """Connections that are not a protocol's yet, the oldest first."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections of sockets that listen."""
        await super().startup(sockets=[])
        for listener in sockets or ():
            listener.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listener)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more, and end those that there are."""
        tasks = [*self._accepting, *self._beginning]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, _ = await loop.sock_accept(listener)
            except OSError as error:
                log.warning("The console cannot accept connections. It tries again in a second: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            if len(self._beginning) >= MOST_HANDSHAKES:
                oldest = next(iter(self._beginning))
                del self._beginning[oldest]
                oldest.cancel()
            task = asyncio.create_task(self._begin(sock))
            self._beginning[task] = None
            task.add_done_callback(lambda task: self._beginning.pop(task, None))
            await asyncio.sleep(0)  # from here on, ending the task closes its socket

    async def _begin(self, sock: socket.socket) -> None:
        """Hand a connection to a protocol, which makes room for it; with TLS after the handshake."""
        context = self.config.ssl
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self.config.http_protocol_class(  # type: ignore[call-arg]
                    config=self.config, server_state=self.server_state, app_state=self.lifespan.state
                ),
                sock,
                ssl=context,
                ssl_handshake_timeout=None if context is None else REQUEST_SECONDS,
            )
        except OSError as error:  # errors of TLS are some, too
            log.debug("A connection did not come about: %s", error)


class BoundedProtocol(H11Protocol):
    """One connection."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self.changed_at = self.loop.time()
        """When it connected, or was last answered."""

    @property
    def is_answered(self) -> bool:
        """Whether a request is whole, and its response is not."""
        return self.cycle is not None and not self.cycle.response_complete and self.conn.their_state is h11.DONE

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the connection, if need be in the place of another."""
        if len(self.connections) >= MOST_CONNECTIONS and not _make_room(self.connections):
            log.warning("Closed a connection: all %d are being answered.", MOST_CONNECTIONS)
            transport.abort()
        super().connection_made(transport)
        self._expect_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request, which has to become whole in time."""
        if self._deadline is None:
            self._expect_request()
        super().data_received(data)
        if self.conn.their_state is not h11.SEND_BODY and self.conn.their_state is not h11.IDLE:
            self._end_wait()

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn ends the connection when none comes for some seconds."""
        self.changed_at = self.loop.time()
        self._end_wait()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """The client takes nothing: wait for it, and not for long."""
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        super().resume_writing()

    def _expect_request(self) -> None:
        self._end_wait()
        self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _end_wait(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _make_room(connections: Iterable[Any]) -> bool:
    """Close the connection that has waited for longest for a request, or for the rest of one; False if none does."""
    waiting = [each for each in connections if not each.is_answered and not each.transport.is_closing()]
    if not waiting:
        return False
    oldest = min(waiting, key=lambda each: each.changed_at)
    oldest.transport.abort()
    connections.discard(oldest)  # type: ignore[attr-defined]
    return True
