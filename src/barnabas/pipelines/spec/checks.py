"""Whether pipelines can run, found without Spark and without a broker. Pure, but for a look at files that are named.

Everything that is wrong is told at once, with the place where it is written and the nearest name that would be right.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from graphlib import CycleError
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.selection import can_name_a_topic
from barnabas.pipelines.spec.durations import milliseconds
from barnabas.pipelines.spec.flows import (
    flow_to,
    ordered,
    views_found,
    views_made,
    views_of,
    views_read,
    views_written,
)
from barnabas.pipelines.spec.kafka_properties import property_problems
from barnabas.pipelines.spec.model import (
    AVAILABLE_NOW,
    BAD,
    BAD_RECORDS,
    DECODINGS,
    FILE_FORMATS,
    FRAMINGS,
    MAY_FAIL,
    MODES,
    STARTS,
    TABLE_FORMATS,
    WITH_FRAMING,
    WITH_SCHEMA,
    FileSource,
    FunctionStep,
    Pipeline,
    Sink,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
)
from barnabas.pipelines.spec.places import Problem, suggestion
from barnabas.pipelines.spec.source_options import option_problems
from barnabas.pipelines.spec.sql import SqlProblem, examine
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.opening import dead_letters_location
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG, check_target, is_in_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.pipelines.spec.model import Source, Step
    from barnabas.pipelines.spec.places import Place

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_SCHEMAS: Final = {
    "json": 'the fields of its JSON: schema = "id BIGINT, at TIMESTAMP"',
    "avro": 'the schema of its Avro: schema = "order.avsc"',
    "protobuf": 'the message of its Protobuf: schema = "order.proto:shop.Order", or a .desc file that protoc made',
}
_Used = tuple[str | None, ...]
"""What only one sink may have: its name, and what tells it from others of that name, which may be secret."""


def problems_of(pipelines: Sequence[Pipeline]) -> list[Problem]:
    """Everything that is wrong with pipelines that are to run together."""
    found = [problem for pipeline in pipelines for problem in _of_one(pipeline)]
    found += _named_twice([(f'pipeline "{each.name}"', each.name, each.place) for each in pipelines])
    return found + list(_one_table_each(pipelines))


def _of_one(pipeline: Pipeline) -> Iterator[Problem]:
    yield from _settings(pipeline)
    yield from _names(pipeline)
    for source in pipeline.sources:
        yield from (
            _topic_source(source, pipeline) if isinstance(source, TopicSource) else _file_source(source, pipeline)
        )
    for step in pipeline.steps:
        yield from _watermark(step)
        yield from _sql_step(step) if isinstance(step, SqlStep) else _function_step(step, pipeline)
    for sink in pipeline.sinks:
        yield from _topic_sink(sink) if isinstance(sink, TopicSink) else _table_sink(sink, pipeline)
    unknown = list(_unknown_views(pipeline))
    yield from unknown
    try:
        ordered(pipeline.steps)
    except CycleError as error:
        yield _cycle(error.args[1], pipeline)
        return
    if not unknown:
        yield from _bad_records(pipeline)
        for sink in pipeline.sinks:
            yield from _keeping(sink, pipeline)


def _settings(pipeline: Pipeline) -> Iterator[Problem]:
    place = pipeline.place
    if not _PIPELINE_NAME.fullmatch(pipeline.name):
        yield Problem(place.at("name"), f'the name "{pipeline.name}" may have letters, digits, dots, - and _ only')
    if "bootstrap.servers" not in pipeline.kafka:
        yield Problem(
            place.at("kafka"), 'the broker is not named: add `"bootstrap.servers" = "localhost:9092"` to [kafka]'
        )
    for problem in property_problems(pipeline.kafka):
        yield Problem(place.at("kafka"), problem)
    if pipeline.trigger != AVAILABLE_NOW:
        try:
            milliseconds(pipeline.trigger)
        except ValueError as error:
            yield Problem(place.at("trigger"), f'the trigger is a length of time or "{AVAILABLE_NOW}": {error}')
    if pipeline.metrics is not None and not can_name_a_topic(pipeline.metrics):
        yield Problem(place.at("metrics"), f'"{pipeline.metrics}" cannot be the name of a topic')
    if not pipeline.sources:
        yield Problem(place, "there is no source; add one, as [sources.orders]")
    if not pipeline.sinks:
        yield Problem(place, "there is no sink, so nothing would run; add one, as [sinks.orders]")


def _names(pipeline: Pipeline) -> Iterator[Problem]:
    views: list[Source | Step] = [*pipeline.sources, *pipeline.steps]
    for each in (*views, *pipeline.sinks):
        if not _NAME.fullmatch(each.name):
            yield Problem(each.place, f'the name "{each.name}" may have letters, digits and _ only')
    named = [(name, each.place) for each in views for name in views_of(each)]
    yield from _named_twice([(f'view "{name}"', name.lower(), place) for name, place in named])
    yield from _named_twice([(f'sink "{each.name}"', each.name.lower(), each.place) for each in pipeline.sinks])


def _named_twice(named: Sequence[tuple[str, str, Place]]) -> Iterator[Problem]:
    first: dict[str, Place] = {}
    for what, name, place in named:
        if name in first:
            yield Problem(place, f"{what} is also made at {first[name]}; rename one of them")
        first.setdefault(name, place)


def _topic_source(source: TopicSource, pipeline: Pipeline) -> Iterator[Problem]:
    where = f'source "{source.name}"'
    if bool(source.topics) == (source.pattern is not None):
        yield Problem(source.place, f"{where} needs either a topic or a pattern")
    if source.pattern is not None:
        try:
            re.compile(source.pattern)
        except re.error as error:
            yield Problem(source.place.at("pattern"), f"{where}: {source.pattern} is no regular expression: {error}")
    for topic in source.topics:
        if not can_name_a_topic(topic):
            yield Problem(source.place.at("topic"), f'"{topic}" cannot be the name of a topic')
    yield from _one_of(source.decode, DECODINGS, "decode", source.place)
    yield from _one_of(source.framing, FRAMINGS, "framing", source.place)
    if source.framing != "auto" and source.decode not in WITH_FRAMING:
        yield Problem(source.place.at("framing"), f"{where} has a framing, which is for {', '.join(WITH_FRAMING)}")
    yield from _one_of(source.start, STARTS, "start", source.place)
    yield from _one_of(source.bad, BAD_RECORDS, "bad", source.place)
    yield from _schema(source, pipeline)
    yield from _watermark(source)
    for problem in option_problems(source.options):
        yield Problem(source.place.at("options"), f"{where}: {problem}")


def _schema(source: TopicSource, pipeline: Pipeline) -> Iterator[Problem]:
    """Whether values can be decoded, and have the column of the watermark; a schema in a file is read."""
    where = f'source "{source.name}"'
    if source.decode not in WITH_SCHEMA:
        if source.schema:
            yield Problem(source.place.at("schema"), f"{where} has a schema, which is for {', '.join(WITH_SCHEMA)}")
    elif not source.schema:
        yield Problem(source.place.at("decode"), f"{where} needs {_SCHEMAS[source.decode]}")
    elif source.framing in FRAMINGS:
        from barnabas.pipelines.spec.decoders import decoder_of

        try:
            columns = decoder_of(source, pipeline).schema.names
        except BarnabasError as error:
            yield Problem(source.place.at("schema"), f"{where}: {error}")
            return
        watermark = source.watermark
        if watermark is not None and watermark.column.lower() not in map(str.lower, columns):
            yield Problem(
                source.place.at("watermark"),
                f'{where} has no column "{watermark.column}" for its watermark.{suggestion(watermark.column, columns)}',
            )


def _file_source(source: FileSource, pipeline: Pipeline) -> Iterator[Problem]:
    yield from _one_of(source.format, FILE_FORMATS, "format", source.place)
    located = pipeline.located(source.path)
    if "://" not in located and source.format != "iceberg" and not _exists(located):
        yield Problem(source.place.at("path"), f'source "{source.name}" reads {located}, which is not there')


def _exists(path: str) -> bool:
    """Whether a path is there, or something that its wildcards match, which are Hadoop's: * ? [ab] [^ab] {a,b}."""
    return Path(path).exists() or any(map(_matches, _alternatives(path.replace("[^", "[!"))))


