"""The records inside a batch: zigzag varints, one record after another.

    length    varint   bytes after this field
    attributes int8    unused, 0
    timestamp varlong  minus the batch's base timestamp
    offset    varint   minus the batch's base offset
    key       varint length (-1: null) and bytes
    value     varint length (-1: null) and bytes
    headers   varint count, each with key (length, UTF-8) and value (length or -1, bytes)

`read_records` is strict: a record ends where its length says, and the last one where the payload ends. `walk` checks
the same without making anything, for the broker's produce path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ONE_BYTE: Final = 1 << 6
TWO_BYTES: Final = 1 << 13
"""Numbers from 0 up to here take one byte or two as a varint."""
RECORD_OVERHEAD: Final = 24
"""Bytes of a record without headers beside its key and value, at most."""
MIN_RECORD_SIZE: Final = 7
"""A record without key, value and headers: one byte for each field."""

INT_BITS: Final = 32
LONG_BITS: Final = 64
"""Of a timestamp; all other numbers have INT_BITS."""

_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(0x80))
"""The numbers that take one byte: most of a record's are such."""


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


def read_records_from(payload: bytes, count: int, least: int) -> Iterator[Record]:
    """As `read_records`, without the records whose offsets in the batch are below `least`: of those little is read."""
    position = index = 0
    try:
        while index < count:
            length, begin = read_length(payload, position)
            _, at = read_varint(payload, begin + 1, LONG_BITS)
            if read_varint(payload, at)[0] >= least:
                break
            index, position = index + 1, begin + length
    except IndexError:
        raise InvalidRecord(f"record {index} of {count} goes past the end of the batch") from None
    yield from read_records(payload[position:], count - index)


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
    if size == -1:
        return None, position
    stop = position + size
    if size < 0 or stop > end:
        raise InvalidRecord(f"a record's field claims {size} bytes where {end - position} are left")
    return payload[position:stop], stop
