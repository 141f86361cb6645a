"""Lengths of time as people write them: `500ms`, `10s`, `5 minutes`, `1 hour 30 minutes`."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {
    "ms": ("ms", "millisecond", "milliseconds"),
    "s": ("s", "sec", "second", "seconds"),
    "min": ("m", "min", "minute", "minutes"),
    "h": ("h", "hour", "hours"),
    "d": ("d", "day", "days"),
}
_MILLISECONDS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_BY_WORD: Final = {word: _MILLISECONDS[unit] for unit, words in _UNITS.items() for word in words}
_PART: Final = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")


def milliseconds(text: str) -> int:
    """How long it is. Raises ValueError that says what is wrong."""
    total = position = 0
    while position < len(text) or not position:
        part = _PART.match(text.lower(), position)
        if part is None or part[2] not in _BY_WORD:
            raise ValueError(f'"{text}" is no length of time; write "10s", "500ms" or "5 minutes"')
        total += int(part[1]) * _BY_WORD[part[2]]
        position = part.end()
    return total
