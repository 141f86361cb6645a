"""A walk over a message before it is parsed: every count and length must fit the bytes that are there.

kio's native reader reserves room for an array before it reads the first element, so a count of four billion in a
message of twenty bytes ends the process. The walk follows the same schema, makes nothing, and refuses such a message
first. It also bounds how many elements one request may have: an element may take one byte on the wire and hundreds
in memory. And it finds what kio refuses and the protocol allows: tagged fields that the schema does not know are cut
out of what kio reads, and a duration of more than 292,000 years is read as that long.

One walker is composed per message class, from the fields of kio's dataclasses, and kept. Whatever came from outside is
read through `read`, or walked by `check` first: requests, answers of other brokers, and the bytes that members of a
group leave with the broker for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.framing import MAX_STRING
from barnabas.protocol.wire.varint import read_uvarint, uvarint

Bytes = Sequence[int]
Walker = Callable[[Bytes, int, "Walk"], int]
"""Takes the message, a position and the state of the walk; returns the position after what it walked."""
Reader = Callable[[bytes | memoryview, int, int], Any]
"""Takes bytes, the position where a message starts, and how many elements it may have; returns the message."""

MAX_ELEMENTS: Final = 100_000
"""Array elements in one request of a client: ten times what the largest real requests have, half a second of work."""
MAX_INTERNAL_ELEMENTS: Final = 10_000_000
"""Array elements in one message between brokers: a controller names every replica of a cluster."""
VERSION_BYTES: Final = 2
"""Before a message that is kept inside of another, or in a record: the version that it was written in."""
FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
LONG_DURATION: Final = "timedelta_i64"
LONGEST_MS: Final = (2**63 - 1) // 1000
"""The longest duration that kio reads: it counts microseconds, in 64 bits, where the wire has milliseconds."""


class Walk:
    """The state of one walk."""

    __slots__ = ("cuts", "elements")

    def __init__(self, elements: int) -> None:
        self.elements = elements
        """How many array elements the message may still have."""
        self.cuts: list[tuple[int, int, bytes]] = []
        """Start and end of what kio must not see, and what stands there instead."""

    def take(self, count: int) -> None:
        """Use up `count` elements."""
        self.elements -= count
        if self.elements < 0:
            raise InvalidFrame("the message has more array elements than a broker reads in one message")

    def apply(self, data: memoryview) -> memoryview:
        """The message without what was cut."""
        if not self.cuts:
            return data
        out = bytearray()
        position = 0
        for start, end, instead in sorted(self.cuts):
            out += data[position:start]
            out += instead
            position = end
        out += data[position:]
        return memoryview(bytes(out))


def check(message_class: type, data: memoryview, position: int, max_elements: int) -> memoryview:
    """Walk the message of this class that starts at `position`; returns it as kio may read it, up to its end.

    Raises InvalidFrame for a message whose counts and lengths cannot be true.
    """
    walk = Walk(max_elements)
    try:
        end = _message_walker(message_class)(data, position, walk)
    except IndexError:
        raise InvalidFrame(f"the message ends after {len(data)} bytes, where a length must be") from None
    return walk.apply(data[:end])[position:]


def read(message_class: type, data: bytes | memoryview, position: int, max_elements: int) -> Any:
    """The message of this class that starts at `position`; raises InvalidFrame if it is none."""
    return reader(message_class)(data, position, max_elements)


@cache
def reader(message_class: type) -> Reader:
    """What `read` is for one class of messages, composed once.

    The part of kio that reads is loaded with the first: it takes half a megabyte and ten milliseconds, which a broker
    need not spend before it listens.
    """
    from kio.serial import entity_reader
    from kio.serial.errors import SerialError

    read_walked: Callable[[memoryview, int], tuple[Any, int]] = entity_reader(message_class)
    _message_walker(message_class)

    def read_message(data: bytes | memoryview, position: int, max_elements: int) -> Any:
        readable = check(message_class, memoryview(data), position, max_elements)
        try:
            return read_walked(readable.toreadonly(), 0)[0]
        except (SerialError, ValueError, OverflowError) as error:
            raise InvalidFrame(f"{message_class.__name__} cannot be read: {error}") from error

    return read_message


@cache
def _message_walker(message_class: type) -> Walker:
    flexible: bool = message_class.__flexible__  # type: ignore[attr-defined]  # every kio message class has it
    steps: list[Walker] = []
    tagged: dict[int, Walker] = {}
    run = 0
    for field in fields(message_class):
        if (tag := field.metadata.get("tag")) is not None:
            tagged[tag] = _field_walker(field, flexible, tagged=True)
        elif (size := _fixed_size(field)) is not None:
            run += size
        else:
            if run:
                steps.append(_skip(run))
                run = 0
            steps.append(_field_walker(field, flexible, tagged=False))
    if run:
        steps.append(_skip(run))
    if flexible:
        steps.append(_tags(tagged))

    def walk(data: Bytes, position: int, state: Walk) -> int:
        for step in steps:
            position = step(data, position, state)
        return position

    return walk


def _fixed_size(field: Field[Any]) -> int | None:
    _, is_array, _ = _shape(field.type)
    kafka_type = field.metadata.get("kafka_type", "")
    return None if is_array or kafka_type == LONG_DURATION else FIXED_SIZES.get(kafka_type)


def _shape(annotation: Any) -> tuple[Any, bool, bool]:
    """The inner type of a field, whether it is an array, whether it may be null."""
    optional = False
    if get_origin(annotation) is UnionType:
        optional = True
        (annotation,) = (arm for arm in get_args(annotation) if arm is not NoneType)
    if get_origin(annotation) is tuple:
        return get_args(annotation)[0], True, optional
    return annotation, False, optional


def _field_walker(field: Field[Any], flexible: bool, tagged: bool) -> Walker:
    inner, is_array, optional = _shape(field.type)
    if is_dataclass(inner) and isinstance(inner, type):
        message_class: type = inner
        one = _message_walker(message_class)
        size = None
    else:
        kafka_type = field.metadata["kafka_type"]
        size = FIXED_SIZES.get(kafka_type)
        if kafka_type == LONG_DURATION and not is_array:
            return _duration
        one = _skip(size) if size else _blob(flexible, is_string=kafka_type == "string")
    if is_array:
        return _array(one, size, flexible, optional)
    if is_dataclass(inner) and optional and not tagged:
        return _nullable(one)
    return one


def _skip(size: int) -> Walker:
    def walk(data: Bytes, position: int, state: Walk) -> int:
        end = position + size
        if end > len(data):
            raise InvalidFrame(f"the message ends after {len(data)} bytes, inside a field at byte {position}")
        return end

    return walk


def _length(data: Bytes, position: int, length_bytes: int) -> tuple[int, int]:
    end = position + length_bytes
    if end > len(data):
        raise InvalidFrame(f"the message ends after {len(data)} bytes, inside a length at byte {position}")
    return int.from_bytes(data[position:end], "big", signed=True), end


def _duration(data: Bytes, position: int, state: Walk) -> int:
    """A duration of 64 bits: clients send the largest number for "as long as you allow"."""
    milliseconds, end = _length(data, position, FIXED_SIZES[LONG_DURATION])
    if abs(milliseconds) > LONGEST_MS:
        nearest = LONGEST_MS if milliseconds > 0 else -LONGEST_MS
        state.cuts.append((position, end, nearest.to_bytes(end - position, "big", signed=True)))
    return end


def _blob(flexible: bool, is_string: bool) -> Walker:
    """A string or bytes, null included. A string has at most 32,767 bytes, also where its length could say more."""
    length_bytes = 2 if is_string else 4

    def walk(data: Bytes, position: int, state: Walk) -> int:
        if flexible:
            length = data[position]
            if length < 0x80 and (end := position + (length or 1)) <= len(data):
                return end  # as nearly always; a length counts its own byte, and null has no other
            length, position = read_uvarint(data, position)
            length -= 1
        else:
            length, position = _length(data, position, length_bytes)
        if length < -1:
            raise InvalidFrame(f"negative length {length} before byte {position}")
        if is_string and length > MAX_STRING:
            raise InvalidFrame(f"a string of {length} bytes before byte {position}; Kafka's have at most {MAX_STRING}")
        end = position + max(length, 0)
        if end > len(data):
            raise InvalidFrame(f"length {length} before byte {position} goes beyond the message's {len(data)} bytes")
        return end

    return walk


def _array(one: Walker, size: int | None, flexible: bool, optional: bool) -> Walker:
    """An array. kio reads null wherever it stands; handlers only look for it where the schema allows it."""

    def walk(data: Bytes, position: int, state: Walk) -> int:
        if flexible:
            count, position = read_uvarint(data, position)
            count -= 1
        else:
            count, position = _length(data, position, 4)
        if count <= 0:
            if count < -1:
                raise InvalidFrame(f"negative array length {count} before byte {position}")
            if count < 0 and not optional:
                raise InvalidFrame(f"null before byte {position}, where an array must be")
            return position
        if position + count * (size or 1) > len(data):
            raise InvalidFrame(f"array length {count} before byte {position} goes beyond the message's end")
        state.take(count)
        if size:
            return position + count * size
        for _ in range(count):
            position = one(data, position, state)
        return position

    return walk


def _nullable(one: Walker) -> Walker:
    def walk(data: Bytes, position: int, state: Walk) -> int:
        marker, position = _length(data, position, 1)
        return position if marker < 0 else one(data, position, state)

    return walk


def _tags(known: dict[int, Walker]) -> Walker:
    def walk(data: Bytes, position: int, state: Walk) -> int:
        if not data[position]:
            return position + 1  # no tagged fields, as nearly always
        first = position
        count, position = read_uvarint(data, position)
        if not count:
            return position
        state.take(count)
        after_count = position
        unknown: list[tuple[int, int, bytes]] = []
        for _ in range(count):
            start = position
            tag, position = read_uvarint(data, position)
            size, position = read_uvarint(data, position)
            end = position + size
            if end > len(data):
                raise InvalidFrame(f"tagged field {tag} at byte {position} goes beyond the message's end")
            walker = known.get(tag)
            if walker is None:
                unknown.append((start, end, b""))
            elif walker(data, position, state) != end:
                raise InvalidFrame(f"tagged field {tag} at byte {position} is not {size} bytes long")
            position = end
        if unknown:
            state.cuts += [(first, after_count, uvarint(count - len(unknown))), *unknown]
        return position

    return walk
