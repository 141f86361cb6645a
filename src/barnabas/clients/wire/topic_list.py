"""The topics of a cluster in one plain request and one answer, for `topics --list`.

Loading librdkafka, or kio, takes longer than everything else that a list of topics needs, so this module needs neither:
it packs Metadata version 1, which every Kafka since 0.10 speaks, by hand (a test holds it equal to kio). It is for
plaintext listeners, and it explains nothing: where it gets no list, the caller asks again through
`clients/admin/admin`, which knows TLS and passwords and says what is wrong.
"""

from __future__ import annotations

import socket
import struct
from typing import Final, NamedTuple

TIMEOUT: Final = 3.0
_METADATA: Final = 3
_VERSION: Final = 1
_CLIENT_ID: Final = b"barnabas"
_ALL_TOPICS: Final = -1
_NO_TOPICS: Final = 0
_MAX_ANSWER: Final = 256 << 20


class ListedTopic(NamedTuple):
    """A topic, how many partitions it has, and how many replicas the first of them has."""

    name: str
    partitions: int
    replication_factor: int


def list_topics(bootstrap_servers: str, timeout: float = TIMEOUT) -> list[ListedTopic] | None:
    """All topics by name, as the first broker that answers tells them; None when none did."""
    return _ask(bootstrap_servers, request(), timeout)


def is_served(bootstrap_servers: str, timeout: float = TIMEOUT) -> bool:
    """Whether a broker answers a client that brings neither TLS nor a login."""
    return _ask(bootstrap_servers, request(_NO_TOPICS), timeout) is not None


def _ask(bootstrap_servers: str, frame: bytes, timeout: float) -> list[ListedTopic] | None:
    for address in bootstrap_servers.split(","):
        host, _, port = address.strip().rpartition(":")
        if host and port.isdecimal():
            try:
                with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
                    connection.sendall(frame)
                    (size,) = struct.unpack(">i", _receive(connection, 4))
                    if 0 < size <= _MAX_ANSWER:
                        return sorted(parse(_receive(connection, size)))
            except (OSError, OverflowError, struct.error, ValueError):
                continue
    return None


def request(count: int = _ALL_TOPICS) -> bytes:
    """A frame that asks for all topics, or for none."""
    body = struct.pack(">hhih", _METADATA, _VERSION, 0, len(_CLIENT_ID)) + _CLIENT_ID + struct.pack(">i", count)
    return struct.pack(">i", len(body)) + body


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(min(size - len(received), 1 << 20))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        received += chunk
    return bytes(received)


def parse(frame: bytes) -> list[ListedTopic]:
    """The topics of an answer; raises struct.error or ValueError for anything else."""
    answer = _Answer(frame)
    correlation_id = answer.number(">i")
    if correlation_id != 0:
        raise ValueError("an answer to something else")
    for _ in range(answer.number(">i")):
        answer.skip(4)
        answer.text()
        answer.skip(4)
        answer.text()
    answer.skip(4)
    return [_topic(answer) for _ in range(answer.number(">i"))]


def _topic(answer: _Answer) -> ListedTopic:
    answer.skip(2)
    name = answer.text()
    answer.skip(1)
    partitions = answer.number(">i")
    factor = 0
    for index in range(partitions):
        answer.skip(10)
        replicas = answer.number(">i")
        answer.skip(4 * replicas)
        answer.skip(4 * answer.number(">i"))
        if index == 0:
            factor = replicas
    return ListedTopic(name, partitions, factor)


class _Answer:
    """Bytes that are read from front to back."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 0

    def skip(self, size: int) -> None:
        self._at += size
        if self._at > len(self._frame):
            raise ValueError("an answer that ends too early")

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._frame, self._at)
        self.skip(struct.calcsize(form))
        return int(value)

    def text(self) -> str:
        size = max(self.number(">h"), 0)
        start = self._at
        self.skip(size)
        return self._frame[start : self._at].decode()