def _matches(path: str) -> bool:
    whole = Path(path)
    return any(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))


def _alternatives(path: str) -> list[str]:
    """What a path with {a,b} in it stands for."""
    found = re.search(r"\{([^{}]*)\}", path)
    if found is None:
        return [path]
    each = (path[: found.start()] + text + path[found.end() :] for text in found[1].split(","))
    return [alternative for one in each for alternative in _alternatives(one)]


def _sql_step(step: SqlStep) -> Iterator[Problem]:
    if step.reads is not None:
        return
    try:
        examine(step.sql)
    except SqlProblem as error:
        yield Problem(step.place.at("sql", error.line), f'step "{step.name}": {error}')


def _function_step(step: FunctionStep, pipeline: Pipeline) -> Iterator[Problem]:
    if not step.reads:
        yield Problem(step.place, f'step "{step.name}" needs `reads`: the views that its function is given')
    if not isinstance(step.function, str):
        try:
            inspect.signature(step.function).bind(*step.reads)
        except TypeError as error:
            yield Problem(
                step.place, f'step "{step.name}": its function does not take {len(step.reads)} views: {error}'
            )
        return
    place = step.place.at("python")
    file, colon, name = step.function.rpartition(":")
    if not colon:
        yield Problem(place, f'"{step.function}" is not of the form file.py:function')
        return
    path = pipeline.folder / file
    if not path.is_file():
        yield Problem(place, f'step "{step.name}" is in {path}, which is not there')
        return
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        yield Problem(place, f"{path} is no Python: line {error.lineno}: {error.msg}")
        return
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if name not in functions:
        yield Problem(place, f'{path} has no function "{name}".{suggestion(name, functions)}')
        return
    arguments = functions[name].args
    takes = len(arguments.posonlyargs) + len(arguments.args)
    if arguments.vararg is None and not takes - len(arguments.defaults) <= len(step.reads) <= takes:
        yield Problem(place, f"{name} takes {takes} DataFrames, and `reads` names {len(step.reads)} views")


