"""Checks of sinks: topics, tables, what they need to keep every row once, and that no two write to one place."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from barnabas.pipelines.spark.read.selection import can_name_a_topic
from barnabas.pipelines.spec.checks.values import choice_problems
from barnabas.pipelines.spec.flows import flow_to
from barnabas.pipelines.spec.model import MODES, TableSink, TopicSink
from barnabas.pipelines.spec.places import Problem
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import dead_letters_location
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG, check_kept_snapshots, check_target, is_in_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.pipelines.spec.model import Pipeline, Sink
    from barnabas.pipelines.spec.places import Place

_Used = tuple[str | None, ...]
"""What only one sink may have: its name, and what tells it from others of that name, which may be secret."""


def sink_problems(sink: Sink, pipeline: Pipeline) -> Iterator[Problem]:
    """What is wrong with a sink."""
    if isinstance(sink, TopicSink):
        yield from _topic_sink_problems(sink)
    else:
        yield from _table_sink_problems(sink, pipeline)


def _topic_sink_problems(sink: TopicSink) -> Iterator[Problem]:
    if not can_name_a_topic(sink.topic):
        yield Problem(sink.place.at("topic"), f'"{sink.topic}" cannot be the name of a topic')
    yield from choice_problems(sink.encode, ("raw", "json"), "encode", sink.place)
    yield from choice_problems(sink.mode, MODES, "mode", sink.place)
    if sink.key is not None and sink.encode == "raw":
        yield Problem(sink.place.at("key"), 'name the column `key` in the view instead: encode is "raw"')


def _table_sink_problems(sink: TableSink, pipeline: Pipeline) -> Iterator[Problem]:
    yield from choice_problems(sink.format, FORMATS, "format", sink.place)
    if sink.format == "parquet" and sink.options:
        yield Problem(sink.place.at("options"), f'sink "{sink.name}" has options, which are for delta and iceberg')
    if sink.format != "iceberg" and sink.catalog != DEFAULT_CATALOG:
        yield Problem(sink.place.at("catalog"), f'sink "{sink.name}" has a catalog, which is for iceberg')
    if sink.keep_snapshots is not None:
        try:
            check_kept_snapshots(sink.format, sink.keep_snapshots)
        except UnusableTarget as error:
            yield Problem(sink.place.at("keep_snapshots"), f'sink "{sink.name}" cannot keep snapshots: {error}')
    try:
        check_target(pipeline.table(sink), sink.format, sink.catalog, sink.options)
    except UnusableTarget as error:
        yield Problem(sink.place.at("table"), f'sink "{sink.name}": {error}')


def exactly_once_problems(sink: Sink, pipeline: Pipeline) -> Iterator[Problem]:
    """What a sink needs to keep every row once."""
    flow = flow_to(pipeline, sink)
    place = sink.place
    if not flow.topics:
        yield Problem(place.at("from"), f'sink "{sink.name}" depends on no topic, so nothing would ever come')
        return
    if pipeline.checkpoint(sink) is None and isinstance(sink, TopicSink):
        yield Problem(place, _needs_checkpoint(sink, "it writes to a topic"))
    elif pipeline.checkpoint(sink) is None and flow.keeps_state is not None:
        yield Problem(place, _needs_checkpoint(sink, flow.keeps_state))
    if isinstance(sink, TableSink) or sink.mode == "append":
        yield from _watermark_missing_problems(sink, pipeline)


def _needs_checkpoint(sink: Sink, reason: str) -> str:
    return (
        f'sink "{sink.name}" needs a checkpoint, because {reason}: add `checkpoint = "PATH"` to it, or '
        '`checkpoints = "FOLDER"` at the top'
    )


def _watermark_missing_problems(sink: Sink, pipeline: Pipeline) -> Iterator[Problem]:
    """Rows of an aggregation are final, and so can be appended, once a watermark has passed them."""
    flow = flow_to(pipeline, sink)
    if any(each.watermark is not None for each in (*flow.topics, *flow.steps)):
        return
    for step in flow.grouping:
        yield Problem(
            step.place.at("sql"),
            f'step "{step.name}" has GROUP BY, and without a watermark its rows are never final, so sink '
            f'"{sink.name}" would get none: add `watermark = {{ column = "...", delay = "1 minute" }}` to the source '
            "whose column the window is of",
        )


def shared_place_problems(pipelines: Sequence[Pipeline]) -> Iterator[Problem]:
    """Two sinks in one table would each take the other's rows for its own; the same holds for checkpoints.

    A table that is partitioned has one of dead letters beside it, which is nobody else's either.
    """
    tables: dict[_Used, list[Sink]] = defaultdict(list)
    letters: dict[_Used, Sink] = {}
    checkpoints: dict[_Used, list[Sink]] = defaultdict(list)
    for pipeline in pipelines:
        for sink in pipeline.sinks:
            if isinstance(sink, TableSink):
                catalog = "" if sink.catalog == DEFAULT_CATALOG else f" of the catalog {sink.catalog}"
                name = pipeline.table(sink).rstrip("/")
                options = _catalog_options(sink)
                tables[name + catalog, *options].append(sink)
                if sink.partition_by:
                    letters[dead_letters_location(name) + catalog, *options] = sink
            if (checkpoint := pipeline.checkpoint(sink)) is not None:
                checkpoints[checkpoint.rstrip("/"),].append(sink)
    yield from _shared_problems(tables, "table", lambda sink: sink.place.at("table"))
    for used, owner in letters.items():
        for sink in tables.get(used, ()):
            yield Problem(
                sink.place.at("table"),
                f'sink "{sink.name}" has the table {used[0]}, which is for rows that the partitions of sink '
                f'"{owner.name}" have no place for; give it another',
            )
    yield from _shared_problems(checkpoints, "checkpoint", lambda sink: sink.place.at("checkpoint"))


def _catalog_options(sink: TableSink) -> tuple[str | None, ...]:
    """Which catalog the options of a sink name; a table in a folder has one beside it."""
    in_catalog = sink.format == "iceberg" and is_in_catalog(sink.table)
    return tuple(map(sink.options.get, ("uri", "warehouse"))) if in_catalog else ()


def _shared_problems(uses: dict[_Used, list[Sink]], what: str, place: Callable[[Sink], Place]) -> Iterator[Problem]:
    for (name, *_), sinks in uses.items():
        for sink in sinks[1:]:
            yield Problem(
                place(sink),
                f'sink "{sink.name}" has the {what} {name}, which sink "{sinks[0].name}" has too; give it its own',
            )
