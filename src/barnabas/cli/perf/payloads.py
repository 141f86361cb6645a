"""The payloads that `barnabas producer-perf` sends: random letters, lines of a file, or numbers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.values.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LETTERS = bytes(ord("A") + byte % 26 for byte in range(256))
"""The letter that stands for each byte."""
DRAWN = 1024
"""Payloads of a file that are drawn at once: a fifth of the work of drawing each."""
POOL = 4 << 20
"""Letters that random payloads are cut from."""


def make_payloads(
    size: int | None,
    path: Path | None,
    delimiter: str,
    monotonic: bool,
    say: Callable[[str], None] = click.echo,
    first: int = 0,
) -> Callable[[int], bytes]:
    """The payload of each record, by its number; the numbers that are sent begin with `first`."""
    if monotonic:
        return lambda number: str(first + number).encode()
    if path is not None:
        return _from_file(path, delimiter, say)
    return _random_letters(size or 1)


def _from_file(path: Path, delimiter: str, say: Callable[[str], None]) -> Callable[[int], bytes]:
    say(f"Reading payloads from: {path.absolute()}")
    separator = "\n" if delimiter == "\\n" else delimiter
    lines = [line.encode() for line in read_text(path).split(separator) if line]
    if not lines:
        raise click.UsageError(f"{path} holds no payloads.")
    say(f"Number of records read: {len(lines)}")
    drawn: list[bytes] = []

    def payload(number: int) -> bytes:
        nonlocal drawn
        if not drawn:
            drawn = random.choices(lines, k=DRAWN)
        return drawn.pop()

    return payload


def _random_letters(size: int) -> Callable[[int], bytes]:
    """Payloads that do not repeat for megabytes, so that compression finds in them what it would in Kafka's."""
    pool = random.randbytes(max(POOL, size)).translate(LETTERS)
    count = len(pool) // size

    def payload(number: int) -> bytes:
        start = number % count * size
        return pool[start : start + size]

    return payload
