"""What the responses that are written by hand are made of: their frame, strings, bytes and counts.

Each function adds to a bytearray that `start` began and `finish` ends.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.wire.durations import MILLISECOND, NO_TIME
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from datetime import timedelta

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
NO_TAGS: Final = b"\0\0\0"
"""The tagged fields of a partition, of its topic and of the message: there are none."""
NO_ID: Final = bytes(16)
"""The id of a topic that is named otherwise."""
HEAD: Final = struct.Struct(">ii")
"""Size and correlation id: what a response begins with."""


def start(correlation_id: int, flexible: bool) -> bytearray:
    """The frame of a response, up to the end of its header."""
    out = bytearray(HEAD.pack(0, correlation_id))
    if flexible:
        out.append(0)
    return out


def finish(out: bytearray, flexible: bool) -> bytes:
    """The whole frame, with its size."""
    if flexible:
        out.append(0)
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def flexible_frame(correlation_id: int, *parts: bytes) -> bytes:
    """The whole frame of a response of a flexible version, with these parts and no tagged fields."""
    body = b"".join(parts)
    return b"".join((HEAD.pack(len(body) + 6, correlation_id), b"\0", body, b"\0"))


def milliseconds(time: timedelta) -> int:
    """A time as it stands on the wire; almost always it is none."""
    return 0 if time == NO_TIME else time // MILLISECOND


def add_text(out: bytearray, text: str | None, flexible: bool) -> None:
    """Add a string or null."""
    if text is None:
        out += b"\0" if flexible else b"\xff\xff"
        return
    data = text.encode()
    out += uvarint(len(data) + 1) if flexible else INT16.pack(len(data))
    out += data


def text(value: str) -> bytes:
    """A string of a flexible version."""
    data = value.encode()
    return uvarint(len(data) + 1) + data


def add_bytes(out: bytearray, data: bytes, flexible: bool) -> None:
    """Add bytes."""
    out += uvarint(len(data) + 1) if flexible else INT32.pack(len(data))
    out += data


def add_count(out: bytearray, count: int, flexible: bool) -> None:
    """Add the length of an array."""
    out += uvarint(count + 1) if flexible else INT32.pack(count)
