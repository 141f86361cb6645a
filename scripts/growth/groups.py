"""A thousand groups of a hundred members that do nothing but send heartbeats, in both protocols.

Members of one number share a connection while their groups are made, and are kept alive meanwhile. Then heartbeats are
spread evenly over the interval and over a thousand connections, one request at a time on each unless the broker falls
behind: it receives and answers each by itself, as from members with connections of their own.
"""

from __future__ import annotations

import select
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.clients import groups, wire
from scripts.growth import topics
from scripts.growth.brokers import Brokers

if TYPE_CHECKING:
    import socket
    from pathlib import Path

    from scripts.growth.tables import Column

MEMBERS: Final = 100
PROTOCOLS: Final[dict[str, tuple[type[groups.ClassicGroup] | type[groups.ConsumerGroup], float]]] = {
    "classic": (groups.ClassicGroup, 3.0),
    "consumer": (groups.ConsumerGroup, 5.0),
}
"""How members join, and the default interval of their heartbeats in seconds."""
_TOPIC: Final = "shared"
_COORDINATORS: Final = 50
_CONNECTIONS: Final = 1_000
_SECONDS: Final = 30.0
_KEEP_ALIVE: Final = 15.0
"""Seconds after which the members of groups that are made are heard of again."""
_UNANSWERED: Final = 20_000
"""Heartbeats that may wait for their answers; a broker that is further behind is waited for."""
_REST: Final = 10.0


def measure(folder: Path, protocol: str, count: int, memory: int, column: Column) -> None:
    """Make the groups, and let their members live for a while."""
    kind, interval = PROTOCOLS[protocol]
    with Brokers(folder, 1, memory) as brokers, brokers.connection() as admin:
        topics.create(admin, [_TOPIC], MEMBERS, 1, 1)
        wait_for_coordinators(brokers)
        column.note("without groups, processor ms a second", brokers.at_rest(_REST) * 1e3)
        before, used, began = brokers.memory(), brokers.processor(), time.perf_counter()
        frames = _make(brokers, kind, count)
        column.note("groups made, s", time.perf_counter() - began)
        column.note("processor ms of a group's members joining", (brokers.processor() - used) / count * 1e3)
        column.note("memory of a member, KB", (brokers.memory() - before) / len(frames) / 1e3)
        with Beats(brokers, frames) as beats:
            beats.run(interval, interval)
            used = brokers.processor()
            answered, seconds, busy = beats.run(interval, _SECONDS)
            used = brokers.processor() - used
        column.note("heartbeats due a second", len(frames) / interval)
        column.note("heartbeats answered a second", answered / seconds)
        column.note("processor ms of the broker a second", used / seconds * 1e3)
        column.note("processor µs of a heartbeat", used / answered * 1e6)
        column.note("processor ms of the client a second", busy / seconds * 1e3)


def wait_for_coordinators(brokers: Brokers) -> None:
    """Wait until groups of all partitions of `__consumer_offsets` are served."""
    for number in range(8 * _COORDINATORS):
        groups.wait_for_coordinator(brokers.port(), f"waits-{number}")


def _make(brokers: Brokers, kind: type[groups.ClassicGroup] | type[groups.ConsumerGroup], count: int) -> list[bytes]:
    """Let all members join; the heartbeats of all of them, group by group."""
    frames: list[bytes] = []
    with ExitStack() as stack:
        lent = [stack.enter_context(brokers.connect()) for _ in range(MEMBERS)]
        heard = time.monotonic()
        for number in range(count):
            frames += kind(brokers.port(), f"growth-{number:04}", _TOPIC, MEMBERS, lent).heartbeat_frames()
            if time.monotonic() > heard + _KEEP_ALIVE:
                _keep_alive(lent, frames)
                heard = time.monotonic()
        _keep_alive(lent, frames)
    return frames


def _keep_alive(lent: list[socket.socket], frames: list[bytes]) -> None:
    """A heartbeat of everybody, ten groups at a time."""
    step = 10 * MEMBERS
    for first in range(0, len(frames), step):
        some = frames[first : first + step]
        for number, frame in enumerate(some):
            lent[number % MEMBERS].sendall(frame)
        for number in range(len(some)):
            _check(wire.receive(lent[number % MEMBERS]))


class Beats:
    """Connections over which heartbeats go; a context manager that closes them."""

    def __init__(self, brokers: Brokers, frames: list[bytes]) -> None:
        self._frames = frames
        self._next = 0
        self._stack = ExitStack()
        self._epoll = self._stack.enter_context(select.epoll())
        self._sockets = [self._stack.enter_context(brokers.connect()) for _ in range(_CONNECTIONS)]
        self._begun: dict[int, bytes] = {}
        self._by_descriptor = {each.fileno(): each for each in self._sockets}
        for each in self._sockets:
            self._epoll.register(each, select.EPOLLIN)

    def __enter__(self) -> Beats:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, interval: float, seconds: float) -> tuple[int, float, float]:
        """Send heartbeats for so long, each member's once in an interval; answers, seconds, and processor time here."""
        rate = len(self._frames) / interval
        total = round(rate * seconds)
        began, busy = time.perf_counter(), time.thread_time()
        sent = answered = 0
        while answered < total:
            due = min(total, round((time.perf_counter() - began) * rate), answered + _UNANSWERED)
            while sent < due:
                frame = self._frames[self._next % len(self._frames)]
                self._sockets[self._next % _CONNECTIONS].sendall(frame)
                self._next += 1
                sent += 1
            for descriptor, _ in self._epoll.poll(0.001):
                answered += self._receive(descriptor)
        return answered, time.perf_counter() - began, time.thread_time() - busy

    def _receive(self, descriptor: int) -> int:
        """Take what has come; how many answers are whole with it."""
        came = self._by_descriptor[descriptor].recv(1 << 16)
        if not came:
            raise ConnectionError("the broker closed a connection")
        data = self._begun.pop(descriptor, b"") + came
        at = answers = 0
        while len(data) - at >= 4 and len(data) >= (end := at + 4 + int.from_bytes(data[at : at + 4], "big")):
            _check(data[at:end])
            at = end
            answers += 1
        if at < len(data):
            self._begun[descriptor] = data[at:]
        return answers


def _check(answer: bytes) -> None:
    if any(answer[groups.ERROR]):
        raise RuntimeError(f"a heartbeat was answered {answer.hex()}")
