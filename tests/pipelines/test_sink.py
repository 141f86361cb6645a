"""`df.write` and `df.writeStream.format("barnabas")` with a real Spark and a real broker."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException, StreamingQueryException

from barnabas.pipelines.errors import NotWritten
from barnabas.pipelines.spark.write.markers import group_of
from barnabas.pipelines.spark.write.options import sink_options
from barnabas.pipelines.spark.write.rows import SinkRecord
from barnabas.pipelines.spark.write.sending import send_plainly
from tests.support.spark import Running, read_stream, texts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from barnabas.testing.kafka import Kafka


def write(frame: DataFrame, kafka: Kafka, mode: str = "append", **options: object) -> None:
    writer = frame.write.format("barnabas").mode(mode).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.options(**texts(options)).save()


def pipe(frame: DataFrame, kafka: Kafka, checkpoint: Path, mode: str = "append", **options: object) -> str:
    """Write what a stream has now, wait until it is done, and return the id of the query."""
    writer = frame.writeStream.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = writer.outputMode(mode).option("checkpointLocation", str(checkpoint)).options(**texts(options))
    running = Running(writer.trigger(availableNow=True).start)
    running.finish()
    return str(running.query.id)


def forget(kafka: Kafka, *groups: str) -> None:
    """What the cluster does with the offsets of a group when they expire."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_consumer_groups(list(groups)).values():
        future.result(30)


def test_rows_of_a_batch_become_records(spark: SparkSession, kafka: Kafka) -> None:
    first, second = kafka.topic(partitions=2), kafka.topic(partitions=2)
    rows: list[Any] = [
        (b"k", b"a", [("h", b"1"), ("h", None)], first, 1),
        (None, b"b", None, second, 0),
        (b"k", None, [], second, 1),
    ]
    schema = "key BINARY, value BINARY, headers ARRAY<STRUCT<key: STRING, value: BINARY>>, topic STRING, partition INT"
    write(spark.createDataFrame(rows, schema).coalesce(1), kafka)
    found = [(r.topic, r.partition, r.key, r.value, list(r.headers)) for t in (first, second) for r in kafka.records(t)]
    assert sorted(found, key=str) == sorted(
        [
            (first, 1, b"k", b"a", [("h", b"1"), ("h", None)]),
            (second, 0, None, b"b", []),
            (second, 1, b"k", None, []),
        ],
        key=str,
    )


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (
            {"value": b"x" * 5000},
            {},
            r"\d records did not arrive, the first one because: record for .*: .*size too large",
        ),
        ({"partition": 7}, {}, r"1 records did not arrive, the first one because: record for .*: .*Unknown partition"),
        ({"value": b"x" * 5000}, {"kafka.buffer.memory": "2048"}, r"topic .*: a record is larger than kafka\.buffer"),
    ],
    ids=["for the topic", "partition", "for the buffer"],
)
def test_a_record_that_does_not_arrive_is_told_of(
    kafka: Kafka, change: dict[str, Any], options: dict[str, str], reason: str
) -> None:
    good = SinkRecord(kafka.topic(configs={"max.message.bytes": 1000}), None, b"good", None, -1)
    client = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers} | options).client
    with pytest.raises(NotWritten, match=reason):
        send_plainly([good, good._replace(**change)], client)


def test_an_exactly_once_stream_writes_each_row_once_however_often_an_epoch_runs(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, target, checkpoint = kafka.topic(partitions=2), kafka.topic(partitions=2), tmp_path / "checkpoint"
    wanted: dict[str, Any] = {"topic": target, "deliveryGuarantee": "exactly-once"}

    def copy(**options: object) -> str:
        frame = read_stream(spark, kafka, subscribe=source, startingOffsets="earliest", **options)
        return pipe(frame.select("key", "value"), kafka, checkpoint, **wanted)

    def written() -> list[int]:
        return sorted(int(value or -1) for value in kafka.values(target))

    kafka.send(source, *range(20), partition=0)
    copy(maxOffsetsPerTrigger=10)
    kafka.send(source, *range(20, 30), partition=0)
    kafka.send(source, *range(30, 40), partition=1)
    query = copy()
    assert written() == list(range(40))
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()  # Spark does not know that the epoch was finished, as if its driver had died just before that
    (checkpoint / "commits" / f".{last.name}.crc").unlink(missing_ok=True)
    copy()
    assert written() == list(range(40))

    forget(kafka, group_of(query))
    kafka.send(source, b"40", partition=0)
    with pytest.raises(StreamingQueryException, match=r"MarkerRefused: .*no note that epoch .* was written"):
        copy()
    assert written() == list(range(40))


def test_a_first_epoch_whose_notes_may_have_expired_is_refused(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, target, checkpoint = kafka.topic(), kafka.topic(), tmp_path / "checkpoint"
    kafka.send(source, b"a", b"b")
    frame = read_stream(spark, kafka, subscribe=source, startingOffsets="earliest").select("value")
    query = pipe(frame, kafka, checkpoint, topic=target, deliveryGuarantee="exactly-once")
    for name in ("0", ".0.crc"):
        (checkpoint / "commits" / name).unlink()
    forget(kafka, group_of(query), f"{group_of(query)}-0")
    began = (checkpoint / "offsets" / "0").stat().st_mtime - timedelta(days=8).total_seconds()
    os.utime(checkpoint / "offsets" / "0", (began, began))
    with pytest.raises(StreamingQueryException, match=r"MarkerRefused: the first epoch .* 8 days.* kept for 7 days"):
        pipe(frame, kafka, checkpoint, topic=target, deliveryGuarantee="exactly-once")
    assert kafka.values(target) == ["a", "b"]


def test_an_at_least_once_stream_in_complete_mode_and_rows_that_cannot_be_written(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, target = kafka.topic(), kafka.topic()
    kafka.send(source, b"a", b"b", b"a")
    frame = read_stream(spark, kafka, subscribe=source, startingOffsets="earliest").groupBy("value").count()
    rows = frame.selectExpr("value AS key", "concat(upper(string(value)), count) AS value").coalesce(1)
    pipe(rows, kafka, tmp_path / "checkpoint", "complete", topic=target)
    assert sorted(map(str, kafka.values(target))) == ["A2", "B1"]
    large = spark.createDataFrame([("too large" * 200_000,)], "value STRING")
    with pytest.raises(PySparkException, match="SinkRefused: nothing says where rows go"):
        write(large, kafka)
    with pytest.raises(PySparkException, match=f"NotWritten: topic {target}: .*too large"):
        write(large, kafka, topic=target)
    assert len(kafka.values(target)) == 2
