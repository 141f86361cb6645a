"""Frames and request headers: the first bytes of everything that a client sends.

A frame is four bytes of length and that many bytes of message. A request starts with its API key, version, correlation
id and the client's name; flexible versions add tagged fields, which are passed over.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.model.errors import InvalidFrame, OtherProtocol
from barnabas.protocol.wire.varint import read_uvarint

LENGTH: Final = struct.Struct(">i")
HEADER: Final = struct.Struct(">hhih")
MAX_PARTITIONS: Final = 50_000
"""Partitions in one Produce or Fetch; each takes a few bytes on the wire and hundreds in memory."""
MAX_STRING: Final = 0x7FFF
"""Bytes in a string, also where its length could be larger."""
MAX_TAGS: Final = 100
"""Tagged fields in a request header; Kafka defines none."""
TLS_HELLO: Final = range(0x1603_0000, 0x1603_0500)
"""How a TLS client's first record begins, as a length: a handshake (22), a version up to 3.4, half a length."""
_HTTP: Final = "it sent a request of HTTP, and the listener speaks Kafka's protocol."
_PROXY: Final = "it began with the PROXY protocol, which the load balancer before this broker has to leave out."
OTHER_BEGINNINGS: Final = {
    **dict.fromkeys(
        (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI "),  # the last: HTTP/2
        _HTTP,
    ),
    b"PROX": _PROXY,
    b"\r\n\r\n": _PROXY,
}
"""What stands where a length should be, and what to say of it."""


class RequestHeader(NamedTuple):
    """Who asks what; `body` is where the request's own fields start."""

    api_key: int
    version: int
    correlation_id: int
    client_id: bytes | None
    body: int


class FrameLimits(NamedTuple):
    """Which frames a connection takes."""

    largest: int
    key: str = "socket.request.max.bytes"
    """The setting that bounds them."""
    smallest: int = HEADER.size
    """Less than a request header, where frames are no requests."""


def frame_size(data: memoryview, position: int, limits: FrameLimits) -> int:
    """The length of the frame that starts at `position`, without its four length bytes.

    Raises OtherProtocol for a length that is the beginning of TLS or HTTP, and InvalidFrame for any other bad one.
    """
    size: int = LENGTH.unpack_from(data, position)[0]
    if size < limits.smallest:
        raise InvalidFrame(f"a frame of {size} bytes cannot hold a request header of at least {HEADER.size}")
    if size > limits.largest:
        raise _too_large(size, limits)
    return size


def _too_large(size: int, limits: FrameLimits) -> InvalidFrame:
    if size in TLS_HELLO:
        return OtherProtocol(
            "it began a TLS handshake where a request was expected; the client's security.protocol must be that of the "
            "listener."
        )
    begins = LENGTH.pack(size)
    if begins in OTHER_BEGINNINGS:
        return OtherProtocol(OTHER_BEGINNINGS[begins])
    text = f" (the text {begins.decode()!r})" if begins.isascii() and begins.decode().isprintable() else ""
    return InvalidFrame(f"a frame of {size} bytes{text} is larger than {limits.key}={limits.largest}")


def client_id_end(frame: memoryview, length: int) -> int:
    """Where the client id of this length ends; a null id has length -1."""
    if length < -1:
        raise InvalidFrame(f"the client id has a negative length {length}")
    end = HEADER.size + max(length, 0)
    if end > len(frame):
        raise InvalidFrame(f"the client id's length {length} goes beyond the frame's {len(frame)} bytes")
    return end


def skip_tags(data: memoryview, position: int) -> int:
    """The position after a section of tagged fields that nobody needs; almost always it is a single zero byte."""
    if position < len(data) and not data[position]:
        return position + 1
    count, position = read_uvarint(data, position)
    if count > MAX_TAGS:
        raise InvalidFrame(f"{count} tagged fields are more than the {MAX_TAGS} that a message may have here")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > len(data):
            raise InvalidFrame("a tagged field goes beyond the end of the message")
    return position


def read_header(frame: memoryview, flexible: bool) -> RequestHeader:
    """Read the header of a request; the frame has at least HEADER.size bytes."""
    api_key, version, correlation_id, length = HEADER.unpack_from(frame)
    body = client_id_end(frame, length)
    client_id = None if length < 0 else bytes(frame[HEADER.size : body])
    if flexible:
        body = skip_tags(frame, body)
    return RequestHeader(api_key, version, correlation_id, client_id, body)
