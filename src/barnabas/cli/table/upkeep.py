"""`barnabas table compact` and `expire`: what keeps a table small and quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from barnabas.cli.common.help import Command, option
from barnabas.cli.common.options import takes
from barnabas.cli.common.values.durations import DURATION
from barnabas.cli.common.values.numbers import Whole
from barnabas.cli.table.opening import PlaceOptions, place_options

if TYPE_CHECKING:
    from datetime import timedelta

MB: Final = 1 << 20
MOST_MB: Final = 1 << 20
"""A file of a table has at most a terabyte."""
OLD_VERSIONS: Final = {"parquet": "old manifests", "delta": "files of old versions", "iceberg": "old snapshots"}
"""What is dropped with the old versions of a table, by its format."""


@dataclass(frozen=True, kw_only=True)
class CompactOptions(PlaceOptions):
    """The options of `barnabas table compact`."""

    target_size: int


@click.command(
    "compact",
    cls=Command,
    examples=[
        ("merge into files of about 256 MB", "barnabas table compact lake/orders --target-size 256"),
    ],
)
@place_options
@option(
    "--target-size",
    type=Whole(1, MOST_MB),
    metavar="MB",
    default=128,
    show_default=True,
    help="Merge smaller files into files of this size.",
    section="What",
)
@takes(CompactOptions)
def compact(options: CompactOptions) -> None:
    """Merge small files into large ones. Rows and offsets stay as they are.

    A load may run at the same time, except into a Parquet table.
    """
    with options.open() as table:
        done = table.compact(options.target_size * MB)
    click.echo(f"Merged {done.merged} files into {done.into}." if done.merged else "There is nothing to merge.")


@dataclass(frozen=True, kw_only=True)
class ExpireOptions(PlaceOptions):
    """The options of `barnabas table expire`."""

    older_than: timedelta
    orphans_older_than: timedelta


@click.command(
    "expire",
    cls=Command,
    short_help="Drop old versions and unused files.",
    examples=[
        ("drop versions older than a month", "barnabas table expire lake/orders --older-than 30d"),
    ],
)
@place_options
@option(
    "--older-than",
    type=DURATION,
    metavar="TIME",
    default="7d",
    show_default=True,
    help="Drop versions that are older than this.",
    section="What",
)
@option(
    "--orphans-older-than",
    type=DURATION,
    metavar="TIME",
    default="1d",
    show_default=True,
    help="Remove files that no commit names and that are older than this. It must be longer than a load takes for a "
    "commit.",
    section="What",
)
@takes(ExpireOptions)
def expire(options: ExpireOptions) -> None:
    """Drop old versions of a table, and files that a crash has left behind."""
    with options.open() as table:
        from barnabas.pipelines.loading.dead_letters import promised_files

        promised = promised_files(options.place, table.format, options.catalog, options.library_options)
        dropped = table.expire(options.older_than)
        orphans = table.remove_orphans(options.orphans_older_than, but=promised)
    click.echo(f"Dropped {dropped} {OLD_VERSIONS[table.format]}, removed {orphans} orphaned files.")
