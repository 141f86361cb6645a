"""The bytes of OTLP's metrics: as much of OpenTelemetry's Protobuf messages as clients of Kafka fill.

Anybody may have written them. So nothing is built that was not counted: fields, points and the characters of texts have
limits, and whatever is not as the messages say is refused. Histograms are passed over and counted; clients send gauges
and sums.

    request 1 resource metrics      1 resource (1 attributes), 2 scope metrics
    scope metrics 2 metrics         1 name, 5 gauge, 7 sum; both: 1 points; of a sum 2 temporality
    point                           7 attributes, 4 a double or 6 an integer, both of 8 bytes
    attribute 1 name, 2 value       1 text, 2 boolean, 3 integer, 4 double
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_POINTS: Final = 20_000
MOST_FIELDS: Final = 400_000
"""Of one request: points and fields of any message. More is refused."""
MOST_LABELS: Final = 16
MOST_CHARACTERS: Final = 200
"""Of a name, a label's name and its value; the rest is cut."""
VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5
_DELTA: Final = 1

Labels = tuple[tuple[str, str], ...]


class NotOtlp(ValueError):
    """Bytes that are no metrics, or more of them than are read."""


class PointKind(Enum):
    """What a point's value is."""

    GAUGE = "gauge"
    DELTA = "delta"
    """How much was added since the push before."""
    TOTAL = "total"


class MetricPoint(NamedTuple):
    """One figure."""

    name: str
    labels: Labels
    value: float
    kind: PointKind


@dataclass(slots=True)
class PushedMetrics:
    """What one request brings."""

    resource: dict[str, str] = field(default_factory=dict)
    """What the client says about itself: its group, its transactional id, its rack."""
    points: list[MetricPoint] = field(default_factory=list)
    unread: int = 0
    """Metrics of kinds that are not read."""


def parse(data: bytes) -> PushedMetrics:
    """The metrics of a request; raises NotOtlp."""
    reader = _Reader()
    for each in reader.messages(memoryview(data), 1):
        reader.read_resource_metrics(each)
    return reader.found


class _Reader:
    """Reads one request, and counts."""

    def __init__(self) -> None:
        self.found = PushedMetrics()
        self._fields_left = MOST_FIELDS

    def read_resource_metrics(self, data: memoryview) -> None:
        for number, kind, value in self._fields(data):
            if number == 1:
                for attribute in self.messages(_message(kind, value), 1):
                    if len(self.found.resource) < MOST_LABELS:
                        self.found.resource.update((self._attribute(attribute),))
            elif number == 2:
                for metric in self.messages(_message(kind, value), 2):
                    self._read_metric(metric)

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        """The messages in a field of one."""
        for number, kind, value in self._fields(data):
            if number == wanted:
                yield _message(kind, value)

    def _read_metric(self, data: memoryview) -> None:
        name, points, kind_of_points = "", memoryview(b""), PointKind.GAUGE
        for number, kind, value in self._fields(data):
            match number:
                case 1:
                    name = _text(_message(kind, value))
                case 5:
                    points, kind_of_points = _message(kind, value), PointKind.GAUGE
                case 7:
                    points, kind_of_points = _message(kind, value), PointKind.TOTAL
                case 9 | 10 | 11:
                    self.found.unread += 1
        if kind_of_points is PointKind.TOTAL and self._temporality(points) == _DELTA:
            kind_of_points = PointKind.DELTA
        for point in self.messages(points, 1):
            self._read_point(name, kind_of_points, point)

    def _temporality(self, data: memoryview) -> int:
        found = 0
        for number, kind, value in self._fields(data):
            if number == 2:
                found = _number(kind, value, VARINT)
        return found

    def _read_point(self, name: str, kind_of_point: PointKind, data: memoryview) -> None:
        found: float | None = None
        labels: list[tuple[str, str]] = []
        for number, kind, value in self._fields(data):
            if number == 4:
                (found,) = struct.unpack("<d", struct.pack("<Q", _number(kind, value, FIXED64)))
            elif number == 6:
                (found,) = struct.unpack("<q", struct.pack("<Q", _number(kind, value, FIXED64)))
            elif number == 7 and len(labels) < MOST_LABELS:
                labels.append(self._attribute(_message(kind, value)))
        if found is None or not math.isfinite(found):  # Java's rates are no number before anything has happened
            return
        if len(self.found.points) >= MOST_POINTS:
            raise NotOtlp(f"there are more than {MOST_POINTS} points")
        self.found.points.append(MetricPoint(name, tuple(labels), float(found), kind_of_point))

    def _attribute(self, data: memoryview) -> tuple[str, str]:
        name, text = "", ""
        for number, kind, value in self._fields(data):
            if number == 1:
                name = _text(_message(kind, value))
            elif number == 2:
                text = self._value(_message(kind, value))
        return name, text

    def _value(self, data: memoryview) -> str:
        """A value as a text; lists and maps, which no client sends, are left empty."""
        found = ""
        for number, kind, value in self._fields(data):
            match number:
                case 1:
                    found = _text(_message(kind, value))
                case 2:
                    found = "true" if _number(kind, value, VARINT) else "false"
                case 3:
                    whole = _number(kind, value, VARINT)
                    found = str(whole - (1 << 64) if whole >> 63 else whole)
                case 4:
                    found = str(*struct.unpack("<d", struct.pack("<Q", _number(kind, value, FIXED64))))
        return found

    def _fields(self, data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
        """The fields of a message: number, wire type, value."""
        position, end = 0, len(data)
        while position < end:
            self._fields_left -= 1
            if self._fields_left < 0:
                raise NotOtlp(f"there are more than {MOST_FIELDS} fields")
            tag, position = _varint(data, position)
            number, kind = tag >> 3, tag & 7
            if not 0 < number < 1 << 29:
                raise NotOtlp(f"a field has the number {number}")
            value: int | memoryview
            match kind:
                case 0:
                    value, position = _varint(data, position)
                case 1 | 5:
                    size = 8 if kind == FIXED64 else 4
                    value = int.from_bytes(data[position : position + size], "little")
                    position += size
                case 2:
                    size, position = _varint(data, position)
                    value = data[position : position + size]
                    position += size
                case _:
                    raise NotOtlp(f"a field has wire type {kind}")
            if position > end:
                raise NotOtlp("a field is cut off")
            yield number, kind, value


def _varint(data: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise NotOtlp("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise NotOtlp("a number is too long")


def _message(kind: int, value: int | memoryview) -> memoryview:
    if kind != BYTES or not isinstance(value, memoryview):
        raise NotOtlp("a message or text is something else")
    return value


def _number(kind: int, value: int | memoryview, wanted: int) -> int:
    if kind != wanted or not isinstance(value, int):
        raise NotOtlp("a number is something else")
    return value


def _text(data: memoryview) -> str:
    """A text, cut; a character that the cut falls into is left out."""
    try:
        return str(bytes(data[: MOST_CHARACTERS * 4]), "utf-8")[:MOST_CHARACTERS]
    except UnicodeDecodeError as error:
        if len(data) > MOST_CHARACTERS * 4 and error.start > MOST_CHARACTERS * 4 - 4:
            return str(bytes(data[: error.start]), "utf-8")[:MOST_CHARACTERS]
        raise NotOtlp("a text is not UTF-8") from error
