"""Java's properties syntax; the expected values are what java.util.Properties reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.model.config.properties import parse_overrides, parse_properties
from barnabas.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a=1", {"a": "1"}),
        ("a = 1 ", {"a": "1 "}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1", {"a": "1"}),
        ("  a=1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==1", {"a": "=1"}),
        ("a= =1", {"a": "=1"}),
        ("# a=1\n! b=2\n   # c=3", {}),
        ("a=1 # not a comment", {"a": "1 # not a comment"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\r\nb=2\rc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=x,\\\n  y", {"a": "x,y"}),
        ("a=x\\\n# y", {"a": "x# y"}),
        ("a=x\\\\\nb=y", {"a": "x\\", "b": "y"}),
        ("a=x\\", {"a": "x"}),
        ("\\\n\nb=2", {"b": "2"}),
        ("a\\=b=1", {"a=b": "1"}),
        ("a\\ b=1", {"a b": "1"}),
        ("a\\:b:1", {"a:b": "1"}),
        ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
        ("a=C:\\\\data", {"a": "C:\\data"}),
        ("a=\\u00e9\\u0041", {"a": "éA"}),
        ("a=\\uD83D\\uDE00", {"a": "😀"}),
        ("a=é", {"a": "é"}),
        ("\fa=1", {"a": "1"}),
    ],
)
def test_what_java_reads_is_read(text: str, properties: dict[str, str]) -> None:
    assert parse_properties(text) == properties


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\u=1"])
def test_a_broken_escape_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="four hexadecimal digits"):
        parse_properties(text)


def _escaped(text: str) -> str:
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16-le")).cast("H"))


words = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.dictionaries(words, words, max_size=4))
def test_everything_can_be_written_in_escapes(properties: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(key)}={_escaped(value)}" for key, value in properties.items())
    assert parse_properties(text) == properties


plain = st.text(st.sampled_from("abc.-_/:=#! é"), min_size=1, max_size=12).map(lambda text: f"x{text}x")


@given(st.lists(st.tuples(st.from_regex(r"[a-z][a-z.]{0,9}", fullmatch=True), plain), max_size=6), st.integers(0, 60))
def test_a_line_may_be_broken_anywhere_in_its_value(settings: list[tuple[str, str]], place: int) -> None:
    lines = []
    for key, value in settings:
        cut = min(place, len(value))
        rest = value[cut:]
        if rest[:1].isspace():
            lines.append(f"{key}={value}")
        else:
            lines.append(f"{key}={value[:cut]}\\\n   \t{rest}")
    assert parse_properties("\n".join(lines)) == dict(settings)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        properties = parse_properties(text)
    except ConfigError:
        assert "\\u" in text
    else:
        assert all(isinstance(part, str) for pair in properties.items() for part in pair)


def test_overrides_are_taken_as_they_are() -> None:
    assert parse_overrides(["a=1", "b.c = x=y ", "d=", "a=2"]) == {"a": "2", "b.c": "x=y", "d": ""}


@pytest.mark.parametrize("setting", ["a", "=1", "", " =1"])
def test_an_override_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides([setting])
