"""Java's properties syntax; the expected values are what java.util.Properties reads."""

from __future__ import annotations

import pytest

from barnabas.model.config.properties import parse_overrides, parse_properties, shown_name
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


BEGIN, END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
LINE, LAST = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "CCCCsecret"


@pytest.mark.parametrize("last", [LAST, f"{LAST}=", f"{LAST}=="])
@pytest.mark.parametrize(
    "lines",
    [
        ("ssl.keystore.key={begin}", "{line}", "{last}", "{end}"),
        ("ssl.keystore.key={begin}\\", "{line}", "{last}\\", "{end}"),
        ("ssl.keystore.key={begin}\\", "{line}\\", "{last}", "{end}"),
        ("ssl.keystore.key={begin}\\n\\", "{line}\\n\\", "{last}\\n\\"),
        ("ssl.keystore.key={begin}\\", "{line}\\", "{last}"),
        ("ssl.keystore.key=", "{begin}\\", "{line}\\", "{last}\\", "{end}"),
        ("ssl.keystore.key=", "{line}", "{last}\\", "{end}"),
        ("{line}\\", "{begin}\\", "{last}\\", "{end}"),
        ("a={begin}\\", "{line}\\", "{end}\\", "{begin}\\", "{last}"),
        ("a={line}\\", "{end}\\", "{begin}\\", "{last}"),
    ],
    ids=[
        "no backslashes",
        "none in the middle",
        "none before the end",
        "cut off after a backslash",
        "cut off",
        "none after the name",
        "no beginning",
        "a name before it",
        "a second one cut off",
        "an end before a beginning",
    ],
)
def test_part_of_a_private_key_is_not_taken_for_settings(lines: tuple[str, ...], last: str) -> None:
    """What follows a line without its backslash was an unknown setting, and the log had a warning with it."""
    text = "\n".join(lines).format(begin=BEGIN, line=LINE, last=last, end=END)
    with pytest.raises(ConfigError, match=r"-----(BEGIN|END) .* backslash") as caught:
        parse_properties(text)
    assert LINE not in str(caught.value)
    assert LAST not in str(caught.value)


def test_certificates_in_lines_with_backslashes_are_one_setting() -> None:
    one = f"{BEGIN}\\n\\\n{LINE}\\n\\\n{END}"
    read = f"{BEGIN}\n{LINE}\n{END}"
    assert parse_properties(f"ssl.keystore.key={one}\nb=1\n") == {"ssl.keystore.key": read, "b": "1"}
    assert parse_properties(f"a={one}\\n\\\n{one}") == {"a": f"{read}\n{read}"}


@pytest.mark.parametrize("name", ["confluent.metrics.enable", "MY_SETTING", "listener.name.x.some-key", "colour"])
def test_a_name_that_nobody_knows_is_shown(name: str) -> None:
    assert shown_name(name) == name


@pytest.mark.parametrize(
    "name", [LINE, f"{LINE}=", "user+pass/word", "a\nb", "a." * 60 + "a", "x" * 41, '"secret";', LAST]
)
def test_what_may_be_part_of_a_secret_is_not_shown(name: str) -> None:
    assert shown_name(name) == f"a setting whose name begins with {name[:4]!r} and has {len(name)} characters"


def test_overrides_are_taken_as_they_are() -> None:
    assert parse_overrides(["a=1", "b.c = x=y ", "d=", "a=2"]) == {"a": "2", "b.c": "x=y", "d": ""}


@pytest.mark.parametrize("setting", ["a", "=1", "", " =1"])
def test_an_override_without_key_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides([setting])
