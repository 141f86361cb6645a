"""The types that Kafka's schemas are made of, each as a pair: how it is written, how it is read.

A reader takes nothing on trust: every length is held against the bytes that are there before room is made for it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from barnabas.model.errors import InvalidFrame, InvalidRecord
from barnabas.protocol.wire.framing import MAX_STRING
from barnabas.protocol.wire.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Callable


class Cursor:
    """A position in bytes that are read from front to back."""

    __slots__ = ("data", "flexible", "position", "version")

    def __init__(self, data: bytes, position: int, version: int, flexible: bool) -> None:
        self.data = data
        self.position = position
        self.version = version
        self.flexible = flexible
        """Whether lengths are compact and a struct ends in tagged fields."""

    def take(self, size: int) -> bytes:
        """The next bytes."""
        start = self.position
        end = start + size
        if size < 0 or end > len(self.data):
            raise InvalidRecord(f"{size} bytes are wanted at byte {start} of {len(self.data)}")
        self.position = end
        return self.data[start:end]

    def uvarint(self) -> int:
        """The next number of variable length."""
        try:
            value, self.position = read_uvarint(self.data, self.position)
        except InvalidFrame as error:
            raise InvalidRecord(str(error)) from None
        return value

    def length(self, size: int) -> int:
        """The next length; -1 stands for null. `size` is how many bytes it takes where lengths are not compact."""
        if self.flexible:
            return self.uvarint() - 1
        return int.from_bytes(self.take(size), "big", signed=True)


class FieldType(NamedTuple):
    """How values of a type are written and read."""

    write: Callable[[bytearray, Any, bool], None]
    """Takes where to write, the value, and whether the message is flexible."""
    read: Callable[[Cursor], Any]


def _number(code: str) -> FieldType:
    packing = struct.Struct(f">{code}")
    size = packing.size

    def write(out: bytearray, value: Any, flexible: bool) -> None:
        out += packing.pack(value)

    def read(cursor: Cursor) -> Any:
        return packing.unpack(cursor.take(size))[0]

    return FieldType(write, read)


def _write_length(out: bytearray, length: int, size: int, flexible: bool) -> None:
    out += uvarint(length + 1) if flexible else length.to_bytes(size, "big", signed=True)


def _string(nullable: bool) -> FieldType:
    def write(out: bytearray, value: Any, flexible: bool) -> None:
        if value is None:
            _write_length(out, -1, 2, flexible)
            return
        encoded = value.encode()
        if len(encoded) > MAX_STRING:
            raise InvalidRecord(f"a text of {len(encoded)} bytes: records take no more than {MAX_STRING}")
        _write_length(out, len(encoded), 2, flexible)
        out += encoded

    def read(cursor: Cursor) -> Any:
        length = cursor.length(2)
        if length == -1 and nullable:
            return None
        return text(cursor.take(length))

    return FieldType(write, read)


def text(encoded: bytes) -> str:
    """Bytes as text."""
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise InvalidRecord(f"text that is not UTF-8: {error}") from None


def _write_blob(out: bytearray, value: Any, flexible: bool) -> None:
    _write_length(out, len(value), 4, flexible)
    out += value


def _write_uuid(out: bytearray, value: Any, flexible: bool) -> None:
    out += value.bytes


INT8: Final = _number("b")
INT16: Final = _number("h")
INT32: Final = _number("i")
INT64: Final = _number("q")
STRING: Final = _string(nullable=False)
NULLABLE_STRING: Final = _string(nullable=True)
BYTES: Final = FieldType(_write_blob, lambda cursor: cursor.take(cursor.length(4)))
UUID_: Final = FieldType(_write_uuid, lambda cursor: UUID(bytes=cursor.take(16)))


def array(of: FieldType, nullable: bool = False) -> FieldType:
    """Many values of a type; read as a tuple."""

    def write(out: bytearray, value: Any, flexible: bool) -> None:
        if value is None:
            _write_length(out, -1, 4, flexible)
            return
        _write_length(out, len(value), 4, flexible)
        for element in value:
            of.write(out, element, flexible)

    def read(cursor: Cursor) -> Any:
        count = cursor.length(4)
        if count == -1 and nullable:
            return None
        if not 0 <= count <= len(cursor.data) - cursor.position:
            raise InvalidRecord(f"an array of {count} elements at byte {cursor.position} of {len(cursor.data)}")
        return tuple([of.read(cursor) for _ in range(count)])

    return FieldType(write, read)


class Item(NamedTuple):
    """A field of a struct."""

    name: str
    type: FieldType
    since: int = 0
    """The version that it came in."""
    tag: int | None = None
    default: Any = None
    """What it is where it is not written: in older versions, or as a tagged field that was left out."""


class Schema(NamedTuple):
    """A struct: the class that its values are of, and its fields in the order in which they are written."""

    of: type
    items: tuple[Item, ...]
    writes: int = 0
    """The version that is written."""
    reads: int = 0
    """The newest version that can be read."""
    flexible_since: int = 0

    def write(self, out: bytearray, value: Any, flexible: bool) -> None:
        """Write a value in the version that is written."""
        tagged: list[tuple[int, bytes]] = []
        for item in self.items:
            field = getattr(value, item.name)
            if item.tag is None:
                if item.since <= self.writes:
                    item.type.write(out, field, flexible)
            elif flexible and field != item.default:
                content = bytearray()
                item.type.write(content, field, flexible)
                tagged.append((item.tag, bytes(content)))
        if flexible:
            out += uvarint(len(tagged))
            for tag, encoded in sorted(tagged):
                out += uvarint(tag) + uvarint(len(encoded)) + encoded

    def read(self, cursor: Cursor) -> Any:
        """Read a value; tagged fields that nobody knows are passed over."""
        values = {
            item.name: item.type.read(cursor) if item.tag is None and item.since <= cursor.version else item.default
            for item in self.items
        }
        if cursor.flexible:
            known = {item.tag: item for item in self.items if item.tag is not None}
            for _ in range(cursor.uvarint()):
                tag = cursor.uvarint()
                content = cursor.take(cursor.uvarint())
                if (tagged := known.get(tag)) is not None:
                    values[tagged.name] = tagged.type.read(Cursor(content, 0, cursor.version, cursor.flexible))
        return self.of(**values)

    @property
    def type(self) -> FieldType:
        """The struct as a type of fields."""
        return FieldType(self.write, self.read)

    @property
    def tagged_type(self) -> FieldType:
        """The struct as the type of a tagged field that may be null, which starts with a byte that says so."""

        def write(out: bytearray, value: Any, flexible: bool) -> None:
            INT8.write(out, 1, flexible)
            self.write(out, value, flexible)

        def read(cursor: Cursor) -> Any:
            return None if INT8.read(cursor) < 0 else self.read(cursor)

        return FieldType(write, read)
