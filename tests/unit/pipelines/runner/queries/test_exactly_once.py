"""What a batch is known by, and which table and checkpoint go on together."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import pytest

from barnabas.clients.errors import BarnabasError, BrokerUnreachable, InvalidClientConfig, RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.runner.queries.exactly_once import (
    CheckpointRefused,
    check_checkpoint,
    check_kept_by_offsets,
    check_topic_checkpoint,
    key_of,
    where_to_begin,
)
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.contract import BATCHES, Position
from barnabas.pipelines.tables.rules import advance

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDS = {"orders": "topic-id"}


@dataclass
class Log:
    """A checkpoint in memory."""

    ends: dict[int, dict[TopicPartition, int]] = field(default_factory=dict)
    own_id: str | None = "checkpoint-id"
    finished: int = 0
    location: str = "/checkpoint"

    def id(self) -> str | None:
        return self.own_id

    def has_batches(self) -> bool:
        return self.finished > 0

    def offsets(self, batch: int) -> dict[TopicPartition, int] | None:
        return self.ends.get(batch)


class Group:
    """A group that has committed this, or cannot be seen."""

    def __init__(self, answer: dict[TopicPartition, int] | BarnabasError) -> None:
        self._answer = answer

    def committed(self, _: str) -> dict[TopicPartition, int]:
        if isinstance(self._answer, BarnabasError):
            raise self._answer
        return self._answer


LOG = Log({0: {FIRST: 10}, 1: {FIRST: 20, SECOND: 5}, 2: {FIRST: 20, SECOND: 5}})


def filled(**offsets: int) -> Position:
    return Position("p", {"orders": "topic-id", BATCHES.topic: "checkpoint-id"}, {BATCHES: 3, **_named(offsets)}, 7)


def _named(offsets: dict[str, int]) -> dict[TopicPartition, int]:
    return {TopicPartition("orders", int(name[1:])): offset for name, offset in offsets.items()}


def test_a_batch_that_is_kept_by_offsets_is_known_by_its_ranges() -> None:
    first = key_of(0, LOG, {FIRST: 4}, IDS, by_offsets=True)
    assert list(first.ranges) == [OffsetRange("orders", 0, 4, 10)]
    assert first.topic_ids == IDS
    second = key_of(1, LOG, {FIRST: 4}, IDS, by_offsets=True)
    assert list(second.ranges) == [OffsetRange("orders", 0, 10, 20), OffsetRange("orders", 1, 0, 5)]


@pytest.mark.parametrize("batch", [0, 2])
def test_a_batch_that_is_not_noted_is_never_taken_for_an_empty_one(batch: int) -> None:
    with pytest.raises(CheckpointRefused, match=f"/checkpoint does not say which records batch {batch} has"):
        key_of(batch, Log({2: {FIRST: 10}}), {FIRST: 4}, IDS, by_offsets=True)


def test_a_batch_without_new_records_still_has_a_number_where_state_is_kept() -> None:
    key = key_of(2, LOG, {}, IDS, by_offsets=False)
    assert list(key.ranges) == [OffsetRange(*BATCHES, 2, 3)]
    assert key.topic_ids == {**IDS, BATCHES.topic: "checkpoint-id"}
    assert not key_of(2, LOG, {}, IDS, by_offsets=True).ranges


def test_a_replayed_batch_is_found_in_the_table_and_the_next_one_is_not() -> None:
    position: Position | None = None
    for batch in range(3):
        key = key_of(batch, LOG, {}, IDS, by_offsets=False)
        after = advance(position, key.ranges, key.topic_ids, "t")
        assert after is not None
        position = Position("p", key.topic_ids, after, batch + 1)
        assert advance(position, key.ranges, key.topic_ids, "t") is None
    assert position is not None and position.offsets == {FIRST: 20, SECOND: 5, BATCHES: 3}


def test_a_checkpoint_and_the_table_that_it_filled_go_on() -> None:
    check_checkpoint(None, Log(own_id=None), "t")
    check_checkpoint(None, Log(finished=0), "t")
    check_checkpoint(filled(p0=1), Log(finished=3), "t")


@pytest.mark.parametrize(
    ("position", "log", "text"),
    [
        (None, Log(finished=1), "Put the table back, or remove the checkpoint"),
        (filled(), Log(own_id=None), "put the checkpoint back, or begin with another table"),
        (filled(), Log(own_id="another"), "was filled with the checkpoint checkpoint-id, and /checkpoint is another"),
        (Position("p", IDS, {FIRST: 3}, 1), Log(), "was filled without a checkpoint"),
    ],
)
def test_a_checkpoint_that_would_count_other_batches_is_refused(position: Position | None, log: Log, text: str) -> None:
    with pytest.raises(CheckpointRefused, match=text):
        check_checkpoint(position, log, "t")


def test_a_topic_is_not_written_again_because_a_checkpoint_is_gone() -> None:
    check_topic_checkpoint(Group({}), Log(own_id=None), "p.sink")
    check_topic_checkpoint(Group({FIRST: 3}), Log(finished=1), "p.sink")
    with pytest.raises(CheckpointRefused, match=r"p\.sink shows .* delete the group\.$") as caught:
        check_topic_checkpoint(Group({FIRST: 3}), Log(own_id=None), "p.sink")
    assert caught.value.remedy == Remedy(RemedyKind.DELETE_GROUP, "p.sink")


@pytest.mark.parametrize(
    "refusal",
    [
        InvalidClientConfig("sasl.mechanism GSSAPI does not work"),
        RequestRefused(ErrorCode.group_authorization_failed, "not yours"),
    ],
)
def test_a_group_that_cannot_be_seen_is_warned_of_and_stops_no_query(
    caplog: pytest.LogCaptureFixture, refusal: BarnabasError
) -> None:
    check_topic_checkpoint(Group(refusal), Log(finished=1), "p.sink")
    assert not caplog.text, "with its checkpoint there, nothing is lost"
    check_topic_checkpoint(Group(refusal), Log(own_id=None), "p.sink")
    assert f"a lost checkpoint /checkpoint would not be noticed: {refusal}" in caplog.text


def test_a_cluster_that_does_not_answer_may_still_show_the_group() -> None:
    with pytest.raises(BrokerUnreachable):
        check_topic_checkpoint(Group(BrokerUnreachable("nobody is there")), Log(own_id=None), "p.sink")


def test_a_pipeline_without_state_leaves_a_table_of_one_with_state_alone() -> None:
    check_kept_by_offsets(None, "t")
    check_kept_by_offsets(Position("p", IDS, {FIRST: 3}, 1), "t")
    with pytest.raises(CheckpointRefused, match="kept state"):
        check_kept_by_offsets(filled(), "t")


def test_a_run_begins_where_the_table_says_and_new_partitions_at_offset_0() -> None:
    """Also if the first offsets were removed since: the source sees the loss then."""
    partitions = [FIRST, SECOND]
    latest = {FIRST: 100, SECOND: 50}
    assert where_to_begin(partitions, None, latest, by_pattern=False) == latest
    assert where_to_begin(partitions, filled(p0=7), latest, by_pattern=False) == {FIRST: 7, SECOND: 0}


def test_topics_that_a_pattern_finds_later_are_read_from_their_beginning() -> None:
    other = TopicPartition("others", 0)
    latest = {FIRST: 100, other: 50}
    begins = partial(where_to_begin, edge=latest)
    one = Position("p", IDS, {FIRST: 7}, 1)
    assert begins([FIRST, other], None, by_pattern=True) == latest
    assert begins([FIRST, other], one, by_pattern=True) == {FIRST: 7, other: 0}
    assert begins([other], Position("p", {}, {}, 1), by_pattern=True) == {other: 0}, "there were none at the start"
    assert begins([other], one, by_pattern=True) == {other: 50}, "a source that was added to the file"
    assert begins([FIRST, other], one, by_pattern=False) == {FIRST: 7, other: 50}, "a topic that was added to the file"
