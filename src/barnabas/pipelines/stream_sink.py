"""`df.writeStream.format("barnabas")`: rows of a stream to topics, at least once or exactly once.

Exactly once, a task's rows are one transaction, together with a note that they are written (`markers`): readers of
committed data see them once, however often Spark runs the epoch. The driver's part is only to note that an epoch is
done. `abort` does nothing at all: Spark calls it also after a commit that may have succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.pipelines.errors import MarkerRefused
from barnabas.pipelines.marker_groups import MarkerGroup, groups_beginning_with
from barnabas.pipelines.markers import (
    EpochNote,
    TaskNote,
    TaskOfEpoch,
    Verdict,
    compare,
    group_of,
    strangers,
    verdict,
)
from barnabas.pipelines.sending import RecordSender, send_plainly
from barnabas.pipelines.sink_rows import Fingerprint, check_schema, outgoing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.pipelines.sink_options import SinkOptions
    from barnabas.pipelines.sink_rows import Outgoing


@dataclass(frozen=True)
class Sent(WriterCommitMessage):
    """What a task tells the driver."""

    task: TaskOfEpoch | None = None
    """Who it was, if it writes exactly once."""
    new_run: bool = False
    """Whether the epoch before was written by another run of the query: then this one may be a replay."""


class StreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send a task's rows."""
        records = outgoing(iterator, self._options.topic)
        if self._options.exactly_once:
            return send_once(records, self._options, this_task())
        send_plainly(records, self._options.client)
        return Sent()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Note that the epoch is done. Raises MarkerRefused if it had other tasks in an earlier attempt."""
        done = [message for message in messages if isinstance(message, Sent)]
        if not self._options.exactly_once or not done or done[0].task is None:
            return
        task = done[0].task
        if any(message.new_run for message in done):
            self._check_strangers(task.query, batch_id, len(messages))
        with MarkerGroup(group_of(task.query), self._options.client) as group:
            group.write(batch_id + 1, EpochNote(batch_id, len(messages), task.run).text())

    def _check_strangers(self, query: str, epoch: int, tasks: int) -> None:
        prefix = f"{group_of(query)}-"
        notes = []
        for name in groups_beginning_with(prefix, self._options.client):
            with MarkerGroup(name, self._options.client) as group:
                if (found := group.read()) is not None:
                    notes.append((int(name.removeprefix(prefix)), TaskNote.of(*found)))
        if others := strangers(notes, epoch, tasks):
            raise MarkerRefused(
                f"epoch {epoch} of query {query} has {tasks} tasks now, and in an earlier attempt tasks "
                f"{', '.join(map(str, others))} wrote rows of it too: they are in the topic twice. The number of tasks "
                "must not change between a failure and the restart"
            )


def send_once(records: Iterator[Outgoing], options: SinkOptions, task: TaskOfEpoch) -> Sent:
    """Send records in one transaction, unless they were sent before. Raises MarkerRefused."""
    first = next(records, None)
    if first is None:
        return Sent(task)
    with (
        MarkerGroup(group_of(task.query), options.client) as epochs,
        MarkerGroup(task.name, options.client) as own,
        RecordSender(options.client, task.name) as sender,
    ):
        sender.transactions.begin()
        last, before = _epoch_note(epochs), _task_note(own)
        what = verdict(task, last, before)
        fingerprint = Fingerprint()
        for record in chain((first,), records) if what is not Verdict.SKIP else ():
            fingerprint = fingerprint.with_record(record)
            if what is Verdict.WRITE:
                sender.send(record)
        if what is Verdict.WRITE:
            note = TaskNote(task.epoch, fingerprint)
            sender.commit_with(own.place(task.epoch + 1, note.text()), own.metadata())
        else:
            sender.transactions.abort()
            if what is Verdict.COMPARE and before is not None:
                compare(task, before, fingerprint)
    return Sent(task, new_run=last is None or last.run != task.run)


def this_task() -> TaskOfEpoch:
    """What Spark calls the task that runs here."""
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    query, epoch = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("streaming.sql.batchId")
    if query is None or epoch is None:
        raise MarkerRefused("Spark does not tell the task which query and which batch it belongs to")
    run = context.getLocalProperty("spark.jobGroup.id") or ""
    return TaskOfEpoch(query, run, int(epoch), context.partitionId())


def _epoch_note(group: MarkerGroup) -> EpochNote | None:
    found = group.read()
    return None if found is None else EpochNote.of(*found)


def _task_note(group: MarkerGroup) -> TaskNote | None:
    found = group.read()
    return None if found is None else TaskNote.of(*found)
