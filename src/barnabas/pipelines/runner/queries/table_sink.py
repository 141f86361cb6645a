"""One batch of a query into a table: executors write files, the driver commits them with the batch's key.

A batch that is in the table already is not written again. Where the query keeps state it runs all the same, for its
nothing: Spark's state of a batch is made by running it, and the next batch needs it.

Rows that the table has no place for are promised to the table of dead letters in the same commit, and delivered after
it, as a load does (`loading.dead_letters`). What was promised is delivered before the next commit, whoever made it.
"""

from __future__ import annotations

import logging
import pickle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from barnabas.pipelines.decode.contract import FEW_LETTERS, REPORTED_LETTERS, Place, places_of, without
from barnabas.pipelines.loading.dead_letters import deliver, promise
from barnabas.pipelines.runner.queries.exactly_once import BatchKey, key_of
from barnabas.pipelines.runner.queries.letters import to_letters
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.contract import BATCHES, CommitOutcome
from barnabas.pipelines.tables.errors import Fenced, TopicReplaced
from barnabas.pipelines.tables.files.schemas import plain_schema
from barnabas.pipelines.tables.files.unfit import unfit_rows
from barnabas.pipelines.tables.files.writing import TableWriter, write_files
from barnabas.pipelines.tables.rules import advance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from barnabas.pipelines.runner.queries.checkpoints import Checkpoint
    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.tables.contract import DataFile, TableOutbox
    from barnabas.pipelines.tables.files.destinations import Destination
    from barnabas.pipelines.tables.table import Table

log: Final = logging.getLogger("barnabas.pipelines")


class WrittenFiles(NamedTuple):
    """Files of rows, and of rows that have no place among them."""

    files: Sequence[DataFile]
    dead_files: Sequence[DataFile] = ()
    letters: Sequence[Place] = ()
    """Where the records are of some rows that became dead letters, if the rows tell."""


