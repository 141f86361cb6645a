"""Options that say which table is meant, the same for `load` and `table`."""

from __future__ import annotations

from typing import Final

import click

from barnabas.cli.help import F, option

FORMATS: Final = ("parquet", "delta", "iceberg")


def table_options(command: F) -> F:
    """`--format`, `--catalog` and `--option`."""
    for decorate in (
        option(
            "--option",
            "options",
            multiple=True,
            metavar="NAME=VALUE",
            help="A setting of the table's library: deltalake's storage options, pyiceberg's catalog properties.",
            section="Table",
        ),
        option(
            "--catalog",
            default="default",
            show_default=True,
            metavar="NAME",
            help="For namespace.table of Iceberg: the catalog in pyiceberg's configuration.",
            section="Table",
        ),
        option(
            "--format",
            "kind",
            type=click.Choice(FORMATS),
            help="What the table is.  [default: what is there; parquet for a new one]",
            section="Table",
        ),
    ):
        command = decorate(command)
    return command


def pairs(options: tuple[str, ...], flag: str = "--option") -> dict[str, str] | None:
    """An option that is given as NAME=VALUE any number of times, as a mapping; None if it never is."""
    found = {}
    for text in options:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{flag} {text} is not of the form NAME=VALUE.")
        found[name] = value
    return found or None
