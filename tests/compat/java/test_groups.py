"""Apache Kafka 4.3.0's tools that show, move and delete groups, and its consumers in groups of both protocols."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.support import java
from tests.support.group_scenarios import Crew, send, wait_until_stable
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.member import Committed, Place, places_of
from tests.support.members.waiting import wait_until_shared

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.compat.conftest import TopicMaker

VERSION = "4.3.0"
T0 = 1_700_000_000_000
"""The time of the first record; it is 2023-11-14T22:13:20 in UTC."""


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def crew(bootstrap: str, group: str) -> Iterator[Crew]:
    crew = Crew(ConfluentMember, bootstrap)
    crew.group = group
    yield crew
    crew.go_home()


class Groups:
    """kafka-consumer-groups, aimed at one broker, its tables as lists of rows."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *arguments: str) -> str:
        return java.tool(VERSION, "consumer-groups", "--bootstrap-server", self.bootstrap, *arguments)

    def table(self, *arguments: str) -> list[dict[str, str]]:
        """The printed rows, by the headings above them."""
        rows: list[dict[str, str]] = []
        headings: list[str] = []
        for line in self(*arguments).splitlines():
            words = re.sub(r"\s+\((ID|\d+)\)", r"(\1)", line).split()
            if words[:1] in (["GROUP"], ["TOPIC"]):
                headings = words
            elif words and len(words) == len(headings):
                rows.append(dict(zip(headings, words, strict=True)))
        return rows


@pytest.fixture
def groups(bootstrap: str) -> Groups:
    return Groups(bootstrap)


def column(rows: list[dict[str, str]], *headings: str) -> list[Any]:
    return sorted(tuple(row[heading] for heading in headings) for row in rows)


def test_groups_are_listed_described_and_deleted(
    groups: Groups, bootstrap: str, new_topic: TopicMaker, crew: Crew
) -> None:
    topic = new_topic(2)
    send(bootstrap, topic, 2, 20)
    old_group, new_group = crew.group, f"{crew.group}-new"
    old = crew.join(topic)
    crew.kind = ConfluentConsumerProtocolMember
    new = crew.join(topic, group=new_group, assignors=("uniform",))
    for member in (old, new):
        wait_until_shared([member], places_of(topic, 2))
        member.commit({Place(topic, 0): Committed(7, leader_epoch=0)})
    wait_until_stable(bootstrap, old_group, new_group)
    both = ("--group", old_group, "--group", new_group)

    listed = groups.table("--list", "--state")
    assert {("Stable", old_group), ("Stable", new_group)} <= {(row["STATE"], row["GROUP"]) for row in listed}
    consumers = {row["GROUP"]: row["TYPE"] for row in groups.table("--list", "--type", "consumer")}
    assert consumers.get(new_group) == "Consumer"
    assert old_group not in consumers

    described = groups.table("--describe", *both, "--offsets", "--verbose")
    assert column(
        described, "GROUP", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "HOST"
    ) == sorted(
        row
        for name in (old_group, new_group)
        for row in [(name, "0", "0", "7", "10", "3", "/127.0.0.1"), (name, "1", "-", "-", "10", "-", "/127.0.0.1")]
    )
    members = groups.table("--describe", *both, "--members", "--verbose")
    places = f"{topic}:0,1"
    assert column(members, "GROUP", "CLIENT-ID", "#PARTITIONS", "CURRENT-ASSIGNMENT", "TARGET-ASSIGNMENT") == sorted(
        [(old_group, "rdkafka", "2", places, "-"), (new_group, "rdkafka", "2", places, places)]
    )
    states = {row["GROUP"]: row for row in groups.table("--describe", *both, "--state", "--verbose")}
    assert {row["COORDINATOR(ID)"].split("(")[0] for row in states.values()} == {bootstrap}
    assert [row["#MEMBERS"] for row in states.values()] == ["1", "1"]
    assert (states[old_group]["ASSIGNMENT-STRATEGY"], states[old_group]["GROUP-EPOCH"]) == ("range", "-")
    assert states[new_group]["ASSIGNMENT-STRATEGY"] == "uniform"
    assert int(states[new_group]["GROUP-EPOCH"]) == int(states[new_group]["TARGET-ASSIGNMENT-EPOCH"]) > 0

    assert "The group is not empty" in groups("--delete", "--group", new_group)
    assert "while the consumer group is actively subscribed" in groups(
        "--delete-offsets", "--group", old_group, "--topic", topic
    )
    refused = groups("--reset-offsets", "--group", old_group, "--topic", topic, "--to-earliest", "--execute")
    assert "is inactive, but the current state is Stable" in refused
    old.leave()
    new.leave()

    empty = groups.table("--describe", *both)
    assert column(empty, "GROUP", "PARTITION", "CURRENT-OFFSET", "CONSUMER-ID") == sorted(
        [(old_group, "0", "7", "-"), (new_group, "0", "7", "-")]
    )
    assert "Successful" in groups("--delete-offsets", "--group", old_group, "--topic", topic)
    deleted = groups("--delete", *both, "--group", "nobody")
    assert old_group in deleted.partition("were deleted successfully")[2]
    assert new_group in deleted.partition("were deleted successfully")[2]
    assert "'nobody' could not be deleted due to" in deleted
    assert "GroupIdNotFoundException" in deleted


