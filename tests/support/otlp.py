"""Metrics as clients write them: OpenTelemetry's messages, field by field."""

from __future__ import annotations

import struct
from typing import Final

DELTA: Final = 1
CUMULATIVE: Final = 2


def varint(value: int) -> bytes:
    """A number."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def part(number: int, data: bytes | str) -> bytes:
    """A field with a message or a text."""
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: str | int | bool | float) -> bytes:
    """A name and a value."""
    match value:
        case str():
            inner = part(1, value)
        case bool():
            inner = varint(2 << 3) + varint(value)
        case int():
            inner = varint(3 << 3) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)
        case float():
            inner = varint(4 << 3 | 1) + struct.pack("<d", value)
    return part(1, name) + part(2, inner)


def point(value: float | int, **labels: str) -> bytes:
    """A point of a gauge or sum."""
    number = varint(6 << 3 | 1) + struct.pack("<q", value) if isinstance(value, int) else b""
    number = number or varint(4 << 3 | 1) + struct.pack("<d", value)
    time = varint(3 << 3 | 1) + struct.pack("<Q", 1)
    return b"".join(part(7, attribute(*each)) for each in labels.items()) + time + number


def gauge(name: str, *points: bytes) -> bytes:
    """A metric that tells what is now."""
    return part(1, name) + part(3, "ms") + part(5, b"".join(part(1, each) for each in points))


def total(name: str, temporality: int, *points: bytes) -> bytes:
    """A metric that adds up."""
    inner = b"".join(part(1, each) for each in points) + varint(2 << 3) + varint(temporality) + b"\x18\x01"
    return part(1, name) + part(7, inner)


def request(*metrics: bytes, **resource: str) -> bytes:
    """All of one client."""
    about = b"".join(part(1, attribute(*each)) for each in resource.items())
    scope = part(1, part(1, "kafka")) + b"".join(part(2, each) for each in metrics)
    return part(1, part(1, about) + part(2, scope))
