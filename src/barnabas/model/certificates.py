"""What an X.509 certificate says: whom it is for, by which other names, and until when.

Only these few fields are read, from DER; whether the certificate can be trusted is OpenSSL's work. Certificates come
from clients, after OpenSSL has accepted them, and from keystores.

A subject is written as Java writes it (X500Principal.getName(), RFC 2253), since that is the name of a principal in
Kafka's ACLs. What Java does, beyond RFC 2253: only nine attributes are written by their keywords, others by their
numbers and a hexadecimal value; a value that is not of a string type is written in hexadecimal, too; and every other
value is taken for UTF-8, even a BMPString.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SET: Final = 0x31
UTC_TIME: Final = 0x17
VERSION: Final = 0xA0
EXTENSIONS: Final = 0xA3

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The attributes that RFC 2253 has keywords for."""
SUBJECT_ALTERNATIVE_NAMES: Final = "2.5.29.17"
STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""The types of values that Java writes as text: UTF8, Printable, T61, IA5, General and BMPString."""
ESCAPED: Final = ',=+<>#;"\\'


class InvalidCertificate(ValueError):
    """Bytes that are no certificate."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The fields of one certificate."""

    subject: str
    """As Java writes it (RFC 2253)."""
    alternative_names: frozenset[bytes]
    """Each as it is encoded."""
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True)
class _Element:
    """One element of DER: its tag, its value, and the whole of it."""

    tag: int
    value: bytes
    whole: bytes

    def elements(self) -> Iterator[_Element]:
        """What it consists of."""
        return _elements(self.value)


def read_certificate(der: bytes) -> Certificate:
    """The fields of a certificate; raises InvalidCertificate."""
    try:
        (whole,) = _elements(der)
        signed = next(whole.elements())
        fields = [field for field in signed.elements() if field.tag != VERSION]
        _, _, _, validity, subject = fields[:5]
        not_before, not_after = map(_time, validity.elements())
        extensions = next((field for field in fields[5:] if field.tag == EXTENSIONS), None)
        names = frozenset[bytes]() if extensions is None else _alternative_names(extensions)
        return Certificate(java_name(subject.whole), names, not_before, not_after)
    except (ValueError, StopIteration, IndexError) as error:
        raise InvalidCertificate(f"not a certificate: {error}") from error


def java_name(der: bytes) -> str:
    """A distinguished name as X500Principal.getName() writes it: the last relative name first.

    >>> java_name(bytes.fromhex("301b310b300906035504061302444531 0c300a06035504030c03612c62"))
    'CN=a\\\\,b,C=DE'
    """
    (name,) = _elements(der)
    return ",".join(_relative_name(each) for each in reversed(list(name.elements())))


def _relative_name(names: _Element) -> str:
    return "+".join(_attribute(each) for each in names.elements())


def _attribute(attribute: _Element) -> str:
    kind, value = attribute.elements()
    number = _object_id(kind.value)
    keyword = KEYWORDS.get(number)
    if keyword is None or value.tag not in STRINGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    return f"{keyword}={_escaped(value.value.decode('utf-8', 'replace'))}"


def _escaped(text: str) -> str:
    """A value with RFC 2253's escapes, as Java has them: # everywhere, and zero by its number."""
    leading = len(text) - len(text.lstrip(" \r"))
    trailing = len(text.rstrip(" \r"))
    written = []
    for place, char in enumerate(text):
        blank = place < leading or place >= trailing
        written.append("\\00" if char == "\0" else f"\\{char}" if blank or char in ESCAPED else char)
    return "".join(written)


def _alternative_names(extensions: _Element) -> frozenset[bytes]:
    (listed,) = extensions.elements()
    for extension in listed.elements():
        kind, *_, value = extension.elements()
        if _object_id(kind.value) == SUBJECT_ALTERNATIVE_NAMES:
            (names,) = _elements(value.value)
            return frozenset(name.whole for name in names.elements())
    return frozenset()


def _time(element: _Element) -> datetime:
    text = element.value.decode("ascii")
    if element.tag == UTC_TIME:
        text = ("19" if text[:2] >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _object_id(encoded: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in encoded:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _elements(data: bytes) -> Iterator[_Element]:
    """The elements that `data` is a row of."""
    position = 0
    while position < len(data):
        start, tag, length = position, data[position], data[position + 1]
        position += 2
        if length & 0x80:
            count = length & 0x7F
            length = int.from_bytes(data[position : position + count], "big")
            position += count
        end = position + length
        if end > len(data):
            raise ValueError("an element is longer than what it is in")
        yield _Element(tag, data[position:end], data[start:end])
        position = end
