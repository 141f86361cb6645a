"""Epochs of an exactly-once sink that run again, as Spark would run them, with a real broker and without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from barnabas.clients.errors import RequestRefused
from barnabas.pipelines.errors import MarkerRefused, NotWritten, ReplayChecked
from barnabas.pipelines.spark.write.markers import TaskOfEpoch, Verdict
from barnabas.pipelines.spark.write.options import sink_options
from barnabas.pipelines.spark.write.rows import SinkRecord
from barnabas.pipelines.spark.write.stream import StreamWriter, TaskCommit, send_once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.testing.kafka import Kafka


class Sink:
    """A query whose tasks are run one by one."""

    def __init__(self, kafka: Kafka, **options: str) -> None:
        self.kafka, self.topic = kafka, kafka.topic()
        servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
        self._options = sink_options(servers | {"topic": self.topic, "deliveryGuarantee": "exactly-once"} | options)
        self._writer = StreamWriter(self._options, StructType([StructField("value", BinaryType())]))

    def task(self, run: str, epoch: int, task: int, values: Iterable[str]) -> TaskCommit:
        records = (SinkRecord(self.topic, None, value.encode(), None, -1) for value in values)
        return send_once(records, self._options, TaskOfEpoch(self.kafka.prefix, run, epoch, task))

    def epoch(self, run: str, epoch: int, *tasks: str) -> list[Verdict | None]:
        done = [self.task(run, epoch, number, values) for number, values in enumerate(tasks)]
        self._writer.commit(done, epoch)
        return [message.verdict for message in done]

    def written(self) -> str:
        return "".join(sorted(value or "" for value in self.kafka.values(self.topic)))


def test_an_epoch_that_was_written_in_part_is_compared_and_then_completed(kafka: Kafka) -> None:
    sink = Sink(kafka)
    assert sink.epoch("first", 0, "ab", "c") == [Verdict.WRITE, Verdict.WRITE]
    sink.task("first", 1, 1, "de")  # and the driver is killed
    with pytest.raises(ReplayChecked, match="start the query again"):
        sink.epoch("second", 1, "f", "de", "g")
    assert sink.written() == "abcde"
    sink.task("third", 1, 0, "f")  # and it is killed again
    assert sink.epoch("fourth", 1, "f", "ed", "g") == [Verdict.COMPARE, Verdict.COMPARE, Verdict.WRITE_SURVEYED]
    assert sink.epoch("fourth", 2, "h") == [Verdict.WRITE]
    assert sink.written() == "abcdefgh"
    assert sink.epoch("fifth", 2, "h") == [Verdict.SKIP]
    assert sink.written() == "abcdefgh"


@pytest.mark.parametrize(
    "layout",
    [("ab", "c", "d"), ("abcd",), ("", "abcd"), ("ab", "", "cd"), ("a", "bcd"), ("", "")],
    ids=["more tasks", "fewer tasks", "without the task", "another task", "other rows", "no rows"],
)
def test_a_replay_with_other_tasks_writes_nothing(kafka: Kafka, layout: tuple[str, ...]) -> None:
    sink = Sink(kafka)
    sink.task("first", 0, 1, "cd")
    with pytest.raises(MarkerRefused, match="number of tasks must not change"):
        sink.epoch("second", 0, *layout)
    assert sink.written() == "cd"


def test_a_surveyed_replay_with_other_tasks_writes_nothing(kafka: Kafka) -> None:
    sink = Sink(kafka)
    sink.task("first", 0, 0, "ab")
    with pytest.raises(ReplayChecked):
        sink.epoch("second", 0, "ab", "cd")
    for layout in (("ab", "c", "d"), ("ab", "", "cd"), ("abcd",)):
        with pytest.raises(MarkerRefused, match="number of tasks must not change"):
            sink.epoch("third", 0, *layout)
        assert sink.written() == "ab"
    assert sink.epoch("fourth", 0, "ab", "cd") == [Verdict.COMPARE, Verdict.WRITE_SURVEYED]
    assert sink.written() == "abcd"


@pytest.mark.parametrize("more", ["", "b", "b" * 2000], ids=["at its commit", "at its end", "on its way"])
def test_a_task_writes_nothing_after_another_attempt_of_it_began(kafka: Kafka, more: str) -> None:
    sink = Sink(kafka)

    def values() -> Iterator[str]:
        yield "a"
        sink.task("run", 0, 0, "a" + more)
        yield from more

    with pytest.raises(NotWritten, match=r"another attempt of the task has begun \(.*fenced"):
        sink.task("run", 0, 0, values())
    assert sink.written() == "a" + more


def test_a_transaction_that_no_broker_allows_is_refused_with_its_reason(kafka: Kafka) -> None:
    sink = Sink(kafka, **{"kafka.transaction.timeout.ms": "2147483647"})
    with pytest.raises(RequestRefused, match="timeout is larger than the maximum"):
        sink.task("run", 0, 0, "a")


def test_an_epoch_without_rows_is_noted_and_takes_no_note_back(kafka: Kafka) -> None:
    sink = Sink(kafka)
    assert sink.epoch("first", 0, "", "") == [None, None]
    sink.epoch("first", 1, "a", "b")
    sink.epoch("first", 2, "c", "")
    assert sink.epoch("second", 2, "", "") == [None, None], "it is written, and stays so"
    with pytest.raises(MarkerRefused, match="epochs up to 2 are written already"):
        sink.epoch("third", 1, "", "")
    with pytest.raises(MarkerRefused, match="epochs up to 2 are written already"):
        sink.epoch("third", 1, "", "b")
    with pytest.raises(MarkerRefused, match="no note that epoch 3 was written"):
        sink.epoch("third", 4, "", "")
    assert sink.epoch("third", 3, "", "d") == [None, Verdict.WRITE]
    assert sink.written() == "abcd"


def test_a_task_that_failed_before_its_commit_is_written_by_its_next_attempt(kafka: Kafka) -> None:
    sink = Sink(kafka)
    sink.epoch("run", 0, "a")
    sink.task("run", 1, 0, "b")
    assert sink.task("run", 1, 0, "b").verdict is Verdict.COMPARE, "its result was lost"
    with pytest.raises(MarkerRefused, match="had 1 rows before, and now has 2"):
        sink.task("run", 1, 0, "bc")
    assert sink.written() == "ab"
