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


def test_what_is_wrong_with_a_password_is_said_without_it() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_properties('sasl.jaas.config=PlainLoginModule required password="hunter2\\ursula";')
    assert (
        str(caught.value)
        == "the value of sasl.jaas.config has a broken \\u escape: four hexadecimal digits must follow"
    )


def test_lines_of_a_private_key_are_not_taken_for_settings() -> None:
    """They were unknown settings, and the log had a warning with each of them."""
    begin, line, end = "-----BEGIN PRIVATE KEY-----", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "-----END PRIVATE KEY-----"
    with pytest.raises(ConfigError, match=r"-----END .* backslash") as caught:
        parse_properties(f"ssl.keystore.key={begin}\n{line}\n{end}\n")
    assert line not in str(caught.value)
    assert parse_properties(f"ssl.keystore.key={begin}\\n\\\n{line}\\n\\\n{end}\n") == {
        "ssl.keystore.key": f"{begin}\n{line}\n{end}"
    }


def test_overrides_are_taken_as_they_are() -> None:
    assert parse_overrides(["a=1", "b.c = x=y ", "d=", "a=2"]) == {"a": "2", "b.c": "x=y", "d": ""}


@pytest.mark.parametrize("setting", ["a", "=1", "", " =1"])
def test_an_override_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides([setting])
