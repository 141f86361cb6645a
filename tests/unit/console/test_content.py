"""Bytes as people read them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.console.messages.cel_tree import KIND, shape_of
from barnabas.console.messages.decoding import NOTHING, ContentDecoder, ShownContent
from barnabas.console.messages.fetching import LoggedRecord
from barnabas.console.messages.filtering import LARGE, MOST_IN_LOOPS, FilterTooSlow, InvalidFilter, RecordFilter
from barnabas.console.messages.raw_protobuf import NotProtobuf, decode_raw
from barnabas.console.messages.schemas import Schemas

if TYPE_CHECKING:
    from pathlib import Path


def decoder(value: str = "auto", folder: Path | None = None) -> ContentDecoder:
    return ContentDecoder(Schemas(None, folder), "t", (), value=value)


@pytest.mark.parametrize(
    ("data", "kind", "text"),
    [
        (b'{"a": 1}', "json", '{"a": 1}'),
        (b" [1]", "json", " [1]"),
        (b"12", "text", "12"),
        ("Köln".encode(), "text", "Köln"),
        (b"\xff\xfe", "hex", "fffe"),
        (b"\x00\x01\x02", "hex", "000102"),
        (b'{"a": ', "text", '{"a": '),
        (b"", "text", ""),
    ],
)
def test_a_format_is_found(data: bytes, kind: str, text: str) -> None:
    shown = decoder().value(data, 100)
    assert (shown.format, shown.text, shown.size, shown.cut) == (kind, text, len(data), False)


def test_what_is_long_is_cut_between_characters() -> None:
    shown = decoder().value("ü".encode() * 1000, 101)
    assert (shown.text, shown.cut, shown.size) == ("ü" * 101, True, 2000)
    assert decoder().value(b"\xff" * 1000, 100).text == "ff" * 50


@pytest.mark.parametrize(("data", "text"), [(b"\x00\x00\x00\x05", "5"), (b"\xff" * 8, "-1"), (b"\x01", "1")])
def test_numbers_are_read_as_javas_serializers_write_them(data: bytes, text: str) -> None:
    assert decoder("number").value(data, 100).text == text


def test_avro_is_read_by_the_schema_of_its_topic(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "bytes"}]}
    (tmp_path / "t-value.avsc").write_text(json.dumps(schema))
    shown = decoder(folder=tmp_path).value(b"\x04\x02\xff", 100)
    assert (shown.format, shown.value) == ("avro", {"a": 2, "b": "ff"})
    other = decoder(folder=tmp_path).value(b"text", 100)
    assert other.format == "text"
    assert other.note is not None


def test_protobuf_is_read_without_its_schema() -> None:
    inner = b"\x08\x01"
    assert decode_raw(b"\x08\x96\x01\x12\x02hi\x1a\x02" + inner + b"\x08\x02") == {
        "1": [150, 2],
        "2": "hi",
        "3": {"1": 1},
    }
    for damaged in (b"\x08", b"\x12\x05hi", b"\x00\x01", b"\x0f", b"\x08" + b"\xff" * 11):
        with pytest.raises(NotProtobuf):
            decode_raw(damaged)


def test_protobuf_that_nests_without_end_is_given_up() -> None:
    data = b"\x08\x01"
    for _ in range(200):
        data = b"\x0a" + bytes([len(data) & 0x7F | 0x80, len(data) >> 7]) + data
    assert decode_raw(data)


@pytest.mark.parametrize("expression", ["value. >", "nothing > 1", "(" * 500, "x" * 5000, "\ud800"])
def test_a_filter_that_means_nothing_is_refused(expression: str) -> None:
    with pytest.raises(InvalidFilter):
        RecordFilter(expression, "t")


def logged(value: bytes) -> LoggedRecord:
    batch = cast("Any", SimpleNamespace(codec=0))
    rest: dict[str, Any] = {"timestamp": 0, "appended": False, "headers": (), "batch": batch, "transaction": None}
    return LoggedRecord(partition=0, offset=7, key=None, value=value, **rest)


def content(value: Any) -> ShownContent:
    return ShownContent("json", "", value, 0)


LETTERS = '["aaaaaaaaaaaaaaaa"]'


@pytest.mark.parametrize(
    "expression",
    [
        LETTERS + ".map(x, x + x)" * 25 + ".size() == 1",
        "[[1, 2]]" + ".map(x, x + x)" * 25 + ".size() == 1",
        'value + "a" == "b"',
        'b"a" + b"b" == b"ab"',
        "value.a + value.b > 1",
        "(true ? value : 1) + key == 2",
        "value.items.all(x, [value.net + value.tax].all(y, y > 1))",
        "{'a': [value + value]}.size() == 1",
        "headers[key + key] == 1",
        "[1] + [2] == [1, 2]",
    ],
)
def test_a_filter_that_could_grow_without_end_is_refused(expression: str) -> None:
    """Twenty-five doublings of sixteen letters are half a gigabyte, a few more end the console."""
    with pytest.raises(InvalidFilter, match="adds numbers and times"):
        RecordFilter(expression, "t")


def twice(expression: str) -> str:
    return f"{expression} == {expression}"


@pytest.mark.parametrize(
    "expression",
    [
        twice("[key]" + ".map(x, [x, x, x, x, x, x, x, x, x, x])" * 12),
        twice("[key]" + ".map(x, {'a': x, 'b': x})" * 20),
        twice("[key]" + ".map(x, [1, 2].map(y, x))" * 12),
        twice("[key]" + ".map(x, [[x], [1]])" * 20),
        "[[key, key]].exists(a, [[a, a]].exists(b, [[b, b]].exists(c, c == c)))",
        "[[key]].exists(a, [[1, 2].map(x, a)].exists(b, [[1, 2].map(x, b)].exists(c, c == c)))",
        "[key].map(x, [1, 2].map(y, y > 1, x)).size() == 1",
        "value.list.map(x, {x: x}).size() == 1",
    ],
)
def test_a_filter_whose_comparisons_could_go_on_without_end_is_refused(expression: str) -> None:
    """Each of twelve loops makes ten of one without taking memory: comparing them takes ten times as long with each."""
    with pytest.raises(InvalidFilter, match="of several values"):
        RecordFilter(expression, "t")


@pytest.mark.parametrize("compared", ["value == value", "x in value.list", 'value.text.matches("(a|b)*c")'])
def test_a_filter_compares_a_few_times_in_loops(compared: str) -> None:
    """A round that compares 32,000 numbers with themselves takes a millisecond, and there are ten thousand rounds."""
    assert RecordFilter(f"value.list.all(x, {' && '.join([compared] * MOST_IN_LOOPS)})", "t")
    assert RecordFilter(" && ".join([f"({compared.replace('x in', '1 in')})"] * 3 * MOST_IN_LOOPS), "t")
    with pytest.raises(InvalidFilter, match="8 times at most"):
        RecordFilter(f"value.list.all(x, {' && '.join([compared] * (MOST_IN_LOOPS + 1))})", "t")


@pytest.mark.parametrize(
    "expression",
    [
        "value.a + 1 == 3",
        "value.list.exists(x, x in [3, 4]) && value.list.filter(x, x in [1, 2]).size() == 2",
        "value.list.map(x, x > 1, {'a': [x]}).size() == 2",
        "value.list.exists(x, value.list.filter(y, y > x).map(y, y).size() == 2)",
        "value.list.map(x, value.list.exists_one(y, y == x)).all(each, each)",
        "[value.a, value.b].exists(x, x == 5)",
        "double(value.a) + double(value.b) > 3.0",
        "size + offset == 17",
        "value.list.map(x, x + 1)[0] == 2",
        "value.list.filter(x, x > 1).map(x, [x]).size() == 2",
        "value.list.exists_one(x, x == 3) && value.list.exists(x, x == 2) && value.list.all(x, x > 0)",
        'timestamp("2026-01-01T00:00:00Z") + duration("1h") > timestamp("2026-01-01T00:00:00Z")',
    ],
)
def test_a_filter_adds_numbers_and_goes_over_lists(expression: str) -> None:
    chosen = RecordFilter(expression, "t")
    assert chosen.fits(logged(b"x" * 10), NOTHING, content({"a": 2, "b": 5, "list": [1, 2, 3]}), {}), chosen.failure


@pytest.mark.parametrize("written", [b"", b"\x0a\x01x", b"\x0a\xff", b"\x0a" + bytes([len(KIND)]) + KIND + b"\x12\x00"])
def test_an_expression_that_cannot_be_read_is_not_taken_for_a_harmless_one(written: bytes) -> None:
    with pytest.raises(NotProtobuf):
        shape_of(written)


def test_a_filter_with_loops_looks_into_no_large_records() -> None:
    chosen = RecordFilter("value.list.exists(x, x == 1)", "t")
    value = content({"list": [1]})
    assert chosen.fits(logged(b"x" * LARGE), NOTHING, value, {})
    assert not chosen.fits(logged(b"x" * (LARGE + 1)), NOTHING, value, {})
    assert chosen.failed == 1
    assert "64 KB" in str(chosen.failure)


def test_a_filter_that_keeps_everybody_waiting_ends_its_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.console.messages.filtering.LONGEST_SECONDS", 0.0)
    chosen = RecordFilter("value.list.exists(x, x == 1)", "t")
    with pytest.raises(FilterTooSlow, match="offset 7 of partition 0 took"):
        chosen.fits(logged(b"x"), NOTHING, content({"list": [1]}), {})
