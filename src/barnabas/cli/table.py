"""`barnabas table`: look at tables that were loaded, merge their small files, drop what is old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.connection import connected_group, connection_options
from barnabas.cli.durations import DURATION
from barnabas.cli.help import Command, Group, option
from barnabas.cli.numbers import Whole
from barnabas.cli.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.cli.table_options import pairs, table_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import timedelta
    from pathlib import Path

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.tables.table import Table

MB: Final = 1 << 20
MOST_MB: Final = 1 << 20
"""A file of a table has at most a terabyte."""


@click.group(
    cls=Group,
    examples=[
        ("how far a table is, and how far behind its topic", "barnabas table describe lake/orders"),
        ("small files into large ones", "barnabas table compact lake/orders"),
        ("drop versions older than a month", "barnabas table expire lake/orders --older-than 30d"),
    ],
)
@connected_group
def command() -> None:
    """Look at tables that `barnabas load` has filled, and keep them in shape."""


@command.command(
    "describe",
    cls=Command,
    short_help="Show what a table holds, and how far it is.",
    examples=[("as JSON", "barnabas table describe lake/orders --json")],
)
@click.argument("place")
@table_options
@connection_options
@json_option
def describe(
    place: str,
    kind: str | None,
    catalog: str,
    options: tuple[str, ...],
    bootstrap_server: str,
    command_config: Path | None,
    as_json: bool,
) -> None:
    """Show what a table holds, and for each partition the offset that comes next, and the lag."""
    with _open(place, kind, catalog, options) as table:
        from barnabas.pipelines.decode.ddl import type_name
        from barnabas.pipelines.tables.contract import BATCHES
        from barnabas.pipelines.tables.table import owned

        note, size, columns = owned(table.last_note(), table.location), table.size(), table.schema()
        kind = table.format
        partition_by = list(table.partition_by)
    offsets = {place: offset for place, offset in note.offsets.items() if place != BATCHES}
    ends = _ends(offsets, note.topic_ids, bootstrap_server, command_config)
    partitions: list[dict[str, Any]] = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": offset,
            "lag": None if each not in ends else max(0, ends[each] - offset),
        }
        for each, offset in sorted(offsets.items())
    ]
    told = {
        "format": kind,
        "location": place,
        "pipeline": note.pipeline,
        "commits": note.version,
        "rows": size.rows,
        "files": size.files,
        "bytes": size.size,
        "partition_by": partition_by,
        "columns": {field.name: type_name(field.type) for field in columns or ()},
        "topics": {topic: id for topic, id in note.topic_ids.items() if topic != BATCHES.topic},
        "partitions": partitions,
    }
    show(told, choose_style(as_json=as_json))


def _some(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def show(told: dict[str, Any], style: Style) -> None:
    """A description as JSON, or as lines and a table of partitions."""
    if style is Style.JSON:
        print_json(told)
        return
    click.echo(
        f"{told['location']} ({told['format']}): {_some(told['rows'], 'row')} in {_some(told['files'], 'file')}, "
        f'{told["bytes"]:,} bytes, {_some(told["commits"], "commit")} of "{told["pipeline"]}"'
    )
    if told["partition_by"]:
        click.echo(f"partitioned by {', '.join(told['partition_by'])}")
    click.echo("columns: " + ", ".join(f"{name} {kind}" for name, kind in told["columns"].items()))
    rows = [
        (each["topic"], each["partition"], each["offset"], "-" if each["lag"] is None else each["lag"])
        for each in told["partitions"]
    ]
    if style is Style.TABLE:
        print_table(("Topic", "Partition", "Next offset", "Lag"), rows)
    else:
        for row in rows:
            click.echo(" ".join(map(str, row)))


@command.command(
    "compact",
    cls=Command,
    examples=[
        ("files of about 256 MB", "barnabas table compact lake/orders --target-size 256"),
    ],
)
@click.argument("place")
@table_options
@option(
    "--target-size",
    type=Whole(1, MOST_MB),
    metavar="MB",
    default=128,
    show_default=True,
    help="Files smaller than this are merged up to it.",
    section="What",
)
def compact(place: str, kind: str | None, catalog: str, options: tuple[str, ...], target_size: int) -> None:
    """Merge small files into large ones. Rows and offsets stay as they are.

    A load may run beside it, but not into plain Parquet.
    """
    with _open(place, kind, catalog, options) as table:
        done = table.compact(target_size * MB)
    click.echo(f"Merged {done.merged} files into {done.into}." if done.merged else "There is nothing to merge.")


@command.command(
    "expire",
    cls=Command,
    short_help="Drop old versions, and files of no use.",
    examples=[
        ("drop versions older than a month", "barnabas table expire lake/orders --older-than 30d"),
    ],
)
@click.argument("place")
@table_options
@option(
    "--older-than",
    type=DURATION,
    metavar="TIME",
    default="7d",
    show_default=True,
    help="Versions older than this are dropped.",
    section="What",
)
@option(
    "--orphans-older-than",
    type=DURATION,
    metavar="TIME",
    default="1d",
    show_default=True,
    help="Files that no commit names are removed after this; give it longer than any load takes for a commit.",
    section="What",
)
def expire(
    place: str,
    kind: str | None,
    catalog: str,
    options: tuple[str, ...],
    older_than: timedelta,
    orphans_older_than: timedelta,
) -> None:
    """Drop old versions of a table, and files that crashes have left."""
    with _open(place, kind, catalog, options) as table:
        from barnabas.pipelines.loading.dead_letters import promised_files

        promised = promised_files(place, table.format, catalog, pairs(options))
        dropped = table.expire(older_than)
        orphans = table.remove_orphans(orphans_older_than, but=promised)
    click.echo(f"Dropped {dropped} {WHAT[table.format]}, removed {orphans} orphaned files.")


WHAT: Final = {"parquet": "old manifests", "delta": "files of old versions", "iceberg": "old snapshots"}


def _open(place: str, kind: str | None, catalog: str, options: tuple[str, ...]) -> Table:
    from barnabas.clients.library import load

    load("pyarrow", "spark")
    from barnabas.pipelines.tables.opening import open_table

    return open_table(place, kind, catalog=catalog, options=pairs(options))


def _ends(
    places: Collection[TopicPartition],
    topic_ids: Mapping[str, str],
    bootstrap_server: str,
    command_config: Path | None,
) -> dict[TopicPartition, int]:
    """Where the partitions end now, as far as a broker answers and their topics are those that were loaded."""
    from barnabas.cli.connection import open_admin
    from barnabas.clients.errors import BrokerUnreachable, RequestRefused

    try:
        with open_admin(bootstrap_server, command_config) as admin:
            found = admin.describe_topics(sorted({place.topic for place in places}))
            anew = {topic.name for topic in found if (topic.topic_id or "") != topic_ids[topic.name]}
            for name in sorted(anew):
                remark(f"The lag of {name} is not known: the topic was deleted and made again since it was loaded.")
            return admin.end_offsets([place for place in places if place.topic not in anew], committed=True)
    except (BrokerUnreachable, RequestRefused) as error:
        remark(f"The lag is not known: {error}")
        return {}
