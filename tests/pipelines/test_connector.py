"""Spark's own Kafka source and sink against the broker, and ours beside them: the same schema, the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.spark import Collected, read_batch, read_stream, texts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from barnabas.testing.kafka import Kafka


def test_both_give_the_same_schema_and_the_same_rows(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic("plain", partitions=3, configs={"retention.ms": -1})
    stamped = kafka.topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    with kafka.producer() as producer:
        for number in range(50):
            headers = [("h", b"1"), ("h", None), ("", b"")] if number % 3 else None
            key = None if number % 5 == 0 else f"k{number}"
            value = None if number % 7 == 0 else "ü" * number
            producer.send(topic, value, key, headers=headers, timestamp=1_700_000_000_123 + number)
            producer.send(stamped, value, key)
    options: dict[str, object] = {"subscribePattern": f"{kafka.prefix}.*", "includeHeaders": True}
    theirs = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    expected = theirs.options(**texts(options)).load()
    found = read_batch(spark, kafka, **options)
    assert found.schema == expected.schema
    order = ("topic", "partition", "offset")
    assert found.orderBy(*order).collect() == expected.orderBy(*order).collect()
    assert found.count() == 100


def test_sparks_own_stream_source_and_sink_work_and_a_checkpoint_of_it_goes_on_here(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    source, target = kafka.topic(partitions=2), kafka.topic()
    kafka.send(source, *range(10), partition=0)
    options: dict[str, object] = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 6}
    theirs = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    with Collected(theirs.options(**texts(options)).load(), tmp_path / "checkpoint", availableNow=True) as first:
        first.finish()
    assert sorted(map(int, first.values)) == list(range(10))

    kafka.send(source, *range(10, 15), partition=1)
    with Collected(read_stream(spark, kafka, **options), tmp_path / "checkpoint", availableNow=True) as second:
        second.finish()
    assert sorted(map(int, second.values)) == list(range(10, 15))

    frame = read_batch(spark, kafka, subscribe=source).select("key", "value")
    writer = frame.write.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    writer.option("topic", target).save()
    assert sorted(int(value or -1) for value in kafka.values(target)) == list(range(15))
