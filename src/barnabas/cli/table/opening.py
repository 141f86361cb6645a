"""The table that a command of `barnabas table` is about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.table_options import TableOptions, table_options

if TYPE_CHECKING:
    from barnabas.cli.common.help import F
    from barnabas.pipelines.tables.table import Table


@dataclass(frozen=True, kw_only=True)
class PlaceOptions(TableOptions):
    """PLACE, and how the table is kept there."""

    place: str

    def open(self) -> Table:
        """The table, to be used in a `with`."""
        from barnabas.clients.library import load

        load("pyarrow", "spark")
        from barnabas.pipelines.tables.opening import open_table

        return open_table(self.place, self.kind, catalog=self.catalog, options=self.library_options)


def place_options(command: F) -> F:
    """PLACE, and the options of tables: the fields of `PlaceOptions`."""
    return click.argument("place")(table_options(command))
