"""Many small requests over plain sockets: one thread, one epoll, requests that were built beforehand.

Every answer's error code is checked by its place in the bytes; nothing else is decoded, so that fifty or a thousand
connections cost this side less than they cost any broker.
"""

from __future__ import annotations

import select
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.clients import wire

if TYPE_CHECKING:
    import socket

_OK = b"\0\0"


class Load(NamedTuple):
    """What was asked of the broker."""

    requests: int
    seconds: float
    client_cpu: float
    """Processor seconds of this side; close to `seconds` means that this side was the limit."""


def closed_loop(port: int, topic: str, partitions: int, value: bytes, producers: int, total: int) -> Load:
    """Send `total` single records over this many connections, each waiting for its answer before the next."""
    requests = _requests(topic, partitions, value)
    error = wire.produce_error_at(topic)
    with _Connections(port, producers) as connections:
        started, cpu = time.perf_counter(), time.thread_time()
        sent = 0
        for connection in connections.sockets[:total]:
            connection.send(requests[sent % partitions])
            sent += 1
        answered = 0
        while answered < total:
            for descriptor, _ in connections.epoll.poll():
                connection = connections.by_descriptor[descriptor]
                _expect_success(connection, error)
                answered += 1
                if sent < total:
                    connection.send(requests[sent % partitions])
                    sent += 1
        return Load(answered, time.perf_counter() - started, time.thread_time() - cpu)


def paced(port: int, topic: str, partitions: int, value: bytes, connections: int, seconds: float) -> Load:
    """Let each connection send one single record a second for so long, all of them spread evenly over the second."""
    requests = _requests(topic, partitions, value)
    error = wire.produce_error_at(topic)
    with _Connections(port, connections) as opened:
        started, cpu = time.perf_counter(), time.thread_time()
        total = round(connections * seconds)
        sent = answered = 0
        while answered < total:
            now = time.perf_counter() - started
            while sent < total and sent / connections <= now:
                opened.sockets[sent % connections].send(requests[sent % partitions])
                sent += 1
            wait = max(0.0, sent / connections - (time.perf_counter() - started)) if sent < total else 1.0
            for descriptor, _ in opened.epoll.poll(wait):
                _expect_success(opened.by_descriptor[descriptor], error)
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


def _requests(topic: str, partitions: int, value: bytes) -> list[bytes]:
    single = wire.batch([value])
    return [wire.produce_request(topic, partition, single) for partition in range(partitions)]


def _expect_success(connection: socket.socket, error: slice) -> None:
    response = connection.recv(4096)
    if len(response) < 4 or len(response) < 4 + int.from_bytes(response[:4], "big"):
        raise RuntimeError(f"the broker sent {len(response)} bytes of an answer")
    if response[error] != _OK:
        raise RuntimeError(f"produce failed with error {int.from_bytes(response[error], 'big', signed=True)}")


class _Connections:
    """Blocking connections that one epoll watches."""

    def __init__(self, port: int, count: int) -> None:
        self.epoll = select.epoll()
        self.sockets: list[socket.socket] = []
        for _ in range(count):
            connection = wire.connect(port)
            connection.setblocking(True)
            self.sockets.append(connection)
            self.epoll.register(connection, select.EPOLLIN)
        self.by_descriptor = {connection.fileno(): connection for connection in self.sockets}

    def __enter__(self) -> _Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self.epoll.close()
        for connection in self.sockets:
            connection.close()
