"""Plain tables as kafka-consumer-groups prints them, so that scripts find each column where they look for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

ABSENT = "-"
"""What stands where there is nothing to show."""


class Column(NamedTuple):
    """A title and the least width; a column that grows is as wide as its widest cell."""

    title: str
    width: int = 0
    grows: bool = False


def print_columns(columns: Sequence[Column], rows: Sequence[Sequence[object]]) -> None:
    """Print the titles and the rows, cells one blank apart."""
    cells = [[ABSENT if cell is None else str(cell) for cell in row] for row in rows]
    widths = [
        max((column.width, *(len(row[at]) for row in cells))) if column.grows else column.width
        for at, column in enumerate(columns)
    ]
    for row in ([column.title for column in columns], *cells):
        click.echo(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
