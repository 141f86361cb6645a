"""A pipeline as it was written: sources, steps and sinks, all frozen. A TOML file and a Python file give the same.

Sources and steps make views; a step reads views, and each sink writes one. Text stays as it was written: `checks` says
whether it means anything, and the runner makes Spark's objects of it.

    from barnabas.pipelines.spec import Pipeline, SqlStep, TableSink, TopicSource

    pipeline = Pipeline(
        name="orders",
        kafka={"bootstrap.servers": "localhost:9092"},
        sources=[TopicSource(name="orders", topics=["orders"], decode="json", schema="id BIGINT, amount DOUBLE")],
        steps=[SqlStep(name="large", sql="SELECT * FROM orders WHERE amount > 100")],
        sinks=[
            TableSink(name="large_orders", reads="large", table="tables/large_orders", format="delta"),
            TableSink(name="bad_orders", reads="orders_bad", table="tables/bad_orders", format="delta"),
        ],
    )
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from barnabas.model.internal_topics import PIPELINE_METRICS
from barnabas.pipelines.spec.places import Place, here
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG, is_in_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame

AVAILABLE_NOW: Final = "available-now"
"""The trigger of a run that takes in what is there and ends."""
DECODINGS: Final = ("raw", "string", "json", "avro", "protobuf")
WITH_SCHEMA: Final = ("json", "avro", "protobuf")
"""Decodings that need a schema."""
MAY_FAIL: Final = ("string", *WITH_SCHEMA)
"""Decodings that not every value fits: they have a view of bad records."""
WITH_FRAMING: Final = ("avro", "protobuf")
"""Decodings before whose values a schema registry's id may be."""
FRAMINGS: Final = ("auto", "none", "confluent")
FILE_FORMATS: Final = ("parquet", "csv", "json", "delta", "iceberg")
STARTS: Final = ("earliest", "latest")
MODES: Final = ("append", "complete")
"""What a topic gets of an aggregation: rows once they are final, or all of them in each batch. Spark has no updates
alone for sinks in Python.
"""
BAD_RECORDS: Final = ("keep", "drop")
BAD: Final = "_bad"
"""What the view of a decoded source's bad records adds to its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watermark:
    """How late records may be: state of windows that ended before the newest `column` minus `delay` is let go."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A view of the records of topics.

    `raw` gives the columns of Spark's Kafka source. `string` gives `value` as text; `json`, `avro` and `protobuf` give
    the fields of `schema`; all of these add `_key`, `_topic`, `_partition`, `_offset` and `_timestamp`. Values that are
    no text, or do not fit the schema, are in a view of their own, `NAME_bad`, as they came.
    """

    name: str
    topics: Sequence[str] = ()
    pattern: str | None = None
    decode: str = "raw"
    schema: str | None = None
    """Of JSON the fields, as Spark writes them: `id BIGINT, at TIMESTAMP`, or a file with them; otherwise a file:
    `order.avsc`, `order.proto:shop.Order` or `order.desc:shop.Order`."""
    framing: str = "auto"
    """Whether a schema registry's id comes before Avro and Protobuf: `confluent`, `none`, or as it looks."""
    mark_tombstones: bool = False
    """Whether a record without a value is a row, and a column `_tombstone` says which rows are; otherwise it is bad."""
    bad: str = "keep"
    """What becomes of values that cannot be decoded: a sink has to keep them, unless they are to be dropped."""
    start: str = "earliest"
    """Where to begin when nothing was read before."""
    watermark: Watermark | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of `format("barnabas")` that say how records are read, as `maxOffsetsPerTrigger`."""
    place: Place = field(default_factory=here, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSource:
    """A view of files or of a table as they are when the run starts: the table side of a stream-table join."""

    name: str
    path: str
    format: str = "parquet"
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of Spark's reader, as `header` for CSV."""
    place: Place = field(default_factory=here, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlStep:
    """A view that is a query over other views."""

    name: str
    sql: str
    reads: Sequence[str] | None = None
    """The views that it reads. Without it they are found in the query; give it where that goes wrong."""
    watermark: Watermark | None = None
    place: Place = field(default_factory=here, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStep:
    """A view that a Python function makes of other views; it is called once, with a DataFrame for each."""

    name: str
    function: Callable[..., DataFrame] | str
    """The function, or `file.py:name`, the file beside that of the pipeline."""
    reads: Sequence[str]
    stateless: bool = False
    """A promise that each row it gives comes from one row it was given: no grouping, no duplicates dropped."""
    watermark: Watermark | None = None
    place: Place = field(default_factory=here, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSink:
    """Rows of a view as records of a topic, exactly once for readers of committed data.

    The columns are those of Spark's Kafka sink: `value`, and `key`, `headers`, `partition` if it has them. With
    `encode = "json"` each whole row becomes the value, and the column `key`, if one is named, the key.
    """

    name: str
    reads: str
    topic: str
    encode: Literal["raw", "json"] | str = "json"
    key: str | None = None
    mode: str = "append"
    checkpoint: str | None = None
    place: Place = field(default_factory=here, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSink:
    """Rows of a view in a table, each once: rows and how far the sources were read are one commit."""

    name: str
    reads: str
    table: str
    format: str = "parquet"
    partition_by: Sequence[str] = ()
    catalog: str = DEFAULT_CATALOG
    """The name of an Iceberg catalog in pyiceberg's configuration."""
    options: Mapping[str, str] = field(default_factory=dict)
    """deltalake's storage options, or pyiceberg's properties."""
    keep_snapshots: int | None = None
    """How many snapshots of an Iceberg table are kept; all, unless it is said."""
    checkpoint: str | None = None
    place: Place = field(default_factory=here, compare=False, repr=False)


Source = TopicSource | FileSource
Step = SqlStep | FunctionStep
Sink = TopicSink | TableSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Sources, steps and sinks that belong together. Its name stands in the tables that it fills: keep it."""

    name: str
    sources: Sequence[Source]
    steps: Sequence[Step] = ()
    sinks: Sequence[Sink]
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Properties of Kafka's clients, `bootstrap.servers` among them."""
    trigger: str = "10s"
    """How often a batch is made, or `available-now`."""
    checkpoints: str | None = None
    """A folder for Spark's checkpoints, one in it for each sink that names none."""
    metrics: str | None = PIPELINE_METRICS
    """A topic that gets a JSON record for every batch; none if it is empty."""
    place: Place = field(default_factory=here, compare=False, repr=False)

    @property
    def folder(self) -> Path:
        """What relative paths are relative to: the folder of the file."""
        return self.place.file.absolute().parent

    def located(self, path: str) -> str:
        """A path as it is from anywhere; addresses like `s3://...` and names of tables stay."""
        return path if "://" in path else str(self.folder / path)

    def table(self, sink: TableSink) -> str:
        """Where a sink's table is: a path, or for Iceberg the name in a catalog, as `sales.orders`."""
        in_catalog = sink.format == "iceberg" and is_in_catalog(sink.table)
        return sink.table if in_catalog else self.located(sink.table)

    def query(self, sink: Sink) -> str:
        """The name of a sink's query, which is also its consumer group."""
        return f"{self.name}.{sink.name}"

    def target(self, sink: Sink) -> str:
        """What a sink writes, for people."""
        if isinstance(sink, TopicSink):
            return f"topic {sink.topic}"
        return f"{sink.format} {self.table(sink)}"

    def checkpoint(self, sink: Sink) -> str | None:
        """Where Spark keeps the checkpoint of a sink's query; None if nobody said."""
        if sink.checkpoint is not None:
            return self.located(sink.checkpoint)
        return None if self.checkpoints is None else self.located(f"{self.checkpoints.rstrip('/')}/{sink.name}")


def with_changes(pipeline: Pipeline, *, trigger: str | None = None, kafka: Mapping[str, str] | None = None) -> Pipeline:
    """A pipeline with another trigger, or other properties of Kafka's clients, than its file says."""
    changes: dict[str, Any] = {}
    if trigger is not None:
        changes["trigger"] = trigger
    if kafka:
        changes["kafka"] = {**pipeline.kafka, **kafka}
    return replace(pipeline, **changes)
