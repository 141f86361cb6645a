"""A proxy that knows requests: it holds some of them back, and lets them go when their sender has long given up.

A sender that waits longer than its request timeout closes the connection and asks again on another one. The first
request is still on its way then, and arrives at a time when nobody expects it any more. So does a copy of a request
that a network delivers twice.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

ADD_PARTITIONS: Final = 24
END_TXN: Final = 26
WRITE_MARKERS: Final = 27
TXN_OFFSET_COMMIT: Final = 28
_HEAD: Final = struct.Struct(">ihh")


class Fate(NamedTuple):
    """What is to become of a request."""

    held: float = 0.0
    """Seconds for which it is held back."""
    repeated: float | None = None
    """Seconds after which a copy of it arrives, on a connection of its own."""


class Holding(Proxy):
    """Lets requests pass one by one; `judge` says what becomes of each, by its API key and version."""

    def __init__(self, judge: Callable[[int, int], Fate] = lambda key, version: Fate()) -> None:
        self.judge = judge
        self.seen: set[tuple[int, int]] = set()
        """API keys and versions of the requests that came."""
        self.held: Counter[int] = Counter()
        """Requests that were held back and let go, by API key."""
        self.repeated: Counter[int] = Counter()
        """Requests of which a copy was answered, by API key."""
        self.answered = threading.Event()
        """A request that `hold` held was answered."""
        self._answers: dict[socket.socket, threading.Event] = {}
        """Of connections to the broker: whether something came back since a held request was let go."""
        self._closing = threading.Event()
        self._awaited: dict[int, threading.Event] = {}
        self._arrived: dict[int, threading.Event] = {}
        super().__init__()

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        for event in self._awaited.values():
            event.set()
        super().__exit__()

    def hold(self, key: int) -> threading.Event:
        """Hold the next request of this API until `release`; gives what is set once it came."""
        self._awaited[key] = threading.Event()
        self._arrived[key] = threading.Event()
        return self._arrived[key]

    def release(self, key: int) -> None:
        """Let the request go that was held."""
        self._awaited[key].set()

    def _forward(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        if answers:
            try:
                while data := source.recv(1 << 16):
                    self._heard(source)
                    sink.sendall(data)
            finally:
                self._heard(source)
            return
        with source.makefile("rb") as requests:
            while len(head := requests.read(_HEAD.size)) == _HEAD.size:
                size, key, version = _HEAD.unpack(head)
                frame = head + requests.read(size + 4 - _HEAD.size)
                self._pass_on(frame, key, version, sink)

    def _pass_on(self, frame: bytes, key: int, version: int, sink: socket.socket) -> None:
        self.seen.add((key, version))
        arrived = self._arrived.pop(key, None)
        if arrived is not None:
            arrived.set()
            self._awaited[key].wait()
            self._let_go(frame, key, sink)
            self.answered.set()
            return
        fate = self.judge(key, version)
        if fate.repeated is not None:
            self._later(fate.repeated, frame, key)
        if fate.held:
            self._closing.wait(fate.held)
            self._let_go(frame, key, sink)
        else:
            sink.sendall(frame)

    def _let_go(self, frame: bytes, key: int, sink: socket.socket) -> None:
        """Send it, and look at its sender again only when it was answered: the end of its connection would overtake it.

        A broker that was killed meanwhile answers nothing.
        """
        answered = self._answers[sink] = threading.Event()
        sink.sendall(frame)
        answered.wait(30)
        self.held[key] += 1

    def _heard(self, broker: socket.socket) -> None:
        """A broker answered, or ended."""
        if (answered := self._answers.get(broker)) is not None:
            answered.set()

    def _later(self, seconds: float, frame: bytes, key: int) -> None:
        """Send a copy to the broker, and throw its answer away."""

        def repeat() -> None:
            if self._closing.wait(seconds):
                return
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.target), 5) as broker:
                broker.settimeout(5)
                broker.sendall(frame)
                self.repeated[key] += bool(broker.recv(1 << 16))

        thread = threading.Thread(target=repeat, daemon=True)
        self._threads.append(thread)
        thread.start()
