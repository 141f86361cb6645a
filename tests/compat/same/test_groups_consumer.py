"""Groups of the new protocol: the same stories end the same way on Barnabas and on Apache Kafka 4.3.0."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.compat.same.play import Play, Story, play, show
from tests.support.group_wire import (
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    assignment,
    beating,
    committing,
    fetching,
    joining,
)

if TYPE_CHECKING:
    from tests.compat.same.scene import Scene

JOIN: Final = {"rebalance_timeout": 10_000, "topic_partitions": []}
"""What a member that joins says besides its subscription."""


def grouped(p: Play) -> dict[str, Any]:
    return p.scene.topic("grouped", 2)


def beat(p: Play, by: str, member_id: str, epoch: int, **other: Any) -> Any:
    return p.ask(by, CONSUMER_GROUP_HEARTBEAT, beating(p.group, member_id, epoch, **other))


def describe(p: Play) -> None:
    body = {"group_ids": [p.group], "include_authorized_operations": True}
    p.ask("admin", CONSUMER_GROUP_DESCRIBE, body)


def enter(p: Play, by: str, *, count: int, **how: Any) -> tuple[str, int]:
    """Join and go on until so many partitions are there; the member's id and epoch."""
    own_id = p.key != CONSUMER_GROUP_HEARTBEAT or p.version > 0
    asked_id = how.pop("member_id", f"{by}-of-{p.group}" if own_id else "")
    topics = {"subscribed_topic_names": [grouped(p)["name"]], **JOIN, **how}
    first = p.ask(by, CONSUMER_GROUP_HEARTBEAT, beating(p.group, asked_id, 0, **topics), noted=False)
    assert first.error_code == 0, first
    member = p.name(first.member_id or asked_id, by)
    latest = first
    held: list[dict[str, Any]] = []

    def settled(answer: Any) -> bool:
        nonlocal latest, held
        latest = answer
        if answer.assignment is not None:
            held = [
                {"topic_id": place.topic_id, "partitions": list(place.partitions)}
                for place in answer.assignment.topic_partitions
            ]
        return sum(len(place["partitions"]) for place in held) == count

    deadline = time.monotonic() + 60
    while not settled(latest) and time.monotonic() < deadline:
        latest = p.ask(by, CONSUMER_GROUP_HEARTBEAT, beating(p.group, member, latest.member_epoch), noted=False)
    p.answers.append([by, "has", sum(len(place["partitions"]) for place in held), latest.member_epoch])
    beat(p, by, member, latest.member_epoch, topic_partitions=held)
    return member, latest.member_epoch


def the_life_of_a_group(p: Play) -> None:
    describe(p)
    a, epoch = enter(p, "A", count=2)
    beat(p, "A", a, epoch)
    describe(p)
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group]})
    listed = p.ask("admin", LIST_GROUPS, {"types_filter": ["consumer"]}, noted=False)
    p.answers.append(["admin", [str(group) for group in listed.groups if group.group_id == p.group]])
    p.ask("admin", DELETE_GROUPS, {"groups_names": [p.group]})
    beat(p, "A", a, -1)
    describe(p)
    beat(p, "A", a, epoch)
    p.ask("admin", DELETE_GROUPS, {"groups_names": [p.group]})
    describe(p)


def heartbeats_that_are_refused(p: Play) -> None:
    topic = grouped(p)["name"]
    good = beating(p.group, f"A-of-{p.group}", 0, subscribed_topic_names=[topic], **JOIN)
    for changed in (
        {"group_id": ""},
        {"group_id": "   "},
        {"member_epoch": -3},
        {"rebalance_timeout": -1},
        {"topic_partitions": None},
        {"topic_partitions": [{"topic_id": grouped(p)["topic_id"], "partitions": [0]}]},
        {"subscribed_topic_names": None},
        {"instance_id": ""},
        {"rack_id": ""},
        {"server_assignor": "nonsense"},
        {"server_assignor": ""},
        {"subscribed_topic_regex": "a(b"},
        {"subscribed_topic_regex": "a(?=b)"},
        {"member_epoch": 5},
        {"member_epoch": -1},
        {"member_epoch": -2, "instance_id": "desk-1"},
    ):
        p.ask("A", CONSUMER_GROUP_HEARTBEAT, {**good, **changed})
    describe(p)


