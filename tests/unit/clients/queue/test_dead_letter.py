"""What a program learns of a message from its dead letter, and what it does not take for one."""

from __future__ import annotations

from barnabas.clients.queue.dead_letter import DeadLetter
from barnabas.clients.records import ConsumerRecord
from barnabas.model.ids import TopicPartition

HEADERS = (
    ("__dlq.errors.topic", b"orders"),
    ("__dlq.errors.partition", b"3"),
    ("__dlq.errors.offset", b"17"),
    ("__dlq.errors.group", b"workers"),
    ("__dlq.errors.delivery.count", b"5"),
    ("__dlq.errors.message", b"Offset delivery count exceeded the threshold."),
)


def record(*headers: tuple[str, bytes | None]) -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord("dlq.orders", 0, 5, 0, 1, None, None, headers)


def test_a_dead_letter_says_where_its_message_is_and_why_it_was_given_up() -> None:
    letter = DeadLetter.of(record(("trace", b"1"), *HEADERS))
    assert letter is not None
    assert tuple(letter) == ("orders", 3, 17, "workers", 5, "Offset delivery count exceeded the threshold.")
    assert (letter.topic_partition, letter.rejected) == (TopicPartition("orders", 3), False)
    rejected = DeadLetter.of(record(*HEADERS[:4], ("__dlq.errors.message", b"Offset rejected by client. It is large.")))
    assert rejected is not None
    assert (rejected.rejected, rejected.deliveries) == (True, None)


def test_headers_of_a_dead_letter_that_was_given_up_itself_do_not_count() -> None:
    again = record(*HEADERS, ("__dlq.errors.topic", b"dlq.orders"), ("__dlq.errors.offset", b"0"))
    letter = DeadLetter.of(again)
    assert letter is not None
    assert (letter.topic, letter.offset) == ("dlq.orders", 0)


def test_other_records_are_no_dead_letters() -> None:
    assert DeadLetter.of(record()) is None
    for name in ("topic", "partition", "offset"):
        assert DeadLetter.of(record(*(each for each in HEADERS if each[0] != f"__dlq.errors.{name}"))) is None
    for wrong in (b"", None, b"x", b"-1", b"1" * 5000, "\u0661".encode(), b"\xff"):
        assert DeadLetter.of(record(*HEADERS, ("__dlq.errors.offset", wrong))) is None
