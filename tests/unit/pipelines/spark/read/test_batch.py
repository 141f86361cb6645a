"""What a batch reads between two positions, over a cluster of numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark import cluster
from barnabas.pipelines.spark.read.batch import BatchReader
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.spark.read.options import batch_options
from barnabas.pipelines.spark.read.rows import record_schema
from barnabas.pipelines.spark.read.tasks import RangeTask, tasks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.pipelines.spark.read.selection import Selection


class Numbers:
    """One partition from 10 to 20, where a transaction is open; the record at offset n is n milliseconds old."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def partitions(self, _: Selection) -> list[TopicPartition]:
        return [TopicPartition("t", 0)]

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 20)

    def at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return dict(moments)


def read(monkeypatch: pytest.MonkeyPatch, **options: str) -> list[object]:
    monkeypatch.setattr(cluster, "ClusterView", lambda _: Numbers())
    found = batch_options({"kafka.bootstrap.servers": "any", "subscribe": "t"} | options)
    return list(BatchReader(found, from_arrow_schema(record_schema())).partitions())


def test_a_batch_has_what_lies_between(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(monkeypatch) == [RangeTask((OffsetRange("t", 0, 10, 20),))]
    assert read(monkeypatch, startingTimestamp="15", endingOffsets='{"t":{"0":15}}') == []


def test_a_batch_that_begins_in_an_open_transaction_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    for end in ({}, {"endingTimestamp": "30"}):
        assert read(monkeypatch, startingTimestamp="25", **end) == []


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": '{"t":{"0":15}}', "endingOffsets": '{"t":{"0":12}}'},
        {"startingTimestamp": "15", "endingTimestamp": "12"},
        {"endingOffsets": '{"t":{"0":5}}'},
    ],
)
def test_an_end_before_the_start_is_refused(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption, match=r"t-0 would be read from offset \d+ to \d+, which comes before it"):
        read(monkeypatch, **options)


def test_small_ranges_share_tasks_unless_the_options_say_how_many() -> None:
    ranges = [OffsetRange("t", number, 0, 100) for number in range(600)]
    told = {"kafka.bootstrap.servers": "any", "subscribe": "t"}
    shared = tasks(ranges, batch_options(told))
    assert len(shared) < 300
    assert [each for task in shared if isinstance(task, RangeTask) for each in task.ranges] == ranges
    assert len(tasks(ranges, batch_options(told | {"minPartitions": "10"}))) == 600
    large = [OffsetRange("t", number, 0, 1_000_000) for number in range(6)]
    assert tasks(large, batch_options(told)) == [RangeTask((each,)) for each in large]