def strangers_and_latecomers(p: Play) -> None:
    topic = grouped(p)
    a, epoch = enter(p, "A", count=2)
    beat(p, "B", "stranger", epoch)
    beat(p, "B", "stranger", -1)
    beat(p, "A", a, epoch + 1)
    beat(p, "A", a, epoch, server_assignor="nonsense")
    for number in (epoch, epoch - 1, epoch + 1, -1):
        mine = {"member_id": a, "generation_id_or_member_epoch": number}
        p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 5, **mine))
        p.ask("A", OFFSET_FETCH, fetching(p.group, topic, member_id=a, member_epoch=number))
    p.ask("B", OFFSET_COMMIT, committing(p.group, topic, 5, member_id="stranger"))
    p.ask("B", OFFSET_COMMIT, committing(p.group, topic, 5))
    p.ask("B", OFFSET_FETCH, fetching(p.group, topic, member_id="stranger", member_epoch=1))
    p.ask("B", OFFSET_FETCH, fetching(p.group, topic))
    wanted = [{**topic, "partitions": [{"partition_index": 0}]}]
    p.ask("admin", OFFSET_DELETE, {"group_id": p.group, "topics": wanted})
    beat(p, "A", a, epoch - 1)
    beat(p, "A", a, -1)


def a_static_member(p: Play) -> None:
    first, epoch = enter(p, "A", count=2, instance_id="desk-1")
    topics = {"subscribed_topic_names": [grouped(p)["name"]], **JOIN}
    beat(p, "B", f"second-of-{p.group}", 0, instance_id="desk-1", **topics)
    beat(p, "B", f"second-of-{p.group}", 1, instance_id="desk-2")
    beat(p, "B", f"second-of-{p.group}", epoch, instance_id="desk-1")
    beat(p, "A", first, -2, instance_id="desk-1")
    describe(p)
    second, epoch = enter(p, "B", count=2, member_id=f"second-of-{p.group}", instance_id="desk-1")
    beat(p, "A", first, epoch, instance_id="desk-1")
    describe(p)
    beat(p, "B", second, -1, instance_id="desk-1")
    describe(p)


def two_members_and_a_pattern(p: Play) -> None:
    a, epoch = enter(p, "A", count=2, server_assignor="uniform")
    beat(p, "A", a, epoch, subscribed_topic_names=[grouped(p)["name"], "not-there-yet"], rebalance_timeout=20_000)
    b, _ = enter(
        p,
        "B",
        count=0,
        server_assignor="range",
        subscribed_topic_names=[],
        subscribed_topic_regex=f"nothing-{p.group}.*",
    )
    # When a pattern is resolved, and to which epoch that leads, is a broker's own affair.
    p.answers[-2].pop()
    p.answers[-1][2].pop("member_epoch")
    beat(p, "B", b, -1)
    beat(p, "A", a, -1)


def old_requests_for_a_new_group(p: Play) -> None:
    a, epoch = enter(p, "A", count=2)
    topic = grouped(p)["name"]
    p.ask("B", HEARTBEAT, {"group_id": p.group, "generation_id": epoch, "member_id": a})
    p.ask("B", HEARTBEAT, {"group_id": p.group, "generation_id": epoch, "member_id": "stranger"})
    p.ask("B", SYNC_GROUP, {"group_id": p.group, "generation_id": epoch, "member_id": a})
    p.ask("B", LEAVE_GROUP, {"group_id": p.group, "member_id": "x", "members": [{"member_id": "stranger"}]})
    changes: tuple[dict[str, Any], ...] = (
        {"protocol_type": "connect"},
        {"protocols": [{"name": "range", "metadata": b"\xff\xff noise"}]},
        {"protocols": []},
        {"member_id": "stranger"},
        {"session_timeout": 1},
    )
    for changed in changes:
        p.name(p.ask("B", JOIN_GROUP, {**joining(p.group, topic), **changed}).member_id, "nobody")
    joined = p.join("B", JOIN_GROUP, joining(p.group, topic))
    p.answers[-1][2].pop("generation_id", None)
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group]})
    p.ask("B", LEAVE_GROUP, {"group_id": p.group, "members": [{"member_id": joined.member_id}]})


