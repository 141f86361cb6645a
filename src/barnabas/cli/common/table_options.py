"""Options that say which table is meant, the same for `load` and `table`."""

from __future__ import annotations

from dataclasses import dataclass

import click

from barnabas.cli.common.help import F, option
from barnabas.cli.common.options import Options
from barnabas.cli.common.values.pairs import parse_pairs
from barnabas.pipelines.tables.formats import FORMATS


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """`--format`, `--catalog` and `--option`."""

    kind: str | None
    catalog: str
    options: tuple[str, ...]

    @property
    def library_options(self) -> dict[str, str] | None:
        """What --option says; None if it is not given."""
        return parse_pairs(self.options, "--option") or None


def table_options(command: F) -> F:
    """`--format`, `--catalog` and `--option`, the fields of `TableOptions`."""
    for decorate in (
        option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help="A storage option of deltalake, or a catalog property of pyiceberg; repeatable.",
            section="Table",
        ),
        option(
            "--catalog",
            default="default",
            show_default=True,
            metavar="NAME",
            help="The catalog of an Iceberg table, in pyiceberg's configuration.",
            section="Table",
        ),
        option(
            "--format",
            "kind",
            type=click.Choice(FORMATS),
            help="The format of the table.  [default: that of the existing table; parquet for a new one]",
            section="Table",
        ),
    ):
        command = decorate(command)
    return command
