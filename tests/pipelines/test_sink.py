"""`df.write` and `df.writeStream.format("barnabas")` with a real Spark and a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.spark import read_stream, texts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from barnabas.testing.kafka import Kafka


def write(frame: DataFrame, kafka: Kafka, mode: str = "append", **options: object) -> None:
    writer = frame.write.format("barnabas").mode(mode).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.options(**texts(options)).save()


def pipe(frame: DataFrame, kafka: Kafka, checkpoint: Path, **options: object) -> None:
    """Write what a stream has now, and wait until it is done."""
    writer = frame.writeStream.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer = writer.option("checkpointLocation", str(checkpoint)).options(**texts(options))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(100)


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


def test_an_exactly_once_stream_writes_each_row_once_and_goes_on_from_its_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, target = kafka.topic(partitions=2), kafka.topic(partitions=2)
    kafka.send(source, *(f"{number}".encode() for number in range(20)), partition=0)
    frame = read_stream(spark, kafka, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=10)
    wanted: dict[str, object] = {"topic": target, "deliveryGuarantee": "exactly-once"}
    pipe(frame.select("key", "value"), kafka, tmp_path / "checkpoint", **wanted)
    kafka.send(source, *(f"{number}".encode() for number in range(20, 30)), partition=1)
    pipe(frame.select("key", "value"), kafka, tmp_path / "checkpoint", **wanted)
    values = sorted(int(value or -1) for value in kafka.values(target))
    assert values == list(range(30))
