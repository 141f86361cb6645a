"""Loads of topics to tables, with a real Spark and a real broker."""

from __future__ import annotations

import datetime
import json
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.errors import BrokerUnreachable
from barnabas.model.ids import TopicPartition
from barnabas.pipelines import load
from barnabas.pipelines.errors import DataLost, InvalidOption, OffsetOutOfRange, PipelineError, TopicMissing
from barnabas.pipelines.spark.cluster import ClusterView
from barnabas.pipelines.tables.errors import Fenced, ForeignTable, SchemaConflict, TopicReplaced
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.tables import content

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from barnabas.pipelines.loading.progress import LoadProgress, LoadReport, LoadTotals
    from barnabas.testing.kafka import Kafka

    Loader = Callable[..., LoadReport]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "lake" / "orders")


@pytest.fixture
def loads(spark: SparkSession, kafka: Kafka, place: str) -> Loader:
    """`load` with this test's broker, session and table."""

    def call(topic: str, **given: Any) -> LoadReport:
        merged: dict[str, Any] = {"to": place, "spark": spark, "bootstrap_servers": kafka.bootstrap_servers, **given}
        return load(topic, **merged)

    return call


def fill(kafka: Kafka, topic: str, start: int, end: int, partitions: int = 3) -> None:
    for partition in range(partitions):
        wanted = [{"n": n, "name": f"é{n}"} for n in range(start, end) if n % partitions == partition]
        kafka.send(topic, *wanted, partition=partition)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_becomes_a_table_and_goes_on_from_the_table_alone(
    loads: Loader, kafka: Kafka, place: str, kind: str
) -> None:
    topic = kafka.topic(partitions=3)
    fill(kafka, topic, 0, 100)
    seen: list[LoadProgress] = []
    report = loads(topic, format=kind, decode="json", max_offsets_per_commit=40, on_progress=seen.append)
    assert (report.records, report.dead) == (100, 0)
    assert report.commits == 3
    assert seen[-1].lag == 0
    assert seen[-1].records == 100
    fill(kafka, topic, 100, 120)
    assert loads(topic, format=kind, decode="json").records == 20
    assert loads(topic, format=kind, decode="json").records == 0
    rows = content(kind, place).to_pylist()
    assert sorted(row["n"] for row in rows) == list(range(120))
    assert {row["name"] for row in rows} == {f"é{n}" for n in range(120)}
    assert {(row["_partition"], row["_offset"]) for row in rows} == {(p, o) for p in range(3) for o in range(40)}
    assert {row["_topic"] for row in rows} == {topic}
    group = kafka.admin.group_offsets(f"load-{topic}")
    assert group == {TopicPartition(topic, partition): 40 for partition in range(3)}


@pytest.mark.parametrize("kind", FORMATS)
def test_bad_records_go_to_the_dead_letters_and_stop_nothing(
    loads: Loader, kafka: Kafka, place: str, kind: str
) -> None:
    topic, reports = kafka.topic(), kafka.topic()
    kafka.send(topic, {"n": 1}, b"{broken", {"n": 2, "more": [1.5]}, {"n": "text"}, key="k")
    report = loads(topic, format=kind, decode="json", metrics=reports)
    assert (report.records, report.dead) == (4, 2)
    (told,) = kafka.values(reports, 1)
    assert told is not None and json.loads(told)["letters"] == [[topic, 0, 1], [topic, 0, 3]]
    kafka.send(topic, {"n": 3})
    loads(topic, format=kind, decode="json")
    kafka.send(topic, {"n": {}, "more": 1})
    loads(topic, format=kind, decode="json")
    rows = sorted(content(kind, place).to_pylist(), key=lambda row: row["_offset"])
    assert [(row["_offset"], row["n"], row["more"]) for row in rows] == [(0, 1, None), (2, 2, [1.5]), (4, 3, None)]
    dead = sorted(content(kind, f"{place}_dead").to_pylist(), key=lambda row: row["offset"])
    assert [(row["offset"], row["key"], row["value"]) for row in dead] == [
        (1, b"k", b"{broken"),
        (3, b"k", b'{"n": "text"}'),
        (5, None, b'{"n": {}, "more": 1}'),
    ]
    assert dead[0]["reason"].startswith("not JSON")
    assert dead[1]["reason"] == "n: expected BIGINT, found the text 'text'"


