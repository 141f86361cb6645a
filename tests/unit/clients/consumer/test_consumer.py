from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.consumer.native import BEGINNING
from barnabas.clients.consumer.reading import ReadOptions, RecordReader
from barnabas.clients.errors import ClientClosed, ClientFailed, InvalidClientConfig
from barnabas.model.ids import TopicPartition
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"max_poll_records": 0}, "at least 1"),
        ({"assignor": "best"}, "partition.assignment.strategy"),
        ({"auto_offset_reset": "middle"}, "auto.offset.reset"),
    ],
)
def test_values_that_mean_nothing_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidClientConfig, match=text):
        Consumer("127.0.0.1:1", group_id="g", **settings)


def test_no_topics_at_all_are_refused() -> None:
    with pytest.raises(InvalidClientConfig, match="no topics are given"):
        Consumer("127.0.0.1:1", [])


def test_reading_without_saying_what_is_refused() -> None:
    with Consumer("127.0.0.1:1", log_level=0) as consumer:
        for read in (lambda: consumer.poll(0.1), lambda: next(iter(consumer)), lambda: next(consumer.until_end())):
            with pytest.raises(InvalidClientConfig, match="there is nothing to read: give topics"):
                read()
        consumer.assign([])
        assert consumer.poll(0.01) == []
        assert list(consumer.until_end()) == []
        consumer.unsubscribe()
        with pytest.raises(InvalidClientConfig, match="there is nothing to read"):
            consumer.poll(0.1)


def test_offsets_that_no_partition_has_are_refused() -> None:
    place = TopicPartition("t", 0)
    with Consumer("127.0.0.1:1", log_level=0) as consumer:
        for offset in (-50, 2**63):
            with pytest.raises(InvalidClientConfig, match=f"^offset of t-0: {offset} is not from -2 to"):
                consumer.seek(place, offset)
            with pytest.raises(InvalidClientConfig, match=f"^offset of t-0: {offset} is not from -2 to"):
                consumer.assign({place: offset})


class Message:
    """What librdkafka hands out: a record, or that the end was reached."""

    def __init__(self, offset: int, partition: int = 0, *, end: bool = False) -> None:
        self._offset = offset
        self._partition = partition
        self._end = end

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def error(self) -> Any:
        return SimpleNamespace(code=lambda: -191, _PARTITION_EOF=-191) if self._end else None


