"""`spark.read.format("barnabas")` with a real Spark and a real broker."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import AnalysisException, PySparkException

from barnabas.model.ids import TopicPartition
from tests.support.spark import read_batch as read
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from barnabas.testing.kafka import Kafka


def values(frame: DataFrame) -> list[str]:
    return [bytes(row.value).decode() for row in frame.orderBy("partition", "offset").collect()]


def offsets(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(numbers)}})


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


def test_workers_run_the_installed_pyspark_and_no_copy_of_it(spark: SparkSession) -> None:
    """Which takes the command that the package installs: an environment made before it had one has to be renewed."""

    def where(_: object) -> str:
        import pyspark

        return str(pyspark.__file__)

    assert spark.sparkContext.parallelize([0], 1).map(where).collect() == [pyspark.__file__]


def test_reads_between_offsets_and_moments_of_topics_by_name_pattern_and_partition(
    spark: SparkSession, kafka: Kafka
) -> None:
    topic, other = kafka.topic("one", partitions=2, configs={"retention.ms": -1}), kafka.topic("two")
    with kafka.producer() as producer:
        for number in range(5):
            producer.send(topic, f"a{number}", partition=0, timestamp=1000 + 1000 * number)
            producer.send(topic, f"b{number}", partition=1, timestamp=1000 + 1000 * number)
        producer.send(other, "c")
    between = read(
        spark, kafka, subscribe=topic, startingOffsets=offsets(topic, 1, -2), endingOffsets=offsets(topic, 3, 1)
    )
    assert values(between) == ["a1", "a2", "b0"]
    assert values(read(spark, kafka, subscribe=topic, startingTimestamp=3500, endingTimestamp=4500)) == ["a3", "b3"]
    by_partition = read(
        spark,
        kafka,
        subscribe=topic,
        startingOffsetsByTimestamp=offsets(topic, 5000, 4000),
        endingOffsetsByTimestamp=offsets(topic, 9000, 5000),
    )
    assert values(by_partition) == ["a4", "b3"]
    assert values(read(spark, kafka, assign=json.dumps({topic: [1]}))) == [f"b{number}" for number in range(5)]
    assert read(spark, kafka, subscribePattern=f"{kafka.prefix}.*").count() == 11


def test_large_ranges_are_split_and_columns_can_be_left_out(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.send(topic, *range(20), partition=0)
    frame = read(spark, kafka, subscribe=topic, minPartitions=4)
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame) == [str(number) for number in range(20)]
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    few = reader.option("subscribe", topic).schema("offset BIGINT, value BINARY").load()
    assert few.where("offset = 7").collect() == [(7, b"7")]


def test_what_compaction_and_transactions_leave_out_hangs_nothing(spark: SparkSession, kafka: Kafka) -> None:
    compacted = kafka.topic(configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0, "segment.ms": 100})
    place = TopicPartition(compacted, 0)

    def is_compacted() -> bool:
        kafka.send(compacted, b"x", b"y", key="same")  # a record ends a segment that has grown old
        return len(kafka.records(compacted)) < kafka.admin.end_offsets([place])[place] / 2

    wait_until(is_compacted, "compaction", 60, every=0.2)
    frame = read(spark, kafka, subscribe=compacted, minPartitions=7, endingOffsets=offsets(compacted, 6))
    assert frame.count() < 6

    topic = kafka.topic()
    with kafka.producer(transactional_id=kafka.name("txn")) as producer:
        with producer.transaction():
            producer.send(topic, "committed")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, "aborted")
            producer.flush()
            raise ZeroDivisionError
    assert values(read(spark, kafka, subscribe=topic, minPartitions=4)) == ["committed"]
    uncommitted = read(spark, kafka, subscribe=topic, **{"kafka.isolation.level": "read_uncommitted"})
    assert values(uncommitted) == ["committed", "aborted"]


def test_data_lost_to_retention_fails_loudly_or_is_stepped_over(spark: SparkSession, kafka: Kafka) -> None:
    topic = kafka.topic()
    kafka.send(topic, *range(5))
    kafka.admin.delete_records({TopicPartition(topic, 0): 3})
    start = offsets(topic, 1)
    with pytest.raises(PySparkException, match=r"DataLost: .*begins at offset 3 now: 1 to 2 were removed"):
        read(spark, kafka, subscribe=topic, startingOffsets=start).collect()
    assert values(read(spark, kafka, subscribe=topic, startingOffsets=start, failOnDataLoss=False)) == ["3", "4"]
    assert values(read(spark, kafka, subscribe=topic)) == ["3", "4"]


def test_mistakes_are_told_before_anything_is_read(spark: SparkSession, kafka: Kafka) -> None:
    topic, missing = kafka.topic(), kafka.name(f"missing-{uuid.uuid4().hex[:6]}")
    kafka.send(topic, b"a")
    with pytest.raises(AnalysisException, match=r"InvalidOption: .*did you mean startingOffsets\?"):
        read(spark, kafka, subscribe=topic, startingOffset="earliest")
    with pytest.raises(AnalysisException, match=f"TopicMissing: there is no topic or partition {missing}"):
        read(spark, kafka, subscribe=missing).collect()
    with pytest.raises(AnalysisException, match=r"OffsetOutOfRange: offset 7 of .* ends at 1"):
        read(spark, kafka, subscribe=topic, startingOffsets=offsets(topic, 7)).collect()
    reader = spark.read.format("barnabas").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    with pytest.raises(AnalysisException, match="InvalidOption: the schema has a column value string"):
        reader.option("subscribe", topic).schema("value STRING").load().collect()
