from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.get_offsets import parse_rules, parse_time, whole_rule
from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Run

ALL = [TopicPartition(topic, number) for topic in ("cat", "cats", "dog") for number in range(4)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cat", ["cat-0", "cat-1", "cat-2", "cat-3"]),
        ("cat:", ["cat-0", "cat-1", "cat-2", "cat-3"]),
        ("cat.*:1", ["cat-1", "cats-1"]),
        ("dog:1-3", ["dog-1", "dog-2"]),
        ("dog:2-", ["dog-2", "dog-3"]),
        ("dog:-2", ["dog-0", "dog-1"]),
        (":3", ["cat-3", "cats-3", "dog-3"]),
        ("cat:0,dog:0", ["cat-0", "dog-0"]),
    ],
)
def test_topics_with_partitions(text: str, expected: list[str]) -> None:
    rules = parse_rules(text)
    assert [str(one) for one in ALL if any(rule.takes(one) for rule in rules)] == expected


@pytest.mark.parametrize(
    ("topic", "partitions", "expected"),
    [
        (None, "0", ["cat-0", "cats-0", "dog-0"]),
        ("cat,dog", "1,2", ["cat-1", "cat-2", "dog-1", "dog-2"]),
        ("c.*s", None, ["cats-0", "cats-1", "cats-2", "cats-3"]),
    ],
)
def test_topics_and_partitions(topic: str | None, partitions: str | None, expected: list[str]) -> None:
    rule = whole_rule(topic, partitions)
    assert [str(one) for one in ALL if rule.takes(one)] == expected


def test_times() -> None:
    assert [parse_time(text) for text in ("latest", "-2", "1700000000000")] == [-1, -2, 1_700_000_000_000]
    with pytest.raises(click.UsageError, match="--time noon is neither a number nor one of latest"):
        parse_time("noon")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("--topic a --topic-partitions b", "Give --topic-partitions, or --topic and --partitions."),
        ("--partitions a", "--partitions a is not a list of numbers."),
        ("--topic-partitions a:b", "--topic-partitions a:b is not of the form"),
        ("--topic (", "--topic ( is not a regular expression"),
    ],
)
def test_command_lines_that_mean_nothing_are_refused(run: Run, line: str, complaint: str) -> None:
    result = run("get-offsets", *line.split())
    assert result.exit_code == 2
    assert complaint in result.stderr
