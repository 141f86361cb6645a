"""TLS handshakes that are under way, before there is a connection.

A handshake takes some round trips and a millisecond of arithmetic. The waiting is done by the event loop and the
arithmetic by threads, so neither a silent client nor a thousand that come at once hold up the others.

A client that sends nothing costs a socket and no more. One that has sent something has a place, of which there are
MOST_HANDSHAKES; where all are taken, the oldest one that has let the broker wait for a fair time goes, and others wait
for theirs. What the broker itself needs for a step does not count: under an attack its threads have a queue, and
whoever has waited in it would otherwise lose its place. All have a deadline, counted from the moment at which they were
accepted.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from barnabas.model.certificates import read_certificate
from barnabas.net.tls import TlsPipe

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable
    from concurrent.futures import Future

    from barnabas.net.contexts import TlsContext

    OnDone = Callable[[socket.socket, TlsPipe, str, tuple[str, int]], None]
    OnFailed = Callable[[str, tuple[str, int]], None]

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS: Final = 10.0
"""How long a handshake may take."""
FAIR_SECONDS: Final = 1.0
"""How long a handshake keeps its place when others wait for one."""
RETRY_SECONDS: Final = 0.1
"""How often it is looked whether somebody has had a fair time, while others wait."""
MOST_HANDSHAKES: Final = 512
RECEIVED: Final = 8 * 1024
"""Bytes that are received at once. With 20 KB, each connection took 17 KB more for as long as it lasted: what OpenSSL
keeps for it lay where such memory had been."""
MOST_BYTES: Final = 256 * 1024
"""What a client may send in its handshake; the certificates that it shows are most of it."""
THREADS: Final = 2
MOST_LOG_LINES: Final = 20
"""Failures that are logged in LOG_SECONDS seconds; of others only their number is."""
LOG_SECONDS: Final = 10.0
NOT_TLS: Final = frozenset({"HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL"})
"""OpenSSL's words for bytes that are no TLS."""


class Handshake:
    """One client that has not finished its handshake."""

    __slots__ = (
        "address",
        "at_work",
        "awaited",
        "awaited_since",
        "dropped",
        "listener",
        "pipe",
        "placed",
        "received",
        "since",
        "sock",
        "tls",
        "unsent",
    )

    def __init__(
        self, sock: socket.socket, tls: TlsContext, listener: str, address: tuple[str, int], since: float
    ) -> None:
        self.sock = sock
        self.tls = tls
        self.listener = listener
        self.address = address
        self.since = since
        """When it was accepted."""
        self.placed: float | None = None
        """When it got its place; None while it has none."""
        self.awaited = 0.0
        """For how many seconds the broker has waited for the client, before it waits now."""
        self.awaited_since: float | None = None
        """Since when it waits for the client now; None if it does not."""
        self.pipe: TlsPipe | None = None
        self.received = 0
        self.unsent = b""
        self.at_work = False
        """Whether a thread computes."""
        self.dropped = False

    def seconds_awaited(self, now: float) -> float:
        """For how long the client has let the broker wait since it got its place."""
        return self.awaited + (0.0 if self.awaited_since is None else now - self.awaited_since)

    def step(self, received: bytes) -> bool:
        """Go on with what came; returns whether it is done. Runs in a thread."""
        if self.pipe is None:
            self.pipe = TlsPipe(self.tls.context)
        self.pipe.incoming.write(received)
        try:
            self.pipe.ssl.do_handshake()
        except ssl.SSLWantReadError:
            return False
        if self.pipe.ssl.session_reused:
            _check_not_expired(self.pipe.ssl.getpeercert(binary_form=True))
        return True


def _check_not_expired(certificate: bytes | None) -> None:
    """Raise ValueError if a client's certificate has expired, which OpenSSL does not ask in a resumed session."""
    if certificate is not None and read_certificate(certificate).not_after < datetime.now(UTC):
        raise ValueError("the client's certificate has expired since its session began")


