"""The server: listening sockets and their connections.

Own sockets on uvloop's readiness callbacks rather than transports: the event loop stays the only scheduler, while
sendfile and the shared receive buffer are ours. A connection costs no buffer while it is idle. How many connections
there may be is decided in `net/admission`; those of a listener with TLS begin in `net/handshakes`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.model.errors import StartupError
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.net.admission import Admission, ConnectionLimits
from barnabas.net.connection import Connection
from barnabas.net.departures import Departures
from barnabas.net.inbox import SHARED_SIZE, Budget
from barnabas.net.refusals import LOG_SECONDS, Refusal, RefusalLog
from barnabas.protocol.wire.framing import FrameLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Executor

    from barnabas.net.contexts import TlsContext
    from barnabas.net.freed_memory import FreedMemory
    from barnabas.net.handshakes import Handshakes
    from barnabas.net.reply import Answer, Parked
    from barnabas.net.tls import TlsBuffers, TlsPipe

    Address = tuple[str, int]
    """Where a socket is bound: an IP address and a port."""
    DelayConnection = Callable[[str], float]
    """Gives the seconds after which a new connection of an IP address is closed, 0 if it may come in."""
    GetContext = Callable[[], TlsContext]
    """Gives the TLS context for the next connection, with the certificate of today."""

logger = logging.getLogger(__name__)

ACCEPTS_PER_TURN: Final = 8
"""Connections of one listener that come in before others have their turn: each takes as long as some requests."""
RETRY_ACCEPT: Final = 0.1
"""Seconds to wait when no descriptor is left for another connection."""
LOGIN_SHARE: Final = 8
"""Of the memory for unfinished requests, clients that have not logged in get one of so many parts, in addition."""
MOST_ANSWERED: Final = 32
"""Connections with answers after which the end of the turn is not waited for.

Were a thousand clients answered together, the first would wait for the requests of all, and then ask again together.
"""
MOST_LOGIN_BYTES: Final = 64 * 1024 * 1024
"""And no more than that: messages of a login are small, and almost always come whole, without taking any of it."""
MOST_REFUSED: Final = 256
"""Connections of addresses that opened too many, which are kept for a moment before they are closed."""
NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
"""A name may have an address of a family that this machine does not use."""


class Limits(NamedTuple):
    """Kafka's socket settings."""

    request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = -1
    """-1: a quarter of the machine's memory."""
    send_buffer_bytes: int = 102_400
    receive_buffer_bytes: int = 102_400
    listen_backlog: int = 50
    connections: ConnectionLimits = ConnectionLimits()
    idle_ms: int = 600_000
    """Below zero: for ever."""


def _no_delay(ip: str) -> float:
    return 0.0


