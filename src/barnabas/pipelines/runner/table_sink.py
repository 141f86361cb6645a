"""One batch of a query into a table: executors write files, the driver commits them with the batch's key.

A batch that is in the table already is not written again. Where the query keeps state it runs all the same, for its
nothing: Spark's state of a batch is made by running it, and the next batch needs it.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from barnabas.pipelines.runner.keeping import BatchKey, key_of
from barnabas.pipelines.tables.contract import Outcome
from barnabas.pipelines.tables.errors import Fenced
from barnabas.pipelines.tables.rules import advance
from barnabas.pipelines.tables.schemas import plain_schema
from barnabas.pipelines.tables.writing import write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from barnabas.pipelines.offsets import Offsets
    from barnabas.pipelines.runner.checkpoints import Checkpoint
    from barnabas.pipelines.tables.contract import DataFile
    from barnabas.pipelines.tables.destinations import Destination
    from barnabas.pipelines.tables.table import Table


class TableBatches:
    """What `foreachBatch` calls."""

    def __init__(
        self,
        table: Table,
        pipeline: str,
        checkpoint: Checkpoint,
        schema: pa.Schema,
        *,
        begun: Offsets,
        topic_ids: Callable[[Iterable[str]], dict[str, str]],
        by_offsets: bool,
    ) -> None:
        self._table = table
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._schema = schema
        self._begun = begun
        self._topic_ids = topic_ids
        self._by_offsets = by_offsets

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch and commit it. Raises TableError, and then the batch is not in the table."""
        key = self._key(batch)
        if not key.ranges:  # nothing was read, and nothing is remembered: where batches are counted there is a range
            return
        if self._is_there(key):
            if not self._by_offsets:
                frame.write.format("noop").mode("overwrite").save()
            return
        self._table.evolve(self._schema)
        destination = self._table.destination()
        destination.check_partition_columns(self._schema)
        files = written(frame, destination)
        outcome = self._table.commit(self._pipeline, key.ranges, key.topic_ids, files, self._schema)
        if outcome is Outcome.ALREADY:
            raise Fenced.by_twin(self._table.location, self._pipeline)

    def _key(self, batch: int) -> BatchKey:
        topics = {partition.topic for partition in self._checkpoint.offsets(batch) or {}}
        ids = self._topic_ids(sorted(topics))
        return key_of(batch, self._checkpoint, self._begun, ids, by_offsets=self._by_offsets)

    def _is_there(self, key: BatchKey) -> bool:
        position = self._table.position(self._pipeline)
        if position is None:
            return False
        return advance(position, key.ranges, key.topic_ids, self._table.location) is None


def table_schema(frame: DataFrame) -> pa.Schema:
    """The columns that a table of these rows has; Spark tells Arrow types with rows only, so it gives none."""
    return plain_schema(frame.sparkSession.createDataFrame([], frame.schema).toArrow().schema)


def written(frame: DataFrame, destination: Destination) -> list[DataFile]:
    """Have executors write the rows of a frame as files for a table."""
    rows = frame.mapInArrow(_writer(destination), "files BINARY").collect()
    return [file for row in rows for file in pickle.loads(row[0])]


def _writer(destination: Destination) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        yield pa.record_batch({"files": pa.array([pickle.dumps(write_files(batches, destination))], pa.binary())})

    return write
