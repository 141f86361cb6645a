"""A range is read to its end whatever a broker says for a moment, over a consumer that says what the test wants."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.clients.errors import RequestRefused
from barnabas.pipelines.errors import DataLost, ReadStalled
from barnabas.pipelines.spark.read import reading
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.spark.read.reading import read_ranges, reader_properties

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WANTED = OffsetRange("t", 0, 5, 7)
NONE = -1
"""Stands for no partition where offsets are assigned."""


class Message:
    """A record, or an error."""

    def __init__(self, offset: int | None, error: Any = None, partition: int = 0) -> None:
        self._offset, self._error, self._partition = offset, error, partition

    def __len__(self) -> int:
        return 1

    def offset(self) -> int | None:
        return self._offset

    def error(self) -> Any:
        return self._error

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"x"

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_000)


class Clock:
    """The time of a reader, which goes on only while it waits."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedConsumer:
    """Gives what was scripted, then nothing; after the partition was assigned again, what was scripted for that."""

    def __init__(self, *runs: Sequence[Message], ends: Iterable[tuple[int, int]] = ()) -> None:
        self._runs = deque(deque(run) for run in runs)
        self._ends = deque(ends)
        self._now: deque[Message] = deque()
        self.assigned: list[int] = []
        self.config: dict[str, Any] = {}
        self.clock = Clock()
        self.passing_over = 0.0
        """How long it says nothing but that it fetches."""
        self.at_once = 1
        """Messages that are given out together."""
        self.there = True
        self.failures: deque[int] = deque()
        """What goes wrong when it is asked for the topic, or where the partition begins."""
        self.topic_error: Any = None
        self.closed = False

    def assign(self, partitions: Sequence[Any]) -> None:
        self.assigned.append(partitions[0].offset)
        self._now = self._runs.popleft() if self._runs else deque()

    def consume(self, most: int, seconds: float) -> list[Message]:
        if self._now and self.passing_over <= 0:
            return [self._now.popleft() for _ in range(min(most, self.at_once, len(self._now)))]
        self.clock.sleep(seconds)
        if self.passing_over > 0:
            self.passing_over -= seconds
            partition = {"next_offset": int(self.clock.now * 1000)}
            self.config["stats_cb"](json.dumps({"topics": {"t": {"partitions": {"0": partition}}}}))
        return []

    def get_watermark_offsets(self, _: Any, __: float) -> tuple[int, int]:
        if self.failures:
            raise KafkaException(KafkaError(self.failures.popleft()))
        return self._ends.popleft() if len(self._ends) > 1 else self._ends[0]

    def list_topics(self, topic: str, timeout: float) -> Any:
        from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

        if self.failures:
            raise KafkaException(KafkaError(self.failures.popleft()))
        metadata, found = ClusterMetadata(), TopicMetadata()
        found.partitions = {0: PartitionMetadata()} if self.there else {}
        found.error, self.topic_error, self.there = self.topic_error, None, self.there or self.topic_error is not None
        metadata.topics = {topic: found}
        return metadata

    def unassign(self) -> None:
        self.assigned.append(NONE)
        self._now = deque()

    def close(self) -> None:
        self.closed = True


def offsets(
    consumer: ScriptedConsumer, patch: pytest.MonkeyPatch, config: dict[str, object], **more: bool
) -> list[int]:
    """What is read of the range."""
    return [offset for _, offset in places(consumer, patch, [WANTED], config, **more)]


