"""The broker's server on simulated sockets: everything of `net/server` but the sockets themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from barnabas.net.departures import Departures
from barnabas.net.server import Server

if TYPE_CHECKING:
    import asyncio
    import socket

    from barnabas.net.connection import Connection
    from tests.simulation.whole.network import Network, SimSocket


class SimDepartures(Departures):
    """Simulated sockets say themselves that their clients are gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._epoll = None

    def watch(self, descriptor: int, connection: Connection) -> None:
        """Tell the connection when its client has left, at once if it has."""
        sock = cast("SimSocket", connection._sock)
        sock.watch_departure(lambda broken: connection.close() if broken else connection.expect_end())

    def forget(self, descriptor: int) -> None:
        """A closed socket says nothing."""

    def close(self) -> None:
        """There is nothing to close."""


class SimServer(Server):
    """Listens on a simulated network."""

    def __init__(self, network: Network, *parts: Any) -> None:
        super().__init__(*parts)
        self.departures.close()
        self.departures = SimDepartures(self.loop)
        self._network = network
        self._bound: dict[tuple[str, int], str] = {}

    def listen(self, name: str, host: str, port: int, tls: object = None) -> int:
        """Open an address."""
        self._listener = self._network.listen(host, port)
        self._bound[host, port] = name
        return port

    def addresses(self) -> frozenset[tuple[str, int]]:
        """Where connections come in."""
        return frozenset(self._bound)

    def accept(self) -> None:
        """Take connections, those that waited first."""
        listener = self._listener
        listener.accept = self._take
        waiting, listener.waiting = listener.waiting, []
        for sock, address in waiting:
            self._take(sock, address)

    def _take(self, sock: SimSocket, address: tuple[str, int]) -> None:
        self._add_connection(cast("socket.socket", sock), next(iter(self._bound.values())), address)

    def stop_listening(self) -> None:
        """Refuse connections."""
        for host, port in self._bound:
            self._network.stop_listening(host, port)
        self._bound.clear()
