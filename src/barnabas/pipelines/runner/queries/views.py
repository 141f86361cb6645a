"""Sources and steps as views of a Spark session. Each sink's query has a session of its own, so names never meet."""

from __future__ import annotations

import importlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from barnabas.pipelines.runner.queries.decoding import decode_views
from barnabas.pipelines.spark.error_texts import analysis_error
from barnabas.pipelines.spec.decoders import decoder_of
from barnabas.pipelines.spec.durations import milliseconds
from barnabas.pipelines.spec.model import (
    BAD,
    FileSource,
    FunctionStep,
    Pipeline,
    Sink,
    Source,
    Step,
    TopicSource,
)
from barnabas.pipelines.spec.places import Problem, SpecError
from barnabas.pipelines.spec.python_file import load_module
from barnabas.pipelines.tables.files.destinations import for_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from barnabas.pipelines.spec.flows import Flow
    from barnabas.pipelines.spec.model import Watermark


def make_views(spark: SparkSession, pipeline: Pipeline, sink: Sink, flow: Flow, starts: Mapping[str, str]) -> DataFrame:
    """Make the views that lead to a sink; what it is to write. `starts` has where each topic source begins."""
    for source in flow.sources:
        with errors_placed_at(source):
            if isinstance(source, TopicSource):
                for name, frame in _topic_views(spark, pipeline, source, starts[source.name]).items():
                    frame.createOrReplaceTempView(name)
            else:
                _file_view(spark, pipeline, source).createOrReplaceTempView(source.name)
    for step in flow.steps:
        with errors_placed_at(step, "sql"):
            made = _step_frame(spark, pipeline, step)
            _with_watermark(made, step.watermark).createOrReplaceTempView(step.name)
    return spark.table(sink.reads)


@contextmanager
def errors_placed_at(element: Source | Step | Sink, key: str = "") -> Iterator[None]:
    """Raise SpecError for what Spark does not understand, with its place in the file: a key of this element."""
    try:
        yield
    except AnalysisException as error:
        raise SpecError([Problem(element.place.at(key), f'"{element.name}": {analysis_error(str(error))}')]) from error


def _topic_views(spark: SparkSession, pipeline: Pipeline, source: TopicSource, start: str) -> dict[str, DataFrame]:
    selected = (
        {"subscribe": ",".join(source.topics)} if source.pattern is None else {"subscribePattern": source.pattern}
    )
    options: dict[str, Any] = {
        **source.options,
        **{f"kafka.{name}": value for name, value in pipeline.kafka.items()},
        **selected,
        "startingOffsets": start,
    }
    records = spark.readStream.format("barnabas").options(**options).load()
    if source.decode == "raw":
        return {source.name: _with_watermark(records, source.watermark)}
    views = decode_views(records, decoder_of(source, pipeline))
    return {source.name: _with_watermark(views.rows, source.watermark), f"{source.name}{BAD}": views.bad}


def _file_view(spark: SparkSession, pipeline: Pipeline, source: FileSource) -> DataFrame:
    location = pipeline.located(source.path)
    if source.format == "delta":
        from deltalake import DeltaTable

        return spark.createDataFrame(DeltaTable(location, storage_options=dict(source.options)).to_pyarrow_table())
    if source.format == "iceberg":
        from barnabas.pipelines.tables.iceberg.table import IcebergTable

        return spark.createDataFrame(IcebergTable(location, options=source.options).read())
    reader = spark.read.format(source.format).options(**source.options)
    return (reader.schema(source.schema) if source.schema else reader).load(for_spark(location))


def _step_frame(spark: SparkSession, pipeline: Pipeline, step: Step) -> DataFrame:
    if not isinstance(step, FunctionStep):
        return spark.sql(step.sql)
    views = [spark.table(name) for name in step.reads]
    function = _function(pipeline, step)
    place = step.place.at("python")
    try:
        made = function(*views)
    except (TypeError, ValueError, NameError, AttributeError, LookupError) as error:  # what another try does not mend
        raise SpecError([Problem(place, f'"{step.name}": {type(error).__name__}: {error}')]) from error
    if not isinstance(made, DataFrame):
        raise SpecError([Problem(place, f'"{step.name}" gives {made!r}, and should return a DataFrame')])
    return made


def _function(pipeline: Pipeline, step: FunctionStep) -> Callable[..., DataFrame]:
    """The function of a step; what it sends to executors carries the code of its file along."""
    if isinstance(step.function, str):
        file, _, name = step.function.rpartition(":")
        module = load_module(pipeline.folder / file)
        function: Callable[..., DataFrame] = getattr(module, name)
    else:
        function = step.function
        module = importlib.import_module(function.__module__)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return function


def _with_watermark(frame: DataFrame, watermark: Watermark | None) -> DataFrame:
    if watermark is None:
        return frame
    return frame.withWatermark(watermark.column, f"{milliseconds(watermark.delay)} milliseconds")
