"""Clients that disconnect while nobody reads their socket.

A connection whose request is parked is not read once its client has sent another one, so the end of its stream is not
reached for as long as that takes. The kernel reports it all the same: EPOLLRDHUP does not depend on what was read. The
event loop has no call for that, so such sockets are in an epoll object of their own, which the loop watches.

A socket is put there when it is first not read, and stays until it is closed: the event comes once. Where there is no
epoll, a client that disconnected is noticed when its request is answered, or after connections.max.idle.ms.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import asyncio

    from barnabas.net.connection import Connection

KNOWN_HERE: Final = hasattr(select, "epoll")


class Departures:
    """Lets connections know that their clients have disconnected."""

    __slots__ = ("_epoll", "_loop", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[int, Connection] = {}
        """By descriptor."""
        self._epoll = select.epoll() if KNOWN_HERE else None
        if self._epoll is not None:
            loop.add_reader(self._epoll.fileno(), self._on_events)

    def watch(self, descriptor: int, connection: Connection) -> None:
        """Call `connection` when its client disconnects, at once if it has."""
        if self._epoll is not None and descriptor not in self._watched:
            self._epoll.register(descriptor, select.EPOLLRDHUP | select.EPOLLET)
            self._watched[descriptor] = connection

    def forget(self, descriptor: int) -> None:
        """The descriptor is about to be closed."""
        if self._epoll is not None and self._watched.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Watch no more."""
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _on_events(self) -> None:
        if self._epoll is None:
            return
        for descriptor, event in self._epoll.poll(0):
            connection = self._watched.get(descriptor)
            if connection is None:
                continue
            if event & (select.EPOLLERR | select.EPOLLHUP):
                connection.close()
            else:
                connection.expect_end()
