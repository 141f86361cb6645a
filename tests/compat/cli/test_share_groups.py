"""`barnabas share-groups` and `consume --share` against a live broker, beside Apache Kafka's kafka-share-groups."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from barnabas import Queue
from tests.support import java
from tests.support.group_scenarios import send

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


def test_a_group_with_workers_is_left_alone(cli: Cli, bootstrap: str, new_topic: TopicMaker, group: str) -> None:
    topic = new_topic(1)
    words = ("share-groups", "--bootstrap-server", bootstrap, "--group", group)
    with Queue[bytes, bytes](bootstrap, topic, group) as worker:
        assert worker.get(1.0) is None
        refused = cli(*words, "--reset-offsets", "--topic", topic, "--to-latest", "--execute")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert f"group '{group}' is Stable: stop its consumers first" in refused.stderr
        refused = cli(*words, "--delete")
        assert refused.returncode == 1
        assert "the group has active members" in refused.stderr