def test_offsets_are_reset_in_every_form(
    groups: Groups, bootstrap: str, new_topic: TopicMaker, crew: Crew, tmp_path: Path
) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(topic, b"x", partition=number % 2, timestamp=T0 + number // 2)
    assert producer.flush(30) == 0
    loner = crew.join(assigned=tuple(places_of(topic, 2)))

    def now() -> tuple[int, int]:
        first, second = (loner.committed(Place(topic, number)) for number in (0, 1))
        return (first or Committed(-1)).offset, (second or Committed(-1)).offset

    def reset(*how: str, where: tuple[str, ...] = ("--topic", topic)) -> tuple[int, int]:
        rows = groups.table("--reset-offsets", "--group", crew.group, *where, *how, "--execute")
        told = {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows}
        found = now()
        assert told == {number: found[number] for number in told}
        return found

    asked = ("--reset-offsets", "--group", crew.group, "--topic", topic)
    assert column(groups.table(*asked, "--to-latest", "--dry-run"), "PARTITION", "NEW-OFFSET") == [
        ("0", "10"),
        ("1", "10"),
    ]
    assert now() == (-1, -1)
    assert reset("--to-latest") == (10, 10)
    assert reset("--shift-by", "-4", where=("--all-topics",)) == (6, 6)
    assert reset("--to-offset", "3", where=("--topic", f"{topic}:1")) == (6, 3)
    assert reset("--shift-by", "50", where=("--topic", f"{topic}:0")) == (10, 3)
    assert reset("--to-datetime", "2023-11-14T22:13:20.004") == (4, 4)
    exported = groups(*asked, "--to-current", "--export", "--dry-run")
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.replace(f"{topic},1,4", f"{topic},1,8"))
    assert reset("--to-earliest") == (0, 0)
    assert reset("--from-file", str(plan), where=()) == (4, 8)
    assert reset("--by-duration", "PT1H") == (10, 10)


@pytest.mark.parametrize("first", ["classic", "consumer"])
def test_the_console_consumer_goes_on_where_its_group_was(
    bootstrap: str, new_topic: TopicMaker, group: str, first: str
) -> None:
    """A group that has no members is taken over by the other protocol."""
    topic = new_topic()
    sent = [value.decode() for value in send(bootstrap, topic, 1, 20)]
    second = "consumer" if first == "classic" else "classic"
    found = []
    for protocol, count in ((first, 12), (second, 8)):
        printed = java.tool(
            VERSION, "console-consumer", "--bootstrap-server", bootstrap, "--topic", topic, "--group", group,
            "--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000",
            "--command-property", f"group.protocol={protocol}",
        )  # fmt: skip
        found += printed.splitlines()
    assert found == sent


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_consumer_performance_test(
    bootstrap: str, new_topic: TopicMaker, group: str, tmp_path: Path, protocol: str
) -> None:
    topic = new_topic(3)
    send(bootstrap, topic, 3, 3_000)
    settings = tmp_path / "consumer.properties"
    settings.write_text(f"group.protocol={protocol}\n")
    printed = java.tool(
        VERSION, "consumer-perf-test", "--bootstrap-server", bootstrap, "--topic", topic, "--group", group,
        "--num-records", "3000", "--timeout", "30000", "--command-config", str(settings),
    )  # fmt: skip
    head, figures = printed.strip().splitlines()[-2:]
    told = dict(zip(head.split(", "), figures.split(", "), strict=True))
    assert int(told["data.consumed.in.nMsg"]) >= 3_000
