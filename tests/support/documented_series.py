"""The series of our own that docs/metrics.md tells of: their types and labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
_ROW: Final = re.compile(r"^\| `(barnabas_\w+)` \| (\w+) \|([^|]*)\|([^|]+)\|$", re.MULTILINE)


class DocumentedSeries(NamedTuple):
    """A row of the table."""

    kind: str
    labels: frozenset[str]


def documented_series() -> dict[str, DocumentedSeries]:
    """By the names that samples have."""
    rows = _ROW.findall(PAGE.read_text())
    found = {name: DocumentedSeries(kind, frozenset(re.findall("`(\\w+)`", labels))) for name, kind, labels, _ in rows}
    assert len(found) == len(rows), "a series has two rows"
    return found
