"""How far the batches of a stream go, over a cluster of numbers that grows and shrinks as the test says."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.pipelines.errors import DataLost, InvalidOption, TopicMissing
from barnabas.pipelines.spark.read import stream
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.spark.read.options import stream_options
from barnabas.pipelines.spark.read.rows import record_schema
from barnabas.pipelines.spark.read.stream import StreamReader
from barnabas.pipelines.spark.read.tasks import RangeTask
from barnabas.pipelines.spark.source import BarnabasSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.pipelines.spark.read.offsets import Offsets
    from barnabas.pipelines.spark.read.selection import Selection

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ALL = ReadAllAvailable()


class Numbers:
    """Partitions by their ends; all begin at 0, or where `firsts` says. One is deleted when that is asked."""

    def __init__(self, ends: dict[TopicPartition, int]) -> None:
        self.ends = ends
        self.firsts: dict[TopicPartition, int] = {}
        self.deleted: TopicPartition | None = None
        self.in_transaction = 0
        """How many records there are after the end, in an open transaction."""
        self.groups: dict[str, list[Offsets]] = {}
        self.refusal: Exception | None = None

    def partitions(self, selection: Selection, *, only_present: bool = False) -> list[TopicPartition]:
        if not only_present and (gone := set(selection.topics) - {partition.topic for partition in self.ends}):
            raise TopicMissing(f"there is no topic {gone}")
        return sorted(self.ends)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if self.deleted in wanted:
            self.ends.pop(self.deleted, None)
            raise TopicMissing(f"there is no {self.deleted}")
        return {partition: self.firsts.get(partition, 0) for partition in wanted}

    def latest(self, partitions: Iterable[TopicPartition], *, open_too: bool = False) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        if gone := set(wanted) - self.ends.keys():
            raise TopicMissing(f"there is no {gone}")
        return {each: self.ends[each] + (self.in_transaction if open_too else 0) for each in wanted}

    def at(self, moments: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        return {partition: min(when, self.ends[partition]) for partition, when in moments.items()}

    def commit(self, group: str, offsets: Offsets, *, timeout: float) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.groups.setdefault(group, []).append(offsets)

    def close(self) -> None:
        """Nothing to close."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "DISCOVERY_SECONDS", 0)
    monkeypatch.setattr(stream, "SHORT_SECONDS", 0)
    monkeypatch.setattr(stream, "MISSING_SECONDS", 0)
    monkeypatch.setattr(stream, "RETRY_SECONDS", 0)


def reader(monkeypatch: pytest.MonkeyPatch, cluster: Numbers, **options: object) -> StreamReader:
    monkeypatch.setattr(stream, "ClusterView", lambda _: cluster)
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
    found = stream_options(given | {name: str(value) for name, value in options.items()})
    return StreamReader(found, from_arrow_schema(record_schema()))


def at(*ends: int) -> dict[str, dict[str, int]]:
    return {"t": {str(partition): end for partition, end in enumerate(ends)}}


def test_a_stream_that_cannot_be_read_says_so_to_whatever_it_is_asked() -> None:
    refused = BarnabasSource({"kafka.bootstrap.servers": "any"}).streamReader(from_arrow_schema(record_schema()))
    for ask in (refused.initialOffset, lambda: refused.latestOffset({}, ALL), lambda: refused.partitions({}, {})):
        with pytest.raises(InvalidOption, match="exactly one of them says what to read"):
            ask()
    refused.stop()


def test_a_stream_from_the_beginning_reads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = reader(monkeypatch, Numbers({A: 10, B: 5}), startingOffsets="earliest")
    assert source.initialOffset() == at(0, 0)
    assert source.latestOffset(at(0, 0), ALL) == at(10, 5)
    assert source.partitions(at(0, 0), at(10, 5)) == [
        RangeTask((OffsetRange("t", 0, 0, 10),)),
        RangeTask((OffsetRange("t", 1, 0, 5),)),
    ]
    assert source.reportLatestOffset() == at(10, 5)


@pytest.mark.parametrize("start", [{}, {"startingTimestamp": 7}, {"startingOffsets": '{"t":{"0":-1}}'}])
def test_a_start_that_moves_is_pinned_by_an_empty_batch(
    monkeypatch: pytest.MonkeyPatch, start: dict[str, object]
) -> None:
    cluster = Numbers({A: 10})
    source = reader(monkeypatch, cluster, **start)
    first = source.initialOffset()
    cluster.ends[A] = 12
    assert source.initialOffset() == first, "it is asked twice, and must not move"
    assert source.latestOffset(first, ALL) == first
    assert source.latestOffset(first, ALL) == at(12)


def test_a_replay_of_the_pinning_batch_reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    source = reader(monkeypatch, Numbers({A: 20}))
    assert source.initialOffset() == at(20)
    assert source.partitions(at(20), at(10)) == []


