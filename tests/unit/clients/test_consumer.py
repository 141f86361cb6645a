from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from barnabas.clients.consumer import Consumer
from barnabas.clients.errors import ClientClosed, ClientFailed, InvalidClientConfig
from barnabas.clients.reading import Reader
from barnabas.clients.seeking import BEGINNING
from barnabas.model.ids import TopicPartition


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


def closing_reader(client: Closing) -> tuple[Reader[bytes, bytes], list[tuple[threading.Thread, list[TopicPartition]]]]:
    reader = reader_of(client, grouped=True)
    told: list[tuple[threading.Thread, list[TopicPartition]]] = []
    reader.subscribe(
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
        reader.assignment()
    client.answered.set()


def test_the_end_waits_for_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    client = Closing()
    client.answered.set()
    reader, told = closing_reader(client)
    reader.close(10)
    assert [gone for _, gone in told] == [[TopicPartition("t", 0)]]
    assert caplog.text == ""


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


def reader_of(client: Any, *, grouped: bool = False) -> Reader[bytes, bytes]:
    """An engine with this in place of librdkafka."""
    kafka = SimpleNamespace(
        TopicPartition=confluent_kafka.TopicPartition, KafkaException=confluent_kafka.KafkaException
    )
    return Reader[bytes, bytes](
        kafka,
        client,
        grouped=grouped,
        incremental=False,
        auto_commit=False,
        reset=BEGINNING,
        max_records=10,
        look_every=1000.0,
        key_deserializer=None,
        value_deserializer=None,
    )


def moved_reader(client: Client) -> Reader[bytes, bytes]:
    """One that was moved to 42 in partition 0."""
    reader = reader_of(client)
    reader._chosen = True
    reader.seek(TopicPartition("t", 0), 42)
    return reader


def read(client: Client) -> list[int]:
    """Offsets that come after a move to 42, as long as some do."""
    reader = moved_reader(client)
    offsets = []
    while client.found:
        reader.fetch(0)
        offsets += [message.offset() for message in reader._buffer]
        reader._buffer.clear()
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
    assert [(message.partition(), message.offset()) for message in reader._buffer] == [(1, 7), (1, 8)]
    reader._buffer.clear()
    client.refused = None
    assert not reader.fetch(0)
    assert client.moved == [42, 42]
