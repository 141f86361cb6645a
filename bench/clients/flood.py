"""As many requests as a broker can take: a few connections with several unanswered each, one thread, one epoll.

What a connection asks is made beforehand or costs little to make. Of an answer only its beginning is looked at; the
rest of a long one is dropped by the kernel without being copied (`MSG_TRUNC`), so that fetching does not make this side
the limit. A connection that takes no more bytes never holds up the others: what is left of its requests is sent when
there is room, so that this side waits only when there is nothing else to do: its processor time tells how busy it is.
"""

from __future__ import annotations

import select
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Final, Self

from bench.clients import wire
from bench.clients.sockets import Load

if TYPE_CHECKING:
    from collections.abc import Iterable

_HEAD: Final = 1 << 12
"""Bytes of an answer that are looked at, at most."""
_DROPPED: Final = bytearray(1 << 20)
"""Where bytes would go that nobody looks at."""


class Requests(ABC):
    """What one connection asks."""

    in_flight = 5
    """As many requests as Kafka's producer keeps unanswered."""
    head = 128
    """With so many bytes of an answer it can be checked."""
    repeated = 0
    """Answers that only said to ask again, which do not count."""

    @abstractmethod
    def frames(self, count: int) -> bytes:
        """The next requests, as many as this."""

    @abstractmethod
    def check(self, answer: bytes) -> None:
        """Fail unless the answer that begins so is the one that was wanted."""


class Flood:
    """Connections that keep brokers busy; a context manager that closes them."""

    def __init__(self, clients: Iterable[tuple[int, Requests]]) -> None:
        """A connection to this port for each of them."""
        self._epoll = select.epoll()
        self._lines: dict[int, _Line] = {}
        for port, requests in clients:
            connection = wire.connect(port)
            connection.setblocking(False)
            self._epoll.register(connection, select.EPOLLIN)
            self._lines[connection.fileno()] = _Line(connection, requests, self._epoll)

    @classmethod
    def at(cls, port: int, clients: Iterable[Requests]) -> Self:
        """All of them at one broker."""
        return cls((port, requests) for requests in clients)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for line in self._lines.values():
            line.close()

    def run(self, seconds: float) -> Load:
        """Ask for so long, then wait for the last answers."""
        started, cpu = time.perf_counter(), time.thread_time()
        deadline = started + seconds
        done, unanswered = 0, sum(line.begin() for line in self._lines.values())
        while unanswered:
            events = self._epoll.poll()
            go_on = time.perf_counter() < deadline
            for descriptor, event in events:
                line = self._lines[descriptor]
                if event & select.EPOLLOUT:
                    line.flush()
                answered = line.receive() if event & ~select.EPOLLOUT else 0
                done += answered
                if go_on and answered:
                    line.send(answered)
                else:
                    unanswered -= answered
        done -= sum(line.take_repeated() for line in self._lines.values())
        return Load(done, time.perf_counter() - started, time.thread_time() - cpu)


class _Line:
    """A connection, what its socket has not taken yet, and what has come of the answer that is being received."""

    def __init__(self, connection: socket.socket, requests: Requests, epoll: select.epoll) -> None:
        self._socket = connection
        self._requests = requests
        self._epoll = epoll
        self._unsent: deque[memoryview] = deque()
        self._begun = b""
        self._dropping = 0
        """Bytes of an answer that was looked at which are still to come."""

    def begin(self) -> int:
        """Send the first requests; how many."""
        self.send(self._requests.in_flight)
        return self._requests.in_flight

    def send(self, count: int) -> None:
        """Send so many requests; what the socket does not take waits for room in it."""
        waiting = bool(self._unsent)
        self._unsent.append(memoryview(self._requests.frames(count)))
        if not waiting and not self._send_unsent():
            self._epoll.modify(self._socket, select.EPOLLIN | select.EPOLLOUT)

    def flush(self) -> None:
        """Send more of what is left, now that there is room."""
        if self._send_unsent():
            self._epoll.modify(self._socket, select.EPOLLIN)

    def _send_unsent(self) -> bool:
        """Whether everything is sent."""
        unsent = self._unsent
        try:
            while unsent:
                sent = self._socket.send(unsent[0])
                if sent < len(unsent[0]):
                    unsent[0] = unsent[0][sent:]
                else:
                    unsent.popleft()
        except BlockingIOError:
            return False
        return True

    def receive(self) -> int:
        """Take what has come; how many answers are whole with it."""
        if self._dropping:
            size = self._socket.recv_into(_DROPPED, min(self._dropping, len(_DROPPED)), socket.MSG_TRUNC)
            self._expect(size)
            self._dropping -= size
            return 0 if self._dropping else 1
        came = self._socket.recv(_HEAD)
        self._expect(len(came))
        data = self._begun + came
        at = answered = 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                if len(data) - at >= self._requests.head:
                    self._requests.check(data[at:])
                    self._dropping, at = end - len(data), len(data)
                break
            self._requests.check(data[at:end])
            at = end
            answered += 1
        self._begun = data[at:]
        return answered

    def _expect(self, size: int) -> None:
        if not size:
            raise ConnectionError("the broker closed a connection")

    def take_repeated(self) -> int:
        """How many answers did not count since this was last asked."""
        count, self._requests.repeated = self._requests.repeated, 0
        return count

    def close(self) -> None:
        self._socket.close()
