"""`spark.read.format("barnabas")` with a real Spark and a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.spark import read_batch as read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.testing.kafka import Kafka


def test_reads_all_records_of_a_topic(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic(partitions=2)
    kafka.send(topic, b"a", b"b", key="k", partition=0)
    kafka.send(topic, b"c", partition=1)
    rows = read(spark, kafka, subscribe=topic).orderBy("partition", "offset").collect()
    assert [(r.key, r.value, r.topic, r.partition, r.offset, r.timestampType) for r in rows] == [
        (b"k", b"a", topic, 0, 0, 0),
        (b"k", b"b", topic, 0, 1, 0),
        (None, b"c", topic, 1, 0, 0),
    ]
