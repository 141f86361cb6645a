"""`barnabas groups` against a live broker, beside Apache Kafka's kafka-consumer-groups on the same groups."""

from __future__ import annotations

import json
import uuid
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.support import java
from tests.support.group_scenarios import Crew, send, wait_until_stable
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.member import Committed, Place, places_of
from tests.support.members.waiting import wait_until_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

    Ours = Callable[..., CompletedProcess[str]]
    Theirs = Callable[..., str]

KAFKA = "4.3.0"


@pytest.fixture
def groups(cli: Cli, bootstrap: str) -> Ours:
    return partial(cli, "groups", "--bootstrap-server", bootstrap)


@pytest.fixture
def kafka_groups(bootstrap: str) -> Theirs:
    return partial(java.tool, KAFKA, "consumer-groups", "--bootstrap-server", bootstrap)


@pytest.fixture
def crew(bootstrap: str) -> Iterator[Crew]:
    crew = Crew(ConfluentMember, bootstrap)
    yield crew
    crew.go_home()


def lines(text: str) -> list[str]:
    """Lines without the blanks that kafka-consumer-groups leaves at their ends."""
    return [line.rstrip() for line in text.splitlines()]


def test_list_and_describe_agree_with_kafka_consumer_groups(
    groups: Ours, kafka_groups: Theirs, bootstrap: str, new_topic: TopicMaker, crew: Crew
) -> None:
    """Three groups: of each protocol one with members, and one of which only offsets are left."""
    topic = new_topic(3)
    send(bootstrap, topic, 3, 30)
    classic, consumer, idle = (f"{crew.group}-{kind}" for kind in ("classic", "consumer", "idle"))
    olds = [crew.join(topic, group=classic, instance=instance) for instance in (None, f"{classic}-static")]
    wait_until_shared(olds, places_of(topic, 3))
    olds[0].commit({Place(topic, 0): Committed(4, leader_epoch=0), Place(topic, 2): Committed(10)})
    crew.kind = ConfluentConsumerProtocolMember
    news = [crew.join(topic, group=consumer) for _ in range(2)]
    wait_until_shared(news, places_of(topic, 3))
    wait_until_stable(bootstrap, classic, consumer)
    news[0].commit({Place(topic, 1): Committed(5)})
    made = groups("--reset-offsets", "--group", idle, "--topic", topic, "--to-offset", "3", "--execute")
    assert made.returncode == 0, made.stderr
    chosen = ("--group", classic, "--group", consumer, "--group", idle)
    for words in ((), ("--offsets", "--verbose"), ("--members", "--verbose"), ("--state", "--verbose")):
        ours, theirs = groups("--describe", *chosen, *words), kafka_groups("--describe", *chosen, *words)
        assert ours.returncode == 0
        assert lines(ours.stdout) == lines(theirs)
        assert ours.stderr == f"Consumer group '{idle}' has no active members.\n"
    listed, theirs = groups("--list", "--state", "--type").stdout, kafka_groups("--list", "--state", "--type")
    mine = [line for line in lines(listed) if crew.group in line]
    assert [line.split() for line in mine] == [
        [classic, "Classic", "Stable"],
        [consumer, "Consumer", "Stable"],
        [idle, "Classic", "Empty"],
    ]
    assert mine == sorted(line for line in lines(theirs) if crew.group in line)


def test_what_is_asked_for_is_listed(groups: Ours, new_topic: TopicMaker, crew: Crew) -> None:
    topic = new_topic()
    idle = f"{crew.group}-idle"
    groups("--reset-offsets", "--group", idle, "--topic", topic, "--to-latest", "--execute")
    wait_until_shared([crew.join(topic)], places_of(topic, 1))

    def listed(*words: str) -> set[str]:
        found = {group["group"] for group in json.loads(groups("--list", *words, "--json").stdout)}
        return found & {crew.group, idle}

    assert listed() == listed("--state", "stable,empty") == listed("--type", "classic") == {crew.group, idle}
    assert listed("--state", "Stable") == {crew.group}
    assert listed("--state", "empty") == {idle}
    assert listed("--type", "consumer") == set()
    assert {crew.group, idle} <= set(groups("--list").stdout.splitlines())


def test_a_group_with_members_is_left_alone(groups: Ours, bootstrap: str, new_topic: TopicMaker, crew: Crew) -> None:
    topic = new_topic()
    send(bootstrap, topic, 1, 10)
    member = crew.join(topic)
    wait_until_shared([member], places_of(topic, 1))
    member.commit({Place(topic, 0): Committed(5)})
    chosen = ("--group", crew.group)
    for words, complaint in (
        (("--delete",), f"group '{crew.group}': the group has active members; stop its consumers first."),
        (("--delete-offsets", "--topic", topic), "an active member of the group is subscribed to the topic"),
        (("--reset-offsets", "--topic", topic, "--to-earliest", "--execute"), f"group '{crew.group}' is Stable"),
    ):
        refused = groups(*words, *chosen)
        assert refused.returncode == 1
        assert refused.stderr.startswith("Error: ")
        assert refused.stderr.count("\n") == 1
        assert complaint in refused.stderr
    assert member.committed(Place(topic, 0)) == Committed(5, "", None)


def test_groups_that_are_not_there(groups: Ours, unused_topic: str) -> None:
    group = f"g-{uuid.uuid4().hex}"
    for words in (("--describe",), ("--delete",), ("--delete-offsets", "--topic", f"{unused_topic}:0")):
        missing = groups(*words, "--group", group)
        assert missing.returncode == 1
        assert "`barnabas groups --list` shows those that" in missing.stderr


def test_deletions_agree_with_kafka_consumer_groups(
    groups: Ours, kafka_groups: Theirs, bootstrap: str, new_topic: TopicMaker
) -> None:
    """Two groups that are alike; one is taken apart by each tool."""
    topic = new_topic(2)
    send(bootstrap, topic, 2, 10)
    ours, theirs = (f"g-{uuid.uuid4().hex[:12]}" for _ in range(2))
    for group in (ours, theirs):
        groups("--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "3", "--execute")
    for words in (("--delete-offsets", "--topic", f"{topic}:1"), ("--delete",)):
        done = groups(*words, "--group", ours)
        assert (done.returncode, done.stderr) == (0, "")
        assert lines(done.stdout.replace(ours, "G")) == lines(
            kafka_groups(*words, "--group", theirs).replace(theirs, "G")
        )
    left = {group["group"] for group in json.loads(groups("--list", "--json").stdout)}
    assert not left & {ours, theirs}
