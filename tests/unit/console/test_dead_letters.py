"""Where a dead letter says that its record was: anybody may have written its headers."""

from __future__ import annotations

import pytest

from barnabas.console.messages.dead_letters import OriginalPlace, original_place, original_topics
from barnabas.protocol.records.records import Header


def letter(topic: bytes | None, partition: bytes | None, offset: bytes | None) -> list[Header]:
    names = ("__dlq.errors.topic", "__dlq.errors.partition", "__dlq.errors.offset")
    return list(map(Header, names, (topic, partition, offset)))


def test_a_letter_says_where_its_record_was() -> None:
    assert original_place(letter(b"tasks", b"3", b"15")) == OriginalPlace("tasks", 3, 15)
    assert original_place(()) is None


@pytest.mark.parametrize(
    "told",
    [
        (None, b"0", b"0"),
        (b"", b"0", b"0"),
        (b"\xff", b"0", b"0"),
        (b"t", b"-1", b"0"),
        (b"t", b"0", b"-1"),
        (b"t", None, b"0"),
        (b"t", b"zero", b"0"),
        (b"t", b"0", b"9" * 30),
        (b"t", b"9" * 5000, b"0"),
    ],
)
def test_headers_that_name_no_place_are_those_of_any_record(told: tuple[bytes | None, ...]) -> None:
    assert original_place(letter(*told)) is None


@pytest.mark.parametrize(
    ("headers", "topics"),
    [
        ([], set()),
        ([("trace", b"1")], set()),
        (letter(b"tasks", b"0", b"0"), {"tasks"}),
        ([("__connect.errors.topic", b"a"), ("kafka_dlt-original-topic", b"b")], {"a", "b"}),
        ([("__streams.errors.topic", b"a"), ("__streams.errors.topic", b"b")], {"a", "b"}),
        ([("__dlq.errors.group", b"g")], None),
        ([("__dlq.errors.topic", None)], None),
        ([("__dlq.errors.topic", b"")], None),
        ([("__dlq.errors.topic", b"a"), ("__dlq.errors.topic", b"\xff")], None),
    ],
)
def test_a_letter_names_its_topics_or_may_be_of_any(
    headers: list[tuple[str, bytes | None]], topics: set[str] | None
) -> None:
    assert original_topics([Header(*each) for each in headers]) == topics
