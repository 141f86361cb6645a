"""Protobuf without its schema: field numbers, and what can be told of their values, as `protoc --decode_raw` does."""

from __future__ import annotations

import struct
from typing import Any, Final

DEEPEST: Final = 16
MOST_FIELDS: Final = 10_000


class NotProtobuf(ValueError):
    """Bytes that are no message."""


def decode_raw(data: bytes) -> dict[str, Any]:
    """The fields of a message by number; a field that is there several times is a list. Raises NotProtobuf."""
    left = [MOST_FIELDS]
    return _message(data, 0, left)


def _message(data: bytes, depth: int, left: list[int]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    position = 0
    while position < len(data):
        left[0] -= 1
        if left[0] < 0:
            raise NotProtobuf("more fields than are read here")
        tag, position = read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise NotProtobuf("a field has number 0")
        value, position = _field(data, position, kind, depth, left)
        name = str(number)
        if name not in fields:
            fields[name] = value
        elif isinstance(fields[name], list):
            fields[name].append(value)
        else:
            fields[name] = [fields[name], value]
    return fields


def _field(data: bytes, position: int, kind: int, depth: int, left: list[int]) -> tuple[Any, int]:
    if kind == 0:
        return read_varint(data, position)
    if kind in (1, 5):
        size, code = (8, "<Q") if kind == 1 else (4, "<I")
        if position + size > len(data):
            raise NotProtobuf("a number is cut off")
        return struct.unpack_from(code, data, position)[0], position + size
    if kind != 2:
        raise NotProtobuf(f"a field has wire type {kind}")
    size, position = read_varint(data, position)
    end = position + size
    if end > len(data):
        raise NotProtobuf("a field is cut off")
    return _bytes(data[position:end], depth, left), end


def _bytes(data: bytes, depth: int, left: list[int]) -> Any:
    """A message, a text, or bytes: nobody can tell them apart for sure, so what reads well is taken."""
    try:
        text = data.decode()
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    if depth < DEEPEST and data:
        try:
            return _message(data, depth + 1, left)
        except NotProtobuf:
            pass
    return data.hex()


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A number, and where it ends. Raises NotProtobuf."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise NotProtobuf("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise NotProtobuf("a number is too long")
