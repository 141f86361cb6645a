"""Record batches from a seed: good ones, and ones whose header, records or compressed payload lie.

A batch that was changed is given a true CRC again in most cases: a wrong one is found first, and hides the rest.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from barnabas.protocol.records.builder import build_batch
from barnabas.protocol.records.checksum import crc32c
from barnabas.protocol.records.compression import Codec, compress
from barnabas.protocol.records.records import Header, Record

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

SMALLEST: Final = b"\x0c\0\0\0\1\1\0"
"""A record without key, value and headers, at the offset and time of its batch."""
CODECS: Final = (0, 0, 1, 2, 3, 4)
"""None, gzip, snappy, lz4, zstd."""
NOW: Final = 1_700_000_000_000
_CRC_AT: Final = 17
_AFTER_CRC: Final = 21
_PAYLOAD: Final = 61
_FIELDS: Final = {
    "base_offset": (0, ">q"),
    "batch_length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"),
    "producer_id": (43, ">q"),
    "producer_epoch": (51, ">h"),
    "base_sequence": (53, ">i"),
    "record_count": (57, ">i"),
}
_NUMBERS: Final = {
    ">b": (0, 1, 2, 3, -1),
    ">h": (0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 48, 64, -1, 0x7FFF, -0x8000),
    ">i": (0, 1, 2, 5, -1, -2, 49, 0x7FFFFFFF, -0x80000000),
    ">q": (0, 1, 5, -1, -2, 1000, NOW, (1 << 63) - 1, -(1 << 63)),
}
LYING_NUMBERS: Final = (
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x00",
    b"\x01",
    b"\xff" * 10,
    b"\xfe\xff\xff\xff\x0f",
)
"""Varints of records that are overlong, negative or huge."""


def good_batch(random: Random, now_ms: int = NOW) -> bytes:
    """A batch as a producer sends it."""
    count = random.choice((1, 1, 1, 2, 5, 30))
    records = [_record(delta, random) for delta in range(count)]
    return build_batch(records, base_timestamp=now_ms, codec=random.choice(CODECS))


def _record(delta: int, random: Random) -> Record:
    headers = (Header("h", random.choice((None, b"", b"v"))),) if random.random() < 0.2 else ()
    value = random.choice((None, b"", b"value", random.randbytes(40), b"v" * 700))
    return Record(delta, delta, random.choice((None, b"", b"key", b"k%d" % random.randrange(50))), value, headers)


def bomb(count: int) -> bytes:
    """A small batch of very many records, whose times and offsets are wrong: to put them right is dear."""
    payload = compress(Codec.ZSTD, SMALLEST * count)
    attributes = int(Codec.ZSTD)
    header = struct.pack(">qiibIhiqqqhii", 0, 0, 0, 2, 0, attributes, count - 1, NOW, NOW - 1, -1, -1, -1, count)
    data = bytearray(header + payload)
    seal(data)
    return bytes(data)


def any_batch(random: Random) -> bytes:
    """A good batch or a changed one."""
    batch = good_batch(random)
    return batch if random.random() < 0.4 else changed(batch, random)


def changed(batch: bytes, random: Random) -> bytes:
    """The batch with one to three lies."""
    data = bytearray(batch)
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice(_CHANGES)(data, random)
    if random.random() < 0.8:
        seal(data, keep_length=random.random() < 0.3)
    return bytes(data)


def seal(data: bytearray, *, keep_length: bool = False) -> None:
    """Make the CRC true again, and the length too."""
    if len(data) >= _PAYLOAD:
        if not keep_length:
            struct.pack_into(">i", data, 8, len(data) - 12)
        struct.pack_into(">I", data, _CRC_AT, crc32c(bytes(data[_AFTER_CRC:])))


def _change_field(data: bytearray, random: Random) -> None:
    position, form = _FIELDS[random.choice(tuple(_FIELDS))]
    if position + struct.calcsize(form) <= len(data):
        struct.pack_into(form, data, position, random.choice(_NUMBERS[form]))


def _flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 3))):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _flip_payload(data: bytearray, random: Random) -> None:
    if len(data) > _PAYLOAD:
        data[random.randrange(_PAYLOAD, len(data))] ^= 1 << random.randrange(8)


def _lie_in_payload(data: bytearray, random: Random) -> None:
    if len(data) > _PAYLOAD:
        at = random.randrange(_PAYLOAD, len(data))
        data[at : at + 1] = random.choice(LYING_NUMBERS)


def _cut(data: bytearray, random: Random) -> None:
    if data:
        del data[random.randrange(len(data)) :]


def _lengthen(data: bytearray, random: Random) -> None:
    data += random.randbytes(random.choice((1, 7, 61, 200)))


def _repeat(data: bytearray, random: Random) -> None:
    data += data[:4096]


def _take_other_codec(data: bytearray, random: Random) -> None:
    if len(data) > 22:
        data[22] = data[22] & ~7 | random.randrange(8)


def _replace_payload(data: bytearray, random: Random) -> None:
    data[_PAYLOAD:] = random.randbytes(random.choice((0, 1, 10, 200)))


_CHANGES: Final[tuple[Callable[[bytearray, Random], None], ...]] = (
    _change_field,
    _change_field,
    _change_field,
    _flip,
    _flip_payload,
    _flip_payload,
    _lie_in_payload,
    _lie_in_payload,
    _cut,
    _lengthen,
    _repeat,
    _take_other_codec,
    _replace_payload,
)