class TableBatches:
    """What `foreachBatch` calls. A table that has a place for every row has no table of dead letters (`dead`)."""

    def __init__(
        self,
        table: Table,
        dead: Table | None,
        pipeline: str,
        checkpoint: Checkpoint,
        schema: pa.Schema,
        *,
        begun: Offsets,
        topic_ids: Callable[[Iterable[str]], dict[str, str]],
        by_offsets: bool,
        is_bad: bool = False,
        note: Callable[[int, Mapping[str, Any]], None] = lambda _, __: None,
    ) -> None:
        """`is_bad`: rows are records that could not be decoded, so each is a dead letter.

        `note` is told of each batch what its report has beside Spark's figures.
        """
        self._table = table
        self._dead = dead
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._schema = schema
        self._begun = begun
        self._topic_ids = topic_ids
        self._by_offsets = by_offsets
        self._is_bad = is_bad
        self._note = note

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Write a batch and commit it. Raises TableError, and then the batch is not in the table."""
        key = self._key(batch)
        if not key.ranges:  # nothing was read, and nothing is remembered: where batches are counted there is a range
            return
        note = self._table.own_note(self._pipeline)
        if note is not None:
            self._deliver(note.outbox, note.topic_ids)
            if advance(note.position, key.ranges, key.topic_ids, self._table.location) is None:
                if not self._by_offsets:
                    frame.write.format("noop").mode("overwrite").save()
                return
        self._table.evolve(self._schema)
        destination = self._table.destination()
        destination.check_partition_columns(self._schema)
        dead = None if self._dead is None else self._dead.destination()
        done = written(frame, destination, dead, is_bad=self._is_bad)
        self._check_topics(key)
        known = {} if note is None else note.offsets
        self._commit(self._with_begun(key, known), done, after=0 if note is None else note.version)
        self._note(batch, self._report(done))

    def _report(self, done: WrittenFiles) -> dict[str, Any]:
        """What the report of a batch has of its files, and of its dead letters where they are."""
        lost = sum(file.rows for file in (*done.dead_files, *(done.files if self._is_bad else ())))
        beside = None if self._dead is None else self._dead.location
        return {
            "files": len(done.files),
            "dead_letters": lost,
            "letters": done.letters[:REPORTED_LETTERS],
            "letters_table": self._table.location if self._is_bad else beside,
        }

    def _check_topics(self, key: BatchKey) -> None:
        """Raise TopicReplaced if what was read may be of another topic than the one that the commit would name."""
        topics = sorted(key.topic_ids.keys() - {BATCHES.topic})
        for topic, now in self._topic_ids(topics).items():
            if now != key.topic_ids[topic]:
                raise TopicReplaced.meanwhile(topic, self._table.location)

    def _with_begun(self, key: BatchKey, known: Offsets) -> BatchKey:
        """The key with where partitions begin that gave no records yet: one that a table does not know is a new one."""
        if not self._by_offsets:
            return key
        noted = {*known, *(each.place for each in key.ranges)}
        empty = [
            OffsetRange(*place, offset, offset)
            for place, offset in sorted(self._begun.items())
            if place not in noted and place.topic in key.topic_ids
        ]
        return BatchKey([*key.ranges, *empty], key.topic_ids)

    def _commit(self, key: BatchKey, done: WrittenFiles, *, after: int) -> None:
        outbox = None if self._dead is None else promise(self._dead, self._pipeline, key.ranges, done.dead_files)
        outcome = self._table.commit(
            self._pipeline,
            key.ranges,
            key.topic_ids,
            done.files,
            self._schema,
            outbox=outbox,
            after=after,
        )
        if outcome is CommitOutcome.ALREADY:
            raise Fenced.by_twin(self._table.location, self._pipeline)
        if outbox is not None and self._dead is not None:
            self._deliver(outbox, key.topic_ids)
            count = sum(file.rows for file in outbox.files)
            log.warning("%d rows do not fit into %s. They are in %s.", count, self._table.location, self._dead.location)

    def _deliver(self, promised: TableOutbox | None, topic_ids: Mapping[str, str]) -> None:
        """Give the dead-letter table what the last commit promised it, unless it has it."""
        if self._dead is not None:
            deliver(promised, self._dead, self._pipeline, topic_ids)

    def _key(self, batch: int) -> BatchKey:
        topics = {partition.topic for partition in self._checkpoint.offsets(batch) or {}}
        ids = self._topic_ids(sorted(topics))
        return key_of(batch, self._checkpoint, self._begun, ids, by_offsets=self._by_offsets)


def table_schema(frame: DataFrame) -> pa.Schema:
    """The columns that a table of these rows has; Spark tells Arrow types with rows only, so it gives none."""
    return plain_schema(frame.sparkSession.createDataFrame([], frame.schema).toArrow().schema)


def written(frame: DataFrame, rows: Destination, dead: Destination | None, *, is_bad: bool = False) -> WrittenFiles:
    """Have executors write the rows of a frame as files for a table, and the others as files of dead letters."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
        yield pa.record_batch(
            {"written": pa.array([pickle.dumps(write_rows(batches, rows, dead, is_bad=is_bad))], pa.binary())}
        )

    done: list[WrittenFiles] = [pickle.loads(row[0]) for row in frame.mapInArrow(write, "written BINARY").collect()]
    return WrittenFiles(
        [file for each in done for file in each.files],
        [file for each in done for file in each.dead_files],
        [place for each in done for place in each.letters],
    )


def write_rows(
    batches: Iterable[pa.RecordBatch], rows: Destination, dead: Destination | None, *, is_bad: bool = False
) -> WrittenFiles:
    """What one task does. A table that is partitioned by nothing has a place for every row."""
    places: list[Place] = []
    if is_bad:
        batches = _noting(batches, places)
    if dead is None:
        return WrittenFiles(write_files(batches, rows), letters=places)
    with TableWriter(rows) as fitting, TableWriter(dead) as letters:
        for batch in batches:
            unfit = unfit_rows(batch, rows)
            fitting.write(without(batch, unfit))
            if unfit:
                found = to_letters(batch, unfit)
                letters.write(found)
                places += places_of(found, FEW_LETTERS - len(places))
        return WrittenFiles(fitting.finish(), letters.finish(), places)


def _noting(batches: Iterable[pa.RecordBatch], places: list[Place]) -> Iterator[pa.RecordBatch]:
    """The same rows, of which the first say where their records are."""
    for batch in batches:
        if len(places) < FEW_LETTERS:
            few = batch.slice(0, FEW_LETTERS)
            places += places_of(to_letters(few, dict.fromkeys(range(few.num_rows), "")), FEW_LETTERS - len(places))
        yield batch