def _watermark(element: TopicSource | Step) -> Iterator[Problem]:
    if element.watermark is not None:
        try:
            milliseconds(element.watermark.delay)
        except ValueError as error:
            yield Problem(element.place.at("watermark"), f'the watermark of "{element.name}": {error}')


def _topic_sink(sink: TopicSink) -> Iterator[Problem]:
    if not can_name_a_topic(sink.topic):
        yield Problem(sink.place.at("topic"), f'"{sink.topic}" cannot be the name of a topic')
    yield from _one_of(sink.encode, ("raw", "json"), "encode", sink.place)
    yield from _one_of(sink.mode, MODES, "mode", sink.place)
    if sink.key is not None and sink.encode == "raw":
        yield Problem(sink.place.at("key"), 'name the column `key` in the view instead: encode is "raw"')


def _table_sink(sink: TableSink, pipeline: Pipeline) -> Iterator[Problem]:
    yield from _one_of(sink.format, TABLE_FORMATS, "format", sink.place)
    if sink.format == "parquet" and sink.options:
        yield Problem(sink.place.at("options"), f'sink "{sink.name}" has options, which are for delta and iceberg')
    if sink.format != "iceberg" and sink.catalog != DEFAULT_CATALOG:
        yield Problem(sink.place.at("catalog"), f'sink "{sink.name}" has a catalog, which is for iceberg')
    try:
        check_target(pipeline.table(sink), sink.format, sink.catalog, sink.options)
    except UnusableTarget as error:
        yield Problem(sink.place.at("table"), f'sink "{sink.name}": {error}')


def _one_of(value: str, known: Sequence[str], key: str, place: Place) -> Iterator[Problem]:
    if value not in known:
        yield Problem(place.at(key), f'{key} is "{value}".{suggestion(value, known)}')


