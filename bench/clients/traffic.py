"""Steady traffic of producers and consumers over plain sockets, each request timed: what others notice of a chore.

One thread and one epoll. Each connection has its next request due at a fixed pace, and a request's time counts from
when it was due: a broker that stands still for a while pays for all that should have been asked meanwhile.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Self

from bench.clients import wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

PRODUCERS: Final = 6
"""Connections that produce; as many fetch."""
PER_SECOND: Final = 50.0
"""Requests of each connection."""
RECORDS: Final = 16
"""Records of 1 KB in a Produce; a Fetch asks for four times as much."""
_VALUE: Final = b"x" * 1024
_FETCHED: Final = 4 * RECORDS
_LOOK_EVERY: Final = 0.01
_MARK: Final = 0x0123_4567_89AB_CDEF
_OK: Final = b"\0\0"


@dataclass(slots=True)
class Times:
    """Seconds that requests took."""

    produce: list[float] = field(default_factory=list)
    fetch: list[float] = field(default_factory=list)


class Traffic:
    """A topic with a partition for each producer, and a consumer behind each; a context manager."""

    def __init__(self, port: int, topic: str) -> None:
        self._request = wire.batch([_VALUE] * RECORDS)
        self._clients: list[_Producer | _Fetcher] = []
        for partition in range(PRODUCERS):
            producer = _Producer(wire.connect(port), topic, partition, self._request)
            self._clients += [producer, _Fetcher(wire.connect(port), topic, partition, producer)]
        self._epoll = select.epoll()
        for client in self._clients:
            self._epoll.register(client.socket, select.EPOLLIN)
        self._by_descriptor = {client.socket.fileno(): client for client in self._clients}

    def __enter__(self) -> Self:
        for client in self._clients:  # so that there is something to fetch
            for _ in range(_FETCHED // RECORDS if isinstance(client, _Producer) else 0):
                client.send()
                client.receive()
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for client in self._clients:
            client.socket.close()

    def run(self, done: Callable[[], bool]) -> Times:
        """Keep it up until it is done, and say how long requests took."""
        times = Times()
        samples = {_Producer: times.produce, _Fetcher: times.fetch}
        now = time.perf_counter()
        for number, client in enumerate(self._clients):
            client.due = now + number / len(self._clients) / PER_SECOND
        look, over = now, False
        asked: set[_Producer | _Fetcher] = set()
        while asked or not over:
            if now >= look:
                look, over = now + _LOOK_EVERY, over or done()
            for client in self._clients:
                if not over and client not in asked and client.due <= now:
                    client.send()
                    asked.add(client)
            due = min((client.due for client in self._clients if not over and client not in asked), default=look)
            for descriptor, _ in self._epoll.poll(max(0.0, min(due, look) - time.perf_counter())):
                client = self._by_descriptor[descriptor]
                client.receive()
                asked.discard(client)
                samples[type(client)].append(time.perf_counter() - client.due)
                client.due += 1 / PER_SECOND
            now = time.perf_counter()
        return times


class _Producer:
    """Sends the same batch again and again; knows the offset of the last that was acknowledged."""

    def __init__(self, connection: socket.socket, topic: str, partition: int, records: bytes) -> None:
        self.socket = connection
        self.due = 0.0
        self.last = -1
        self._request = wire.produce_request(topic, partition, records)
        self._error = wire.produce_error_at(topic)

    def send(self) -> None:
        self.socket.sendall(self._request)

    def receive(self) -> None:
        response = wire.receive(self.socket)
        if response[self._error] != _OK:
            raise RuntimeError("a batch was refused")
        self.last = int.from_bytes(response[self._error.stop : self._error.stop + 8], "big")


class _Fetcher:
    """Reads the last few batches of a producer."""

    def __init__(self, connection: socket.socket, topic: str, partition: int, producer: _Producer) -> None:
        self.socket = connection
        self.due = 0.0
        self._producer = producer
        request = wire.fetch_request(topic, partition, _MARK, _FETCHED * len(_VALUE))
        self._before, self._after = request.split(_MARK.to_bytes(8, "big"))

    def send(self) -> None:
        offset = self._producer.last + RECORDS - _FETCHED
        self.socket.sendall(self._before + offset.to_bytes(8, "big") + self._after)

    def receive(self) -> None:
        size = len(wire.receive(self.socket))
        if size < RECORDS * len(_VALUE):
            raise RuntimeError(f"a fetch was answered with {size} bytes")
