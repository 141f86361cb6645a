"""On which line each table and key of a TOML file stands: what `tomllib` does not tell. Pure.

Keys inside inline tables and arrays have no lines of their own; the line of what holds them is near enough.
"""

from __future__ import annotations

import re
from typing import Final

_HEADER: Final = re.compile(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(r"""\s*((?:[A-Za-z0-9_.\s-]|"[^"]*"|'[^']*')+?)\s*=(.*)$""")
_PART: Final = re.compile(r""""([^"]*)"|'([^']*)'|([A-Za-z0-9_-]+)""")
_LONG: Final = ('"""', "'''")

Path = tuple[str, ...]


def lines_of(text: str) -> dict[Path, int]:
    """The line of every table and key, counted from 1, by the names that lead to it; a long text is where it begins."""
    found: dict[Path, int] = {}
    table: Path = ()
    closing: str | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if closing is not None:
            if closing in line:
                closing = None
            continue
        if header := _HEADER.match(line):
            table = _parts(header[1])
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            begins_below = key[2].lstrip() in _LONG  # where the text of a query does, that is its first line
            found.setdefault(table + _parts(key[1]), number + begins_below)
            closing = _opens(key[2])
    for path, number in list(found.items()):  # what has no line of its own is where its first part is
        for length in range(1, len(path)):
            found.setdefault(path[:length], number)
    return found


def _parts(dotted: str) -> Path:
    return tuple(next(filter(None, part), "") for part in _PART.findall(dotted))


def _opens(value: str) -> str | None:
    """The quotes of a long string that this value opens and does not close."""
    value = value.strip()
    for quotes in _LONG:
        if value.startswith(quotes) and quotes not in value[3:]:
            return quotes
    return None