def places(
    consumer: ScriptedConsumer,
    patch: pytest.MonkeyPatch,
    ranges: Sequence[OffsetRange],
    config: dict[str, object],
    **more: bool,
) -> list[tuple[int, int]]:
    """Partition and offset of what is read of ranges."""

    def opened(_: object, __: str, found: dict[str, Any]) -> ScriptedConsumer:
        consumer.config = found
        return consumer

    patch.setattr(reading, "open_client", opened)
    patch.setattr(reading, "time", consumer.clock)
    found = read_ranges(ranges, config, columns=("offset", "value"), **more)
    return [
        (wanted.partition, offset)
        for wanted, batches in found
        for batch in batches
        for offset in batch.column("offset").to_pylist()
    ]


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_ranges_are_read_over_one_consumer_and_what_is_left_of_one_is_not_of_the_next(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    left = [Message(7), Message(None, KafkaError(KafkaError._PARTITION_EOF)), Message(8)]
    other = [Message(3, partition=1), *left, *(Message(offset, partition=1) for offset in (3, 4, 4, 5, 6))]
    consumer = ScriptedConsumer([Message(5), Message(6)], [*left, *other])
    consumer.at_once = at_once
    ranges = [WANTED, OffsetRange("t", 2, 9, 9), OffsetRange("t", 1, 3, 7)]
    assert places(consumer, monkeypatch, ranges, {}) == [(0, 5), (0, 6), (1, 3), (1, 4), (1, 5), (1, 6)]
    assert consumer.assigned == [5, 3]


def test_whatever_it_was_told_a_reader_never_jumps(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = ScriptedConsumer([Message(5), Message(6)])
    told: dict[str, object] = {"auto.offset.reset": "latest", "enable.auto.commit": "true", "client.id": "c"}
    assert offsets(consumer, monkeypatch, told) == [5, 6]
    assert consumer.config["auto.offset.reset"] == "error"
    assert consumer.config["enable.auto.commit"] is False
    assert consumer.config["client.id"] == "c"
    assert reader_properties(told) == {"client.id": "c"}
    assert "auto.offset.reset has no effect" in caplog.text


UNKNOWN = Message(None, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
BEYOND = Message(0, KafkaError(KafkaError._AUTO_OFFSET_RESET))


def test_a_topic_that_is_unknown_for_a_moment_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = ScriptedConsumer([Message(5), UNKNOWN, Message(6)])
    assert offsets(at_once, monkeypatch, {}) == [5, 6]
    later = ScriptedConsumer([Message(5), UNKNOWN], [Message(6)])
    assert offsets(later, monkeypatch, {}) == [5, 6]
    assert later.assigned == [5, 6]


def test_a_topic_that_stays_away_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ScriptedConsumer([Message(5), UNKNOWN])
    consumer.there = False
    with pytest.raises(DataLost, match="t-0 is not there any more; records from offset 6 on"):
        offsets(consumer, monkeypatch, {})
    consumer = ScriptedConsumer([Message(5), UNKNOWN])
    consumer.there = False
    assert offsets(consumer, monkeypatch, {}, fail_on_data_loss=False) == [5]


def test_a_topic_that_is_gone_is_told_at_once_although_the_client_library_says_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = ScriptedConsumer([Message(5)])
    consumer.there, began = False, consumer.clock.now
    with pytest.raises(DataLost, match="t-0 is not there any more; records from offset 6 on"):
        offsets(consumer, monkeypatch, {})
    assert consumer.clock.now - began < 5


def test_ranges_of_a_topic_that_is_gone_are_passed_over_and_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    consumer, ranges = ScriptedConsumer([Message(5)]), [OffsetRange("t", number, 5, 7) for number in range(100)]
    consumer.there, began = False, consumer.clock.now
    assert places(consumer, monkeypatch, ranges, {}, fail_on_data_loss=False) == [(0, 5)]
    assert consumer.clock.now - began < 30
    assert caplog.text.count("is not there any more") == len(ranges)


def test_a_partition_that_only_seemed_to_be_gone_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a broker comes back that does not know all topics yet."""
    consumer = ScriptedConsumer([Message(5)], [Message(6)])
    consumer.there = False
    ask = consumer.list_topics

    def come_back(topic: str, timeout: float) -> Any:
        consumer.there = consumer.there or consumer.clock.now > 1_000 + 5
        return ask(topic, timeout)

    monkeypatch.setattr(consumer, "list_topics", come_back)
    assert offsets(consumer, monkeypatch, {}, fail_on_data_loss=False) == [5, 6]


def test_a_broker_that_is_away_when_asked_for_a_topic_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    back = ScriptedConsumer([Message(5), UNKNOWN], [Message(6)])
    back.failures.extend([KafkaError._TRANSPORT, KafkaError._TIMED_OUT])
    assert offsets(back, monkeypatch, {}) == [5, 6]
    assert not back.failures
    refused = ScriptedConsumer([Message(5), UNKNOWN])
    refused.failures.append(KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(RequestRefused, match="ask for t-0"):
        offsets(refused, monkeypatch, {})
    gone = ScriptedConsumer([Message(5), UNKNOWN])
    gone.failures.extend([KafkaError._TRANSPORT] * 100)
    with pytest.raises(ReadStalled, match="t-0 gave nothing for"):
        offsets(gone, monkeypatch, {})


def test_an_aborted_transaction_may_take_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = ScriptedConsumer([Message(5), Message(6)])
    slow.passing_over = 3 * reading.STALL_SECONDS
    assert offsets(slow, monkeypatch, {}) == [5, 6]
    with pytest.raises(ReadStalled, match="t-0 gave nothing for"):
        offsets(ScriptedConsumer([Message(5)]), monkeypatch, {})


def test_an_error_of_metadata_is_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    between_leaders = ScriptedConsumer([Message(5), UNKNOWN], [Message(6)])
    between_leaders.there, between_leaders.topic_error = False, KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    assert offsets(between_leaders, monkeypatch, {}) == [5, 6]
    forbidden = ScriptedConsumer([Message(5), UNKNOWN])
    forbidden.there, forbidden.topic_error = False, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(RequestRefused, match=r"no permission to read topic t"):
        offsets(forbidden, monkeypatch, {})


def test_a_group_that_may_not_be_used_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Message(None, KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    assert offsets(ScriptedConsumer([refusal, Message(5), Message(6)]), monkeypatch, {}) == [5, 6]


def test_a_broker_that_is_away_when_asked_where_a_partition_begins_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back = ScriptedConsumer([BEYOND], [BEYOND], [Message(6)], ends=[(6, 9)])
    back.failures.append(KafkaError._TRANSPORT)
    assert offsets(back, monkeypatch, {}, fail_on_data_loss=False) == [6]


def test_an_end_before_the_next_offset_counts_only_if_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = ScriptedConsumer([BEYOND], [Message(5), Message(6)], ends=[(0, 3)])
    assert offsets(passing, monkeypatch, {}) == [5, 6]
    staying = ScriptedConsumer(*[[BEYOND]] * 100, ends=[(0, 3)])
    with pytest.raises(DataLost, match="created again or its log was truncated"):
        offsets(staying, monkeypatch, {})


def test_records_that_were_removed_are_stepped_over_if_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ScriptedConsumer([BEYOND], [Message(6)], ends=[(6, 9)])
    assert offsets(consumer, monkeypatch, {}, fail_on_data_loss=False) == [6]
    with pytest.raises(DataLost, match="t-0 begins at offset 6 now: 5 to 5 were removed"):
        offsets(ScriptedConsumer([BEYOND], ends=[(6, 9)]), monkeypatch, {})


def test_how_long_we_ask_again_is_not_how_long_a_connection_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = ScriptedConsumer([Message(5), Message(6)])
    assert offsets(consumer, monkeypatch, {"default.api.timeout.ms": "300000", "client.id": "c"}) == [5, 6]
    assert "default.api.timeout.ms" not in consumer.config
    assert consumer.config["client.id"] == "c"


@pytest.fixture
def workers_consumers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ScriptedConsumer]]:
    """The consumers of a worker of Spark, which keeps them."""
    opened: list[ScriptedConsumer] = []
    clock = Clock()

    def open_one(_: object, __: str, found: dict[str, Any]) -> ScriptedConsumer:
        opened.append(ScriptedConsumer([Message(5), Message(6)], [Message(7)]))
        opened[-1].config, opened[-1].clock = found, clock
        return opened[-1]

    monkeypatch.setattr(reading, "open_client", open_one)
    monkeypatch.setattr(reading, "time", clock)
    yield opened
    reading._kept.clear()


def task(wanted: OffsetRange = WANTED, **config: object) -> list[int]:
    """What a task of Spark reads."""
    found = read_ranges([wanted], config, columns=("offset", "value"), keep_consumer=True)
    return [offset for _, batches in found for batch in batches for offset in batch.column("offset").to_pylist()]


NEXT = OffsetRange("t", 0, 7, 8)


def test_the_next_task_of_a_worker_has_the_same_consumer(workers_consumers: list[ScriptedConsumer]) -> None:
    assert task() == [5, 6]
    assert task(NEXT) == [7]
    (consumer,) = workers_consumers
    assert consumer.assigned == [5, NONE, 7, NONE], "it fetches nothing between tasks"
    assert not consumer.closed


@pytest.mark.parametrize("what", ["other properties", "a long pause", "a fork"])
def test_a_task_that_is_another_ones_or_late_has_a_new_consumer(
    workers_consumers: list[ScriptedConsumer], what: str
) -> None:
    assert task() == [5, 6]
    (first,) = workers_consumers
    if what == "a long pause":
        first.clock.sleep(2 * reading.KEEP_SECONDS)
    if what == "a fork":
        reading._kept[0].consumer.forked()
    assert task(WANTED, **({"client.id": "c"} if what == "other properties" else {})) == [5, 6]
    assert len(workers_consumers) == 2
    assert first.closed == (what != "a fork"), "a fork has nothing of it to close"


@pytest.mark.parametrize("how", ["fails", "is left"])
def test_a_consumer_is_not_kept_of_a_task_that_did_not_come_to_its_end(
    workers_consumers: list[ScriptedConsumer], how: str
) -> None:
    if how == "fails":
        with pytest.raises(ReadStalled):
            task(OffsetRange("t", 0, 5, 9))
    else:
        found = read_ranges([WANTED], {}, columns=("offset",), keep_consumer=True)
        next(found)
        found.close()  # type: ignore[attr-defined]  # a generator
    assert not reading._kept
    assert all(each.closed for each in workers_consumers)
    assert task() == [5, 6]