def _unknown_views(pipeline: Pipeline) -> Iterator[Problem]:
    made = views_made(pipeline)
    names = [each.name for each in (*pipeline.sources, *pipeline.steps)]
    for step in pipeline.steps:
        key = "sql" if isinstance(step, SqlStep) and step.reads is None else "reads"
        reads = dict.fromkeys(views_read(step))
        for view in reads:
            if view.lower() not in made:
                others = [name for name in names if name != step.name]
                yield Problem(
                    step.place.at(key),
                    f'step "{step.name}" reads "{view}", which nobody makes.{suggestion(view, others)}',
                )
        if isinstance(step, SqlStep):
            yield from _left_out(step, set(map(str.lower, reads)), made)
    for sink in pipeline.sinks:
        if sink.reads.lower() not in made:
            yield Problem(
                sink.place.at("from"),
                f'sink "{sink.name}" writes "{sink.reads}", which nobody makes.{suggestion(sink.reads, names)}',
            )


def _left_out(step: SqlStep, named: set[str], made: Mapping[str, object]) -> Iterator[Problem]:
    """Views that a query reads beside those that `reads` names: what is remembered of them would not be known."""
    for view in dict.fromkeys(views_found(step)):
        if view.lower() in made and view.lower() not in named:
            yield Problem(
                step.place.at("reads"), f'step "{step.name}" reads "{view}", and its `reads` does not name it; add it'
            )


def _cycle(names: Sequence[str], pipeline: Pipeline) -> Problem:
    by_name = {step.name.lower(): step for step in pipeline.steps}
    circle = " → ".join(by_name[name].name for name in reversed(names))
    return Problem(by_name[names[0]].place, f"steps read each other in a circle: {circle}")


def _keeping(sink: Sink, pipeline: Pipeline) -> Iterator[Problem]:
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
        yield from _window_closes(sink, pipeline)


def _bad_records(pipeline: Pipeline) -> Iterator[Problem]:
    """Whether values that cannot be decoded are kept, or somebody has said that they need not be."""
    written = views_written(pipeline)
    for source in pipeline.sources:
        if not isinstance(source, TopicSource) or source.decode not in MAY_FAIL or source.bad == "drop":
            continue
        bad = f"{source.name}{BAD}"
        if source.name.lower() in written and bad.lower() not in written:
            yield Problem(
                source.place.at("decode"),
                f'values of source "{source.name}" that cannot be decoded would vanish: add a sink with '
                f'from = "{bad}", or say bad = "drop"',
            )


def _needs_checkpoint(sink: Sink, reason: str) -> str:
    return (
        f'sink "{sink.name}" needs a checkpoint, because {reason}: add `checkpoint = "PATH"` to it, or '
        '`checkpoints = "FOLDER"` at the top'
    )


def _window_closes(sink: Sink, pipeline: Pipeline) -> Iterator[Problem]:
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


def _one_table_each(pipelines: Sequence[Pipeline]) -> Iterator[Problem]:
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
    yield from _shared(tables, "table", lambda sink: sink.place.at("table"))
    for used, owner in letters.items():
        for sink in tables.get(used, ()):
            yield Problem(
                sink.place.at("table"),
                f'sink "{sink.name}" has the table {used[0]}, which is for rows that the partitions of sink '
                f'"{owner.name}" have no place for; give it another',
            )
    yield from _shared(checkpoints, "checkpoint", lambda sink: sink.place.at("checkpoint"))


def _catalog_options(sink: TableSink) -> tuple[str | None, ...]:
    """Which catalog the options of a sink name; a table in a folder has one beside it."""
    in_catalog = sink.format == "iceberg" and is_in_catalog(sink.table)
    return tuple(map(sink.options.get, ("uri", "warehouse"))) if in_catalog else ()


def _shared(uses: dict[_Used, list[Sink]], what: str, place: Callable[[Sink], Place]) -> Iterator[Problem]:
    for (name, *_), sinks in uses.items():
        for sink in sinks[1:]:
            yield Problem(
                place(sink),
                f'sink "{sink.name}" has the {what} {name}, which sink "{sinks[0].name}" has too; give it its own',
            )
