"""Salts of SCRAM: as Kafka's tools make them, and decoys that cannot be told from a given one by their shape.

Kafka's tools write a number of 130 bits in digits and letters. Other tools take random bytes, or text: hexadecimal
digits, base64, whatever their language offers. Who knows what the salts of a cluster look like must not see which ones
are made up, so a decoy has the model's length and is drawn from the smallest usual alphabet that has all of the model.
"""

from __future__ import annotations

import string
import struct
from typing import Final, NamedTuple

SALT_BITS: Final = 130
DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"
"""What salts of Kafka's tools are made of."""
_PAIRS: Final = tuple(bytes((first, second)) for first in DIGITS for second in DIGITS)
OF_KAFKA: Final = range(20, 27)
"""The lengths of such salts, of which shorter ones are all but impossible."""

_LETTERS: Final = (string.ascii_uppercase + string.ascii_lowercase).encode()
_ALPHANUMERIC: Final = _LETTERS + string.digits.encode()
_BASE64: Final = _ALPHANUMERIC + b"+/"
_OF_BASE64: Final = (_LETTERS, _ALPHANUMERIC, _BASE64, _ALPHANUMERIC + b"-_")
"""What a text in base64 may be made of: most have no sign, and a few no digit."""
_HEX: Final = b"0123456789abcdef"
_ALPHABETS: Final = (
    string.digits.encode(),
    _HEX,
    _HEX.upper(),
    string.ascii_lowercase.encode(),
    string.ascii_uppercase.encode(),
    f"{string.ascii_uppercase}234567".encode(),
    DIGITS,
    DIGITS.upper(),
    *_OF_BASE64,
    bytes(range(0x20, 0x7F)),
)
"""From the smallest to the largest, so that the first that has all of a text has the least besides."""


def salt_of(number: int) -> bytes:
    """A salt of 130 of a number's bits, which should be random, in the form that Kafka's tools give theirs."""
    pairs, number = [], number & ((1 << SALT_BITS) - 1)
    while number:
        number, pair = divmod(number, len(_PAIRS))
        pairs.append(_PAIRS[pair])
    pairs.reverse()
    return b"".join(pairs).lstrip(b"0")


class SaltKind(NamedTuple):
    """What salts have in common that look like one: those of Kafka's tools, or of one length and one alphabet.

    It is found once for each salt, and salts are drawn for every login: by Kafka's tools in several lengths, the
    longest of which begin with a one, since they are numbers. All others keep their length, and base64 its padding.
    """

    length: int
    """Of the salt itself."""
    is_of_kafka: bool = False
    alphabet: bytes = b""
    """What its text is drawn from; nothing for bytes that are no text."""
    last: bytes = b""
    """What the last character of a text in base64 is one of, where that is less."""
    padding: bytes = b""

    @staticmethod
    def of(salt: bytes) -> SaltKind:
        """The kind of a salt."""
        if _may_be_of_kafka(salt):
            return SaltKind(len(salt), is_of_kafka=True)
        text = salt.rstrip(b"=")
        alphabet = next((each for each in _ALPHABETS if not text.translate(None, delete=each)), b"")
        last = _last_of_base64(text, alphabet) if text else b""
        return SaltKind(len(salt), alphabet=alphabet, last=last, padding=salt[len(text) :])

    def draw(self, chance: bytes) -> bytes:
        """A salt of this kind, made of at least twice as many random bytes."""
        if self.is_of_kafka:
            return salt_of(int.from_bytes(chance, "big"))
        alphabet = self.alphabet
        if not alphabet:
            return chance[: self.length]
        numbers = struct.unpack_from(f">{self.length - len(self.padding)}H", chance)
        size = len(alphabet)
        drawn = bytes([number % size for number in numbers]).translate(alphabet.ljust(256))
        if self.last:
            end = numbers[-1] % len(self.last)
            drawn = drawn[:-1] + self.last[end : end + 1]
        return drawn + self.padding


def _may_be_of_kafka(salt: bytes) -> bool:
    """Whether it is a number of 130 bits; one with hexadecimal digits only is not, but once in millions of salts."""
    if len(salt) not in OF_KAFKA or salt.translate(None, delete=DIGITS) or not salt.translate(None, delete=_HEX):
        return False
    return salt_of(int(salt, 36)) == salt


def _last_of_base64(text: bytes, alphabet: bytes) -> bytes:
    """What the last character is one of, if it seems to end an encoded text whose last bits are 0."""
    if alphabet not in _OF_BASE64 or len(text) % 4 < 2:
        return b""
    aligned = _BASE64[::16] if len(text) % 4 == 2 else _BASE64[::4]
    return bytes(sorted(set(aligned) & set(alphabet))) if text[-1] in aligned else b""
