"""`barnabas share-groups` and `consume --share` against a live broker, beside Apache Kafka's kafka-share-groups."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas import Queue
from tests.support import java
from tests.support.group_scenarios import send
from tests.support.processes import Process

if TYPE_CHECKING:
    from collections.abc import Callable
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

    Ours = Callable[..., CompletedProcess[str]]

KAFKA = "4.3.0"
PATIENCE = 60.0


@pytest.fixture
def group() -> str:
    return f"workers-{uuid.uuid4().hex[:8]}"


def test_a_group_is_shown_as_kafka_share_groups_shows_it(
    cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, 2, 10)
    words = ("share-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group)
    with Queue[bytes, bytes](bootstrap, topic, group, prefetch=1) as worker:
        message = worker.get(PATIENCE)
        assert message is not None
        message.done().result(PATIENCE)
        theirs = java.tool(KAFKA, "share-groups", *words[1:], "--members", "--verbose")
        assert group in theirs
        ours = cli(*words, "--members", "--verbose").stdout
        assert ours.splitlines() == [line.rstrip() for line in theirs.splitlines()]
        shown = json.loads(cli(*words, "--state", "--json").stdout)
        assert [(one["group"], one["state"], one["memberCount"]) for one in shown] == [(group, "Stable", 1)]


def test_kafka_share_groups_shows_resets_and_deletes_a_group(
    cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, 2, 10)
    with Queue[bytes, bytes](bootstrap, topic, group) as worker:
        for _ in range(3):
            message = worker.get(PATIENCE)
            assert message is not None
            message.done().result(PATIENCE)

    def theirs(*words: str) -> list[list[str]]:
        told = java.tool(KAFKA, "share-groups", "--bootstrap-server", bootstrap, *words)
        return [line.split() for line in told.splitlines() if group in line]

    def ours(*words: str) -> list[list[str]]:
        told = cli("share-groups", "--bootstrap-server", bootstrap, *words).stdout
        return [line.split() for line in told.splitlines() if group in line]

    assert theirs("--describe", "--all-groups") == ours("--describe", "--all-groups") != []
    assert len(theirs("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute")) == 2
    assert [row[3:] for row in ours("--describe", "--group", group)] == [["0", "5"]] * 2
    theirs("--delete", "--group", group)
    assert ours("--list") == []


def test_messages_in_flight_are_shown(cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str) -> None:
    """What is stored behind the start offset: one is done, one was given back, one is with a worker."""
    topic = new_topic(1)
    send(bootstrap, topic, 1, 4)
    words = ("share-groups", "--bootstrap-server", bootstrap, "--describe", "--group", group, "--in-flight", "--json")
    with Queue[bytes, bytes](bootstrap, topic, group) as worker:
        first, second, third, fourth = (worker.get(PATIENCE) for _ in range(4))
        assert first is not None and second is not None and third is not None and fourth is not None
        second.done().result(PATIENCE)
        fourth.reject().result(PATIENCE)
        (shown,) = json.loads(cli(*words).stdout)
        found = {row["firstOffset"]: (row["lastOffset"], row["state"], row["deliveries"]) for row in shown["inFlight"]}
        assert found[1] == (1, "Acknowledged", 1)
        assert found[3] == (3, "Archived", 1)
        assert all(state == "Available" for offset, (_, state, _) in found.items() if offset not in (1, 3))
        first.done().result(PATIENCE)
        third.done().result(PATIENCE)
    (shown,) = json.loads(cli(*words).stdout)
    assert {row["state"] for row in shown["inFlight"]} <= {"Acknowledged", "Archived"}


def test_messages_are_taken_given_back_and_done_again(
    cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str
) -> None:
    topic = new_topic(1)
    send(bootstrap, topic, 1, 3)

    def taken(*words: str) -> list[str]:
        shared = ("consume", "--bootstrap-server", bootstrap, "--topic", topic, "--share", "--group", group)
        done = cli(*shared, "--formatter-property", "print.delivery=true", *words)
        assert done.returncode == 0, done.stderr
        return [line.split("\t")[0] for line in done.stdout.splitlines()]

    def administer(*words: str) -> str:
        done = cli("share-groups", "--bootstrap-server", bootstrap, "--group", group, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert taken("--release", "--max-messages", "3") == ["Delivery:1"] * 3
    assert taken("--max-messages", "3") == ["Delivery:2"] * 3
    (described,) = json.loads(administer("--describe", "--json"))
    assert [one["lag"] for one in described["partitions"]] == [0]
    administer("--reset-offsets", "--topic", topic, "--to-earliest", "--execute")
    assert taken("--reject", "--max-messages", "3") == ["Delivery:1"] * 3
    administer("--delete-offsets", "--topic", topic)
    assert group in administer("--delete")


def test_messages_that_nobody_sees_are_not_done_with(
    cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str
) -> None:
    topic = new_topic(1)
    send(bootstrap, topic, 1, 3)
    taking = ["consume", "--bootstrap-server", bootstrap, "--topic", topic, "--share", "--group", group]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "barnabas.cli.main", *taking]
    refused = subprocess.run(closed, stderr=subprocess.PIPE, text=True, timeout=60)
    assert refused.returncode == 1
    assert "Error: Standard output is closed" in refused.stderr
    with Path("/dev/full").open("wb") as full:
        words = [sys.executable, "-m", "barnabas.cli.main", *taking]
        refused = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert refused.returncode == 1
    assert "Error: No space left on device" in refused.stderr
    with Queue[bytes, bytes](bootstrap, topic, group) as worker:
        taken = [worker.get(PATIENCE) for _ in range(3)]
    assert [message.deliveries for message in taken if message is not None] == [2, 2, 2]


def test_ctrl_c_ends_a_measurement_at_once(bootstrap: str, new_topic: TopicMaker, group: str, tmp_path: Path) -> None:
    topic = new_topic(1)
    send(bootstrap, topic, 1, 3)
    words = ["share-consumer-perf", "--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
    words += ["--num-records", "1000", "--timeout", "600000", "--show-detailed-stats", "--reporting-interval", "100"]
    with Process("perf", [sys.executable, "-m", "barnabas.cli.main", *words], tmp_path / "perf.log") as measuring:
        measuring.wait_for_output(", 3, .* for share consumer 1$")
        measuring.send(signal.SIGINT)
        assert measuring.wait(30) == 130


def test_a_group_with_workers_is_left_alone(cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str) -> None:
    topic = new_topic(1)
    send(bootstrap, topic, 1, 1)
    words = ("share-groups", "--bootstrap-server", bootstrap, "--group", group)
    with Queue[bytes, bytes](bootstrap, topic, group) as worker:
        assert worker.get(PATIENCE) is not None
        refused = cli(*words, "--reset-offsets", "--topic", topic, "--to-latest", "--execute")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"group '{group}' is Stable: stop its consumers first" in refused.stderr
        refused = cli(*words, "--delete")
        assert refused.returncode == 1
        assert "the group has active members" in refused.stderr
