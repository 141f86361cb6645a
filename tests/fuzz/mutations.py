"""What is done to good bytes without knowing what they mean: flipped, cut, lengthened, overwritten, mixed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.fuzz.schemas import LYING_VARINTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

_NUMBERS: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\0\0\0",
    b"\xff\xff\xff\xff",
    bytes(4),
    b"\0\1\x86\xa0",
    b"\x7f\xff",
)


def mutated(data: bytes, random: Random) -> bytes:
    """The bytes with one change, which may be small or large."""
    if not data:
        return data
    changing = bytearray(data)
    random.choice(_MUTATIONS)(changing, random)
    return bytes(changing)


def _flip(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 4, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data)) :]


def _lengthen(data: bytearray, random: Random) -> None:
    data += random.randbytes(random.choice((1, 2, 16, 300)))


def _insert(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    data[at:at] = random.randbytes(random.choice((1, 2, 4, 16)))


def _overwrite_number(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    number = random.choice(_NUMBERS)
    data[at : at + len(number)] = number


def _overwrite_varint(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    data[at : at + 1] = random.choice(LYING_VARINTS)


def _repeat_part(data: bytearray, random: Random) -> None:
    at, source = random.randrange(len(data)), random.randrange(len(data))
    data[at:at] = data[source : source + random.choice((4, 20, 200))]


def _remove_part(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data))
    del data[at : at + random.choice((1, 2, 4, 20))]


_MUTATIONS: Final[tuple[Callable[[bytearray, Random], None], ...]] = (
    _flip,
    _flip,
    _flip,
    _cut,
    _lengthen,
    _insert,
    _overwrite_number,
    _overwrite_varint,
    _repeat_part,
    _remove_part,
)
