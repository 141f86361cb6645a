"""From broker to broker: one connection, many requests at a time, responses in the order of the requests.

A channel connects with the first request, and again after it broke; requests that wait for a response then fail with
`ChannelBroken`, and their senders decide whether to send again. A new connection first carries the handshake; no
request goes out before that is done. A response is received into a buffer of exactly its size, so that a follower can
append records from where they arrived.

A follower fetches hundreds of times a second and is never left without a response for long. So no request has a timer
of its own: a connection has one, which looks when the first response is overdue that was awaited when it was set.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from barnabas.model.errors import BarnabasError
from barnabas.protocol.wire.framing import HEADER, LENGTH

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Sequence
    from typing import Protocol

    class Ask(Protocol):
        """Sends a request, by API key, version and body; gives its response, after the correlation id."""

        def __call__(self, key: int, version: int, body: bytes, *, flexible: bool = True) -> Awaitable[memoryview]:
            """`flexible` tells whether the version has tagged fields."""
            ...


RETIRING_SECONDS: Final = 1.0
"""How often it is seen whether a connection that is used no more can be closed."""
_CORRELATION_IDS: Final = 1 << 31
_COPIED: Final = 65_536
"""Bytes of a message that is copied into one piece. What is larger may be in messages to other brokers too."""


class ChannelBroken(BarnabasError):
    """The other broker cannot be reached, or went away before it answered."""


class ChannelOptions(NamedTuple):
    """How a channel connects, and what it takes."""

    client_id: str
    connect_seconds: float
    max_response: int
    """Bytes that the other broker may send at once."""
    handshake: Callable[[Ask], Awaitable[float | None]] | None = None
    """Called with each new connection; if it raises ChannelBroken, the connection is closed.

    It gives the seconds after which another connection must take its place, None if there is no need.
    """
    tls: Callable[[], ssl.SSLContext | None] = lambda: None
    """Gives the TLS context of the next connection; None for one without TLS."""


class Channel:
    """The connection to one broker."""

    def __init__(self, host: str, port: int, options: ChannelOptions) -> None:
        self.host = host
        self.port = port
        self._handshake = options.handshake
        self._tls = options.tls
        self._client_id = options.client_id.encode()
        self._connect_seconds = options.connect_seconds
        self._max_response = options.max_response
        self._link: _Link | None = None
        self._shaking_hands: _Link | None = None
        self._retired: set[_Link] = set()
        """Connections that others took the place of, and on which responses are awaited."""
        self._connecting = asyncio.Lock()
        self._last_id = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"Channel({self.host}:{self.port})"

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection that is not known to be broken."""
        return self._link is not None and not self._link.broken

    async def ask(self, key: int, version: int, body: Sequence[bytes], *, flexible: bool, seconds: float) -> memoryview:
        """Send a request and wait for its response, from the first byte after the correlation id on.

        Raises ChannelBroken, also when there is no response within `seconds`: the connection is then closed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        link = self._link
        if link is None or link.broken:
            try:
                async with asyncio.timeout_at(deadline):
                    link = await self._connected()
            except TimeoutError:
                raise ChannelBroken(f"{self.host}:{self.port} cannot be reached within {seconds:g} s") from None
        message = self._message(key, version, body, flexible=flexible)
        answer: asyncio.Future[memoryview] = loop.create_future()
        return await link.ask(_PendingRequest(self._last_id, answer, deadline, seconds), message)

    def _message(self, key: int, version: int, body: Sequence[bytes], *, flexible: bool) -> tuple[bytes, ...]:
        """A request with the next correlation id, with its size in front."""
        self._last_id = (self._last_id + 1) % _CORRELATION_IDS
        header = HEADER.pack(key, version, self._last_id, len(self._client_id)) + self._client_id
        if flexible:
            header += b"\0"
        size = len(header) + sum(map(len, body))
        message = (LENGTH.pack(size), header, *body)
        return message if size > _COPIED else (b"".join(message),)

    async def until_broken(self) -> None:
        """Connect if there is no connection, and wait for its end. Raises ChannelBroken if there can be none."""
        link = await self._connected()
        await link.ended.wait()

    def close(self) -> None:
        """Close the connection for good."""
        self._closed = True
        self._break("this broker closed the connection")

    def _break(self, reason: str) -> None:
        link, self._link = self._link, None
        for each in (link, self._shaking_hands, *self._retired):
            if each is not None:
                each.break_off(reason)

    async def _connected(self) -> _Link:
        if (link := self._link) is not None and not link.broken:
            return link
        async with self._connecting:
            if self._closed:
                raise ChannelBroken(f"the channel to {self.host}:{self.port} is closed")
            if self._link is None or self._link.broken:
                loop = asyncio.get_running_loop()
                try:
                    async with asyncio.timeout(self._connect_seconds):
                        _, link = await loop.create_connection(
                            lambda: _Link(f"{self.host}:{self.port}", self._max_response),
                            self.host,
                            self.port,
                            ssl=self._tls(),
                        )
                        seconds = await self._shake_hands(link)
                except (OSError, TimeoutError) as error:
                    raise ChannelBroken(f"{self.host}:{self.port} cannot be reached: {error}") from error
                self._link = link
                if self._closed:  # meanwhile
                    self.close()
                    raise ChannelBroken(f"the channel to {self.host}:{self.port} is closed")
                if seconds is not None:
                    loop.call_later(seconds, self._retire, link)
            return self._link

    def _retire(self, link: _Link) -> None:
        """Send nothing more over a connection; close it when every response has come."""
        if self._link is link:
            self._link = None
        if link.is_idle:
            self._retired.discard(link)
            link.break_off("its time was over")
        else:
            self._retired.add(link)
            asyncio.get_running_loop().call_later(RETIRING_SECONDS, self._retire, link)

    async def _shake_hands(self, link: _Link) -> float | None:
        """Do the handshake over a connection that nobody else uses yet; gives the seconds that it may be used for."""
        if self._handshake is None:
            return None
        loop = asyncio.get_running_loop()
        seconds = self._connect_seconds
        self._shaking_hands = link

        async def ask(key: int, version: int, body: bytes, *, flexible: bool = True) -> memoryview:
            message = self._message(key, version, [body], flexible=flexible)
            request = _PendingRequest(self._last_id, loop.create_future(), loop.time() + seconds, seconds)
            return await link.ask(request, message)

        try:
            return await self._handshake(ask)
        except BaseException:
            link.break_off("the handshake failed")
            raise
        finally:
            self._shaking_hands = None


class _PendingRequest(NamedTuple):
    """A request that waits for its response, and until when."""

    correlation_id: int
    answer: asyncio.Future[memoryview]
    deadline: float
    seconds: float


class _Link(asyncio.BufferedProtocol):
    """One TCP connection."""

    def __init__(self, name: str, max_response: int) -> None:
        self._name = name
        self._max_response = max_response
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_PendingRequest] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._length = bytearray(LENGTH.size)
        self._frame: bytearray | None = None
        self._filled = 0
        self.broken = False
        self.ended = asyncio.Event()

    def ask(self, request: _PendingRequest, message: Sequence[bytes]) -> asyncio.Future[memoryview]:
        """Send one request; answers come in the order of requests."""
        if self._transport is None or self.broken:
            raise ChannelBroken(f"the connection to {self._name} is broken")
        self._waiting.append(request)
        if request.deadline < self._alarm_at:
            self._set_alarm(request.deadline)
        self._transport.writelines(message)
        return request.answer

    @property
    def is_idle(self) -> bool:
        """Whether no response is awaited."""
        return not self._waiting

    def break_off(self, reason: str) -> None:
        """Close it, and fail every request that waits."""
        self.broken = True
        self.ended.set()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._transport is not None:
            self._transport.abort()
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(ChannelBroken(f"the connection to {self._name} broke: {reason}"))

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = asyncio.get_running_loop().call_at(at, self._ring)

    def _ring(self) -> None:
        """Close the connection if a response is overdue, or look again when the next one would be."""
        self._alarm, self._alarm_at = None, math.inf
        now = asyncio.get_running_loop().time()
        awaited = [request for request in self._waiting if not request.answer.done()]
        overdue = [request for request in awaited if request.deadline <= now]
        for request in overdue:
            reason = f"{self._name} did not answer within {request.seconds:g} s"
            request.answer.set_exception(ChannelBroken(reason))
        if overdue:
            self.break_off("it did not answer in time")
        elif awaited:
            self._set_alarm(min(request.deadline for request in awaited))

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by class
        with contextlib.suppress(OSError, AttributeError):
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        self.break_off(str(exc) if exc is not None else "the other side closed it")

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: into the length, or into the frame that it announced."""
        buffer = self._length if self._frame is None else self._frame
        return memoryview(buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        self._filled += nbytes
        if self._frame is None:
            if self._filled == LENGTH.size:
                self._begin(LENGTH.unpack(self._length)[0])
        elif self._filled == len(self._frame):
            frame, self._frame, self._filled = self._frame, None, 0
            self._received(memoryview(frame))

    def _begin(self, size: int) -> None:
        if not 4 <= size <= self._max_response:
            self.break_off(f"it announced a response of {size} bytes")
            return
        self._frame, self._filled = bytearray(size), 0

    def _received(self, frame: memoryview) -> None:
        if not self._waiting:
            self.break_off("it sent a response without a request")
            return
        request = self._waiting.popleft()
        (correlation_id,) = LENGTH.unpack_from(frame)
        if correlation_id != request.correlation_id:
            self._waiting.appendleft(request)
            self.break_off(f"it answered request {correlation_id} instead of {request.correlation_id}")
        elif not request.answer.done():
            request.answer.set_result(frame[4:])