def test_a_restart_from_a_checkpoint_reads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    source = reader(monkeypatch, Numbers({A: 20}))
    assert source.latestOffset(at(10), ALL) == at(20)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 100, B: 300})
    source = reader(monkeypatch, cluster, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert source.getDefaultReadLimit() == ReadMaxRows(40)
    assert source.latestOffset(at(0, 0), ReadMaxRows(40)) == at(10, 30)
    assert source.reportLatestOffset() == at(100, 300)
    assert source.latestOffset(at(0, 0), ALL) == at(100, 300)
    assert reader(monkeypatch, cluster).getDefaultReadLimit() == ReadAllAvailable()
    assert reader(monkeypatch, cluster, minOffsetsPerTrigger=3).getDefaultReadLimit() == ReadMinRows(3)


def test_too_little_waits_for_more_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 5})
    patient = reader(monkeypatch, cluster, startingOffsets="earliest", minOffsetsPerTrigger=6)
    assert patient.latestOffset(at(0), ReadMinRows(6)) == at(5), "the first batch waits for nothing, as in Spark"
    cluster.ends[A] = 10
    assert patient.latestOffset(at(5), ReadMinRows(6)) == at(5)
    assert patient.latestOffset(at(5), ALL) == at(10), "all that is there was asked for"
    cluster.ends[A] = 11
    assert patient.latestOffset(at(5), ReadMinRows(6)) == at(11)
    hasty = reader(monkeypatch, cluster, startingOffsets="earliest", minOffsetsPerTrigger=99, maxTriggerDelay="0s")
    for _ in range(2):
        assert hasty.latestOffset(at(0), ReadMinRows(99)) == at(11)


def test_available_now_ends_where_the_topic_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 10})
    source = reader(monkeypatch, cluster, startingOffsets="earliest", minOffsetsPerTrigger=50)
    source.prepareForTriggerAvailableNow()
    cluster.ends |= {A: 20, B: 5}
    assert source.latestOffset(at(0), ReadMinRows(50)) == at(10), "waiting for more would never end"
    assert source.latestOffset(at(10), ReadMinRows(50)) == at(10)


def test_available_now_loses_no_partition_that_came_between_its_target_and_its_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Numbers({A: 10})
    source = reader(monkeypatch, cluster, startingOffsets="earliest")
    source.prepareForTriggerAvailableNow()
    cluster.ends[B] = 5
    assert source.latestOffset(source.initialOffset(), ALL) == at(10, 0), "it is left to the next run"
    assert source.latestOffset(at(10, 0), ALL) == at(10, 0)


def test_new_partitions_begin_at_their_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 10})
    source = reader(monkeypatch, cluster)
    cluster.ends[B] = 3
    assert source.latestOffset(at(10), ALL) == at(10, 3)
    assert source.partitions(at(10), at(10, 3)) == [RangeTask((OffsetRange("t", 1, 0, 3),))]


def test_what_was_removed_of_a_new_partition_counts_for_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 10, B: 1_000_000})
    cluster.firsts[B] = 999_990
    assert reader(monkeypatch, cluster).latestOffset(at(10), ReadMaxRows(4)) == at(10, 999_994)


def test_a_new_topic_of_a_pattern_that_is_deleted_at_once_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SHORT_SECONDS", 60)
    cluster = Numbers({A: 10, B: 5})
    cluster.deleted = B
    source = reader(monkeypatch, cluster, subscribe="", subscribePattern="t")
    assert source.latestOffset(at(8), ReadMaxRows(4)) == at(10)


def test_an_end_before_the_start_and_a_partition_that_is_gone_are_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataLost, match="t-0 ends at offset 4, and 9 was to be read next"):
        reader(monkeypatch, Numbers({A: 4})).latestOffset(at(9), ALL)
    with pytest.raises(DataLost, match="t-1 is not read or not there any more"):
        reader(monkeypatch, Numbers({A: 9})).latestOffset(at(9, 9), ALL)
    careless = reader(monkeypatch, Numbers({A: 4}), failOnDataLoss="false")
    assert careless.latestOffset(at(9, 9), ALL) == at(4)


@pytest.mark.parametrize("careful", [True, False])
def test_a_start_in_an_open_transaction_is_no_loss_and_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, careful: bool
) -> None:
    cluster = Numbers({A: 4})
    cluster.in_transaction = 5
    source = reader(monkeypatch, cluster, failOnDataLoss=careful)
    assert source.latestOffset(at(9), ALL) == at(9), "a source that read what is not committed has been here"
    cluster.ends[A], cluster.in_transaction = 11, 0
    assert source.latestOffset(at(9), ALL) == at(11)


def test_available_now_goes_on_at_the_new_end_of_a_topic_that_was_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 4})
    source = reader(monkeypatch, cluster, failOnDataLoss="false")
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset(at(9), ALL) == at(4)
    cluster.ends[A] = 12
    assert source.latestOffset(at(4), ALL) == at(4), "what came later is left to the next run"


