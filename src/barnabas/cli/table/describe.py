"""`barnabas table describe`: what a table holds, and how far behind its topic it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.common.connection import ConnectionOptions, connection_options
from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes
from barnabas.cli.common.output import Style, choose_style, json_option, print_json, print_table, remark
from barnabas.cli.common.remedies import with_remedy
from barnabas.cli.common.values.sizes import counted
from barnabas.cli.table.opening import PlaceOptions, place_options

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.model.ids import TopicPartition


@dataclass(frozen=True, kw_only=True)
class Options(ConnectionOptions, PlaceOptions):
    """The options of `barnabas table describe`."""

    as_json: bool


@click.command(
    "describe",
    cls=Command,
    short_help="Show what a table holds, and its lag.",
    examples=[("as JSON", "barnabas table describe lake/orders --json")],
)
@place_options
@connection_options
@json_option
@takes(Options)
def describe(options: Options) -> None:
    """Show what a table holds, and for each partition the next offset and the lag."""
    with options.open() as table:
        from barnabas.pipelines.decode.ddl import type_name
        from barnabas.pipelines.tables.contract import BATCHES
        from barnabas.pipelines.tables.table import require_note

        note, size, columns = require_note(table.last_note(), table.location), table.size(), table.schema()
        kind, partition_by = table.format, list(table.partition_by)
    offsets = {place: offset for place, offset in note.offsets.items() if place != BATCHES}
    ends = end_offsets(options, offsets, note.topic_ids)
    found = {
        "format": kind,
        "location": options.place,
        "pipeline": note.pipeline,
        "commits": note.version,
        "rows": size.rows,
        "files": size.files,
        "bytes": size.size,
        "partition_by": partition_by,
        "columns": {field.name: type_name(field.type) for field in columns or ()},
        "topics": {topic: id for topic, id in note.topic_ids.items() if topic != BATCHES.topic},
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": offset,
                "lag": None if each not in ends else max(0, ends[each] - offset),
            }
            for each, offset in sorted(offsets.items())
        ],
    }
    show(found, choose_style(as_json=options.as_json))


def show(found: dict[str, Any], style: Style) -> None:
    """A description as JSON, or as lines and a table of partitions."""
    if style is Style.JSON:
        print_json(found)
        return
    click.echo(
        f"{found['location']} ({found['format']}): "
        f"{counted(found['rows'], 'row')} in {counted(found['files'], 'file')}, "
        f'{found["bytes"]:,} bytes, {counted(found["commits"], "commit")} of "{found["pipeline"]}"'
    )
    if found["partition_by"]:
        click.echo(f"partitioned by {', '.join(found['partition_by'])}")
    click.echo("columns: " + ", ".join(f"{name} {kind}" for name, kind in found["columns"].items()))
    rows = [
        (each["topic"], each["partition"], each["offset"], "-" if each["lag"] is None else each["lag"])
        for each in found["partitions"]
    ]
    if style is Style.TABLE:
        print_table(("Topic", "Partition", "Next offset", "Lag"), rows)
    else:
        for row in rows:
            click.echo(" ".join(map(str, row)))


def end_offsets(
    options: Options, places: Collection[TopicPartition], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Where the partitions end now, as far as a broker answers and their topics are those that were loaded."""
    from barnabas.clients.errors import BrokerUnreachable, RequestRefused

    try:
        with options.connect() as cluster:
            found = cluster.topics.describe_topics(sorted({place.topic for place in places}))
            anew = {topic.name for topic in found if (topic.topic_id or "") != topic_ids[topic.name]}
            for name in sorted(anew):
                remark(f"The lag of {name} is not known: the topic was deleted and made again since it was loaded.")
            return cluster.topics.end_offsets([place for place in places if place.topic not in anew], committed=True)
    except (BrokerUnreachable, RequestRefused) as error:
        remark(with_remedy(f"The lag is not known: {error}", error.remedy))
        return {}
