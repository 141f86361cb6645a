"""Listening sockets and their connections.

Own sockets on uvloop's readiness callbacks rather than transports: the event loop stays the only scheduler, while
sendfile and the shared receive buffer are ours. A connection costs no buffer while it is idle.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.model.errors import StartupError
from barnabas.net.connection import Connection
from barnabas.net.departures import Departures
from barnabas.net.inbox import SHARED_SIZE, Budget

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor

    from barnabas.net.reply import Answer, Parked

    Address = tuple[str, int]
    """Where a socket is bound: an IP address and a port."""

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN: Final = 64
RETRY_ACCEPT: Final = 0.1
"""Seconds to wait when no descriptor is left for another connection."""
NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""A name may have an address of a family that this machine does not use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Kafka's socket settings."""

    request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1
    """-1: a quarter of the machine's memory."""
    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    listen_backlog: int = 50
    max_connections: int = 2**31 - 1
    max_connections_per_ip: int = 2**31 - 1
    idle_ms: int = 600_000
    """Below zero: for ever."""


class Server:
    """Accepts connections and hands their frames to `serve`."""

    def __init__(
        self,
        serve: Callable[[Connection, memoryview], Answer | Parked],
        limits: Limits,
        executor: Executor,
    ) -> None:
        self.serve = serve
        self.executor = executor
        """For reads that may wait for the disk."""
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.max_frame = limits.request_max_bytes
        self.budget = Budget(_budget(limits))
        self.shared = memoryview(bytearray(SHARED_SIZE))
        """What every connection receives into; valid until the callback that received returns."""
        self.departures = Departures(self.loop)
        self.connections: set[Connection] = set()
        self._to_flush: list[Connection] = []
        """Connections that have something to send at the end of this turn."""
        self.closing = False
        """Whether connections end as soon as they have nothing to do."""
        self._last_left: asyncio.Future[None] | None = None
        self._per_ip: Counter[str] = Counter()
        self._listening: dict[socket.socket, str] = {}
        self._sweep: asyncio.TimerHandle | None = None
        if limits.idle_ms >= 0:
            self._sweep = self.loop.call_later(self._sweep_seconds(), self._close_idle)

    def listen(self, name: str, host: str, port: int) -> int:
        """Open a listener on every address that a host has; it takes connections after `accept`.

        Port 0 takes a free one. Returns the port.
        """
        opened: list[socket.socket] = []
        absent: OSError | None = None
        for family, address in _addresses(name, host, port):
            try:
                opened.append(self._open(family, (address[0], port, *address[2:])))
                port = opened[0].getsockname()[1]
            except OSError as error:
                if error.errno in NO_SUCH_ADDRESS:
                    absent = error
                    continue
                for sock in opened:
                    sock.close()
                raise _cannot_listen(name, host, port, error) from error
        if absent is not None and not opened:
            raise _cannot_listen(name, host, port, absent) from absent
        self._listening.update(dict.fromkeys(opened, name))
        return port

    def addresses(self) -> frozenset[Address]:
        """Where connections come in."""
        return frozenset(sock.getsockname()[:2] for sock in self._listening)

    def _open(self, family: int, address: tuple[object, ...]) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:  # addresses of the other family have sockets of their own
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if self.limits.receive_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer_bytes)
            sock.bind(address)
            sock.listen(self.limits.listen_backlog)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        return sock

    def accept(self) -> None:
        """Start to take connections on every listener."""
        for sock in self._listening:
            self.loop.add_reader(sock, self._accept, sock)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("cannot accept connections for a moment: %s (raise the limit of open files)", error)
                self.loop.remove_reader(listening)
                self.loop.call_later(RETRY_ACCEPT, self._resume_accepting, listening)
                return
            self._welcome(sock, self._listening[listening], address)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self.loop.add_reader(listening, self._accept, listening)

    def _welcome(self, sock: socket.socket, listener: str, address: tuple[str, int]) -> None:
        ip = address[0]
        limits = self.limits
        if len(self.connections) >= limits.max_connections or self._per_ip[ip] >= limits.max_connections_per_ip:
            logger.warning("refused a connection from %s: max.connections or max.connections.per.ip is reached", ip)
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # as Kafka does: a machine may vanish without a word
        if limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        self._per_ip[ip] += 1
        self.connections.add(Connection(self, sock, listener, address))

    def flush_later(self, connection: Connection) -> None:
        """Let the connection send when this turn of the event loop is over."""
        if not self._to_flush:
            self.loop.call_soon(self._flush)
        self._to_flush.append(connection)

    def _flush(self) -> None:
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            connection.flush()

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self.connections:
            self.connections.discard(connection)
            ip = connection.address[0]
            self._per_ip[ip] -= 1
            if not self._per_ip[ip]:
                del self._per_ip[ip]
            if not self.connections and self._last_left is not None and not self._last_left.done():
                self._last_left.set_result(None)

    def _sweep_seconds(self) -> float:
        return min(max(self.limits.idle_ms / 2000, 0.1), 60.0)

    def _close_idle(self) -> None:
        oldest = self.loop.time() - self.limits.idle_ms / 1000
        for connection in [one for one in self.connections if one.last_active < oldest]:
            logger.info("closed the connection of %s:%d: idle for connections.max.idle.ms", *connection.address[:2])
            connection.close()
        self._sweep = self.loop.call_later(self._sweep_seconds(), self._close_idle)

    def stop_listening(self) -> None:
        """Take no more connections."""
        for sock in self._listening:
            self.loop.remove_reader(sock)
            sock.close()
        self._listening.clear()

    async def close(self, grace: float) -> None:
        """Stop listening, let what is under way finish for `grace` seconds, then end every connection."""
        self.stop_listening()
        if self._sweep is not None:
            self._sweep.cancel()
        self.closing = True
        for connection in [one for one in self.connections if one.idle]:
            connection.close()
        if self.connections:
            self._last_left = self.loop.create_future()
            await asyncio.wait((self._last_left,), timeout=grace)
        if self.connections:
            logger.warning("%d connections are ended in the middle of a request", len(self.connections))
        for connection in list(self.connections):
            connection.close()
        self.departures.close()


def _addresses(name: str, host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """All addresses of a host: clients that try only one of its families must find us too."""
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartupError(f"listener {name}: cannot find an address for {host}: {error.strerror}") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _cannot_listen(name: str, host: str, port: int, error: OSError) -> StartupError:
    return StartupError(
        f"listener {name}: cannot listen on {host or '*'}:{port}: {error.strerror}. "
        "Stop what uses the port, or choose another with --listen HOST:PORT (0 takes a free one)."
    )


def _budget(limits: Limits) -> int:
    if limits.queued_max_request_bytes > 0:
        return limits.queued_max_request_bytes
    return max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4, 2 * limits.request_max_bytes)
