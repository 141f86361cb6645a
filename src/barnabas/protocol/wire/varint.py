"""Unsigned variable-length integers (seven bits a byte, lowest first), as compact lengths and tags use them.

They are numbers of 32 bits. A fifth byte could carry three bits more; such a number is refused and not cut to size,
since another reader of the same bytes may take it whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import InvalidFrame

if TYPE_CHECKING:
    from collections.abc import Sequence

_LAST_BITS: Final = 0x0F
"""What is left of 32 bits for the fifth byte."""


def read_uvarint(data: Sequence[int], position: int) -> tuple[int, int]:
    """Read the number at `position`: the number, and the position after it. Raises InvalidFrame."""
    try:
        byte = data[position]
        if byte < 0x80:
            return byte, position + 1
        value = byte & 0x7F
        for shift in (7, 14, 21):
            position += 1
            byte = data[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, position + 1
        position += 1
        byte = data[position]
    except IndexError:
        raise InvalidFrame(f"the message ends inside a variable-length number at byte {position}") from None
    if byte > _LAST_BITS:
        raise InvalidFrame(f"the variable-length number that reaches byte {position} does not fit 32 bits")
    return value | byte << 28, position + 1


def uvarint(value: int) -> bytes:
    """Encode `value`.

    >>> uvarint(300).hex()
    'ac02'
    """
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
