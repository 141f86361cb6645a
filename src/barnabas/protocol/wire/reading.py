"""What the requests that are read by hand are made of: strings, bytes and ids of flexible versions.

Each function gives what stands at a position, and the position after it. It raises `Unusual` for what it does not read:
then the general way reads the message, and says what is wrong with it if something is.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final
from uuid import UUID

from barnabas.protocol.wire.framing import MAX_STRING
from barnabas.protocol.wire.varint import read_uvarint

UNREADABLE: Final = (struct.error, IndexError, UnicodeDecodeError)
"""What reading by hand raises besides, where bytes are missing or are no text."""


class Unusual(Exception):
    """The message is not of the form that is read by hand."""


def read_text(data: bytes, position: int) -> tuple[str, int]:
    """A string."""
    length = data[position]  # which counts its own byte, if it is one
    end = position + length
    if 0 < length < 0x80 and end <= len(data):
        return data[position + 1 : end].decode(), end
    raw, position = read_bytes(data, position)
    if len(raw) > MAX_STRING:
        raise Unusual
    return raw.decode(), position


def read_text_or_null(data: bytes, position: int) -> tuple[str | None, int]:
    """A string or null."""
    return (None, position + 1) if data[position] == 0 else read_text(data, position)


def read_uuid(data: bytes, position: int) -> tuple[UUID | None, int]:
    """A UUID, or None for that of zeros."""
    end = position + 16
    if end > len(data):
        raise Unusual
    return uuid_of(data[position:end]), end


@lru_cache(maxsize=1024)
def uuid_of(raw: bytes) -> UUID | None:
    """The UUID in these sixteen bytes; None for zeros. The ids of topics come again and again."""
    return UUID(bytes=raw) if any(raw) else None


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Bytes, which may be many."""
    length = data[position]
    if length < 0x80:
        position += 1
    else:
        length, position = read_uvarint(data, position)
    end = position + length - 1
    if not length or end > len(data):
        raise Unusual
    return data[position:end], end
