"""How results are shown: tables on a terminal, Kafka's plain lines in a pipe, JSON on request.

Results go to standard output and remarks to standard error, so that a pipe carries results only.
"""

from __future__ import annotations

import json
import sys
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.help import F, option

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Style(Enum):
    """The three ways to show a result."""

    PLAIN = "plain"
    TABLE = "table"
    JSON = "json"


def choose_style(*, as_json: bool) -> Style:
    """JSON when asked for, a table when a person is reading and rich is installed, else plain lines."""
    if as_json:
        return Style.JSON
    if _to_a_person() and find_spec("rich") is not None:
        return Style.TABLE
    return Style.PLAIN


def _to_a_person() -> bool:
    return sys.stdout.isatty()


def json_option(command: F) -> F:
    """The option `--json`, as parameter `as_json`."""
    return option("--json", "as_json", is_flag=True, help="Print JSON.", section="Output")(command)


def print_json(value: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(value, indent=2))


FOLDED: Final = 12
"""Text of a table is folded to no less than so many characters."""
BETWEEN: Final = 3
"""So many stand between two columns of a table, and one at each end."""


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table as wide as the terminal; columns of numbers are set to the right.

    Where the terminal is too narrow for the columns, each row is printed as lines of its own.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    cells = [tuple(row) for row in rows]
    console = Console(highlight=False, markup=False)
    if _narrowest(columns, cells) > console.width:
        _print_rows(columns, cells)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numbers = all(isinstance(row[index], int) for row in cells)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        table.add_row(*(str(cell) for cell in row))
    console.print(table)


def _narrowest(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> int:
    """How many characters a table needs if headings are broken between words, and no number is broken."""
    widths = []
    for index, column in enumerate(columns):
        cells = [row[index] for row in rows]
        longest = max(map(len, (*column.split(), *map(str, cells))), default=0)
        numbers = max((len(str(cell)) for cell in cells if isinstance(cell, int)), default=0)
        widths.append(max(numbers, min(longest, FOLDED)))
    return sum(widths) + BETWEEN * (len(columns) - 1) + 2


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    width = max(map(len, columns))
    for row in rows:
        click.echo()
        for column, cell in zip(columns, row, strict=True):
            click.echo(f"{click.style(f'{column:<{width}}', bold=True)}  {cell}")
    click.echo()


def print_padded(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print plain columns as some of Kafka's tools do: as wide as their widest cell, and a tab behind each."""
    lines = [tuple(columns), *(tuple(str(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("".join(f"{cell:<{width}}\t" for cell, width in zip(line, widths, strict=True)))


def print_tabbed(rows: Iterable[Sequence[object]]) -> None:
    """Print plain rows, with a tab between two cells."""
    for row in rows:
        click.echo("\t".join(map(str, row)))


def remark(text: str) -> None:
    """Say something that is not part of the result."""
    click.echo(text, err=True)