def a_new_request_for_an_old_group(p: Play) -> None:
    topic = grouped(p)["name"]
    joined = p.join("A", JOIN_GROUP, joining(p.group, topic, protocol_type="connect"))
    new = beating(p.group, f"B-of-{p.group}", 0, subscribed_topic_names=[topic], **JOIN)
    p.ask("B", CONSUMER_GROUP_HEARTBEAT, new)
    describe(p)
    p.ask("A", LEAVE_GROUP, {"group_id": p.group, "members": [{"member_id": joined.member_id}]})
    joined = p.join("A", JOIN_GROUP, joining(p.group, topic))
    body = {
        "group_id": p.group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": assignment(topic, 0, 1)}],
    }
    p.ask("A", SYNC_GROUP, body)
    p.name(p.ask("B", CONSUMER_GROUP_HEARTBEAT, new).member_id, "B")
    describe(p)
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group]})


def who_leaves_before_it_has_given_back(p: Play) -> None:
    """Members that are asked for partitions back, and unsubscribe, subscribe or come again before they answer."""
    first, second = grouped(p)["name"], p.scene.topic("other", 2)["name"]
    topic = grouped(p)
    held = [{"topic_id": topic["topic_id"], "partitions": [0, 1]}]
    a, epoch = enter(p, "A", count=2)
    beat(p, "A", a, epoch, subscribed_topic_names=[second])
    beat(p, "A", a, epoch)
    beat(p, "A", a, -1)
    beat(p, "A", a, epoch)
    a, epoch = enter(p, "A", count=2)
    beat(p, "A", a, epoch, subscribed_topic_names=[second])
    beat(p, "A", a, epoch, subscribed_topic_names=[first])
    beat(p, "A", a, epoch, topic_partitions=held)
    asked = beat(p, "A", a, epoch, topic_partitions=held)
    beat(p, "A", a, asked.member_epoch, subscribed_topic_names=[second])
    beat(p, "A", a, 0, subscribed_topic_names=[first], **JOIN)
    asked = beat(p, "A", a, 0, subscribed_topic_names=[second], **JOIN)
    beat(p, "A", a, 0, subscribed_topic_names=[first, second])
    beat(p, "A", a, asked.member_epoch)
    beat(p, "A", a, -1)
    describe(p)


def more_than_a_batch_holds(p: Play) -> None:
    grouped(p)  # long before it is subscribed to: Kafka's coordinator takes a moment to see a topic, and counts that
    names = [f"{number:04}".ljust(240, "x") for number in range(4_600)]
    beat(p, "A", "A", 0, subscribed_topic_names=names, **JOIN)
    describe(p)
    enter(p, "A", count=2)
    describe(p)


STORIES: Final = {
    "more than a batch holds": Story(
        more_than_a_batch_holds, (CONSUMER_GROUP_HEARTBEAT,), {CONSUMER_GROUP_HEARTBEAT: 1}
    ),
    "the life of a group": Story(the_life_of_a_group, (CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE)),
    "heartbeats that are refused": Story(heartbeats_that_are_refused, (CONSUMER_GROUP_HEARTBEAT,)),
    "strangers and latecomers": Story(
        strangers_and_latecomers,
        (CONSUMER_GROUP_HEARTBEAT, OFFSET_COMMIT, OFFSET_FETCH),
        {OFFSET_COMMIT: 9, OFFSET_FETCH: 9},
    ),
    "who leaves before it has given back": Story(who_leaves_before_it_has_given_back, (CONSUMER_GROUP_HEARTBEAT,)),
    "a static member": Story(a_static_member, (CONSUMER_GROUP_HEARTBEAT,)),
    "two members and a pattern": Story(
        two_members_and_a_pattern, (CONSUMER_GROUP_HEARTBEAT,), {CONSUMER_GROUP_HEARTBEAT: 1}
    ),
    "old requests for a new group": Story(
        old_requests_for_a_new_group, (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP), {LEAVE_GROUP: 3}
    ),
    "a new request for an old group": Story(a_new_request_for_an_old_group, (CONSUMER_GROUP_HEARTBEAT,)),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    differences = play(scenes, STORIES[name])
    assert not differences, show(differences)
