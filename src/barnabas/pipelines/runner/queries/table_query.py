"""A table as the sink of a query: where the query begins, and what it does with each batch."""

from __future__ import annotations

import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from barnabas.pipelines.loading.dead_letters import check_letters, deliver
from barnabas.pipelines.runner.queries.checkpoints import Checkpoint
from barnabas.pipelines.runner.queries.exactly_once import check_checkpoint, check_kept_by_offsets, where_to_begin
from barnabas.pipelines.runner.queries.stateless import check_stateless
from barnabas.pipelines.runner.queries.table_sink import TableBatches, table_schema
from barnabas.pipelines.runner.queries.views import make_views
from barnabas.pipelines.spark.read.offsets import OffsetRange, to_text
from barnabas.pipelines.spec.flows import keeps_bad_records, selection_of
from barnabas.pipelines.tables.opening import dead_letters_location, open_table
from barnabas.pipelines.tables.rules import check_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import ExitStack

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from barnabas.model.ids import TopicPartition
    from barnabas.pipelines.spark.cluster import ClusterView
    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.spec.flows import Flow
    from barnabas.pipelines.spec.model import Pipeline, TableSink, TopicSource
    from barnabas.pipelines.tables.contract import Position
    from barnabas.pipelines.tables.notes import Note
    from barnabas.pipelines.tables.table import Table


def table_of(pipeline: Pipeline, sink: TableSink) -> Table:
    """The table of a sink, which need not be there yet. Raises TableError."""
    return _open(sink, pipeline.table(sink), sink.partition_by)


def dead_letters_of(pipeline: Pipeline, sink: TableSink) -> Table:
    """The table for rows that the table of a sink has no place for."""
    return _open(sink, dead_letters_location(pipeline.table(sink)))


def _open(sink: TableSink, location: str, partition_by: Sequence[str] = ()) -> Table:
    return open_table(
        location,
        sink.format,
        partition_by=partition_by,
        catalog=sink.catalog,
        options=sink.options,
        keep_snapshots=sink.keep_snapshots,
    )


class TableQuery:
    """Prepares the query of a table; what it opens is closed with `resources`."""

    def __init__(
        self,
        spark: SparkSession,
        cluster: ClusterView,
        pipeline: Pipeline,
        sink: TableSink,
        flow: Flow,
        resources: ExitStack,
        note: Callable[[int, Mapping[str, Any]], None],
    ) -> None:
        """Open the table; `note` is told what a batch's report has beside Spark's figures. Raises TableError."""
        self._note = note
        self._spark = spark
        self._cluster = cluster
        self._pipeline = pipeline
        self._sink = sink
        self._flow = flow
        self._resources = resources
        self._table: Table = resources.enter_context(table_of(pipeline, sink))
        self._table.claim()
        self._dead: Table | None = None
        # A load of this name may have promised letters, whatever the table is partitioned by.
        if self._table.partition_by or self._table.outbox(pipeline.name) is not None:
            self._dead = resources.enter_context(dead_letters_of(pipeline, sink))

    def writer(self) -> DataStreamWriter:
        """The query, ready to start. Raises TopicMissing, TableError, CheckpointRefused, SpecError."""
        # Letters are looked at first: those of another job, which it promised since, would be ahead of the table.
        letters = None if self._dead is None else self._dead.position(self._pipeline.name)
        note = self._table.own_note(self._pipeline.name)
        position = None if note is None else note.position
        checkpoint = Checkpoint(self._spark, self._checkpoint_location())
        if self._flow.by_offsets:
            check_kept_by_offsets(position, self._table.location)
        else:
            check_checkpoint(position, checkpoint, self._table.location)
        begun = {source.name: self._begun(source, position) for source in self._flow.topics}
        everywhere = {place: offset for offsets in begun.values() for place, offset in offsets.items()}
        topic_ids = self._cluster.topic_ids(sorted({place.topic for place in everywhere}))
        if position is not None:
            check_topics(position, topic_ids, self._table.location)
        self._deliver(letters, note, topic_ids)
        if self._flow.by_offsets:
            starts = {name: to_text(offsets) for name, offsets in begun.items()}
        else:
            starts = {source.name: source.start for source in self._flow.topics}
        frame = make_views(self._spark, self._pipeline, self._sink, self._flow, starts)
        check_stateless(frame, self._sink, self._flow)
        schema = table_schema(frame)
        if self._flow.by_offsets:
            self._pin(begun, position, topic_ids, schema)
        batches = TableBatches(
            self._table,
            self._dead,
            self._pipeline.name,
            checkpoint,
            schema,
            begun=everywhere,
            topic_ids=self._cluster.topic_ids,
            by_offsets=self._flow.by_offsets,
            is_bad=keeps_bad_records(self._pipeline, self._sink),
            note=self._note,
        )
        return frame.writeStream.foreachBatch(batches).option("checkpointLocation", checkpoint.address)

    def _deliver(self, letters: Position | None, note: Note | None, topic_ids: Mapping[str, str]) -> None:
        """Give the dead-letter table what the last run promised it. Raises ForeignTable if it is another table's."""
        if self._dead is None:
            return
        known = topic_ids if note is None else {**note.topic_ids, **topic_ids}
        check_letters(None if note is None else note.position, letters, known, self._dead.location)
        deliver(None if note is None else note.outbox, self._dead, self._pipeline.name, known)

    def _checkpoint_location(self) -> str:
        """The one that was named; where offsets say everything, a folder that lives as long as the run."""
        if self._flow.by_offsets:
            folder = tempfile.mkdtemp(prefix="barnabas-checkpoint-")
            self._resources.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder
        location = self._pipeline.checkpoint(self._sink)
        assert location is not None, "the check has seen to it"
        return location

    def _begun(self, source: TopicSource, position: Position | None) -> dict[TopicPartition, int]:
        partitions = self._cluster.partitions(selection_of(source))
        edge = self._cluster.earliest if source.start == "earliest" else self._cluster.latest
        return where_to_begin(partitions, position, edge(partitions), by_pattern=source.pattern is not None)

    def _pin(
        self,
        begun: Mapping[str, Offsets],
        position: Position | None,
        topic_ids: Mapping[str, str],
        schema: pa.Schema,
    ) -> None:
        """Note where sources begin that begin at the end: a restart before their first rows would begin elsewhere."""
        late = [begun[source.name] for source in self._flow.topics if source.start != "earliest"]
        ranges = [
            OffsetRange(*place, offset, offset)
            for offsets in late
            for place, offset in sorted(offsets.items())
            if position is None or place not in position.offsets
        ]
        if ranges or (late and position is None):
            ids = {each.topic: topic_ids[each.topic] for each in ranges}
            self._table.evolve(schema)
            after = 0 if position is None else position.version
            self._table.commit(self._pipeline.name, ranges, ids, [], schema, after=after)
