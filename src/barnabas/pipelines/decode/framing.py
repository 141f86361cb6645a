"""The five bytes that clients of a schema registry put before a value: a zero, and the id of the schema.

A value of Protobuf has the path to its message type in the file after that: how many numbers, and the numbers, as
zigzag varints, or a single zero for the first message. The schemas themselves come from files here, so the id is only
stepped over.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

PREFIX: Final = 5
_MAGIC: Final = b"\x00"
_LONGEST_PATH: Final = 64


class Framing(Enum):
    """What to expect before a value."""

    AUTO = "auto"
    NONE = "none"
    CONFLUENT = "confluent"


def is_framed(value: bytes) -> bool:
    """Whether a value can have the prefix."""
    return len(value) >= PREFIX and value[:1] == _MAGIC


def strip_prefixes(values: pa.Array) -> pa.Array:
    """Values without the prefix, where one is: only for formats in which no value begins with a zero byte."""
    framed = pc.and_(
        pc.equal(pc.binary_slice(values, 0, 1), _MAGIC), pc.greater_equal(pc.binary_length(values), PREFIX)
    )
    if not pc.any(framed).as_py():
        return values
    return pc.if_else(framed, pc.binary_slice(values, PREFIX, 2**31 - 1), values)


def after_message_path(value: bytes) -> bytes:
    """What follows the prefix and the path of a Protobuf value; raises ValueError if it is cut short or absurd."""
    count, at = _zigzag(value, PREFIX)
    if not 0 <= count <= _LONGEST_PATH:
        raise ValueError(f"the path of the message type has {count} steps")
    for _ in range(count):
        _, at = _zigzag(value, at)
    return value[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the path of the message type is cut short")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
