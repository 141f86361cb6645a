"""Messages that every client sends and reads back, chosen to touch each field of a record."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


class Message(NamedTuple):
    """What a client hands over and must get back unchanged."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes], ...]


def messages(count: int, step_ms: int = 10) -> list[Message]:
    """`count` messages with rising timestamps, the last of them a minute old."""
    start = int(time.time() * 1000) - 60_000 - count * step_ms
    return [_message(number, start + number * step_ms) for number in range(count)]


def _message(number: int, timestamp: int) -> Message:
    key = None if number % 7 == 0 else b"key %d" % number
    match number % 10:
        case 0 if key is not None:
            value: bytes | None = None
        case 1:
            value = b""
        case 2:
            value = bytes(range(256)) * 8
        case _:
            value = b"value %d, " % number * (number % 40 + 1)
    headers: tuple[tuple[str, bytes], ...] = ()
    if number % 3 == 0:
        headers = (("trace", b"\x00\xff%d" % number), ("überschrift", "schön".encode()), ("trace", b""))
    return Message(key, value, timestamp, headers)
