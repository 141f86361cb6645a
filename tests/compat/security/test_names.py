"""The principal of a certificate has the name that Java gives it, for odd subjects too."""

from __future__ import annotations

import base64
import random
import subprocess
from pathlib import Path

from barnabas.model.certificates import java_name
from tests.support import jars

NAMES = 5000
KNOWN = [
    *("2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11"),
    *("0.9.2342.19200300.100.1.1", "0.9.2342.19200300.100.1.25"),
]
OTHERS = ["2.5.4.5", "1.2.840.113549.1.9.1", "2.5.4.12", "2.5.4.42", "2.5.4.4", "2.5.4.46", "2.999.1"]
CHARACTERS = (
    "ab Z,+\"\\<>;=#'/:?.-_\N{LATIN SMALL LETTER E WITH ACUTE}\N{CJK UNIFIED IDEOGRAPH-4E2D}\U0001f600\0\n\t\r\x7f"
)
ENCODINGS = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "ascii",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
    0x04: "utf-8",
}


def element(tag: int, value: bytes) -> bytes:
    size = len(value)
    return bytes([tag]) + (bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2, "big")) + value


def object_id(text: str) -> bytes:
    first, second, *others = map(int, text.split("."))
    encoded = b""
    for number in (40 * first + second, *others):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        encoded += bytes(reversed(groups))
    return element(0x06, encoded)


def distinguished_name(chance: random.Random) -> bytes:
    def attribute() -> bytes:
        kind = chance.choice(KNOWN if chance.random() < 0.8 else OTHERS)
        tag = chance.choice([0x0C] * 6 + list(ENCODINGS))
        text = "".join(chance.choices(CHARACTERS, k=chance.choice([0, 1, 1, 2, 3, 5, 9])))
        return element(0x30, object_id(kind) + element(tag, text.encode(ENCODINGS[tag], "replace")))

    relative = [
        element(0x31, b"".join(attribute() for _ in range(chance.choice([1, 1, 1, 2, 3]))))
        for _ in range(chance.choice([0, 1, 2, 3]))
    ]
    return element(0x30, b"".join(relative))


def test_odd_names_are_those_of_java() -> None:
    chance = random.Random(20)
    names = [distinguished_name(chance) for _ in range(NAMES)]
    done = subprocess.run(
        [jars.program("java"), str(Path(__file__).with_name("Names.java"))],
        input="\n".join(base64.b64encode(name).decode() for name in names),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    java = [base64.b64decode(line).decode("utf-8") for line in done.stdout.splitlines()]
    assert len(java) == NAMES
    differing = [(name.hex(), theirs, java_name(name)) for name, theirs in zip(names, java, strict=True)]
    assert [each for each in differing if each[1] != each[2]] == []
