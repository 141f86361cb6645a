"""`barnabas groups --reset-offsets` against a live broker: what it plans is what kafka-consumer-groups plans."""

from __future__ import annotations

import csv
import json
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support import java

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

    Ours = Callable[..., CompletedProcess[str]]
    Theirs = Callable[..., str]

KAFKA = "4.3.0"
T0 = 1_700_000_000_000
"""The time of the first record: 2023-11-14T22:13:20 in UTC."""


@pytest.fixture
def groups(cli: Cli, bootstrap: str) -> Ours:
    return partial(cli, "groups", "--bootstrap-server", bootstrap)


@pytest.fixture
def kafka_groups(bootstrap: str) -> Theirs:
    return partial(java.tool, KAFKA, "consumer-groups", "--bootstrap-server", bootstrap)


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def topic(bootstrap: str, new_topic: TopicMaker) -> str:
    """Two partitions with ten records each, a second apart."""
    name = new_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, b"x", partition=number % 2, timestamp=T0 + number // 2 * 1000)
    assert producer.flush(30) == 0
    return name


def plan(text: str) -> list[list[str]]:
    """The rows of a plan; kafka-consumer-groups prints them in no order, and warnings before them."""
    return sorted(line.split() for line in text.splitlines() if not line.startswith("Warn") and line)


def committed(groups: Ours, group: str) -> dict[int, int]:
    (described,) = json.loads(groups("--describe", "--group", group, "--json").stdout)
    return {row["partition"]: row["currentOffset"] for row in described["partitions"]}


def test_plans_agree_with_kafka_consumer_groups(groups: Ours, kafka_groups: Theirs, group: str, topic: str) -> None:
    whole, part, known = ("--topic", topic), ("--topic", f"{topic}:1"), ("--all-topics",)
    made = groups("--reset-offsets", "--group", group, *part, "--to-offset", "6", "--execute")
    assert (made.returncode, made.stderr) == (0, "")
    for words in (
        (*whole, "--to-earliest"),
        (*known, "--to-latest"),
        (*whole, "--to-current"),
        (*whole, "--to-offset", "50"),
        (*known, "--shift-by", "-2"),
        (*whole, "--to-datetime", "2023-11-14T22:13:24.000"),
        (*whole, "--to-datetime", "2023-11-15T00:13:26.500+02:00"),
        (*whole, "--by-duration", "PT1H"),
    ):
        shared = ("--reset-offsets", "--group", group, *words, "--dry-run")
        ours = groups(*shared)
        assert ours.returncode == 0, ours.stderr
        assert plan(ours.stdout) == plan(kafka_groups(*shared)), words
    assert committed(groups, group) == {1: 6}


def test_files_go_from_tool_to_tool(groups: Ours, kafka_groups: Theirs, group: str, topic: str, tmp_path: Path) -> None:
    """A plan that one tool exported is carried out by the other."""
    shared = ("--reset-offsets", "--group", group)
    file = tmp_path / "plan.csv"
    ours = groups(*shared, "--topic", topic, "--to-offset", "4", "--dry-run", "--export").stdout
    assert ours == f"{topic},0,4\n{topic},1,4\n"
    file.write_text(ours)
    kafka_groups(*shared, "--from-file", str(file), "--execute")
    assert committed(groups, group) == {0: 4, 1: 4}
    theirs = kafka_groups(*shared, "--all-topics", "--to-earliest", "--dry-run", "--export")
    assert sorted(row for row in csv.reader(theirs.splitlines()) if row) == [[topic, "0", "0"], [topic, "1", "0"]]
    file.write_text(theirs)
    done = groups(*shared, "--from-file", file, "--execute")
    assert (done.returncode, done.stderr) == (0, "")
    assert committed(groups, group) == {0: 0, 1: 0}


def test_lag_after_a_reset(groups: Ours, group: str, topic: str) -> None:
    done = groups(
        "--reset-offsets", "--group", group, "--topic", topic, "--to-datetime", "2023-11-14T22:13:27.000", "--execute"
    )
    assert done.returncode == 0
    (described,) = json.loads(groups("--describe", "--group", group, "--json").stdout)
    assert [(row["currentOffset"], row["logEndOffset"], row["lag"]) for row in described["partitions"]] == [
        (7, 10, 3),
        (7, 10, 3),
    ]
