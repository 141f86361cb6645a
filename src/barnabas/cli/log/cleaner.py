"""`barnabas log cleaner`: what compaction did."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common import options as common
from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_tabbed, print_table, remark
from barnabas.cli.common.values.files import FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.storage.cleaner.report import Overview

COLUMNS: Final = ("PARTITION", "FIRST-DIRTY", "DIRTY", "CLEANED-AT", "SECONDS", "RECORDS", "BYTES", "REMARK")


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas log cleaner`."""

    directory: Path
    as_json: bool


@click.command(
    cls=Command,
    short_help="Show what compaction did.",
    examples=[
        ("every compacted partition", "barnabas log cleaner ./data"),
        ("what cannot be cleaned, in a script", "barnabas log cleaner --json ./data | jq '.[] | select(.uncleanable)'"),
    ],
)
@click.argument("directory", metavar="DIR", type=FOLDER)
@json_option
@takes(Options)
def cleaner(options: Options) -> None:
    """Show what compaction did in a data directory, and what is left to clean.

    For each partition it shows where the dirty part begins, how much of the finished segments is dirty, when the log
    was last cleaned and what remained, and why it cannot be cleaned, if so.
    """
    from barnabas.storage.cleaner.report import overview

    found = overview(options.directory)
    match choose_style(as_json=options.as_json):
        case Style.JSON:
            print_json([_fields(each) for each in found])
        case Style.TABLE:
            print_table(COLUMNS, map(_row, found))
        case Style.PLAIN:
            print_tabbed((COLUMNS, *map(_row, found)))
    if not found:
        remark(f"No partition of {options.directory} was cleaned yet.")


def _fields(each: Overview) -> dict[str, Any]:
    fields = asdict(each)
    return {**fields, **fields.pop("report"), "dirty_ratio": round(each.dirty_ratio, 3)}


def _row(each: Overview) -> tuple[object, ...]:
    last = each.report.last
    remark = each.report.uncleanable or ""
    dirty = f"{each.dirty_ratio:.0%}"
    if last is None:
        return each.partition, each.first_dirty, dirty, "-", "-", "-", "-", remark
    return (
        each.partition,
        each.first_dirty,
        dirty,
        datetime.fromtimestamp(last.time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ"),
        last.seconds,
        f"{last.records_in}→{last.records_out}",
        f"{last.bytes_in}→{last.bytes_out}",
        remark,
    )
