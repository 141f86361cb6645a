"""`barnabas pipeline status`: how far pipelines are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_tabbed, print_table
from barnabas.cli.pipeline.files import FileOptions, ServerOptions, files_argument, server_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.runner.status import QueryStatus

STATUS_COLUMNS: Final = ("QUERY", "LAG", "LAST BATCH", "AT", "SECONDS", "ROWS", "ROWS/S", "STATE ROWS", "STATE BYTES")


@dataclass(frozen=True, kw_only=True)
class Options(FileOptions, ServerOptions):
    """The options of `barnabas pipeline status`."""

    as_json: bool


@click.command(
    cls=Command,
    short_help="Show how far pipelines are.",
    examples=[
        ("show lag and last batch of every query", "barnabas pipeline status pipeline.toml"),
        ("show the consumer group of one query", "barnabas groups --describe --group orders.revenue"),
    ],
)
@files_argument
@server_options
@json_option
@takes(Options)
def status(options: Options) -> None:
    """Show the lag of every query (from its consumer group) and its last batch (from the topic of metrics).

    It asks only brokers, so it works from any machine, and while no pipeline runs.
    """
    from barnabas.pipelines.runner.status import statuses
    from barnabas.pipelines.spec import load_pipelines

    pipelines = [options.at_cluster(each) for each in load_pipelines(options.files)]
    show_status([each for pipeline in pipelines for each in statuses(pipeline)], as_json=options.as_json)


def show_status(found: Sequence[QueryStatus], *, as_json: bool) -> None:
    """A line per query."""
    rows = [_status_row(each) for each in found]
    match choose_style(as_json=as_json):
        case Style.JSON:
            print_json([asdict(each) for each in found])
        case Style.PLAIN:
            print_tabbed(rows)
        case Style.TABLE:
            print_table(STATUS_COLUMNS, rows)


def _status_row(found: QueryStatus) -> list[Any]:
    last = found.last
    lag: object = "-" if found.lag is None else found.lag
    if last is None:
        return [found.query, lag, *["-"] * 7]
    return [
        found.query,
        lag,
        last.batch,
        last.at,
        last.seconds,
        last.rows,
        last.rows_per_second,
        last.state_rows,
        last.state_bytes,
    ]
