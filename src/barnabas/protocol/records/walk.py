"""Going over the records of a batch to see that they are records, without making anything of them.

Every field of every record is looked at. Lengths must fit into each other, the last record must end where the payload
ends, and there must be as many records as the batch claims: that is what every reader demands. The walk also tells
whether the records are numbered from 0 on, and what their largest timestamp is.

It is on the path of every produced batch, and going over one record takes half a microsecond in this language. Most
batches are regular, so there are shorter ways. Records whose numbers take as many bytes as those of the one before are
read by one struct each. Records that are also equally long are taken together: a slice with a stride has the bytes that
stand at one place in all of them. Of a small batch of nothing else, all that stands around the values is compared as
one number, with what it was in the last such batch.
docs/adr/0007 has the figures, and what else was weighed.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidRecord
from barnabas.protocol.records.records import LONG_BITS, MIN_RECORD_SIZE, ONE_BYTE, TWO_BYTES, read_varint

if TYPE_CHECKING:
    from collections.abc import Iterator

Found = tuple[bool, int]
"""Whether the offset deltas are 0, 1, 2 and so on; the largest timestamp delta."""

BEFORE_ALL: Final = -(1 << 63)
"""A timestamp delta that is less than all others."""
_TOGETHER: Final = 8
"""Fewer records are not worth taking together."""
_COPIED: Final = 4096
"""Records that are shorter than this on average are copied out of a view first: looking at bytes costs less."""
_FEW: Final = 3
"""Up to so many records, it is not worth looking for regularity at all."""
_WORTH_IT: Final = 8
"""So many records must have a layout for the next one to be looked at right after it."""
_THREE_BYTES: Final = 1 << 15
"""Offset deltas take one or two bytes up to here, and are looked for in tables of three bytes up to there."""
_FIRST_LONGER: Final = (0, ONE_BYTE, TWO_BYTES, _THREE_BYTES)
_MOST_BYTES: Final = 3
_PAUSE: Final = 1 << 6
_LONGEST_PAUSE: Final = 1 << 12
"""How many records are gone over singly before they are looked at again for regularity; at first, and at last."""
_NO_NUMBER: Final = -(1 << 32)
_MOST_SHAPES: Final = 128
"""Shapes that are kept; one of 64 records takes 4 KB, and with long keys 13."""
_ODD: Final = bytes(range(1, 0x100, 2))
_NUMBERS: Final = [_NO_NUMBER if byte & 0x81 else byte >> 1 for byte in range(1 << 8)]
"""What a byte says as a length or as an offset delta; neither is negative here."""


@lru_cache(maxsize=1)
def _long_numbers() -> list[int]:
    """Likewise two bytes, by the number that they make in big-endian order."""
    table = [_NO_NUMBER] * (1 << 16)
    for number in range(TWO_BYTES):
        table[_two_bytes(number)] = number
    return table


def _two_bytes(number: int) -> int:
    return (number << 1 & 0x7F | 0x80) << 8 | number >> 6


@lru_cache(maxsize=3)
def _deltas(size: int) -> tuple[bytes, ...]:
    """The offset deltas of so many bytes as they are stored: their first bytes, their second ones and so on."""
    numbers = range(_FIRST_LONGER[size])
    return tuple(
        bytes((number << 1) >> 7 * place & 0x7F | (0x80 if place < size - 1 else 0) for number in numbers)
        for place in range(size)
    )


def _size(number: int) -> int:
    """How many bytes an offset delta takes; more than _MOST_BYTES for those that there are no tables of."""
    return 1 if number < ONE_BYTE else 2 if number < TWO_BYTES else 3 if number < _THREE_BYTES else 4


def _misfit(left: int, count: int) -> InvalidRecord:
    return InvalidRecord(f"{left} bytes are left after the {count} records of the batch")


class _Layout(NamedTuple):
    """How many bytes the numbers of a record take that has no headers."""

    fields: struct.Struct | None
    """Length, timestamp, offset, length of the key, length of the value; None if one takes three bytes."""
    length_size: int
    time_size: int
    delta_size: int
    value_size: int
    key: int
    """The length of the key as it is stored, in one byte."""
    around: int
    """What a record has beside its value, after its length."""
    lengths: tuple[int, ...]
    """Where in a record the bytes of its lengths stand."""


@lru_cache(maxsize=512)
def _layout(length_size: int, time_size: int, delta_size: int, key: int, value_size: int) -> _Layout:
    key_length = 0 if key & 1 else key >> 1
    around = 1 + time_size + delta_size + 1 + key_length + value_size + 1
    fields = None
    if delta_size < _MOST_BYTES:
        code = " BH"
        fields = struct.Struct(
            f">{code[length_size]}x{code[time_size]}{code[delta_size]}B{key_length}x{code[value_size]}"
        )
    key_at = length_size + 1 + time_size + delta_size
    value_at = key_at + 1 + key_length
    lengths = (*range(length_size), key_at, *range(value_at, value_at + value_size))
    return _Layout(fields, length_size, time_size, delta_size, value_size, key, around, lengths)


def walk(batch: bytes | memoryview, start: int, count: int) -> Found:
    """Go over the `count` records that begin at `start` and reach to the end of `batch`. Raises InvalidRecord.

    Returns whether they are numbered 0, 1, 2 and so on, and their largest timestamp delta.
    """
    if count <= _FEW:
        position, latest, numbered, _ = _singly(batch, start, 0, count, BEFORE_ALL)
        if position != len(batch) or count <= 0:
            raise _misfit(len(batch) - position, count)
        return numbered, latest
    size = len(batch) - start
    shape = _shapes.get((size, count))
    largest = None if shape is None else _largest_if(shape, batch, start)
    if largest is None and count <= ONE_BYTE and not size % count and count * MIN_RECORD_SIZE <= size < count * _COPIED:
        largest = _largest_if_alike(batch, start, size, count)
    if largest is not None:
        return True, largest
    course = Course(batch, start, count)
    course.go_on(count)
    return course.finish()


class _Shape(NamedTuple):
    """What stands around the values of equally long records without headers."""

    around: struct.Struct
    """All bytes but those of the values, in pieces."""
    fixed: int
    """The bits of these bytes, as one number, that are the same in every such batch; and those that must be zero."""
    expected: int
    """What these bits are."""
    time_at: int
    """Where in these bytes the first timestamp stands."""
    stride: int
    """How far it is to the next one."""


_shapes: dict[tuple[int, int], _Shape] = {}
"""By their bytes and their number, how the last records were: whoever sends such a batch, mostly sends more of them."""


def _largest_if(shape: _Shape, batch: bytes | memoryview, start: int) -> int | None:
    """The largest timestamp delta, if the records have this shape.

    What stands around the values is compared at once, as one number. The values are not looked at.
    """
    around, fixed, expected, time_at, stride = shape
    found = b"".join(around.unpack_from(batch, start))
    if int.from_bytes(found, "big") & fixed != expected:
        return None
    return max(found[time_at::stride]) >> 1


def _largest_if_alike(batch: bytes | memoryview, start: int, size: int, count: int) -> int | None:
    """The largest timestamp delta, if all records are like the first; then their shape is kept."""
    stride = size // count
    key_at = start + (4 if batch[start] < 0x80 else 5)
    key = batch[key_at]
    value_at = key_at + (1 if key & 1 else 1 + (key >> 1))
    if value_at + 1 >= start + stride:
        return None
    after = value_at + (1 if batch[value_at] < 0x80 else 2)
    shape = _shape(stride, count, bytes(batch[start : key_at + 1]), bytes(batch[value_at:after]))
    if shape is None or (largest := _largest_if(shape, batch, start)) is None:
        return None
    if len(_shapes) >= _MOST_SHAPES:
        _shapes.clear()
    _shapes[size, count] = shape
    return largest


@lru_cache(maxsize=_MOST_SHAPES)
def _shape(size: int, count: int, head: bytes, value: bytes) -> _Shape | None:
    """The shape of `count` records of this size.

    The records begin with `head`, up to the length of their keys, and have the length of their values in `value`. None
    if a number takes more bytes than it mostly does, or if they cannot be so long.
    """
    try:
        length, at = read_varint(head, 0)
        value_length, _ = read_varint(value, 0)
    except (IndexError, InvalidRecord):
        return None
    key_at = len(head) - 1
    if at + 3 != key_at or max(head[at + 1 :]) > 0x7F or at + length != size:
        return None
    key_length = 0 if head[key_at] & 1 else head[key_at] >> 1
    front = len(head) + key_length + len(value)
    if value_length < 0 or (head[key_at] & 1 and head[key_at] != 1) or front + value_length + 1 != size:
        return None
    stride = front + 1
    time_at, delta_at = at + 1, at + 2
    one = bytearray(b"\xff" * len(head) + bytes(key_length) + b"\xff" * (len(value) + 1))
    one[at] = 0  # the attributes of a record mean nothing
    one[time_at] = 0x81  # of one byte, and not negative
    fixed = bytes(one) * count
    numbered = bytearray((head + bytes(key_length) + value + b"\0") * count)
    numbered[time_at::stride] = bytes(count)
    numbered[delta_at::stride] = bytes(range(0, 2 * count, 2))
    mask = int.from_bytes(fixed, "big")
    around = struct.Struct(f"{front}s" + f"{value_length}x{stride}s" * (count - 1) + f"{value_length}xs")
    return _Shape(around, mask, int.from_bytes(numbered, "big") & mask, time_at, stride)


class Course:
    """A walk that can be made in parts."""

    __slots__ = ("_count", "_data", "_end", "_largest", "_number", "_position", "numbered")

    def __init__(self, batch: bytes | memoryview, start: int, count: int) -> None:
        size = len(batch) - start
        if count <= 0 or count * MIN_RECORD_SIZE > size:
            raise InvalidRecord(f"the {size} bytes of the batch's records do not hold the {count} that it claims")
        if size < count * _COPIED and isinstance(batch, memoryview):
            self._data: bytes | memoryview = bytes(batch[start:])
            self._position, self._end = 0, size
        else:
            self._data, self._position, self._end = batch, start, len(batch)
        self._count = count
        self._number = 0
        self.numbered = True
        """Whether the records so far are."""
        self._largest = BEFORE_ALL

    def go_on(self, most: int) -> bool:
        """Go over so many more records; returns whether there are more. Raises InvalidRecord."""
        stop = min(self._number + most, self._count)
        singly = 1
        while (number := self._number) < stop:
            self._number = min(number + singly, stop)
            self._position, self._largest, numbered, last = _singly(
                self._data, self._position, number, self._number, self._largest
            )
            self.numbered = self.numbered and numbered
            if self._number < stop:
                regular = last >= 0 and self.numbered and self._go_on_alike(last, stop)
                singly = 1 if regular else min(max(2 * singly, _PAUSE), _LONGEST_PAUSE)
        return self._number < self._count

    def finish(self) -> Found:
        """What was found, once there are no more. Raises InvalidRecord if something follows the last record."""
        if self._position != self._end:
            raise _misfit(self._end - self._position, self._count)
        return self.numbered, self._largest

    def _go_on_alike(self, last: int, stop: int) -> bool:
        """Go on over records like the `last` one, which began there; returns whether that was worth it."""
        data, number = self._data, self._number
        delta_size = _size(number)
        if _size(number - 1) != delta_size or delta_size > _MOST_BYTES:
            return True
        length_size = 1 if data[last] < 0x80 else 2
        time_at = last + length_size + 1
        time_size = 1 if data[time_at] < 0x80 else 2
        key_at = time_at + time_size + delta_size
        if data[key_at - 1] > 0x7F:  # the offset delta takes more bytes than it needs, and the key begins elsewhere
            return False
        key = data[key_at]
        value_at = key_at + (1 if key & 1 else 1 + (key >> 1))
        layout = _layout(length_size, time_size, delta_size, key, 1 if data[value_at] < 0x80 else 2)
        stop = min(stop, _FIRST_LONGER[delta_size])
        if stop - number >= _TOGETHER and isinstance(data, bytes):
            self._go_together(data, last, layout, stop)
        if layout.fields is not None and self._number < stop:
            self._go_by_layout(layout, layout.fields, stop)
        return self._number >= min(number + _WORTH_IT, stop)

    def _go_by_layout(self, layout: _Layout, fields: struct.Struct, stop: int) -> None:
        """Go over records of this layout, until there is another one."""
        data, position, number, largest, end = self._data, self._position, self._number, self._largest, self._end
        _, length_size, time_size, delta_size, value_size, key, around, _ = layout
        long = _long_numbers()
        lengths = _NUMBERS if length_size == 1 else long
        deltas = _NUMBERS if delta_size == 1 else long
        values = _NUMBERS if value_size == 1 else long
        unpack, room = fields.unpack_from, end - fields.size
        known_time = -1
        while number < stop and position <= room:
            length, time, delta, key_length, value = unpack(data, position)
            length = lengths[length]
            if deltas[delta] != number or key_length != key or values[value] != length - around:
                break
            after = position + length_size + length
            if after > end or data[after - 1]:
                break
            if time != known_time:
                known_time = time
                if time_size == 1:
                    if time > 0x7F:
                        break
                    time = (time >> 1) ^ -(time & 1)
                else:
                    if time & 0x8080 != 0x8000:
                        break
                    time = ((time & 0x7F) << 6 | time >> 9 & 0x3F) ^ -(time >> 8 & 1)
                if time > largest:
                    largest = time
            position = after
            number += 1
        self._position, self._number, self._largest = position, number, largest

    def _go_together(self, data: bytes, last: int, layout: _Layout, stop: int) -> None:
        """Go over records that have this layout and are as long as the `last` one, which began there."""
        start, first = self._position, self._number
        stride = start - last
        count = min(stop - first, (self._end - start) // stride)
        if count < _TOGETHER or data[start] != data[last] or data[start + stride] != data[last]:
            return
        end = start + count * stride
        for place in (*layout.lengths, stride - 1):
            expected = data[last + place]
            found = data[start + place : end : stride]
            if found.count(expected) != count:
                count -= len(found.lstrip(bytes((expected,))))
                if count < _TOGETHER:
                    return
                end = start + count * stride
        place = start + layout.length_size + 1
        times = [data[place:end:stride]]
        if layout.time_size > 1:
            place += 1
            times.append(data[place:end:stride])
        for column in _deltas(layout.delta_size):
            place += 1
            if data[place:end:stride] != column[first : first + count]:
                return
        largest = _largest_time(times)
        if largest is None:
            return
        self._position, self._number = end, first + count
        if largest > self._largest:
            self._largest = largest


def _singly(
    data: bytes | memoryview, position: int, number: int, stop: int, largest: int
) -> tuple[int, int, bool, int]:
    """Go over the records `number` up to `stop` one by one, of which the first is at `position`. Raises InvalidRecord.

    Returns the position after them, the largest timestamp delta of all so far, whether these are numbered, and where
    the last one began, if it has no headers and short numbers; otherwise -1. Numbers of one and two bytes are read in
    place, since calls are what costs here. Bits that such a number cannot have are collected in `unusual`; the record
    is then read again by `_read`.
    """
    numbered, last, known_time = True, -1, -1
    while number < stop:
        start = position
        try:
            byte = data[position]
            if byte < 0x80:
                unusual = byte & 1
                at = position + 2
                position += 1 + (byte >> 1)
            else:
                second = data[position + 1]
                unusual = byte & 1 | second & 0x80
                at = position + 3
                position += 2 + (byte >> 1 & 0x3F | second << 6)
            time = data[at]
            if time > 0x7F:
                at += 1
                second = data[at]
                unusual |= second & 0x80
                time = time & 0x7F | second << 7
            at += 1
            delta = data[at]
            if delta > 0x7F:
                at += 1
                second = data[at]
                delta = delta & 0x7F | second << 7
                if second > 0x7F:
                    at += 1
                    third = data[at]
                    unusual |= third & 0x80
                    delta = delta & 0x3FFF | third << 14
            at += 1
            byte = data[at]
            if byte == 1:
                at += 1
            else:
                unusual |= byte & 0x81
                at += 1 + (byte >> 1)
            byte = data[at]
            if byte == 1:
                at += 1
            elif byte < 0x80:
                unusual |= byte & 1
                at += 1 + (byte >> 1)
            else:
                second = data[at + 1]
                unusual |= byte & 1 | second & 0x80
                at += 2 + (byte >> 1 & 0x3F | second << 6)
            headers = data[at]
            at += 1
            last = start
            if headers:
                last = -1
                unusual |= headers & 0x81
                for _ in range(headers >> 1):
                    byte = data[at]
                    unusual |= byte & 0x81
                    at += 1 + (byte >> 1)
                    byte = data[at]
                    if byte == 1:
                        at += 1
                    elif byte < 0x80:
                        unusual |= byte & 1
                        at += 1 + (byte >> 1)
                    else:
                        second = data[at + 1]
                        unusual |= byte & 1 | second & 0x80
                        at += 2 + (byte >> 1 & 0x3F | second << 6)
        except IndexError:
            unusual = 1
        if unusual or at != position:
            position, time_delta, offset_delta = _read(data, start, number)
            numbered = numbered and offset_delta == number
            largest = max(largest, time_delta)
            last = known_time = -1
        else:
            if time != known_time:
                known_time = time
                time = (time >> 1) ^ -(time & 1)
                if time > largest:
                    largest = time
            if delta != number << 1:
                numbered = False
        number += 1
    if position > len(data):
        raise InvalidRecord(f"record {number - 1} goes past the end of the batch")
    return position, largest, numbered, last


def _read(data: bytes | memoryview, start: int, number: int) -> tuple[int, int, int]:
    """Read record `number`, whatever it is: where it ends, its timestamp delta and its offset delta.

    Raises InvalidRecord, which says what is wrong with it.
    """
    try:
        length, at = read_varint(data, start)
        end = at + length
        if length < MIN_RECORD_SIZE - 1 or end > len(data):
            raise InvalidRecord(f"it claims {length} bytes where {len(data) - at} are left")
        time_delta, at = read_varint(data, at + 1, LONG_BITS)
        offset_delta, at = read_varint(data, at)
        at = _after_field(data, _after_field(data, at, end), end)
        headers, at = read_varint(data, at)
        if not 0 <= headers <= end - at:
            raise InvalidRecord(f"it claims {headers} headers in its last {end - at} bytes")
        for _ in range(headers):
            if data[at] & 1:
                raise InvalidRecord("a header has no key")
            at = _after_field(data, _after_field(data, at, end), end)
        if at != end:
            raise InvalidRecord(f"its fields end {end - at} bytes before it does")
    except IndexError:
        raise InvalidRecord(f"record {number} goes past the end of the batch") from None
    except InvalidRecord as error:
        raise InvalidRecord(f"record {number} is not a record: {error}") from None
    return end, time_delta, offset_delta


def _after_field(data: bytes | memoryview, at: int, end: int) -> int:
    """The position after a key or a value; where there is none, its length is -1.

    Java takes any negative length for none; librdkafka stops there for ever.
    """
    size, at = read_varint(data, at)
    if not -1 <= size <= end - at:
        raise InvalidRecord(f"a field claims {size} bytes where {end - at} are left")
    return at + max(size, 0)


def _largest_time(columns: list[bytes]) -> int | None:
    """The largest of the timestamp deltas whose bytes stand in these columns; None if not all take so many bytes."""
    last = columns[-1]
    if not last.isascii():
        return None
    if len(columns) == 1:
        positive = last.translate(None, _ODD)
        return max(positive) >> 1 if positive else ~(min(last) >> 1)
    first = columns[0]
    if min(first) < 0x80:
        return None
    if first.translate(None, _ODD) == first:
        high = max(last)
        late = last.count(high)
        if last.endswith(bytes((high,)) * late):  # in the order of their times, as records mostly are
            return high << 6 | max(first[-late:]) >> 1 & 0x3F
    return max(_times(first, last))


def _times(first: bytes, second: bytes) -> Iterator[int]:
    for low, high in zip(first, second, strict=True):
        yield (high << 6 | low >> 1 & 0x3F) ^ -(low & 1)