class Closing:
    """A consumer of librdkafka that takes its time to close, and gives its partitions back when it is asked to."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.callbacks: dict[str, Any] = {}
        self.assigned = [confluent_kafka.TopicPartition("t", 0)]
        self.subscribed = False

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks
        self.subscribed = True

    def unsubscribe(self) -> None:
        self.subscribed = False

    def assignment(self) -> list[Any]:
        return self.assigned

    def poll(self, _: float) -> None:
        if not self.subscribed:
            given, self.assigned = self.assigned, []
            self.callbacks["on_revoke"](self, given)

    def close(self) -> None:
        assert self.answered.wait(10)


def closing_reader(
    client: Closing,
) -> tuple[RecordReader[bytes, bytes], list[tuple[threading.Thread, list[TopicPartition]]]]:
    reader = reader_of(client, group_id="group")
    told: list[tuple[threading.Thread, list[TopicPartition]]] = []
    reader.subscription.subscribe(
        "t",
        on_assign=None,
        on_revoke=lambda gone: told.append((threading.current_thread(), gone)),
        on_lost=None,
        start=None,
    )
    return reader, told


def test_the_end_waits_no_longer_than_it_is_told_to(caplog: pytest.LogCaptureFixture) -> None:
    client = Closing()
    reader, told = closing_reader(client)
    reader.close(0.05)
    assert told == [(threading.current_thread(), [TopicPartition("t", 0)])]
    assert "could not leave its group within 0.05 s" in caplog.text
    with pytest.raises(ClientClosed, match="the consumer is closed"):
        reader.native.assignment()
    client.answered.set()


def test_a_commit_that_comes_after_the_end_is_refused() -> None:
    """The partitions were given back, and with them what was handed out: there is nothing left to commit."""
    client = Closing()
    client.answered.set()
    reader, _ = closing_reader(client)
    reader.close(10)
    for late in (reader.commits.done, lambda: reader.commits.commit(None, wait=True)):
        with pytest.raises(ClientClosed, match="the consumer is closed"):
            late()


def test_the_end_waits_for_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    client = Closing()
    client.answered.set()
    reader, told = closing_reader(client)
    reader.close(10)
    assert [gone for _, gone in told] == [[TopicPartition("t", 0)]]
    assert caplog.text == ""


def test_partitions_that_come_at_the_end_are_not_asked_for_in_another_thread() -> None:
    client = Closing()
    asked: list[TopicPartition] = []
    reader = reader_of(client, group_id="group")
    reader.subscription.subscribe("t", on_assign=asked.extend, on_revoke=None, on_lost=None, start=asked.append)
    late = [confluent_kafka.TopicPartition("t", 1)]
    client.close = lambda: client.callbacks["on_assign"](client, late)  # type: ignore[method-assign]  # as librdkafka may
    reader.close(5)
    assert asked == []


class Client:
    """A consumer of librdkafka that was moved, and hands out what a test says, a list at a time."""

    def __init__(self, *found: list[Message]) -> None:
        self.found = list(found)
        self.moved: list[int] = []
        self.refused: Exception | None = None

    def seek(self, place: Any) -> None:
        if self.refused is not None:
            raise self.refused
        self.moved.append(place.offset)

    def consume(self, *_: object) -> list[Message]:
        return self.found.pop(0)


def reader_of(client: Any, *, group_id: str | None = None) -> RecordReader[bytes, bytes]:
    """An engine with this in place of librdkafka."""
    kafka = SimpleNamespace(
        TopicPartition=confluent_kafka.TopicPartition,
        KafkaException=confluent_kafka.KafkaException,
        OFFSET_INVALID=confluent_kafka.OFFSET_INVALID,
    )
    options = ReadOptions(
        group_id=group_id, incremental=False, auto_commit=False, reset=BEGINNING, max_records=10, poll_every=1000.0
    )
    return RecordReader[bytes, bytes](kafka, client, options, None, None)


def moved_reader(client: Client) -> RecordReader[bytes, bytes]:
    """One that was moved to 42 in partition 0."""
    reader = reader_of(client)
    reader.subscription._chosen = True
    reader.positions.seek(TopicPartition("t", 0), 42)
    return reader


def read(client: Client) -> list[int]:
    """Offsets that come after a move to 42, as long as some do."""
    reader = moved_reader(client)
    offsets = []
    while client.found:
        reader.fetch(0)
        offsets += [message.offset() for message in reader.fetched._buffer]
        reader.fetched._buffer.clear()
    return offsets


def test_a_move_that_librdkafka_lost_is_made_again() -> None:
    lost = Client([Message(0), Message(1)], [Message(42), Message(43)])
    assert (read(lost), lost.moved) == ([42, 43], [42, 42])
    at_the_end = Client([Message(100, end=True)], [Message(42)])
    assert (read(at_the_end), at_the_end.moved) == ([42], [42, 42])


def test_a_move_is_made_again_only_once_and_only_if_it_was_lost() -> None:
    kept = Client([Message(42), Message(43)], [Message(50)])
    assert (read(kept), kept.moved) == ([42, 43, 50], [42])
    gap = Client([Message(45), Message(46)], [Message(45), Message(46)])
    assert (read(gap), gap.moved) == ([45, 46], [42, 42])


def test_a_move_that_fails_costs_no_records_of_other_partitions_and_is_still_to_be_made() -> None:
    client = Client([Message(7, 1), Message(0), Message(8, 1)], [Message(1)])
    reader = moved_reader(client)
    client.refused = confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._FAIL))
    with pytest.raises(ClientFailed, match="seek t-0 to 42"):
        reader.fetch(0)
    assert [(message.partition(), message.offset()) for message in reader.fetched._buffer] == [(1, 7), (1, 8)]
    reader.fetched._buffer.clear()
    client.refused = None
    assert not reader.fetch(0)
    assert client.moved == [42, 42]


class Member:
    """A consumer of librdkafka in a group that takes everything away before it gives something else."""

    def __init__(self) -> None:
        self.assigned: list[Any] = []
        self.callbacks: dict[str, Any] = {}

    def subscribe(self, _: list[str], **callbacks: Any) -> None:
        self.callbacks = callbacks

    def assignment(self) -> list[Any]:
        return self.assigned

    def rebalance(self, kind: str, *partitions: int) -> None:
        """Let the group say which partitions come or go."""
        named = [confluent_kafka.TopicPartition("t", partition) for partition in partitions]
        self.callbacks[kind](self, named)
        self.assigned = named if kind == "on_assign" else []


def test_a_member_whose_partitions_were_all_taken_away_is_not_at_its_end() -> None:
    client = Member()
    reader = reader_of(client, group_id="group")
    reader.subscription.subscribe("t")
    ends = {TopicPartition("t", 0): 5}
    client.rebalance("on_assign", 0)
    client.rebalance("on_revoke", 0)
    assert not reader.at_end(ends)
    client.rebalance("on_assign")
    assert reader.at_end(ends)  # they are somebody else's now


class Interrupted(Exception):
    """What a signal handler raises."""


class Interrupting:
    """A consumer of librdkafka without a group, of one partition; calls for messages are interrupted by a signal.

    As with confluent-kafka, the messages of such a call are lost, and the position is after them. There is no position
    from a seek to the next message.
    """

    def __init__(self) -> None:
        self.found: list[list[Message] | type[Interrupted]] = []
        self.moved: list[int] = []
        self.reached = -1001

    def assign(self, _: list[Any]) -> None:
        pass

    def assignment(self) -> list[Any]:
        return [confluent_kafka.TopicPartition("t", 0)]

    def position(self, places: list[Any]) -> list[Any]:
        return [confluent_kafka.TopicPartition(place.topic, place.partition, self.reached) for place in places]

    def seek(self, place: Any) -> None:
        self.moved.append(place.offset)
        self.reached = -1001

    def consume(self, *_: object) -> list[Message]:
        found = self.found.pop(0)
        if not isinstance(found, list):
            raise found
        if found:
            self.reached = found[-1].offset() + 1
        return found


def interrupt(reader: RecordReader[bytes, bytes], client: Interrupting, lost_up_to: int | None = None) -> None:
    """A signal in a call for messages; those before an offset are lost, or there were none."""
    client.found.append(Interrupted)
    with pytest.raises(Interrupted):
        reader.fetch(0)
    if lost_up_to is not None:
        client.reached = lost_up_to


def interrupted_reader(client: Interrupting) -> RecordReader[bytes, bytes]:
    """A reader from offset 40 that has lost messages 40 to 49, and went back to them."""
    reader = reader_of(client)
    reader.subscription.assign({TopicPartition("t", 0): 40})
    interrupt(reader, client, lost_up_to=50)
    client.found.append([])
    assert not reader.fetch(0)
    assert client.moved == [40]
    return reader


def test_a_seek_that_is_under_way_is_not_made_again_by_the_next_signal() -> None:
    """It would begin the fetch anew: a program with many signals would get nothing."""
    client = Interrupting()
    reader = interrupted_reader(client)
    for _ in range(3):
        interrupt(reader, client)
    client.found.append([Message(40), Message(41)])
    assert reader.fetch(0)
    assert client.moved == [40]


def test_messages_that_are_lost_once_more_are_read_again() -> None:
    client = Interrupting()
    reader = interrupted_reader(client)
    interrupt(reader, client, lost_up_to=50)
    client.found.append([])
    assert not reader.fetch(0)
    assert client.moved == [40, 40]


def test_a_seek_to_lost_messages_is_made_again_if_nothing_comes() -> None:
    """librdkafka may lose it; at the end of a log nothing would come that shows this."""
    client = Interrupting()
    reader = interrupted_reader(client)

    def moved_again() -> bool:
        client.found.append([])
        reader.fetch(0)
        return client.moved == [40, 40]

    wait_until(moved_again, "the second seek")
    client.found.append([Message(40), Message(41)])
    assert reader.fetch(0)


def test_what_has_arrived_is_not_taken_for_lost() -> None:
    client = Interrupting()
    reader = interrupted_reader(client)
    client.found.append([Message(40), Message(41)])
    reader.receiver.receive(10)  # and a signal handler raises before they are put in order
    assert reader.fetch(0)
    assert client.moved == [40]
    assert [message.offset() for message in reader.fetched._buffer] == [40, 41]
