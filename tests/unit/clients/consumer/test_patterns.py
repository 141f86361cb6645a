"""Patterns for topics: what is written for librdkafka and brokers matches what Python's pattern matches."""

from __future__ import annotations

import re

import pytest
import re2

from barnabas.clients.consumer.patterns import as_posix, for_librdkafka
from barnabas.clients.errors import InvalidClientConfig

NAMES = [
    "a",
    "b",
    "ab",
    "aab",
    "AB",
    "a-b",
    "a.b",
    "a_b",
    "a1",
    "a12",
    "1",
    "orders-7",
    "orders-77",
    "Orders-7",
    "orders.eu",
    "orders_eu",
    "x",
    "xx",
    "xxx",
    "xxxx",
    "-",
    ".",
    "_",
]


@pytest.mark.parametrize(
    ("pattern", "written"),
    [
        (r"orders-\d+", "orders-[0-9]+"),
        (r"orders\W\w+", r"orders[.-][0-9A-Za-z_]+"),
        (r"(?:a|b)+\.?b", r"(a|b)+\.?b"),
        (r"(?P<what>orders)[\d.-]+\w{1,2}", r"(orders)[0-9.-]+[0-9A-Za-z_]{1,2}"),
        (r"(?i)orders-7", "[Oo][Rr][Dd][Ee][Rr][Ss]-7"),
        (r"a.*?", "a.*"),
        (r"a??b+?", "a?b+"),
        (r"x{2,3}|a{,2}b", "x{2,3}|a{0,2}b"),
        (r"\Aa\Z|^b$", "^a$|^b$"),
        (r"[^\d\W]+", "[A-Za-z_]+"),
        (r"[]a]b", "ab"),
        (r"a\-b", "a-b"),
        (r"a\sb|[ab]", "a/b|[ab]"),
        (r"[\w.-]+", ".+"),
    ],
)
def test_the_same_names_match(pattern: str, written: str) -> None:
    compiled = re.compile(pattern)
    assert as_posix(compiled) == written
    wanted = [name for name in NAMES if compiled.fullmatch(name)]
    assert wanted
    assert [name for name in NAMES if re2.fullmatch(f"^({written})$", name)] == wanted
    assert [name for name in NAMES if re.fullmatch(f"^({written})$", name)] == wanted


@pytest.mark.parametrize(
    "pattern", [r"a(?=b)", r"(a)\1", r"\bx", r"a++", r"(?<!a)b", r"\x41", r"(?i:a)b", r"(?>a)", r"(?#why)a"]
)
def test_what_brokers_cannot_say_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidClientConfig, match="cannot be used to look for topics"):
        as_posix(re.compile(pattern))


def test_a_pattern_over_several_lines_is_refused() -> None:
    with pytest.raises(InvalidClientConfig, match=r"re\.VERBOSE"):
        as_posix(re.compile("a  # the first", re.VERBOSE))


def test_patterns_are_written_as_brokers_read_them() -> None:
    assert for_librdkafka(re.compile(r"a-\d+|b")) == "^(a-[0-9]+|b)$"
    assert for_librdkafka("plain.name") == "plain.name"
    assert for_librdkafka(r"^begins-\d") == "^(^begins-[0-9]).*$"
    with pytest.raises(InvalidClientConfig, match="is not a regular expression"):
        for_librdkafka("^(")


@pytest.mark.parametrize("topic", ["^orders-[[:digit:]]+", "^[^[:alpha:]]", "^[a[:digit:]]$"])
def test_classes_that_python_does_not_know_are_refused(topic: str) -> None:
    with pytest.raises(InvalidClientConfig, match=r"write .d, or"):
        for_librdkafka(topic)