def test_tasks_that_saw_different_types_agree(loads: Loader, kafka: Kafka, place: str) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, {"n": 1, "a": 1}, partition=0)
    kafka.send(topic, {"n": 2, "a": "text", "b": True}, {"n": 3, "b": False}, partition=1)
    report = loads(topic, format="delta", decode="json")
    assert report.dead == 1
    rows = sorted(content("delta", place).to_pylist(), key=lambda row: row["n"])
    assert [(row["n"], row["a"], row["b"]) for row in rows] == [(1, 1, None), (3, None, False)]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_by_day(loads: Loader, kafka: Kafka, place: str, kind: str) -> None:
    topic = kafka.topic()
    kafka.send(topic, {"n": 1}, {"n": 2})
    loads(topic, format=kind, decode="json", partition_by=["record_date"])
    kafka.send(topic, {"n": 3})
    loads(topic, format=kind, decode="json")
    rows = content(kind, place).to_pylist()
    assert sorted(row["n"] for row in rows) == [1, 2, 3]
    assert {str(row["record_date"]) for row in rows} <= {
        str(row["_timestamp"].astimezone(datetime.UTC).date()) for row in rows
    }


def test_a_promise_that_was_not_kept_is_kept_at_the_next_start(
    loads: Loader, kafka: Kafka, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barnabas.pipelines.loading.commits import LoadCommits

    topic = kafka.topic()
    kafka.send(topic, {"n": 1}, b"broken")
    with monkeypatch.context() as patch:
        real = LoadCommits.commit_round

        def dies(self: LoadCommits, *given: Any) -> LoadTotals:
            patch.setattr(LoadCommits, "deliver_letters", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            return real(self, *given)

        patch.setattr(LoadCommits, "commit_round", dies)
        with pytest.raises(KeyboardInterrupt):
            loads(topic, format="parquet", decode="json")
    assert loads(topic, format="parquet", decode="json").records == 0
    assert content("parquet", f"{place}_dead").column("value").to_pylist() == [b"broken"]
    assert loads(topic, format="parquet", decode="json").records == 0
    assert content("parquet", f"{place}_dead").num_rows == 1


def test_partitions_that_come_later_are_loaded_from_their_beginning(loads: Loader, kafka: Kafka, place: str) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, "before", partition=0)
    kafka.send(topic, "before", partition=1)
    assert loads(topic, starting_offsets="latest", decode="string").records == 0
    kafka.send(topic, "after", partition=0)
    assert loads(topic, starting_offsets="latest", decode="string").records == 1
    kafka.admin.create_partitions(topic, 3)
    kafka.producer().send(topic, "new", partition=2).result(60)
    kafka.send(topic, "after", partition=1)
    assert loads(topic, decode="string").records == 2
    assert sorted(content("parquet", place).column("value").to_pylist()) == ["after", "after", "new"]


def test_to_find_that_there_is_nothing_takes_no_spark(
    loads: Loader, kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.topic()
    kafka.send(topic, "one")
    loads(topic)
    monkeypatch.setattr(
        "barnabas.pipelines.loading.spark.LoadSpark._start", lambda *_: pytest.fail("Spark was started")
    )
    assert loads(topic, spark=None).records == 0


def test_a_group_that_cannot_be_told_stops_no_load(
    loads: Loader, kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def silence(*_: object, **__: object) -> None:
        raise BrokerUnreachable("nobody answers")

    topic = kafka.topic()
    kafka.send(topic, "one")
    monkeypatch.setattr(ClusterView, "commit", silence)
    assert loads(topic).records == 1
    assert "does not show the progress of the load: nobody answers" in caplog.text


@pytest.mark.parametrize("kind", FORMATS)
def test_a_topic_that_was_made_again_is_refused(loads: Loader, kafka: Kafka, place: str, kind: str) -> None:
    topic = kafka.topic("again")
    kafka.send(topic, "one")
    loads(topic, format=kind)
    kafka.admin.delete_topics([topic])
    kafka.topic("again")
    kafka.send(topic, "one", "two")
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        loads(topic, format=kind)
    assert content(kind, place).num_rows == 1


def test_wrong_input_is_refused_before_anything_is_written(
    loads: Loader, kafka: Kafka, place: str, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.send(topic, {"n": 1})
    with pytest.raises(TopicMissing, match=r"nothing"):
        loads(f"{kafka.prefix}.nothing")
    with pytest.raises(InvalidOption, match="did you mean json"):
        loads(topic, decode="jsno")
    with pytest.raises(PipelineError, match="did you mean delta"):
        loads(topic, format="delat")
    with pytest.raises(OffsetOutOfRange, match="offset 7 of"):
        loads(topic, starting_offsets=json.dumps({topic: {"0": 7}}))
    with pytest.raises(InvalidOption, match="starting offsets are earliest, latest, or JSON"):
        loads(topic, starting_offsets="first")
    with pytest.raises(SchemaConflict, match='no column "day" to partition by; the rows have _topic'):
        loads(topic, partition_by=["day"])
    assert not (tmp_path / "lake").exists() or not list((tmp_path / "lake").rglob("*.parquet*"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_of_another_topic_is_refused(loads: Loader, kafka: Kafka, place: str, kind: str) -> None:
    one, other = kafka.topic(), kafka.topic()
    kafka.send(one, {"n": 1})
    kafka.send(other, {"n": 2})
    loads(one, format=kind, name="mine", decode="json")
    with pytest.raises(ForeignTable, match=f"holds the topic {one}, not {other}"):
        loads(other, format=kind, name="mine", decode="json")
    with pytest.raises(ForeignTable, match='belongs to the pipeline "mine"'):
        loads(one, format=kind, name="yours", decode="json")
    with pytest.raises(SchemaConflict, match='"n" is int64'):
        loads(one, format=kind, name="mine", decode="json", schema="n STRING")
    assert content(kind, place).num_rows == 1


def test_records_that_are_gone_stop_a_load_unless_it_may_go_on(loads: Loader, kafka: Kafka, place: str) -> None:
    topic = kafka.topic()
    kafka.send(topic, "1", "2")
    loads(topic, decode="string")
    kafka.send(topic, "3", "4", "5")
    kafka.admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(DataLost, match="2 offsets were removed before they were loaded"):
        loads(topic, decode="string")
    assert loads(topic, decode="string", fail_on_data_loss=False).records == 1
    assert sorted(content("parquet", place).column("value").to_pylist()) == ["1", "2", "5"]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_second_of_two_jobs_is_refused_or_fenced(loads: Loader, kafka: Kafka, place: str, kind: str) -> None:
    """The other job works while this one's tasks run: between its look and its commit."""
    topic = kafka.topic()
    kafka.send(topic, *map(str, range(10)))
    loads(topic, format=kind, decode="string")
    kafka.send(topic, *map(str, range(10, 20)))

    meddled: list[LoadProgress] = []

    def meddle(progress: LoadProgress) -> None:
        meddled.append(progress)
        if len(meddled) > 1:
            return
        if kind == "parquet":
            with pytest.raises(Fenced, match="lock is held"):
                loads(topic, format=kind, decode="string")
        else:
            loads(topic, format=kind, decode="string")

    if kind == "parquet":
        loads(topic, format=kind, decode="string", on_progress=meddle)
    else:
        with pytest.raises(Fenced, match="another job has just loaded the same records"):
            loads(topic, format=kind, decode="string", on_progress=meddle)
    assert meddled
    assert sorted(content(kind, place).column("value").to_pylist(), key=int) == [str(n) for n in range(20)]


def test_transactions_that_were_aborted_leave_no_rows(loads: Loader, kafka: Kafka, place: str) -> None:
    topic = kafka.topic()
    producer = kafka.producer(transactional_id=kafka.name("tx"))
    for number, good in enumerate((True, False, True)):
        try:
            with producer.transaction():
                producer.send(topic, str(number))
                if not good:
                    producer.flush()
                    raise LookupError
        except LookupError:
            continue
    assert loads(topic, decode="string").records == 2
    assert sorted(content("parquet", place).column("value").to_pylist()) == ["0", "2"]
    with open_table(place, "parquet") as table:
        position = table.position(f"load-{topic}")
        assert position is not None
        assert position.offsets[TopicPartition(topic, 0)] == 6
