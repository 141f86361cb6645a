"""Requests of all APIs and versions as bytes, from kio's classes and from those that brokers use among themselves.

The encoder is written from the description of the protocol and not from the broker's own. With `crooked` above zero it
lies while it writes, where only the schema tells where to: counts and lengths that are huge, negative or overlong,
null where it may not be, tags that nobody knows or that have another length, texts that are not UTF-8.
"""

from __future__ import annotations

import struct
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args, get_origin

from barnabas.broker.serving.registry import APIS, Api
from barnabas.protocol.wire.codec import request_class
from barnabas.protocol.wire.varint import uvarint
from tests.fuzz import words

if TYPE_CHECKING:
    from random import Random

BITS: Final = {
    "int8": 8,
    "uint8": 8,
    "int16": 16,
    "uint16": 16,
    "error_code": 16,
    "int32": 32,
    "uint32": 32,
    "timedelta_i32": 32,
    "int64": 64,
    "uint64": 64,
    "float64": 64,
    "timedelta_i64": 64,
    "datetime_i64": 64,
}
LYING_VARINTS: Final = (
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x00",
    b"\x80\x00",
    b"\x81\x80\x00",
    b"\xff" * 9 + b"\x01",
    b"\x80\x80\x80\x80\x08",
    b"\x81\x80\x80\x80\x20",
    b"\xa1\x8d\x06",
    b"\x00",
    b"\x01",
)
LYING_LENGTHS: Final = (-2, -1, 0, 255, 0x7FFF, -0x8000, 100_000, 1 << 24, 0x7FFFFFFF, -0x80000000)
NO_UTF8: Final = (b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\x80", b"z" * 33_000)
DEEP: Final = 3


class FieldShape(NamedTuple):
    """A field as it stands on the wire."""

    name: str
    kafka_type: str
    message: type | None
    is_array: bool
    is_nullable: bool
    tag: int | None


class Target(NamedTuple):
    """One version of one API."""

    api: Api
    version: int
    message: type

    @property
    def is_flexible(self) -> bool:
        """Whether its header has tagged fields."""
        return self.version >= self.api.format.flexible_from


@cache
def targets() -> tuple[Target, ...]:
    """All that a broker serves, and the versions of Produce that it only advertises."""
    return tuple(
        Target(api, version, request_class(api.key, version))
        for api in APIS
        for version in range(api.oldest, api.newest + 1)
    )


@cache
def shapes(message: type) -> tuple[FieldShape, ...]:
    """The fields of a message, in their order."""
    return tuple(_shape(field.name, field.type, field.metadata) for field in fields(message))


def _shape(name: str, annotation: Any, metadata: Any) -> FieldShape:
    is_nullable = get_origin(annotation) is UnionType
    if is_nullable:
        (annotation,) = (arm for arm in get_args(annotation) if arm is not NoneType)
    is_array = get_origin(annotation) is tuple
    if is_array:
        annotation = get_args(annotation)[0]
    message = annotation if isinstance(annotation, type) and is_dataclass(annotation) else None
    return FieldShape(name, metadata.get("kafka_type", ""), message, is_array, is_nullable, metadata.get("tag"))


class Encoder:
    """Writes messages of chance; `crooked` is the share of counts, lengths and tags that lie."""

    def __init__(self, random: Random, crooked: float = 0.0) -> None:
        self._random = random
        self._crooked = crooked

    def encode(self, message: type, depth: int = 0) -> bytes:
        """One message of this class."""
        flexible: bool = message.__flexible__  # type: ignore[attr-defined]  # every message class has it
        written = [self._field(each, flexible, depth) for each in shapes(message) if each.tag is None]
        if flexible:
            written.append(self._tags([each for each in shapes(message) if each.tag is not None], depth))
        return b"".join(written)

    def _lies(self) -> bool:
        return self._crooked > 0 and self._random.random() < self._crooked

    def _field(self, field: FieldShape, flexible: bool, depth: int) -> bytes:
        if field.is_array:
            return self._array(field, flexible, depth)
        if field.message is not None and field.is_nullable:
            if self._random.random() < 0.3:
                return b"\xff"
            return b"\x01" + self.encode(field.message, depth + 1)
        return self._one(field, flexible, depth, is_nullable=field.is_nullable or self._lies())

    def _array(self, field: FieldShape, flexible: bool, depth: int) -> bytes:
        if self._random.random() < (0.15 if field.is_nullable else self._crooked / 4):
            return b"\0" if flexible else b"\xff\xff\xff\xff"
        count = self._random.choice((0, 1, 1, 1, 2, 3) if depth < DEEP else (0, 1, 1))
        if self._lies() and self._random.random() < 0.1:
            count = self._random.choice((50, 300))
        elements = b"".join(self._one(field, flexible, depth) for _ in range(count))
        return self._length(count, flexible, 4) + elements

    def _one(self, field: FieldShape, flexible: bool, depth: int, *, is_nullable: bool = False) -> bytes:
        if field.message is not None:
            return self.encode(field.message, depth + 1)
        if field.kafka_type == "bool":
            return bytes((self._random.choice((0, 1, 0, 1, 2, 255) if self._crooked else (0, 1)),))
        if field.kafka_type == "uuid":
            return words.uuid(self._random)
        bits = BITS.get(field.kafka_type)
        if bits is not None:
            number = words.number(field.name, bits, self._random)
            return number.to_bytes(bits // 8, "big", signed=True)
        return self._blob(field, flexible, is_nullable)

    def _blob(self, field: FieldShape, flexible: bool, is_nullable: bool) -> bytes:
        length_bytes = 2 if field.kafka_type == "string" else 4
        if is_nullable and self._random.random() < 0.2:
            return b"\0" if flexible else b"\xff" * length_bytes
        if field.kafka_type != "string":
            value = words.blob(field.name, self._random)
        elif self._lies():
            value = self._random.choice(NO_UTF8)
        else:
            value = words.text(field.name, self._random).encode()
        return self._length(len(value), flexible, length_bytes) + value

    def _length(self, length: int, flexible: bool, length_bytes: int) -> bytes:
        if flexible:
            return self._random.choice(LYING_VARINTS) if self._lies() else uvarint(length + 1)
        if self._lies():
            length = self._random.choice(LYING_LENGTHS)
        most = (1 << 8 * length_bytes - 1) - 1
        return max(-most - 1, min(length, most)).to_bytes(length_bytes, "big", signed=True)

    def _tags(self, known: list[FieldShape], depth: int) -> bytes:
        found = []
        for field in known:
            if self._random.random() < 0.3:
                assert field.tag is not None
                bare = field._replace(is_nullable=False)
                found.append((field.tag, self._field(bare, flexible=True, depth=depth)))
        if self._lies():
            unknown = self._random.choice((5, 100, 9999, 0x7FFFFFFF))
            found.append((unknown, self._random.randbytes(self._random.choice((0, 1, 50)))))
        count = self._random.choice(LYING_VARINTS) if self._lies() else uvarint(len(found))
        return count + b"".join(self._tag(tag, value) for tag, value in sorted(found))

    def _tag(self, tag: int, value: bytes) -> bytes:
        size = self._random.choice(LYING_VARINTS) if self._lies() else uvarint(len(value))
        return uvarint(tag) + size + value


CLIENT_IDS: Final = (b"fuzz", b"fuzz", b"", None, b"c" * 200, b"\xff\xfe", b"broker-1-forwarded")


def header(target: Target, correlation_id: int, random: Random, crooked: float) -> bytes:
    """A request's header; a crooked one is of another version, of an API that is not there, or has tags."""
    key, version, is_flexible = int(target.api.key), target.version, target.is_flexible
    tags = b"\0"
    if random.random() < crooked:
        key, version, is_flexible, tags = random.choice(
            (
                (key, version, not is_flexible, tags),
                (key, version + random.choice((-1, 1, 100, -200)), is_flexible, tags),
                (random.choice((-1, 8, 33, 90, 1004, 0x7FFF)), version, is_flexible, tags),
                (key, version, is_flexible, b"\x01\x00\x01x"),
                (key, version, is_flexible, random.choice(LYING_VARINTS)),
            )
        )
    client_id = random.choice(CLIENT_IDS)
    name = b"\xff\xff" if client_id is None else struct.pack(">h", len(client_id)) + client_id
    return struct.pack(">hhi", key, version, correlation_id) + name + (tags if is_flexible else b"")