class Handshakes:
    """All handshakes of a server; `on_done` and `on_failed` are told how each one ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_done: OnDone, on_failed: OnFailed) -> None:
        self._loop = loop
        self._on_done = on_done
        self._on_failed = on_failed
        self._pool = ThreadPoolExecutor(THREADS, "tls-handshake")
        self._all: dict[Handshake, None] = {}
        """The oldest first."""
        self._placed: dict[Handshake, None] = {}
        """Those that have a place, the oldest place first."""
        self._waiting: deque[Handshake] = deque()
        """Those that wait for a place."""
        self._full_until = 0.0
        """Until when it is not looked again whether somebody has had a fair time."""
        self._alarm: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failures = _FailureLog(loop)

    def __len__(self) -> int:
        return len(self._all)

    def begin(self, sock: socket.socket, tls: TlsContext, listener: str, address: tuple[str, int]) -> None:
        """Take over a connection that was accepted."""
        handshake = Handshake(sock, tls, listener, address, self._loop.time())
        self._all[handshake] = None
        if self._alarm is None:
            self._alarm = self._loop.call_later(HANDSHAKE_SECONDS, self._end_overdue)
        self._loop.add_reader(sock, self._on_readable, handshake)

    # Places

    def _on_readable(self, handshake: Handshake) -> None:
        if handshake.placed is None:
            if len(self._placed) >= MOST_HANDSHAKES and not self._make_room():
                self._loop.remove_reader(handshake.sock)
                self._waiting.append(handshake)
                self._retry_later()
                return
            self._place(handshake)
        self._receive(handshake)

    def _place(self, handshake: Handshake) -> None:
        handshake.placed = self._loop.time()
        self._placed[handshake] = None

    def _make_room(self) -> bool:
        """End the oldest handshake whose client has had a fair time, if there is one."""
        now = self._loop.time()
        if now < self._full_until:
            return False
        slow = next((each for each in self._placed if each.seconds_awaited(now) >= FAIR_SECONDS), None)
        if slow is None:
            self._full_until = now + RETRY_SECONDS / 2
            return False
        self._drop(slow, "others needed its place")
        return True

    def _admit_waiting(self) -> None:
        while self._waiting and (len(self._placed) < MOST_HANDSHAKES or self._make_room()):
            handshake = self._waiting.popleft()
            if not handshake.dropped:
                self._place(handshake)
                handshake.awaited_since = handshake.placed
                self._loop.add_reader(handshake.sock, self._on_readable, handshake)
        if self._waiting:
            self._retry_later()

    def _retry_later(self) -> None:
        if self._retry is None:
            self._retry = self._loop.call_later(RETRY_SECONDS, self._on_retry)

    def _on_retry(self) -> None:
        self._retry = None
        self._admit_waiting()

    # Steps

    def _receive(self, handshake: Handshake) -> None:
        try:
            received = handshake.sock.recv(RECEIVED)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(handshake, _reason(error))
            return
        handshake.received += len(received)
        if not received:
            self._drop(handshake, "the client closed the connection")
        elif handshake.received > MOST_BYTES:
            self._drop(handshake, f"the client sent more than {MOST_BYTES} bytes")
        else:
            self._loop.remove_reader(handshake.sock)
            handshake.awaited, handshake.awaited_since = handshake.seconds_awaited(self._loop.time()), None
            handshake.at_work = True
            step = self._pool.submit(handshake.step, received)
            step.add_done_callback(lambda done: self._loop.call_soon_threadsafe(self._on_step, handshake, done))

    def _on_step(self, handshake: Handshake, step: Future[bool]) -> None:
        handshake.at_work = False
        handshake.awaited_since = self._loop.time()
        if handshake.dropped:
            handshake.sock.close()
            return
        if handshake.pipe is not None:
            handshake.unsent += handshake.pipe.outgoing.read()
        match step.exception():
            case None:
                self._send(handshake, is_done=step.result())
            case OSError() | ValueError() as error:
                with contextlib.suppress(OSError):  # what is wrong, in TLS's words
                    handshake.sock.send(handshake.unsent)
                self._drop(handshake, _reason(error))
            case BaseException() as error:
                logger.error(
                    "The TLS handshake with %s:%d failed because of an unexpected error. The connection is closed.",
                    *handshake.address[:2],
                    exc_info=error,
                )
                self._drop(handshake, "an unexpected error of this broker")

    def _send(self, handshake: Handshake, *, is_done: bool) -> None:
        """Send what OpenSSL wants to say; then the handshake is done, or waits for the client's next words."""
        try:
            sent = handshake.sock.send(handshake.unsent) if handshake.unsent else 0
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._drop(handshake, _reason(error))
            return
        handshake.unsent = handshake.unsent[sent:]
        self._loop.remove_writer(handshake.sock)
        if handshake.unsent:
            self._loop.add_writer(handshake.sock, lambda: self._send(handshake, is_done=is_done))
        elif is_done:
            self._finish(handshake)
        else:
            self._loop.add_reader(handshake.sock, self._on_readable, handshake)

    def _finish(self, handshake: Handshake) -> None:
        assert handshake.pipe is not None
        suite = handshake.pipe.ssl.cipher()
        allowed = handshake.tls.ciphers
        if allowed is not None and (suite is None or suite[0] not in allowed):
            self._drop(handshake, f"ssl.cipher.suites does not have {suite and suite[0]}, the one that the client has")
            return
        self._forget(handshake)
        self._on_done(handshake.sock, handshake.pipe, handshake.listener, handshake.address)

    def _drop(self, handshake: Handshake, reason: str) -> None:
        self._failures.log(handshake.listener, handshake.address, reason)
        handshake.dropped = True
        self._loop.remove_reader(handshake.sock)
        self._loop.remove_writer(handshake.sock)
        if not handshake.at_work:
            handshake.sock.close()
        self._forget(handshake)
        self._on_failed(handshake.listener, handshake.address)

    def _forget(self, handshake: Handshake) -> None:
        del self._all[handshake]
        if self._placed.pop(handshake, self) is None and self._waiting:
            self._loop.call_soon(self._admit_waiting)

    def _end_overdue(self) -> None:
        self._alarm = None
        oldest = self._loop.time() - HANDSHAKE_SECONDS
        for handshake in list(self._all):
            if handshake.since > oldest:
                self._alarm = self._loop.call_at(handshake.since + HANDSHAKE_SECONDS, self._end_overdue)
                return
            sent = "it did not finish" if handshake.received else "the client sent nothing"
            self._drop(handshake, f"{sent} within {HANDSHAKE_SECONDS:g} s")

    def close(self) -> None:
        """End all of them."""
        for timer in (self._alarm, self._retry):
            if timer is not None:
                timer.cancel()
        self._alarm = None
        self._waiting.clear()
        for handshake in list(self._all):
            self._drop(handshake, "the broker stops")
        self._pool.shutdown()


