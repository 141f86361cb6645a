"""Share groups: the same stories end the same way on Barnabas and on Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.compat.same.play import Play, Story, play, show
from tests.compat.same.scene import CREATE_PARTITIONS, DELETE_TOPICS, INCREMENTAL_ALTER_CONFIGS
from tests.support.group_wire import (
    ALTER_SHARE_GROUP_OFFSETS,
    CONSUMER_GROUP_DESCRIBE,
    CONSUMER_GROUP_HEARTBEAT,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SHARE_GROUP_DESCRIBE,
    SHARE_GROUP_HEARTBEAT,
    SYNC_GROUP,
    beating,
    committing,
    fetching,
    joining,
)
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.compat.same.scene import Scene

GROUP_RESOURCE: Final = 32
SET: Final = 0


def shared(p: Play) -> dict[str, Any]:
    return p.scene.topic("shared", 2)


def beat(p: Play, by: str, member_id: str, epoch: int, **other: Any) -> Any:
    return p.ask(by, SHARE_GROUP_HEARTBEAT, beating(p.group, member_id, epoch, **other))


def describe(p: Play) -> None:
    p.ask("admin", SHARE_GROUP_DESCRIBE, {"group_ids": [p.group], "include_authorized_operations": True})


def describe_offsets(p: Play, *topics: dict[str, Any]) -> Any:
    group = {"group_id": p.group, "topics": list(topics) or None}
    return p.ask("admin", DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": [group]})


def delete_group(p: Play) -> None:
    p.ask("admin", DELETE_GROUPS, {"groups_names": [p.group]})


def enter(p: Play, by: str, *, count: int, topic: dict[str, Any] | None = None, **how: Any) -> tuple[str, int]:
    """Join and go on until so many partitions are there; the member's id and epoch.

    A topic of the story's own was just made: how soon a coordinator has heard of all of it is its own affair.
    """
    member = f"{by}-of-{p.group}"
    topics = {"subscribed_topic_names": [(topic or shared(p))["name"]], **how}
    answer = p.ask(by, SHARE_GROUP_HEARTBEAT, beating(p.group, member, 0, **topics), noted=False)
    assert answer.error_code == 0, answer
    return member, stay(p, by, member, answer, count=count, steady=topic is None)


def stay(p: Play, by: str, member: str, answer: Any, *, count: int, steady: bool = True) -> int:
    """Go on until so many partitions are there: which of them, and how long that takes, is a broker's own affair.

    So is the number of epochs where topics change (not `steady`): a heartbeat may come between the change and the
    states of new partitions.
    """
    held, epoch = -1, int(answer.member_epoch)

    def settled() -> bool:
        nonlocal held, epoch, answer
        if answer.assignment is not None:
            held = sum(len(place.partitions) for place in answer.assignment.topic_partitions)
        if held == count:
            return True
        answer = p.ask(by, SHARE_GROUP_HEARTBEAT, beating(p.group, member, epoch), noted=False)
        assert answer.error_code == 0, answer
        epoch = answer.member_epoch
        return False

    wait_until(settled, f"{count} partitions for {by}", every=0.02)
    p.answers.append([by, "has", held, epoch if steady else None, answer.heartbeat_interval])
    return epoch


def the_life_of_a_group(p: Play) -> None:
    describe(p)
    delete_group(p)
    a, epoch = enter(p, "A", count=2)
    beat(p, "A", a, epoch)
    beat(p, "A", a, epoch, subscribed_topic_names=[shared(p)["name"]])
    describe(p)
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group]})
    p.ask("admin", CONSUMER_GROUP_DESCRIBE, {"group_ids": [p.group]})
    for body in ({"types_filter": ["share"]}, {"types_filter": ["consumer", "classic"]}, {"states_filter": ["Stable"]}):
        listed = p.ask("admin", LIST_GROUPS, body, noted=False)
        p.answers.append(["admin", [str(group) for group in listed.groups if group.group_id == p.group]])
    describe_offsets(p)
    delete_group(p)
    beat(p, "A", a, -1)
    describe(p)
    beat(p, "A", a, epoch)
    beat(p, "A", a, -1)
    delete_group(p)
    describe(p)
    describe_offsets(p)


def heartbeats_that_are_refused(p: Play) -> None:
    good = beating(p.group, f"A-of-{p.group}", 0, subscribed_topic_names=[shared(p)["name"]])
    changes: tuple[dict[str, Any], ...] = (
        {"group_id": ""},
        {"group_id": "   "},
        {"member_id": ""},
        {"member_epoch": -2},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"rack_id": ""},
        {"member_epoch": 5},
        {"member_epoch": -1},
    )
    for changed in changes:
        p.ask("A", SHARE_GROUP_HEARTBEAT, {**good, **changed})
    describe(p)


def strangers_and_latecomers(p: Play) -> None:
    a, epoch = enter(p, "A", count=2, rack_id="rack-1")
    for wrong in (epoch - 1, epoch + 1, epoch - 2, 77):
        beat(p, "A", a, wrong)
    beat(p, "B", "nobody", epoch)
    beat(p, "B", "nobody", -1)
    beat(p, "A", a, 0, subscribed_topic_names=[shared(p)["name"]])
    describe(p)


def two_members(p: Play) -> None:
    a, _ = enter(p, "A", count=2)
    b, _ = enter(p, "B", count=1)
    answer = p.ask("A", SHARE_GROUP_HEARTBEAT, beating(p.group, a, 3), noted=False)
    epoch = stay(p, "A", a, answer, count=1)
    beat(p, "B", b, -1)
    answer = p.ask("A", SHARE_GROUP_HEARTBEAT, beating(p.group, a, epoch), noted=False)
    epoch = stay(p, "A", a, answer, count=2)
    beat(p, "A", a, epoch, subscribed_topic_names=["nothing-of-that-name"])
    describe(p)


def a_topic_that_grows_and_goes(p: Play) -> None:
    topic = p.scene.topic(f"growing-{p.group}", 1)
    a, epoch = enter(p, "A", count=1, topic=topic)
    wanted = {"topics": [{"name": topic["name"], "count": 3}], "timeout": 10_000}
    assert p.scene.connection.ask(CREATE_PARTITIONS, 3, wanted).results[0].error_code == 0
    answer = p.ask("A", SHARE_GROUP_HEARTBEAT, beating(p.group, a, epoch), noted=False)
    epoch = stay(p, "A", a, answer, count=3, steady=False)
    deleted = {"topics": [{"name": topic["name"], "topic_id": None}], "timeout": 10_000}
    assert p.scene.connection.ask(DELETE_TOPICS, 6, deleted).responses[0].error_code == 0
    answer = p.ask("A", SHARE_GROUP_HEARTBEAT, beating(p.group, a, epoch), noted=False)
    stay(p, "A", a, answer, count=0, steady=False)
    describe_offsets(p)


def requests_for_groups_of_another_kind(p: Play) -> None:
    topic = shared(p)
    enter(p, "A", count=2)
    member = f"B-of-{p.group}"
    consumer = {"subscribed_topic_names": [topic["name"]], "rebalance_timeout": 10_000, "topic_partitions": []}
    p.ask("B", CONSUMER_GROUP_HEARTBEAT, beating(p.group, member, 0, **consumer))
    p.ask("B", JOIN_GROUP, joining(p.group, topic["name"]))
    p.ask("B", SYNC_GROUP, {"group_id": p.group, "generation_id": 1, "member_id": member, "assignments": []})
    p.ask("B", HEARTBEAT, {"group_id": p.group, "generation_id": 1, "member_id": member})
    p.ask("B", LEAVE_GROUP, {"group_id": p.group, "members": [{"member_id": member}]})
    p.ask("B", OFFSET_COMMIT, committing(p.group, topic, 5))
    p.ask("B", OFFSET_FETCH, fetching(p.group, topic))
    wanted = [{"name": topic["name"], "partitions": [{"partition_index": 0}]}]
    p.ask("B", OFFSET_DELETE, {"group_id": p.group, "topics": wanted})
    describe(p)


def a_share_request_for_another_group(p: Play) -> None:
    topic = shared(p)
    member = f"A-of-{p.group}"
    consumer = {"subscribed_topic_names": [topic["name"]], "rebalance_timeout": 10_000, "topic_partitions": []}
    p.ask("A", CONSUMER_GROUP_HEARTBEAT, beating(p.group, member, 0, **consumer), noted=False)
    beat(p, "B", f"B-of-{p.group}", 0, subscribed_topic_names=[topic["name"]])
    beat(p, "B", f"B-of-{p.group}", 3)
    beat(p, "B", f"B-of-{p.group}", -1)
    describe(p)
    describe_offsets(p)
    alter(p, {0: 1})
    delete_offsets(p, topic["name"])


def alter(p: Play, offsets: dict[int, int], **changed: Any) -> None:
    parts = [{"partition_index": index, "start_offset": offset} for index, offset in offsets.items()]
    topic = {"topic_name": changed.pop("name", shared(p)["name"]), "partitions": parts}
    p.ask("admin", ALTER_SHARE_GROUP_OFFSETS, {"group_id": p.group, "topics": [topic], **changed})


def delete_offsets(p: Play, *names: str, **changed: Any) -> None:
    topics = [{"topic_name": name} for name in names]
    p.ask("admin", DELETE_SHARE_GROUP_OFFSETS, {"group_id": p.group, "topics": topics, **changed})


def offsets_that_are_moved(p: Play) -> None:
    topic = p.scene.filled()
    name = topic["name"]
    place = {"topic_name": name, "partitions": [0, 1]}
    describe_offsets(p, place)
    describe_offsets(p, {"topic_name": "nothing-of-that-name", "partitions": [0]})
    delete_offsets(p, name)
    alter(p, {0: 3, 9: 1}, name=name)
    describe(p)
    p.until(
        "admin",
        DESCRIBE_SHARE_GROUP_OFFSETS,
        {"groups": [{"group_id": p.group, "topics": None}]},
        lambda answer: bool(answer.groups[0].topics),
    )
    describe_offsets(p, place)
    alter(p, {0: 0}, name="nothing-of-that-name")
    alter(p, {0: 0}, group_id="")
    alter(p, {}, topics=[])
    delete_offsets(p, "nothing-of-that-name", shared(p)["name"])
    delete_offsets(p, name, group_id="")
    delete_offsets(p, name)
    describe_offsets(p)
    a, _ = enter(p, "A", count=2, topic=topic)
    alter(p, {0: 1}, name=name)
    delete_offsets(p, name)
    beat(p, "A", a, -1)
    delete_offsets(p, name)
    delete_group(p)


def a_group_with_settings_of_its_own(p: Play) -> None:
    def configure(name: str, value: str) -> None:
        configs = [{"name": name, "config_operation": SET, "value": value}]
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": p.group, "configs": configs}
        asked = {"resources": [resource], "validate_only": False}
        p.answers.append(["admin", p.scene.ask(INCREMENTAL_ALTER_CONFIGS, 1, asked)])

    configure("share.heartbeat.interval.ms", "7000")
    configure("share.heartbeat.interval.ms", "70000")
    configure("share.session.timeout.ms", "50000")
    configure("share.delivery.count.limit", "11")
    configure("share.auto.offset.reset", "by_duration:PT1H")
    configure("share.auto.offset.reset", "never")
    configure("share.isolation.level", "read_committed")
    configure("share.partition.max.record.locks", "50")
    configure("share.record.lock.duration.ms", "15000")
    configure("share.renew.acknowledge.enable", "false")
    enter(p, "A", count=2)


STORIES: Final = {
    "the life of a group": Story(the_life_of_a_group, (SHARE_GROUP_HEARTBEAT, DESCRIBE_SHARE_GROUP_OFFSETS)),
    "heartbeats that are refused": Story(heartbeats_that_are_refused, (SHARE_GROUP_HEARTBEAT,)),
    "strangers and latecomers": Story(strangers_and_latecomers, (SHARE_GROUP_HEARTBEAT,)),
    "two members": Story(two_members, (SHARE_GROUP_HEARTBEAT,)),
    "a topic that grows and goes": Story(a_topic_that_grows_and_goes, (SHARE_GROUP_HEARTBEAT,)),
    "requests for groups of another kind": Story(
        requests_for_groups_of_another_kind, (OFFSET_COMMIT, OFFSET_FETCH), {OFFSET_COMMIT: 9, OFFSET_FETCH: 9}
    ),
    "a share request for another group": Story(a_share_request_for_another_group, (SHARE_GROUP_HEARTBEAT,)),
    "offsets that are moved": Story(offsets_that_are_moved, (DESCRIBE_SHARE_GROUP_OFFSETS,)),
    "a group with settings of its own": Story(a_group_with_settings_of_its_own, (SHARE_GROUP_HEARTBEAT,)),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    differences = play(scenes, STORIES[name])
    assert not differences, show(differences)