def test_available_now_does_not_go_back_to_a_target_that_a_new_leader_told_too_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Numbers({A: 4})
    source = reader(monkeypatch, cluster)
    source.prepareForTriggerAvailableNow()
    cluster.ends[A] = 9
    assert source.latestOffset(at(9), ALL) == at(9)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_topic_of_a_pattern_that_is_deleted_is_a_loss_and_no_missing_topic(
    monkeypatch: pytest.MonkeyPatch, available_now: bool
) -> None:
    monkeypatch.setattr(stream, "DISCOVERY_SECONDS", 60)
    monkeypatch.setattr(stream, "SHORT_SECONDS", 60)
    for careful in (True, False):
        cluster = Numbers({A: 5, B: 9})
        source = reader(
            monkeypatch, cluster, subscribe="", subscribePattern="t", startingOffsets="earliest", failOnDataLoss=careful
        )
        if available_now:
            source.prepareForTriggerAvailableNow()
        assert source.latestOffset(source.initialOffset(), ALL) == at(5, 9)
        del cluster.ends[B]
        if careful:
            with pytest.raises(DataLost, match="t-1 is not read or not there any more"):
                source.latestOffset(at(3, 9), ALL)
        else:
            assert source.latestOffset(at(3, 9), ALL) == at(5)
            assert source.latestOffset(at(5), ALL) == at(5)


@pytest.mark.parametrize("available_now", [False, True])
def test_a_named_topic_that_was_deleted_is_passed_over_if_data_may_be_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, available_now: bool
) -> None:
    both = {"t": {"0": 4}, "u": {"0": 2}}
    left = Numbers({A: 6})
    strict = reader(monkeypatch, left, subscribe="t,u")
    with pytest.raises(TopicMissing, match="no topic"):
        strict.latestOffset(both, ALL)
    source = reader(monkeypatch, left, subscribe="t,u", failOnDataLoss=False, startingOffsets="earliest")
    if available_now:
        source.prepareForTriggerAvailableNow()
    assert source.latestOffset(both, ALL) == at(6)
    assert "u-0 is not read or not there any more" in caplog.text
    with pytest.raises(TopicMissing, match="no topic"):
        source.initialOffset()


def test_a_topic_that_a_broker_does_not_know_for_a_moment_is_not_read_from_its_beginning_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MISSING_SECONDS", 60)
    cluster = Numbers({A: 6})
    ask, asked = cluster.partitions, []

    def come_back(selection: Selection, *, only_present: bool = False) -> list[TopicPartition]:
        asked.append(selection)
        if len(asked) == 3:
            cluster.ends[TopicPartition("u", 0)] = 9
        return ask(selection, only_present=only_present)

    monkeypatch.setattr(cluster, "partitions", come_back)
    source = reader(monkeypatch, cluster, subscribe="t,u", failOnDataLoss=False)
    assert source.latestOffset({"t": {"0": 4}, "u": {"0": 2}}, ALL) == {"t": {"0": 6}, "u": {"0": 9}}


def test_progress_is_committed_when_the_next_batch_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 10})
    source = reader(monkeypatch, cluster, progressGroup="g")
    for _ in range(3):
        source.latestOffset(at(4), ALL)
    source.latestOffset(at(10), ALL)
    assert cluster.groups == {"g": [{A: 4}, {A: 10}]}


@pytest.mark.parametrize(
    "refusal",
    [RequestRefused(ErrorCode.unknown_member_id, "the group has members"), BrokerUnreachable("nobody is there")],
)
def test_a_group_that_takes_no_progress_does_not_stop_the_stream_and_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refusal: Exception
) -> None:
    cluster = Numbers({A: 10})
    cluster.refusal = refusal
    source = reader(monkeypatch, cluster, progressGroup="g")
    for _ in range(3):
        assert source.latestOffset(at(4), ALL) == at(10)
    assert caplog.text.count(f"Offsets were not committed to the consumer group g: {refusal}") == 1
    cluster.refusal = None
    source.latestOffset(at(4), ALL)
    assert not cluster.groups, "it is left alone for a while"
    later = time.monotonic() + 60
    monkeypatch.setattr(time, "monotonic", lambda: later)
    source.latestOffset(at(4), ALL)
    assert cluster.groups == {"g": [{A: 4}]}


def test_what_the_group_did_not_take_it_gets_when_the_query_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Numbers({A: 10})
    source = reader(monkeypatch, cluster, progressGroup="g")
    source.latestOffset(at(4), ALL)
    cluster.refusal = BrokerUnreachable("nobody is there")
    source.latestOffset(at(10), ALL)
    cluster.refusal = None
    source.stop()
    assert cluster.groups == {"g": [{A: 4}, {A: 10}]}
    source.stop()
    assert len(cluster.groups["g"]) == 2, "it has everything"