class _FailureLog:
    """Logs handshakes that failed, some in full and the others as a number: anybody can cause them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lines = 0
        self._counting = False

    def log(self, listener: str, address: tuple[str, int], reason: str) -> None:
        """Say that a handshake failed, and why."""
        self._lines += 1
        if not self._counting:
            self._counting = True
            self._loop.call_later(LOG_SECONDS, self._count)
        if self._lines <= MOST_LOG_LINES:
            logger.info("TLS handshake with %s:%d on listener %s failed: %s", *address[:2], listener, reason)

    def _count(self) -> None:
        if self._lines > MOST_LOG_LINES:
            logger.info(
                "%d further TLS handshakes failed within %g s; at most %d are logged one by one.",
                self._lines - MOST_LOG_LINES,
                LOG_SECONDS,
                MOST_LOG_LINES,
            )
        self._lines, self._counting = 0, False


def _reason(error: OSError | ValueError) -> str:
    """Why a handshake failed, for whoever runs the broker."""
    reason = getattr(error, "reason", None)
    if reason in NOT_TLS:
        return "the client does not speak TLS; its security.protocol must be that of the listener"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate, and ssl.client.auth is required"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "the client closed the connection"
    if reason is not None and "ALERT" in reason:
        words = reason.lower().replace("_", " ")
        return f"the client refused: {words} (does it trust the CA of the broker's certificate?)"
    return str(error)
