"""`spark.read.format("barnabas")` with a real Spark and a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.testing.kafka import Kafka


def read(spark: SparkSession, kafka: Kafka, **options: object) -> DataFrame:
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


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
