"""The small text files: checkpoints and properties."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.check.report import Report


def read_checkpoint(path: Path, columns: int, report: Report) -> list[list[str]]:
    """The rows of a checkpoint: version, count, then one row a line. An empty file is an empty checkpoint."""
    lines = read_text(path).splitlines()
    if not lines:
        return []
    if lines[0] != "0" or len(lines) < 2 or read_number(lines[1]) != len(lines) - 2:
        report.error(path, None, f"claims version and count {lines[:2]}, and has {max(len(lines) - 2, 0)} rows")
        return []
    rows = [line.split(" ") for line in lines[2:]]
    if any(len(row) != columns for row in rows):
        report.error(path, None, f"has a row that is not {columns} words")
        return []
    return rows


def read_number(text: str) -> int | None:
    """The whole number that the text is, if it is one."""
    return int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None


def read_text(path: Path) -> str:
    """A file's text; bytes that are none become question marks, so that they match nothing."""
    return path.read_text(encoding="utf-8", errors="replace")
