"""`barnabas topics` against a live broker, beside Apache Kafka's kafka-topics on the same broker."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support import java

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli

KAFKA = "4.3.0"


@pytest.fixture
def topics(cli: Cli, bootstrap: str) -> Callable[..., CompletedProcess[str]]:
    return partial(cli, "topics", "--bootstrap-server", bootstrap)


@pytest.fixture
def kafka_topics(bootstrap: str) -> Callable[..., str]:
    return partial(java.tool, KAFKA, "topics", "--bootstrap-server", bootstrap)


def test_a_topics_life(topics: Callable[..., CompletedProcess[str]], unused_topic: str) -> None:
    name = unused_topic
    created = topics("--create", "--topic", name, "--partitions", "2", "--config", "retention.ms=86400000")
    assert (created.returncode, created.stdout, created.stderr) == (0, f"Created topic {name}.\n", "")
    assert name in topics("--list").stdout.splitlines()

    again = topics("--create", "--topic", name)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"Error: Topic '{name}' already exists.\n"
    assert topics("--create", "--topic", name, "--if-not-exists").returncode == 0

    words = ("--partitions", "3", "--config", "segment.bytes=1048576", "--delete-config", "retention.ms")
    altered = topics("--alter", "--topic", name, *words)
    assert (altered.returncode, altered.stderr) == (0, "")
    (described,) = json.loads(topics("--describe", "--topic", name, "--json").stdout)
    assert described["partitionCount"] == 3
    assert described["configs"]["segment.bytes"] == "1048576"
    assert "retention.ms" not in described["configs"]
    assert [partition["partition"] for partition in described["partitions"]] == [0, 1, 2]

    by_id = topics("--describe", "--topic-id", described["topicId"]).stdout
    assert by_id.startswith(f"Topic: {name}\tTopicId: {described['topicId']}\t")

    deleted = topics("--delete", "--topic", name)
    assert (deleted.returncode, deleted.stdout, deleted.stderr) == (0, "", "")
    assert name not in topics("--list").stdout.splitlines()
    assert topics("--delete", "--topic", name).returncode == 1
    assert topics("--delete", "--topic", name, "--if-exists").returncode == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--config", "retention.ms=soon"), "retention.ms"),
        (("--config", "no.such.config=1"), "no.such.config"),
        (("--replication-factor", "9"), "replication factor"),
    ],
)
def test_what_the_broker_refuses_is_told_in_one_line(
    topics: Callable[..., CompletedProcess[str]], unused_topic: str, words: tuple[str, ...], complaint: str
) -> None:
    refused = topics("--create", "--topic", unused_topic, *words)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: ")
    assert refused.stderr.count("\n") == 1
    assert complaint in refused.stderr


def test_describe_and_list_agree_with_kafka_topics(
    topics: Callable[..., CompletedProcess[str]], kafka_topics: Callable[..., str], unused_topic: str
) -> None:
    """One topic made by each tool; both tools then say the same of both."""
    ours, theirs = f"{unused_topic}-ours", f"{unused_topic}-theirs"
    words = ("--partitions", "3", "--config", "cleanup.policy=compact,delete", "--config", "retention.ms=1000")
    assert topics("--create", "--topic", ours, *words).returncode == 0
    kafka_topics("--create", "--topic", theirs, *words)
    pattern = f"{unused_topic}-.*"
    shown = topics("--describe", "--topic", pattern)
    assert shown.returncode == 0
    assert by_topic(shown.stdout) == by_topic(kafka_topics("--describe", "--topic", pattern))
    assert topics("--list", "--topic", pattern).stdout == kafka_topics("--list", "--topic", pattern)


def by_topic(lines: str) -> list[list[str]]:
    """The lines of `--describe`, topics in the order of their names (kafka-topics has them in no order)."""
    blocks: list[list[str]] = []
    for line in lines.splitlines():
        if not line.startswith("\t"):
            blocks.append([])
        blocks[-1].append(line)
    return sorted(blocks)
