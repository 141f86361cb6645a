"""Java's properties syntax; the expected values are what java.util.Properties reads."""

from __future__ import annotations

import pytest

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


def test_overrides_are_taken_as_they_are() -> None:
    assert parse_overrides(["a=1", "b.c = x=y ", "d=", "a=2"]) == {"a": "2", "b.c": "x=y", "d": ""}


@pytest.mark.parametrize("setting", ["a", "=1", "", " =1"])
def test_an_override_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides([setting])
