"""Checks of sources: topics and their decoding, files that have to be there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.spark.read.selection import can_name_a_topic
from barnabas.pipelines.spec.checks.values import choice_problems, watermark_problems
from barnabas.pipelines.spec.model import (
    BAD_RECORDS,
    DECODINGS,
    FILE_FORMATS,
    FRAMINGS,
    STARTS,
    WITH_FRAMING,
    WITH_SCHEMA,
    FileSource,
    TopicSource,
)
from barnabas.pipelines.spec.places import Problem, suggestion
from barnabas.pipelines.spec.source_options import option_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.pipelines.spec.model import Pipeline, Source

_SCHEMAS: Final = {
    "json": 'the fields of its JSON: schema = "id BIGINT, at TIMESTAMP"',
    "avro": 'the schema of its Avro: schema = "order.avsc"',
    "protobuf": 'the message of its Protobuf: schema = "order.proto:shop.Order", or a .desc file that protoc made',
}


def source_problems(source: Source, pipeline: Pipeline) -> Iterator[Problem]:
    """What is wrong with a source."""
    if isinstance(source, TopicSource):
        yield from _topic_source_problems(source, pipeline)
    else:
        yield from _file_source_problems(source, pipeline)


def _topic_source_problems(source: TopicSource, pipeline: Pipeline) -> Iterator[Problem]:
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
    yield from choice_problems(source.decode, DECODINGS, "decode", source.place)
    yield from choice_problems(source.framing, FRAMINGS, "framing", source.place)
    if source.framing != "auto" and source.decode not in WITH_FRAMING:
        yield Problem(source.place.at("framing"), f"{where} has a framing, which is for {', '.join(WITH_FRAMING)}")
    if source.mark_tombstones and source.decode == "raw":
        others = ", ".join(each for each in DECODINGS if each != "raw")
        yield Problem(
            source.place.at("mark_tombstones"),
            f"{where} marks tombstones, which is for {others}: in a raw view their value is null",
        )
    yield from choice_problems(source.start, STARTS, "start", source.place)
    yield from choice_problems(source.bad, BAD_RECORDS, "bad", source.place)
    yield from _schema_problems(source, pipeline)
    yield from watermark_problems(source)
    for problem in option_problems(source.options):
        yield Problem(source.place.at("options"), f"{where}: {problem}")


def _schema_problems(source: TopicSource, pipeline: Pipeline) -> Iterator[Problem]:
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


def _file_source_problems(source: FileSource, pipeline: Pipeline) -> Iterator[Problem]:
    yield from choice_problems(source.format, FILE_FORMATS, "format", source.place)
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
