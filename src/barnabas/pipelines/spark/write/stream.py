"""`df.writeStream.format("barnabas")`: rows of a stream to topics, at least once or exactly once.

Exactly once, a task's rows are one transaction, together with a note that they are written (`markers`): readers of
committed data see them once, however often Spark runs the epoch. The driver's part is only to note that an epoch is
done. `abort` does nothing at all: Spark calls it also after a commit that may have succeeded.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from barnabas.pipelines.errors import MarkerRefused, ReplayChecked
from barnabas.pipelines.spark.write.marker_groups import MarkerGroup, read_note, task_notes
from barnabas.pipelines.spark.write.markers import (
    EpochNote,
    TaskNote,
    TaskOfEpoch,
    Verdict,
    approval_of,
    check_replay,
    compare,
    earlier_writers,
    group_of,
    replay_verdict,
    verdict,
)
from barnabas.pipelines.spark.write.rows import FingerprintSum, check_schema, outgoing
from barnabas.pipelines.spark.write.sending import RecordSender, send_plainly

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from barnabas.pipelines.spark.write.options import SinkOptions
    from barnabas.pipelines.spark.write.rows import SinkRecord


QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
BATCH_ID: Final = "streaming.sql.batchId"
"""Properties that Spark gives to the tasks of a stream; a run is also a group of jobs, which can be cancelled."""


@dataclass(frozen=True)
class TaskCommit(WriterCommitMessage):
    """What a task tells the driver."""

    task: TaskOfEpoch | None = None
    """Who it was, if it writes exactly once."""
    verdict: Verdict | None = None
    """What it did; None if it had no rows."""
    new_run: bool = False
    """Whether the epoch before was written by another run of the query: then this one may be a replay."""


@dataclass(frozen=True)
class MarkerFindings:
    """What the notes say about a task."""

    verdict: Verdict
    expected: TaskNote | None
    """What its rows have to be, if that is known."""
    new_run: bool


class StreamWriter(DataSourceStreamArrowWriter):
    """For `df.writeStream`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskCommit:
        """Send a task's rows."""
        records = outgoing(iterator, self._options.topic)
        if self._options.exactly_once:
            return send_once(records, self._options, this_task())
        send_plainly(records, self._options.client)
        return TaskCommit()

    def commit(self, messages: Sequence[WriterCommitMessage | None], batch_id: int) -> None:
        """Note that the epoch is done. Raises MarkerRefused, or ReplayChecked if it has to be replayed once more."""
        done = [message for message in messages if isinstance(message, TaskCommit)]
        if not self._options.exactly_once or not done or (first := done[0].task) is None:
            return
        if not any(message.verdict for message in done):
            done = [without_rows(first, self._options.client)]
        query, run = first.query, first.run
        what = {message.task.task: message.verdict for message in done if message.task is not None}
        if Verdict.SKIP in what.values():
            return
        note = EpochNote(batch_id, run, len(messages))
        if any(message.new_run for message in done):
            self._check_replay(query, note, what)
        if Verdict.SURVEY in what.values():
            self._write(approval_of(query), note)
            raise ReplayChecked(
                f"epoch {batch_id} of query {query} was written in part before. That part was compared, and all is "
                "well: start the query again, and it writes the rest"
            )
        self._write(group_of(query), note)

    def _check_replay(self, query: str, note: EpochNote, what: Mapping[int, Verdict | None]) -> None:
        client = self._options.client
        compared = {task for task, verdict in what.items() if verdict is Verdict.COMPARE}
        before = earlier_writers(task_notes(query, client), note.epoch, note.run)
        approval = read_note(EpochNote, approval_of(query), client)
        check_replay(query, note.epoch, before - compared, note.tasks, approval)

    def _write(self, group: str, note: EpochNote) -> None:
        with MarkerGroup(group, self._options.client) as marker:
            marker.write(note.epoch + 1, note.text())


def send_once(records: Iterator[SinkRecord], options: SinkOptions, task: TaskOfEpoch) -> TaskCommit:
    """Send records in one transaction, unless they were sent before. Raises MarkerRefused."""
    first = next(records, None)
    if first is None:
        return TaskCommit(task)
    with MarkerGroup(task.name, options.client) as own, RecordSender(options.client, task.name) as sender:
        sender.transactions.begin()
        found = look(task, options.client)
        tally = FingerprintSum()
        for record in chain((first,), records):  # all of them, also where they are not needed: Spark waits for that
            tally.add(record)
            if found.verdict.writes:
                sender.send(record)
        note = TaskNote(task.epoch, task.run, tally.fingerprint())
        if found.expected is not None:
            compare(task, found.expected, note.fingerprint)
        if found.verdict.writes:
            sender.commit_with(own.place(task.epoch + 1, note.text()), own.metadata())
        else:
            sender.transactions.abort()
    if found.verdict is Verdict.SURVEY:
        with MarkerGroup(task.survey, options.client) as survey:
            survey.write(task.epoch + 1, note.text())
    return TaskCommit(task, found.verdict, found.new_run)


def look(task: TaskOfEpoch, client: Mapping[str, str]) -> MarkerFindings:
    """What the notes say, when the transactional id is ours already. Raises MarkerRefused."""
    last, own = read_note(EpochNote, group_of(task.query), client), read_note(TaskNote, task.name, client)
    what = verdict(task, last, own)
    new_run = last is None or last.run != task.run
    if what is not Verdict.WRITE:
        return MarkerFindings(what, own if what is Verdict.COMPARE else None, new_run)
    if not new_run or not earlier_writers(task_notes(task.query, client), task.epoch, task.run):
        return MarkerFindings(what, None, new_run)
    survey = read_note(TaskNote, task.survey, client)
    what = replay_verdict(task, read_note(EpochNote, approval_of(task.query), client), survey)
    return MarkerFindings(what, survey if what is Verdict.WRITE_SURVEYED else None, new_run)


def without_rows(task: TaskOfEpoch, client: Mapping[str, str]) -> TaskCommit:
    """What a task would tell of an epoch in which none has rows, so that none has looked. Raises MarkerRefused."""
    last = read_note(EpochNote, group_of(task.query), client)
    return TaskCommit(task, verdict(task, last, None), last is None or last.run != task.run)


def this_task() -> TaskOfEpoch:
    """What Spark calls the task that runs here."""
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    query, run, epoch = map(context.getLocalProperty, (QUERY_ID, RUN_ID, BATCH_ID))
    if query is None or run is None or epoch is None:
        raise MarkerRefused("Spark does not tell the task which query, run and batch it belongs to")
    return TaskOfEpoch(query, run, int(epoch), context.partitionId())
