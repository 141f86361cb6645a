"""SaslHandshake and SaslAuthenticate, read and written by hand: each client that connects sends them.

What is read comes from clients that have not proved who they are. Tests hold both directions equal to kio's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.framing import skip_tags
from barnabas.protocol.wire.packing import (
    INT16,
    INT32,
    add_bytes,
    add_count,
    add_text,
    finish,
    flexible_frame,
    start,
    text,
)
from barnabas.protocol.wire.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

FLEXIBLE: Final = 2
"""The first version of SaslAuthenticate with tagged fields; SaslHandshake has none."""
LIFETIMES: Final = 1
"""The first version of SaslAuthenticate whose answer says how long the session lasts."""
_LIFETIME: Final = struct.Struct(">q")


def read_mechanism(data: memoryview, position: int) -> str:
    """The mechanism that a SaslHandshake names, in any version; raises InvalidFrame."""
    try:
        (length,) = INT16.unpack_from(data, position)
        position += INT16.size
        return str(_blob(data, position, length), "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise InvalidFrame(f"SASL_HANDSHAKE request cannot be read: {error}") from error


def read_message(data: memoryview, position: int, version: int) -> bytes:
    """The mechanism's message in a SaslAuthenticate; raises InvalidFrame."""
    try:
        if version >= FLEXIBLE:
            length, position = read_uvarint(data, position)
            message = bytes(_blob(data, position, length - 1))
            skip_tags(data, position + len(message))
            return message
        (length,) = INT32.unpack_from(data, position)
        return bytes(_blob(data, position + INT32.size, length))
    except struct.error as error:
        raise InvalidFrame(f"SASL_AUTHENTICATE request of version {version} cannot be read: {error}") from error


def _blob(data: memoryview, position: int, length: int) -> memoryview:
    end = position + length
    if length < 0 or end > len(data):
        raise InvalidFrame(f"length {length} before byte {position} of a message of {len(data)} bytes")
    return data[position:end]


def pack_mechanisms(correlation_id: int, code: int, mechanisms: Sequence[str]) -> bytes:
    """The whole frame of an answer to SaslHandshake, in any version: an error and the mechanisms that are offered."""
    out = start(correlation_id, flexible=False)
    out += INT16.pack(code)
    add_count(out, len(mechanisms), flexible=False)
    for mechanism in mechanisms:
        add_text(out, mechanism, flexible=False)
    return finish(out, flexible=False)


def pack_message(
    correlation_id: int, version: int, code: int, error_message: str | None, message: bytes, lifetime_ms: int
) -> bytes:
    """The whole frame of an answer to SaslAuthenticate: an error, or the mechanism's message and the session's time."""
    if version >= FLEXIBLE:
        told = b"\0" if error_message is None else text(error_message)
        length, lifetime = uvarint(len(message) + 1), _LIFETIME.pack(lifetime_ms)
        return flexible_frame(correlation_id, INT16.pack(code), told, length, message, lifetime)
    out = start(correlation_id, flexible=False)
    out += INT16.pack(code)
    add_text(out, error_message, flexible=False)
    add_bytes(out, message, flexible=False)
    if version >= LIFETIMES:
        out += _LIFETIME.pack(lifetime_ms)
    return finish(out, flexible=False)
