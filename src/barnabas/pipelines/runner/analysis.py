"""What Spark says about pipelines, without running them: every view is made, and every column and type looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.pipelines.errors import SinkRefused
from barnabas.pipelines.loading.spark import ALONE
from barnabas.pipelines.runner.queries.query import encode_rows
from barnabas.pipelines.runner.queries.stateless import check_stateless
from barnabas.pipelines.runner.queries.views import errors_placed_at, make_views
from barnabas.pipelines.spark.context import stop_spark
from barnabas.pipelines.spark.session import register, spark_session
from barnabas.pipelines.spark.write.rows import check_schema
from barnabas.pipelines.spec.flows import flow_to
from barnabas.pipelines.spec.model import TableSink, TopicSink
from barnabas.pipelines.spec.places import Problem, SpecError, suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from barnabas.pipelines.spec.model import Pipeline, Sink


def analyse(pipelines: Sequence[Pipeline], spark: SparkSession | None = None) -> dict[str, str]:
    """The columns that each query writes, as DDL. Raises SpecError with what Spark has against a step."""
    session = spark or spark_session("check", master="local[1]", config={**ALONE, "spark.log.level": "ERROR"})
    try:
        return {
            pipeline.query(sink): _columns(session, pipeline, index)
            for pipeline in pipelines
            for index, sink in enumerate(pipeline.sinks)
        }
    finally:
        if spark is None:
            stop_spark(session)


def _columns(spark: SparkSession, pipeline: Pipeline, index: int) -> str:
    sink = pipeline.sinks[index]
    flow = flow_to(pipeline, sink)
    own = spark.newSession()
    register(own)
    frame = make_views(own, pipeline, sink, flow, {source.name: source.start for source in flow.topics})
    _check_written(frame, sink)
    if isinstance(sink, TableSink):
        check_stateless(frame, sink, flow)
    return ", ".join(f"{field.name} {field.dataType.simpleString().upper()}" for field in frame.schema)


def _check_written(frame: DataFrame, sink: Sink) -> None:
    """Raise SpecError unless a view has the columns that its sink asks for."""
    if isinstance(sink, TopicSink):
        with errors_placed_at(sink, "key"):
            rows = encode_rows(frame, sink)
        try:
            check_schema(rows.schema, sink.topic)
        except SinkRefused as error:
            raise SpecError([Problem(sink.place.at("from"), f'sink "{sink.name}": {error}')]) from error
        return
    for name in sink.partition_by:
        if name not in frame.columns:
            place = sink.place.at("partition_by")
            hint = suggestion(name, frame.columns)
            raise SpecError([Problem(place, f'"{sink.reads}" has no column "{name}" to partition by.{hint}')])
