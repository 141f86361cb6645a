"""The records inside a batch: zigzag varints, one record after another.

    length    varint   bytes after this field
    attributes int8    unused, 0
    timestamp varlong  minus the batch's base timestamp
    offset    varint   minus the batch's base offset
    key       varint length (-1: null) and bytes
    value     varint length (-1: null) and bytes
    headers   varint count, each with key (length, UTF-8) and value (length or -1, bytes)

`read_records` is strict: a record ends where its length says, and the last one where the payload ends. The broker's
produce path reads no records; `count_agrees` tells it whether the header's record count is true, most often from the
tail alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIN_RECORD_SIZE: Final = 7
"""A record without key, value and headers: one byte for each field."""

INT_BITS: Final = 32
LONG_BITS: Final = 64
"""Of a timestamp; all other numbers have INT_BITS."""

_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(0x80))
"""The numbers that take one byte: most of a record's are such."""
_WALKED: Final = 8
"""Up to so many records, going over them all costs less than looking for the last one."""
_FEW: Final = 64
"""Up to so many records, their numbers take one byte."""
_TAIL: Final = 4096
_CANDIDATES: Final = 24


class Header(NamedTuple):
    """A record's header. Keys that are not UTF-8 survive a round trip (surrogate escapes)."""

    key: str
    value: bytes | None


class Record(NamedTuple):
    """One record, with offset and timestamp relative to its batch."""

    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


