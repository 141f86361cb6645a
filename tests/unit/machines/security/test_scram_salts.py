"""A decoy's salt cannot be told from a user's by its length and its characters."""

from __future__ import annotations

import base64
import random
import string
from typing import TYPE_CHECKING

import pytest

from barnabas.machines.security.scram_salts import DIGITS, SaltKind, salt_of

if TYPE_CHECKING:
    from collections.abc import Callable

HEX = b"0123456789abcdef"
CHANCE = random.Random(7)


@pytest.fixture(autouse=True)
def _same_chance() -> None:
    CHANCE.seed(7)


def drawn(model: bytes) -> list[bytes]:
    return [SaltKind.of(model).draw(CHANCE.randbytes(2 * len(model) + 32)) for _ in range(200)]


@pytest.mark.parametrize(
    ("make", "alphabet"),
    [
        (lambda: CHANCE.randbytes(12).hex(), HEX),
        (lambda: CHANCE.randbytes(13).hex(), HEX),
        (lambda: CHANCE.randbytes(16).hex(), HEX),
        (lambda: CHANCE.randbytes(16).hex().upper(), HEX.upper()),
        (lambda: base64.b32encode(CHANCE.randbytes(15)).decode(), b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"),
        (lambda: "".join(CHANCE.choices(string.digits, k=25)), string.digits.encode()),
        (lambda: "z" + "".join(CHANCE.choices(DIGITS.decode(), k=25)), DIGITS),
        (lambda: "0" + "".join(CHANCE.choices(DIGITS.decode(), k=24)), DIGITS),
        (lambda: "".join(CHANCE.choices(DIGITS.decode(), k=40)), DIGITS),
        (lambda: "".join(CHANCE.choices(string.ascii_letters + string.digits, k=40)), string.ascii_letters.encode()),
        (lambda: " " + "".join(CHANCE.choices(string.punctuation, k=30)), bytes(range(0x20, 0x7F))),
    ],
)
def test_text_is_drawn_from_its_alphabet(make: Callable[[], str], alphabet: bytes) -> None:
    model = make().encode()
    salts = drawn(model)
    assert {len(salt) for salt in salts} == {len(model)}
    assert set(b"".join(salts)) >= set(alphabet)
    assert set(b"".join(salts)) <= set(alphabet) | (set(DIGITS) if alphabet.isalpha() else set())
    assert len(set(salts)) == len(salts)


@pytest.mark.parametrize("size", [12, 16, 20, 24, 32, 64])
@pytest.mark.parametrize(
    "encode",
    [base64.b64encode, base64.urlsafe_b64encode, lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")],
    ids=["base64", "urlsafe", "token_urlsafe"],
)
def test_base64_stays_base64(size: int, encode: Callable[[bytes], bytes]) -> None:
    for _ in range(20):
        model = encode(CHANCE.randbytes(size))
        for salt in drawn(model)[:50]:
            padded = salt + b"=" * (-len(salt) % 4)
            data = base64.b64decode(padded, altchars=b"-_" if set(model) & set(b"-_") else None, validate=True)
            assert len(data) == size
            assert encode(data) == salt, "its last bits are 0"
            assert len(salt) == len(model)


def test_bytes_stay_bytes_and_kafkas_salts_kafkas() -> None:
    model = bytes(range(200, 232))
    assert {len(salt) for salt in drawn(model)} == {32}
    assert set(b"".join(drawn(model))) == set(range(256))
    of_kafka = drawn(salt_of(CHANCE.getrandbits(130)))
    assert {salt_of(int(salt, 36)) for salt in of_kafka} == set(of_kafka)
    assert {len(salt) for salt in of_kafka} >= {25, 26}
    assert drawn(b"")[0] == b""
