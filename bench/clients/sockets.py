"""Many small requests over plain sockets: one thread, one epoll, requests that were built beforehand.

Every answer's error code is checked by its place in the bytes; nothing else is decoded, so that fifty or a thousand
connections cost this side less than they cost any broker.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from bench.clients import wire

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

_OK: Final = b"\0\0"


class Load(NamedTuple):
    """What was asked of the broker."""

    requests: int
    seconds: float
    client_cpu: float
    """Processor seconds of this side; close to `seconds` means that this side was the limit."""


class Connections:
    """Connections that one epoll watches; a context manager that closes them."""

    def __init__(self, port: int, count: int) -> None:
        self._epoll = select.epoll()
        self._sockets: list[socket.socket] = []
        for _ in range(count):
            connection = wire.connect(port)
            connection.setblocking(True)
            self._sockets.append(connection)
            self._epoll.register(connection, select.EPOLLIN)
        self._by_descriptor = {connection.fileno(): connection for connection in self._sockets}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for connection in self._sockets:
            connection.close()

    def eagerly(self, topic: str, partitions: int, value: bytes, total: int) -> Load:
        """Send so many single records, each connection waiting for its answer before the next."""
        return self.exchange(_requests(topic, partitions, value), wire.produce_error_at(topic), total)

    def exchange(self, requests: list[bytes], error: slice, total: int) -> Load:
        """Send these requests by turns, each connection waiting for its answer before the next."""
        kinds = len(requests)
        started, cpu = time.perf_counter(), time.thread_time()
        sent = 0
        for connection in self._sockets[:total]:
            connection.send(requests[sent % kinds])
            sent += 1
        answered = 0
        while answered < total:
            for descriptor, _ in self._epoll.poll():
                connection = self._by_descriptor[descriptor]
                _expect_success(connection, error)
                answered += 1
                if sent < total:
                    connection.send(requests[sent % kinds])
                    sent += 1
        return Load(answered, time.perf_counter() - started, time.thread_time() - cpu)

    def once_a_second(self, topic: str, partitions: int, value: bytes, seconds: float) -> Load:
        """Send one single record a second over each connection for so long, spread evenly over the second."""
        requests = _requests(topic, partitions, value)
        error = wire.produce_error_at(topic)
        count = len(self._sockets)
        total = round(count * seconds)
        started, cpu = time.perf_counter(), time.thread_time()
        sent = answered = 0
        while answered < total:
            now = time.perf_counter() - started
            while sent < total and sent / count <= now:
                self._sockets[sent % count].send(requests[sent % partitions])
                sent += 1
            wait = max(0.0, sent / count - (time.perf_counter() - started)) if sent < total else 1.0
            for descriptor, _ in self._epoll.poll(wait):
                _expect_success(self._by_descriptor[descriptor], error)
                answered += 1
        return Load(answered, time.perf_counter() - started, time.thread_time() - cpu)


def pipeline(port: int, request: bytes, error: slice, total: int, in_flight: int = 5) -> Load:
    """Send one request `total` times over one connection, keeping a few unanswered as Kafka's producer does."""
    with wire.connect(port) as connection:
        started, cpu = time.perf_counter(), time.thread_time()
        for _ in range(min(in_flight, total)):
            connection.sendall(request)
        for answered in range(total):
            if wire.receive(connection)[error] != _OK:
                raise RuntimeError(f"produce request {answered} failed")
            if answered + in_flight < total:
                connection.sendall(request)
        return Load(total, time.perf_counter() - started, time.thread_time() - cpu)


def deliveries(port: int, fetch: Callable[[int], bytes], produce: bytes, count: int, per_second: float) -> list[float]:
    """Seconds from a Produce to the answer of the Fetch that waits for its record, at a steady pace.

    `fetch` is the request that waits for the record at an offset; the first one is at 0.
    """
    samples = []
    with wire.connect(port) as producer, wire.connect(port) as consumer:
        due = time.perf_counter()
        for offset in range(count):
            consumer.sendall(fetch(offset))
            due += 1 / per_second
            time.sleep(max(0.0, due - time.perf_counter()))
            started = time.perf_counter()
            producer.sendall(produce)
            answer = wire.receive(consumer)
            samples.append(time.perf_counter() - started)
            if any(answer[wire.FETCH_BY_ID_ERROR]) or len(answer) < len(produce) // 2:
                raise RuntimeError(f"a fetch at {offset} was answered {answer.hex()}")
            wire.receive(producer)
    return samples


def _requests(topic: str, partitions: int, value: bytes) -> list[bytes]:
    single = wire.batch([value])
    return [wire.produce_request(topic, partition, single) for partition in range(partitions)]


def _expect_success(connection: socket.socket, error: slice) -> None:
    response = connection.recv(4096)
    if len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
        raise RuntimeError(f"the broker sent {len(response)} bytes of an answer")
    if response[error] != _OK:
        raise RuntimeError(f"a request failed with error {int.from_bytes(response[error], 'big', signed=True)}")
