"""Fields that nobody sees."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.console.messages.decoding import ContentDecoder
from barnabas.console.messages.fetching import LoggedRecord
from barnabas.console.messages.filtering import RecordFilter
from barnabas.console.messages.masking import HIDDEN, InvalidMask, Masks, masks_of, parse_rule
from barnabas.console.messages.scanning import TopicScan, Wanted, record_row
from barnabas.console.messages.schemas import Schemas
from barnabas.protocol.records.records import Header


def decoder(*rules: str, topic: str = "cards") -> ContentDecoder:
    return ContentDecoder(Schemas(None, None), topic, [parse_rule(each) for each in rules])


def test_fields_are_hidden_wherever_the_path_leads() -> None:
    value = {"card": {"number": 1, "name": "x"}, "cards": [{"number": 2}, {"number": 3}], "other": {"number": 4}}
    shown = decoder("c*:value.card.number", "cards:value.cards.*.number").value(json.dumps(value).encode(), 1000).value
    assert shown["card"] == {"number": HIDDEN, "name": "x"}
    assert shown["cards"] == [{"number": HIDDEN}, {"number": HIDDEN}]
    assert shown["other"] == {"number": 4}


@pytest.mark.parametrize("data", [b"number 4111", b"\xff\x00", b"[" * 5000, b'{"card": ' * 900 + b"1" + b"}" * 900])
def test_what_cannot_be_looked_into_is_hidden_or_shown_without_the_field(data: bytes) -> None:
    shown = decoder("cards:value.card.number").value(data, 100_000)
    assert "4111" not in shown.text
    assert shown.format in ("masked", "json")


@pytest.mark.parametrize("data", ["4111", '"4111"', '["4111"]', '{"card": "4111"}', '{"card": ["4111", 4111]}'])
def test_what_stands_where_a_rule_expects_fields_is_hidden(data: str) -> None:
    shown = decoder("cards:value.card.number").value(data.encode(), 1000)
    assert "4111" not in shown.text
    assert decoder("cards:value.card.number").value(b'{"card": null, "n": 1}', 1000).value == {"card": None, "n": 1}


def test_keys_values_and_headers_are_hidden_as_a_whole() -> None:
    masked = decoder("cards:key", "cards:value", "*:headers.tok*")
    assert masked.key(b"secret", 100).text == masked.value(b"secret", 100).text == HIDDEN
    assert masked.header("token", b"secret", 100).text == HIDDEN
    assert masked.header("trace", b"shown", 100).text == "shown"
    assert not masks_of([parse_rule("cards:key")], "orders")


@pytest.mark.parametrize("rule", ["", "x", "x:", ":key", "x:y", "x:key.a", "x:headers", "x:headers.a.b", "x:value..a"])
def test_a_rule_that_means_nothing_is_refused(rule: str) -> None:
    with pytest.raises(InvalidMask):
        parse_rule(rule)


LETTER = (Header("__dlq.errors.topic", b"cards"),)
CARD = b'{"card": {"number": "4111"}, "city": "Bonn"}'


def logged(headers: Any, key: bytes = b"k", value: bytes = CARD) -> LoggedRecord:
    """A record as a log has it."""
    batch = cast("Any", SimpleNamespace(codec=0))
    rest: dict[str, Any] = {"timestamp": 0, "appended": False, "batch": batch, "transaction": None}
    return LoggedRecord(partition=0, offset=0, key=key, value=value, headers=headers, **rest)


def test_a_dead_letter_is_hidden_by_the_rules_of_its_original_topic_too() -> None:
    """It was shown as it is: rules looked at the topic of dead letters alone."""
    masked = decoder("cards:value.card.number", "cards:key", "cards:headers.token", topic="letters")
    row = record_row(logged((*LETTER, ("token", b"4111"))), masked)
    assert "4111" not in json.dumps(row)
    assert row["key"]["text"] == HIDDEN
    assert json.loads(row["value"]["text"]) == {"card": {"number": HIDDEN}, "city": "Bonn"}
    assert masked.of(LETTER).masks
    assert not masked.of((Header("token", b"x"),)).masks
    assert "4111" in json.dumps(record_row(logged(()), masked))


@pytest.mark.parametrize("topic", [b"\xff", b"", None])
def test_a_dead_letter_that_does_not_say_of_which_topic_is_hidden_by_all_rules(topic: bytes | None) -> None:
    masked = decoder("cards:value", "users:key", topic="letters")
    row = record_row(logged((("__dlq.errors.topic", topic),)), masked)
    assert row["value"]["text"] == row["key"]["text"] == HIDDEN


def test_a_dead_letter_that_names_several_topics_is_hidden_by_the_rules_of_all() -> None:
    masked = decoder("cards:value", "letters:key", topic="letters")
    row = record_row(logged((*LETTER, ("__dlq.errors.topic", b"harmless"))), masked)
    assert row["value"]["text"] == row["key"]["text"] == HIDDEN


def test_a_filter_does_not_see_what_is_hidden_in_a_dead_letter() -> None:
    """Who filters by a hidden number would learn it digit by digit."""
    wanted = Wanted(topic="letters", partitions=(), way="newest", limit=1, most_records=1, most_seconds=1)
    chosen = RecordFilter("value.card.number == '4111'", "letters")
    scan = TopicScan(cast("Any", None), wanted, decoder("cards:value.card.number", topic="letters"), chosen)
    assert scan._fits(logged(()))
    assert not scan._fits(logged(LETTER))


def test_a_copy_that_is_no_dead_letter_any_more_must_be_hidden_as_well() -> None:
    """Sent again to its own topic, without the headers that had told of the original one, it was shown as it was."""
    masked = decoder("cards*:value.card.number", "cards:headers.token", topic="letters")
    token = Header("token", b"4111")
    connect = Header("__connect.errors.topic", b"cards")
    for topic, headers, kept, is_hidden in (
        ("letters", (*LETTER, token), (token,), False),
        ("letters", (*LETTER, connect), (connect,), True),
        ("letters", (token,), (token,), True),
        ("letters", (Header("__dlq.errors.topic", b"\xff"),), (), False),
        ("cards", (*LETTER, token), (token,), True),
        ("cards-old", (*LETTER, token), (token,), False),
    ):
        assert masked.hides_no_less_in(topic, headers, kept) is is_hidden, (topic, headers)


def test_a_record_goes_only_where_as_much_is_hidden() -> None:
    def masks(*rules: str) -> Masks:
        return masks_of([parse_rule(f"t:{each}") for each in rules], "t")

    assert masks("value.card").hides_all_of(masks("value.card"))
    assert masks("value", "key").hides_all_of(masks("value.card"))
    assert masks().hides_all_of(masks())
    for less in ((), ("value.card",), ("key", "headers.token")):
        assert not masks(*less).hides_all_of(masks("value", "headers.token"))
    assert not masks("value").hides_all_of(masks("key"))
