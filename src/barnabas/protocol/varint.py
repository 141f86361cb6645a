"""Unsigned variable-length integers (seven bits a byte, lowest first), as compact lengths and tags use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.model.errors import InvalidFrame

if TYPE_CHECKING:
    from collections.abc import Sequence


def read_uvarint(data: Sequence[int], position: int) -> tuple[int, int]:
    """Read the number at `position`: the number, and the position after it."""
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        for shift in (7, 14, 21, 28):
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & 0xFFFFFFFF, position + 1
    except IndexError:
        raise InvalidFrame(f"the message ends inside a variable-length number at byte {position}") from None
    raise InvalidFrame(f"the variable-length number that ends at byte {position} has more than five bytes")


def uvarint(value: int) -> bytes:
    """Encode `value`.

    >>> uvarint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
