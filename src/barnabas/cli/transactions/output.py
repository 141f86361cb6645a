"""What the commands of `barnabas transactions` print, and say of an id that is not there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.failures import Failed
from barnabas.cli.common.output import Style, choose_style, print_json, print_padded, print_table, remark

if TYPE_CHECKING:
    from collections.abc import Sequence

    Column = tuple[str, str]
    """A heading as kafka-transactions prints it, and the key in JSON."""


def column(heading: str) -> Column:
    """A column whose key in JSON is its heading, with a small letter at the start."""
    return heading, heading[0].lower() + heading[1:]


def show(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, as_json: bool) -> None:
    """Print rows in the style that is wanted; in a table a dash stands for None."""
    headings = [heading for heading, _ in columns]
    match choose_style(as_json=as_json):
        case Style.JSON:
            keys = [key for _, key in columns]
            print_json([dict(zip(keys, row, strict=True)) for row in rows])
        case Style.PLAIN:
            print_padded(headings, rows)
        case Style.TABLE if not rows:
            remark("There is nothing to show.")
        case Style.TABLE:
            print_table(headings, [["-" if cell is None else cell for cell in row] for row in rows])


def unknown(transactional_id: str) -> Failed:
    """The failure for a transactional id that no coordinator has."""
    return Failed(f"No coordinator knows {transactional_id}. `barnabas transactions list` shows all transactional ids.")