def varint(value: int) -> bytes:
    """Encode a signed number: zigzag, seven bits a byte, lowest first.

    >>> varint(-1).hex(), varint(150).hex()
    ('01', 'ac02')
    """
    rest = value << 1 if value >= 0 else ~(value << 1)
    if rest < 0x80:
        return _ONE_BYTE[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def read_varint(data: bytes | memoryview, position: int, bits: int = INT_BITS) -> tuple[int, int]:
    """Read a signed number of at most `bits` bits: the number, and the position after it.

    Raises InvalidRecord where it has more, IndexError where the data ends first.
    """
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    rest = byte & 0x7F
    for shift in range(7, bits, 7):
        position += 1
        byte = data[position]
        rest |= (byte & 0x7F) << shift
        if byte < 0x80:
            if rest >> bits:
                break
            return (rest >> 1) ^ -(rest & 1), position + 1
    raise InvalidRecord(f"the number that reaches byte {position} of the records does not fit {bits} bits")


def read_length(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Read the length of a record, and so make sure that whoever steps by it does not step back."""
    length, position = read_varint(data, position)
    if length < 0:
        raise InvalidRecord(f"the record before byte {position} claims a length of {length} bytes")
    return length, position


def encode_record(record: Record) -> bytes:
    """The bytes of one record."""
    offset_delta, timestamp_delta, key, value, headers = record
    body = b"".join(
        (
            b"\x00",
            varint(timestamp_delta),
            varint(offset_delta),
            b"\x01" if key is None else varint(len(key)) + key,
            b"\x01" if value is None else varint(len(value)) + value,
            _encode_headers(headers) if headers else b"\x00",
        )
    )
    return varint(len(body)) + body


def encode_records(records: Iterable[Record]) -> bytes:
    """The payload of a batch, not compressed."""
    return b"".join(map(encode_record, records))


def read_records(payload: bytes, count: int) -> Iterator[Record]:
    """Read `count` records that fill `payload` exactly; raises InvalidRecord at the first that does not fit."""
    position = 0
    for index in range(count):
        try:
            record, position = _read_record(payload, position)
        except IndexError:
            raise InvalidRecord(f"record {index} of {count} goes past the end of the batch") from None
        yield record
    if position != len(payload):
        raise InvalidRecord(f"{len(payload) - position} bytes are left after the {count} records of the batch")


def count_agrees(batch: bytes | memoryview, start: int, count: int) -> bool:
    """Whether an uncompressed batch, whose records begin at `start`, holds `count` of them; `count` is positive.

    The last record says which one it is, in its offset delta, and where it begins follows from its length and the end
    of the batch. When a record `count - 1` is found there, the count is taken as true; nothing before it was looked
    at, so a client can still forge records that no one can read, but no longer by a wrong count alone. When it is not
    found, the lengths of all records decide. Either way, a batch that Kafka takes is taken.
    """
    size = len(batch)
    if count * MIN_RECORD_SIZE > size - start:
        return False
    if count > _WALKED:
        tail = bytes(batch[start if size - start < _TAIL else size - _TAIL :])
        if _ends_with_few(tail, count - 1) if count <= _FEW else _ends_with_many(tail, varint(count - 1)):
            return True
    return _lengths_agree(batch, start, count)


# The two that follow look for the last record of a batch near its end. Each try takes one place as the record's
# attributes: a zero, before it the length that reaches to the end, after it a timestamp and then the record's number.
# Values rarely hold such numbers of two bytes; a number of one byte may be any letter, so there the zero is searched
# for.


def _ends_with_few(tail: bytes, number: int) -> bool:
    """Whether the last record is this one, whose number takes one byte."""
    end = len(tail)
    attributes = end - MIN_RECORD_SIZE + 2
    for _ in range(_CANDIDATES):
        attributes = tail.rfind(0, 0, attributes)
        if not tail[attributes - 1]:
            attributes -= 1  # no length ends in a zero, so that was the timestamp
        if attributes < 2:
            return False
        if _is_framed(tail, attributes, end - attributes):
            position = attributes + 1
            while position < end - 2 and tail[position] >= 0x80:  # over the timestamp
                position += 1
            if tail[position + 1] == number << 1:
                return True
    return False


def _ends_with_many(tail: bytes, number: bytes) -> bool:
    """Whether the last record is this one, whose number takes several bytes."""
    end = after = len(tail)
    for _ in range(_CANDIDATES):
        found = tail.rfind(number, 0, after)
        after = found + 1
        attributes = found - 2
        while attributes > 0 and tail[attributes] >= 0x80:  # back over the timestamp
            attributes -= 1
        if attributes < 2:
            return False
        if not tail[attributes] and _is_framed(tail, attributes, end - attributes):
            return True
    return False


def _is_framed(tail: bytes, attributes: int, length: int) -> bool:
    """Whether this length stands before a record's attributes."""
    if length < 0x40:
        return tail[attributes - 1] == length << 1
    return tail[attributes - 1] == length >> 6 and tail[attributes - 2] == length << 1 & 0x7F | 0x80


def _lengths_agree(batch: bytes | memoryview, start: int, count: int) -> bool:
    position = start
    signs = 0
    try:
        for _ in range(count):
            byte = batch[position]
            signs |= byte
            if byte < 0x80:
                position += 1 + (byte >> 1)
            elif (second := batch[position + 1]) < 0x80:
                position += 2 + (byte >> 1 & 0x3F | second << 6)
            elif (third := batch[position + 2]) < 0x80:
                position += 3 + (byte >> 1 & 0x3F | (second & 0x7F) << 6 | third << 13)
            else:
                length, position = read_varint(batch, position)
                position += length
    except (IndexError, InvalidRecord):
        return False
    return position == len(batch) and not signs & 1


def _encode_headers(headers: tuple[Header, ...]) -> bytes:
    out = bytearray(varint(len(headers)))
    for key, value in headers:
        name = key.encode("utf-8", "surrogateescape")
        out += varint(len(name)) + name
        out += b"\x01" if value is None else varint(len(value)) + value
    return bytes(out)


def _read_record(payload: bytes, position: int) -> tuple[Record, int]:
    length, position = read_varint(payload, position)
    end = position + length
    if length < MIN_RECORD_SIZE - 1 or end > len(payload):
        raise InvalidRecord(f"a record claims {length} bytes where {len(payload) - position} are left")
    timestamp_delta, position = read_varint(payload, position + 1, LONG_BITS)
    offset_delta, position = read_varint(payload, position)
    key, position = _read_bytes(payload, position, end)
    value, position = _read_bytes(payload, position, end)
    count, position = read_varint(payload, position)
    if not 0 <= count <= end - position:
        raise InvalidRecord(f"a record claims {count} headers in its last {end - position} bytes")
    headers = []
    for _ in range(count):
        header_key, position = _read_bytes(payload, position, end)
        if header_key is None:
            raise InvalidRecord("a header has no key")
        header_value, position = _read_bytes(payload, position, end)
        headers.append(Header(header_key.decode("utf-8", "surrogateescape"), header_value))
    if position != end:
        raise InvalidRecord(f"a record of {length} bytes ends {end - position} bytes off its length")
    return Record(offset_delta, timestamp_delta, key, value, tuple(headers)), end


def _read_bytes(payload: bytes, position: int, end: int) -> tuple[bytes | None, int]:
    size, position = read_varint(payload, position)
    if size < 0:
        return None, position
    stop = position + size
    if stop > end:
        raise InvalidRecord(f"a record's field claims {size} bytes where {end - position} are left")
    return payload[position:stop], stop
