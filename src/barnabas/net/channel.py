"""From broker to broker: one connection, many questions at a time, answers in the order of the questions.

A channel connects when it is first asked, and again after it broke; whoever waits for an answer then is told
`ChannelBroken` and decides whether to ask again. A new connection is first used to introduce this broker to the other
one; nobody's question goes out before that is done. A response is received into a buffer of exactly its size, so that a
follower can append records from where they arrived.

A follower asks hundreds of times a second and is never left without an answer for long. So no question has a timer of
its own: a connection has one, which looks when the first answer is overdue that was awaited when it was set.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from barnabas.model.errors import BarnabasError
from barnabas.protocol.framing import HEADER, LENGTH

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    Ask = Callable[[int, int, bytes], Awaitable[memoryview]]
    """Sends a request, by API key, version and body, in a version with tagged fields; gives its response."""

_CORRELATION_IDS: Final = 1 << 31


class ChannelBroken(BarnabasError):
    """The other broker cannot be reached, or went while it was asked."""


class Channel:
    """The connection to one broker; `max_response` bounds what it may send at once.

    `introduce` is called with each new connection; if it raises ChannelBroken, the connection is given up.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_seconds: float,
        max_response: int,
        introduce: Callable[[Ask], Awaitable[None]] | None = None,
    ) -> None:
        self._introduce = introduce
        self.host = host
        self.port = port
        self._client_id = client_id.encode()
        self._connect_seconds = connect_seconds
        self._max_response = max_response
        self._link: _Link | None = None
        self._introducing: _Link | None = None
        self._connecting = asyncio.Lock()
        self._last_id = 0
        self._closed = False

    def __repr__(self) -> str:
        return f"Channel({self.host}:{self.port})"

    @property
    def is_connected(self) -> bool:
        """Whether the last that was heard of the other broker is good."""
        return self._link is not None and not self._link.broken

    async def ask(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool, seconds: float
    ) -> memoryview:
        """Send a request and wait for its response, from the first byte after the correlation id on.

        Raises ChannelBroken, also when there is no answer within `seconds`: the connection is then given up.
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
        return await link.ask(_Question(self._last_id, answer, deadline, seconds), message)

    def _message(
        self, key: int, version: int, body: Sequence[bytes | bytearray | memoryview], *, flexible: bool
    ) -> bytes:
        """A request with the next correlation id."""
        self._last_id = (self._last_id + 1) % _CORRELATION_IDS
        header = HEADER.pack(key, version, self._last_id, len(self._client_id)) + self._client_id
        return b"".join((header, b"\0" if flexible else b"", *body))

    def close(self) -> None:
        """Give the connection up for good."""
        self._closed = True
        self._break("this broker closed the connection")

    def _break(self, reason: str) -> None:
        link, self._link = self._link, None
        for each in (link, self._introducing):
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
                            lambda: _Link(f"{self.host}:{self.port}", self._max_response), self.host, self.port
                        )
                        await self._introduced(link)
                except (OSError, TimeoutError) as error:
                    raise ChannelBroken(f"{self.host}:{self.port} cannot be reached: {error}") from error
                self._link = link
                if self._closed:  # meanwhile
                    self.close()
                    raise ChannelBroken(f"the channel to {self.host}:{self.port} is closed")
            return self._link

    async def _introduced(self, link: _Link) -> None:
        """Have the introduction done over a connection that nobody else uses yet."""
        if self._introduce is None:
            return
        loop = asyncio.get_running_loop()
        seconds = self._connect_seconds
        self._introducing = link

        async def ask(key: int, version: int, body: bytes) -> memoryview:
            message = self._message(key, version, [body], flexible=True)
            question = _Question(self._last_id, loop.create_future(), loop.time() + seconds, seconds)
            return await link.ask(question, message)

        try:
            await self._introduce(ask)
        except BaseException:
            link.break_off("the introduction failed")
            raise
        finally:
            self._introducing = None


class _Question(NamedTuple):
    """Who waits for an answer, and until when."""

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
        self._waiting: deque[_Question] = deque()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = math.inf
        self._length = bytearray(LENGTH.size)
        self._frame: bytearray | None = None
        self._filled = 0
        self.broken = False

    def ask(self, question: _Question, message: bytes) -> asyncio.Future[memoryview]:
        """Send one request; answers come in the order of requests."""
        if self._transport is None or self.broken:
            raise ChannelBroken(f"the connection to {self._name} is broken")
        self._waiting.append(question)
        if question.deadline < self._alarm_at:
            self._set_alarm(question.deadline)
        self._transport.write(LENGTH.pack(len(message)) + message)
        return question.answer

    def break_off(self, reason: str) -> None:
        """Close it, and tell everyone who waits."""
        self.broken = True
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
        """Give the connection up if an answer is overdue, or look again when the next one would be."""
        self._alarm, self._alarm_at = None, math.inf
        now = asyncio.get_running_loop().time()
        awaited = [question for question in self._waiting if not question.answer.done()]
        overdue = [question for question in awaited if question.deadline <= now]
        for question in overdue:
            told = f"{self._name} did not answer within {question.seconds:g} s"
            question.answer.set_exception(ChannelBroken(told))
        if overdue:
            self.break_off("it did not answer in time")
        elif awaited:
            self._set_alarm(min(question.deadline for question in awaited))

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
            self.break_off("it answered what nobody asked")
            return
        question = self._waiting.popleft()
        (correlation_id,) = LENGTH.unpack_from(frame)
        if correlation_id != question.correlation_id:
            self._waiting.appendleft(question)
            self.break_off(f"it answered request {correlation_id} instead of {question.correlation_id}")
        elif not question.answer.done():
            question.answer.set_result(frame[4:])
