"""One sink of a pipeline as a streaming query that can be started, and started again after it ended."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn

from barnabas.pipelines.runner.listener import BatchListener
from barnabas.pipelines.runner.queries.checkpoints import Checkpoint
from barnabas.pipelines.runner.queries.exactly_once import check_topic_checkpoint
from barnabas.pipelines.runner.queries.table_query import TableQuery
from barnabas.pipelines.runner.queries.views import make_views
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.spark.session import register
from barnabas.pipelines.spec.durations import milliseconds
from barnabas.pipelines.spec.flows import flow_to
from barnabas.pipelines.spec.model import AVAILABLE_NOW, Pipeline, Sink, TableSink, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


STARTING: Final = ("Initializing StreamExecution", "Initializing sources")
"""What Spark says of a query that is still making its sources."""


class SinkQuery:
    """The query of one sink. It has a session of its own, so that views of other sinks may have the same names."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline, sink: Sink) -> None:
        self.name = pipeline.query(sink)
        self._spark = spark
        self._session: SparkSession | None = None
        """One for all runs: Spark keeps a session, and those who listen to it, for as long as it runs itself."""
        self._pipeline = pipeline
        self._sink = sink
        self._resources = ExitStack()
        self._running: StreamingQuery | None = None

    def start(self) -> None:
        """Start, where the last run ended. Raises PipelineError, and what Spark has against the query."""
        self.close()
        if self._session is None:
            self._session = self._spark.newSession()
            register(self._session)
        session = self._session
        cluster = self._resources.enter_context(ClusterView(self._pipeline.kafka))
        listener = BatchListener(self._pipeline.kafka, self._pipeline.metrics, cluster, self.name, self._about())
        self._resources.callback(listener.close)
        session.streams.addListener(listener)
        self._resources.callback(session.streams.removeListener, listener)
        writer = self._writer(session, cluster, listener).queryName(self.name)
        self._running = writer.trigger(**_trigger(self._pipeline.trigger)).start()
        self._resources.callback(listener.wait_for_last)

    def _about(self) -> dict[str, Any]:
        """What its reports say of it: the way from topics over steps to the sink."""
        flow = flow_to(self._pipeline, self._sink)
        sink = self._sink
        return {
            "kind": "pipeline",
            "pipeline": self._pipeline.name,
            "group": self.name,
            "topics": [name for each in flow.topics for name in each.topics or (f"/{each.pattern}/",)],
            "steps": [step.name for step in flow.steps],
            "sink": sink.table if isinstance(sink, TableSink) else sink.topic,
            "format": sink.format if isinstance(sink, TableSink) else "topic",
        }

    def _writer(self, session: SparkSession, cluster: ClusterView, listener: BatchListener) -> DataStreamWriter:
        flow = flow_to(self._pipeline, self._sink)
        if isinstance(self._sink, TableSink):
            resources = self._resources
            return TableQuery(session, cluster, self._pipeline, self._sink, flow, resources, listener.note).writer()
        location = self._pipeline.checkpoint(self._sink)
        assert location is not None, "the check has seen to it"
        checkpoint = Checkpoint(session, location)
        check_topic_checkpoint(cluster, checkpoint, self.name)
        starts = {source.name: source.start for source in flow.topics}
        frame = make_views(session, self._pipeline, self._sink, flow, starts)
        options = {f"kafka.{name}": value for name, value in self._pipeline.kafka.items()}
        return (
            encode_rows(frame, self._sink)
            .writeStream.format("barnabas")
            .options(**options, topic=self._sink.topic, deliveryGuarantee="exactly-once")
            .option("checkpointLocation", checkpoint.address)
            .outputMode(self._sink.mode)
        )

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self._running is not None and self._running.isActive

    @property
    def is_starting(self) -> bool:
        """Whether it runs, and is still making its sources."""
        return self._running is not None and self.is_active and self._running.status["message"] in STARTING

    @property
    def failure(self) -> BaseException | None:
        """Why it ended; None if it runs, or ended because everything was read."""
        return None if self._running is None else self._running.exception()

    @property
    def last_batch(self) -> int | None:
        """The number of the last batch that was finished in this run."""
        progress = None if self._running is None else self._running.lastProgress
        return None if progress is None else int(progress["batchId"])

    @property
    def is_between_batches(self) -> bool:
        """Whether nothing is under way that a stop would interrupt."""
        return self._running is None or not self._running.status["isTriggerActive"]

    def close(self) -> None:
        """Stop, and let go of what the run used."""
        if self._running is not None:
            self._running.stop()
            self._running = None
        self._resources.close()


def encode_rows(frame: DataFrame, sink: TopicSink) -> DataFrame:
    """The rows of a view as the columns that a topic takes."""
    if sink.encode == "raw":
        return frame
    value = fn.to_json(fn.struct("*")).alias("value")
    return (
        frame.select(value) if sink.key is None else frame.select(fn.col(sink.key).cast("string").alias("key"), value)
    )


def _trigger(text: str) -> dict[str, Any]:
    if text == AVAILABLE_NOW:
        return {"availableNow": True}
    return {"processingTime": f"{milliseconds(text)} milliseconds"}
