"""`spark.readStream.format("barnabas")` with a real Spark and a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.spark.error_texts import python_error
from barnabas.testing.broker import Broker
from barnabas.testing.kafka import Kafka
from tests.support.spark import Collected, read_stream
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_available_now_reads_what_is_there_in_batches_and_goes_on_from_its_checkpoint(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic, group = kafka.topic(partitions=2), kafka.name("progress")
    kafka.send(topic, b"a", b"b", b"c", partition=0)
    kafka.send(topic, b"d", partition=1)
    options: dict[str, object] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 2}
    with Collected(
        read_stream(spark, kafka, progressGroup=group, **options), tmp_path / "checkpoint", availableNow=True
    ) as first:
        first.finish()
    assert sorted(first.values) == [b"a", b"b", b"c", b"d"]
    assert len(first.batches) >= 2
    done = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 1}
    wait_until(lambda: kafka.admin.group_offsets(group) == done, "the last batch in the group")

    kafka.send(topic, b"e", partition=1)
    with Collected(read_stream(spark, kafka, **options), tmp_path / "checkpoint", availableNow=True) as second:
        second.finish()
    assert second.values == [b"e"]


def test_a_stream_from_the_end_finds_new_records_and_new_partitions_and_commits_the_last_batch(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic, group = kafka.topic(partitions=1), kafka.name("progress")
    kafka.send(topic, b"before", partition=0)
    with Collected(read_stream(spark, kafka, subscribe=topic, progressGroup=group), tmp_path / "checkpoint") as stream:
        stream.wait_for_batch()  # an empty one, which pins the start
        kafka.send(topic, b"after", partition=0)
        stream.wait_for(b"after")
        kafka.admin.create_partitions(topic, 2)
        with kafka.producer() as producer:  # a new one: others may not know of the partition yet
            producer.send(topic, b"new", partition=1)
        stream.wait_for(b"after", b"new")
        done = {TopicPartition(topic, 0): 2, TopicPartition(topic, 1): 1}
        wait_until(lambda: kafka.admin.group_offsets(group) == done, "the last batch in the group")
    assert stream.batches[0] == (0, [])


def test_groups_have_the_last_batch_of_each_source_long_before_the_next_trigger(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    first, second, alone = kafka.topic(), kafka.topic(), kafka.topic()
    groups = [kafka.name("one"), kafka.name("other")]
    for count, topic in enumerate((first, second, alone), 1):
        kafka.send(topic, *[b"x"] * count)
    rate = spark.readStream.format("rate").load().where("value < 0").selectExpr("binary(string(value)) AS value")
    once = read_stream(spark, kafka, subscribe=first, startingOffsets="earliest", progressGroup=groups[0])
    other = read_stream(spark, kafka, subscribe=second, startingOffsets="earliest", PROGRESSGROUP=groups[1])
    silent = read_stream(spark, kafka, subscribe=alone, startingOffsets="earliest")
    values = [each.select("value") for each in (once, silent, other, once)]
    frame = rate.union(values[0]).union(values[1]).union(values[2]).union(values[3])
    with Collected(frame, tmp_path / "checkpoint", processingTime="1 hour") as stream:
        stream.wait_for(*[b"x"] * 7)
        done = [{TopicPartition(first, 0): 1}, {TopicPartition(second, 0): 2}]
        wait_until(
            lambda: [kafka.admin.group_offsets(each) for each in groups] == done, "the first batch in the groups"
        )


def test_what_is_lost_while_a_stream_stands_still_fails_it_or_is_stepped_over(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    topic = kafka.topic()
    kafka.send(topic, b"a", b"b")
    options: dict[str, object] = {"subscribe": topic, "startingOffsets": "earliest"}
    with Collected(read_stream(spark, kafka, **options), tmp_path / "checkpoint", availableNow=True) as first:
        first.finish()
    kafka.send(topic, b"c", b"d")
    kafka.admin.delete_records({TopicPartition(topic, 0): 3})
    with (
        Collected(read_stream(spark, kafka, **options), tmp_path / "checkpoint", availableNow=True) as failing,
        pytest.raises(StreamingQueryException, match=r"DataLost: .*begins at offset 3 now: 2 to 2 were removed"),
    ):
        failing.finish()
    options["failOnDataLoss"] = False
    with Collected(read_stream(spark, kafka, **options), tmp_path / "checkpoint", availableNow=True) as last:
        last.finish()
    assert last.values == [b"d"]


def test_a_mistake_is_the_last_word_of_a_stream_that_cannot_begin(
    spark: SparkSession, kafka: Kafka, tmp_path: Path
) -> None:
    frame = read_stream(spark, kafka, subscribe=kafka.topic(), endingOffsets="latest")
    with Collected(frame, tmp_path / "checkpoint") as stream, pytest.raises(StreamingQueryException) as failure:
        stream.finish()
    assert "InvalidOption: option endingOffsets is for batches" in str(python_error(str(failure.value)))


def test_a_stream_lives_through_a_restart_of_its_broker(spark: SparkSession, tmp_path: Path) -> None:
    with Broker({}) as broker, Kafka(broker, "restart") as kafka:
        topic = kafka.topic()
        kafka.send(topic, b"before")
        with Collected(
            read_stream(spark, kafka, subscribe=topic, startingOffsets="earliest"), tmp_path / "checkpoint"
        ) as stream:
            stream.wait_for(b"before")
            broker.kill()
            broker.start()
            kafka.send(topic, b"after")
            stream.wait_for(b"before", b"after")