class Server:
    """Accepts connections and hands their frames to `serve`."""

    def __init__(
        self,
        serve: Callable[[Connection, memoryview], Answer | Parked],
        limits: Limits,
        executor: Executor,
        delay_connection: DelayConnection = _no_delay,
    ) -> None:
        self.serve = serve
        self.executor = executor
        """For reads that may wait for the disk."""
        self.loop = asyncio.get_running_loop()
        self.limits = limits
        self.frames = FrameLimits(limits.request_max_bytes)
        self.budget = Budget(_budget(limits))
        self.login_budget = Budget(min(self.budget.limit // LOGIN_SHARE, MOST_LOGIN_BYTES))
        """For clients that have not logged in, beside that of the others."""
        self.shared = memoryview(bytearray(SHARED_SIZE))
        """What every connection receives into; valid until the callback that received returns."""
        self.departures = Departures(self.loop)
        self.connections: dict[Connection, None] = {}
        """In the order in which they came; they are closed in this order."""
        self.muted: dict[Connection, object] = {}
        """Connections that are not read for a while, because their clients have used more than their quotas."""
        self.opened: Counter[str] = Counter()
        """Connections that came in, by listener."""
        self.ended: Counter[str] = Counter()
        """Those that have ended."""
        self.turned_away = 0
        """Connections that were closed at once, because their addresses had too many."""
        self.failed_handshakes: Counter[str] = Counter()
        """TLS handshakes that failed, by listener."""
        self.refusals = RefusalLog(self.loop.time)
        """Says in the log who was refused a connection."""
        self.throttles = 0
        """How often a connection was muted."""
        self.throttled_seconds = 0.0
        self.cold_sends = 0
        """How often a response had to wait until it was read from disk."""
        self._freed: FreedMemory | None = None
        """Gives the memory of ended TLS connections back; None without TLS."""
        self._refused: set[socket.socket] = set()
        """Connections that are about to be closed."""
        self._to_flush: list[Connection] = []
        """Connections that have something to send at the end of this turn."""
        self._flushed: list[Connection] = []
        """Those that have been sent something in this turn already."""
        self.closing = False
        """Whether connections end as soon as they have nothing to do."""
        self._all_closed: asyncio.Future[None] | None = None
        self._admission = Admission(limits.connections)
        self._delay_connection = delay_connection
        self._tls: dict[str, GetContext] = {}
        """By listener."""
        self._handshakes: Handshakes | None = None
        self.tls_buffers: TlsBuffers | None = None
        """These two are made with the first listener that has TLS."""
        self._listening: dict[socket.socket, str] = {}
        self._greetings: dict[str, Callable[[Connection], None]] = {}
        """By listener, what is done with a new connection before anything is read from it."""
        self._waiting: set[socket.socket] = set()
        """Those that accept nothing until a connection is closed."""
        self._said: dict[tuple[str, str], float] = {}
        """When it was last said of a listener that connections wait, by the message."""
        self._sweep: asyncio.TimerHandle | None = None
        if limits.idle_ms >= 0:
            self._sweep = self.loop.call_later(self._sweep_seconds(), self._close_idle)

    def change_limits(self, limits: Limits) -> None:
        """Use other limits from now on; the size of a request and of all that wait stays what it was."""
        self.limits = limits
        self._admission.change_limits(limits.connections)
        self._resume_waiting()

    def listen(self, name: str, host: str, port: int, tls: GetContext | None = None) -> int:
        """Open a listener on every address that a host has, with TLS or not; it takes connections after `accept`.

        Port 0 takes a free one. Returns the port.
        """
        if tls is not None:
            self._begin_tls(name, tls)
        opened = open_sockets(name, host, port, self.limits.listen_backlog, self.limits.receive_buffer_bytes)
        self._listening.update(dict.fromkeys(opened, name))
        bound: int = opened[0].getsockname()[1]
        return bound

    def _begin_tls(self, listener: str, context: GetContext) -> None:
        from barnabas.net.freed_memory import FreedMemory  # here: most brokers have no listener with TLS
        from barnabas.net.handshakes import Handshakes
        from barnabas.net.tls import TlsBuffers

        self._tls[listener] = context
        if self._handshakes is None:
            self._handshakes = Handshakes(self.loop, self._on_handshake, self._on_failed_handshake)
            self.tls_buffers = TlsBuffers()
            self._freed = FreedMemory(self.loop, self.executor)

    def greet(self, listener: str, greeting: Callable[[Connection], None]) -> None:
        """Do this with every new connection of a listener before anything is read from it."""
        self._greetings[listener] = greeting

    def addresses(self) -> frozenset[Address]:
        """Where connections come in."""
        return frozenset(sock.getsockname()[:2] for sock in self._listening)

    def accept(self) -> None:
        """Start to take connections on every listener."""
        for sock in self._listening:
            self.loop.add_reader(sock, self._accept, sock)

    def _accept(self, listening: socket.socket) -> None:
        listener = self._listening[listening]
        for _ in range(ACCEPTS_PER_TURN):
            if not self._may_accept(listening, listener):
                return
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error(
                    "Cannot accept connections, trying again in %g s: %s. Raise the limit of open files.",
                    RETRY_ACCEPT,
                    error,
                )
                self._pause(listening, RETRY_ACCEPT)
                return
            self._add_connection(sock, listener, address)

    def _may_accept(self, listening: socket.socket, listener: str) -> bool:
        """Whether another connection may come in now; if not, see to it that the listener is looked at again."""
        admission = self._admission
        if admission.is_full(listener):
            self._say_now_and_then(
                logging.WARNING,
                "Listener %s accepts no more connections until one is closed: max.connections is reached.",
                listener,
            )
            self.loop.remove_reader(listening)
            self._waiting.add(listening)
            return False
        if (seconds := admission.wait_seconds(listener, self.loop.time())) > 0:
            self._say_now_and_then(
                logging.INFO,
                "Listener %s accepts connections more slowly than they come: max.connection.creation.rate is reached.",
                listener,
            )
            self._pause(listening, seconds)
            return False
        return True

    def _say_now_and_then(self, level: int, message: str, listener: str) -> None:
        """Log what lasts, once in LOG_SECONDS."""
        now = self.loop.time()
        if now - self._said.get((message, listener), -math.inf) >= LOG_SECONDS:
            self._said[message, listener] = now
            logger.log(level, message, listener)

    def _pause(self, listening: socket.socket, seconds: float) -> None:
        self.loop.remove_reader(listening)
        self.loop.call_later(seconds, self._resume_accepting, listening)

    def _resume_accepting(self, listening: socket.socket) -> None:
        if listening in self._listening:
            self.loop.add_reader(listening, self._accept, listening)

    def _resume_waiting(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for listening in waiting:
            self._resume_accepting(listening)

    def _add_connection(self, sock: socket.socket, listener: str, address: tuple[str, int]) -> None:
        ip = address[0]
        if self._admission.is_refused(ip):
            self._log_limit(ip, listener, "it has all that max.connections.per.ip (or its override) allows.")
            self.turned_away += 1
            sock.close()
            return
        if not self._admission.is_protected(listener) and (delay := self._delay_connection(ip)) > 0:
            self._log_limit(ip, listener, "it comes faster than its quota (connection_creation_rate) allows.")
            self.turned_away += 1
            self._refuse_later(sock, delay)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # as Kafka does: a machine may vanish without a word
        if self.limits.send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        self._admission.add(listener, ip)
        self.opened[listener] += 1
        if self._admission.is_overfull:
            self._close_quietest()
        if listener in self._tls and self._handshakes is not None:
            self._handshakes.begin(sock, self._tls[listener](), listener, address)
        else:
            self._greet(Connection(self, sock, listener, address))

    def _log_limit(self, ip: str, listener: str, reason: str) -> None:
        self.refusals.log(logging.WARNING, Refusal(ip, listener, reason))

    def _refuse_later(self, sock: socket.socket, delay: float) -> None:
        """Close a connection after a while, so that its client does not come again at once."""
        if len(self._refused) >= MOST_REFUSED:
            sock.close()
            return
        self._refused.add(sock)
        self.loop.call_later(delay, self._refuse, sock)

    def _refuse(self, sock: socket.socket) -> None:
        self._refused.discard(sock)
        sock.close()

    def unmute(self, concerns: Callable[[object], bool]) -> None:
        """Read again from the muted connections of those whom a change of quotas concerns."""
        for connection, whose in list(self.muted.items()):
            if concerns(whose):
                connection.unmute()

    def _on_handshake(self, sock: socket.socket, pipe: TlsPipe, listener: str, address: tuple[str, int]) -> None:
        from barnabas.net.tls import TlsConnection

        self._greet(TlsConnection(self, sock, pipe, listener, address))

    def _on_failed_handshake(self, listener: str, address: tuple[str, int]) -> None:
        self.failed_handshakes[listener] += 1
        self._release(listener, address)

    def _greet(self, connection: Connection) -> None:
        """Count a connection among those that are served, after what its listener begins with."""
        self.connections[connection] = None
        if connection.listener in self._greetings:
            self._greetings[connection.listener](connection)

    def _close_quietest(self) -> None:
        """Close the client's connection that was quiet for longest: a broker needs its place."""
        clients = (one for one in self.connections if not self._admission.is_protected(one.listener))
        quietest = min(clients, key=lambda one: one.last_active, default=None)
        if quietest is not None:
            logger.warning(
                "Closed the connection of %s:%d: max.connections is reached, and a broker connected.",
                *quietest.address[:2],
            )
            quietest.close()

    def flush_later(self, connection: Connection) -> None:
        """Let the connection send when this turn of the event loop is over, or many connections are to send."""
        waiting = self._to_flush
        if not waiting:
            self.loop.call_soon(self._flush)
        waiting.append(connection)
        if len(waiting) >= MOST_ANSWERED and not self.closing:
            self._flush_early()

    def is_answering(self, but: Collection[object]) -> bool:
        """Whether a client that has logged in, or need not, is sent something in this turn, but for these."""
        return any(
            connection.frames is self.frames and connection not in but
            for connection in chain(self._flushed, self._to_flush)
        )

    def _flush_early(self) -> None:
        flushed = [*self._flushed, *self._to_flush]
        self._flush()
        self._flushed = flushed  # until `_flush` is called by the event loop

    def _flush(self) -> None:
        if self._flushed:
            self._flushed = []
        connections, self._to_flush = self._to_flush, []
        for connection in connections:
            try:
                connection.flush()
            except Exception:
                connection.fail_to_send()

    def forget(self, connection: Connection) -> None:
        """A connection has ended."""
        if connection in self.connections:
            del self.connections[connection]
            self._release(connection.listener, connection.address)
            if not self.connections and self._all_closed is not None and not self._all_closed.done():
                self._all_closed.set_result(None)

    def _release(self, listener: str, address: tuple[str, int]) -> None:
        """A connection or a handshake has ended, and its place is free."""
        self._admission.remove(listener, address[0])
        self.ended[listener] += 1
        if self._freed is not None and listener in self._tls:
            self._freed.note()
        if self._waiting:
            self._resume_waiting()

    def _sweep_seconds(self) -> float:
        return min(max(self.limits.idle_ms / 2000, 0.1), 60.0)

    def _close_idle(self) -> None:
        oldest = self.loop.time() - self.limits.idle_ms / 1000
        for connection in [one for one in self.connections if one.last_active < oldest]:
            logger.info("Closed the connection of %s:%d: idle for connections.max.idle.ms.", *connection.address[:2])
            connection.close()
        self._sweep = self.loop.call_later(self._sweep_seconds(), self._close_idle)

    def stop_listening(self) -> None:
        """Take no more connections."""
        for sock in self._listening:
            self.loop.remove_reader(sock)
            sock.close()
        self._listening.clear()
        self._waiting.clear()

    async def close(self, grace: float) -> None:
        """Stop listening, let what is under way finish for `grace` seconds, then end every connection."""
        self.stop_listening()
        if self._sweep is not None:
            self._sweep.cancel()
        self.closing = True
        for sock in list(self._refused):
            self._refuse(sock)
        if self._handshakes is not None:
            self._handshakes.close()
        self.unmute(lambda whose: True)
        for connection in [one for one in self.connections if one.idle]:
            connection.close()
        if self.connections:
            self._all_closed = self.loop.create_future()
            await asyncio.wait((self._all_closed,), timeout=grace)
        if self.connections:
            logger.warning("Closed %d connections in the middle of a request.", len(self.connections))
        for connection in list(self.connections):
            connection.close()
        self.departures.close()


def open_sockets(name: str, host: str, port: int, backlog: int, receive_buffer_bytes: int = -1) -> list[socket.socket]:
    """Listening sockets on every address that a host has, all on one port; port 0 takes a free one.

    Raises StartupError.
    """
    opened: list[socket.socket] = []
    absent: OSError | None = None
    for family, address in _addresses(name, host, port):
        try:
            opened.append(_open(family, (address[0], port, *address[2:]), backlog, receive_buffer_bytes))
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
    return opened


def _open(family: int, address: tuple[object, ...], backlog: int, receive_buffer_bytes: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # addresses of the other family have sockets of their own
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind(address)
        sock.listen(backlog)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def _addresses(name: str, host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[Any, ...]]]:
    """All addresses of a host: clients that try only one of its families must find us too."""
    encoded = host.encode() if host.isascii() else host  # else Python loads its tables of international names
    try:
        found = socket.getaddrinfo(encoded or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise StartupError(f"listener {name}: cannot find an address for {host}: {error.strerror}") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _cannot_listen(name: str, host: str, port: int, error: OSError) -> StartupError:
    return StartupError(f"listener {name}: cannot listen on {host or '*'}:{port}: {error.strerror}").with_remedy(
        Remedy(RemedyKind.CHOOSE_PORT)
    )


def _budget(limits: Limits) -> int:
    if limits.queued_max_request_bytes > 0:
        return limits.queued_max_request_bytes
    return max(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4, 2 * limits.request_max_bytes)
