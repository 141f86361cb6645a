"""Groups of the classic protocol: the same stories end the same way on Barnabas and on Apache Kafka 4.3.0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.compat.same.play import Play, Story, play, show
from tests.support.group_wire import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    SYNC_GROUP,
    assignment,
    committing,
    joining,
    subscription,
)

if TYPE_CHECKING:
    from tests.compat.same.scene import Scene

REBALANCE_IN_PROGRESS: Final = 27


def sync(p: Play, by: str, member_id: str, generation: int, *assignments: tuple[str, bytes], **other: Any) -> Any:
    body = {
        "group_id": p.group,
        "generation_id": generation,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": member, "assignment": data} for member, data in assignments],
        **other,
    }
    return p.ask(by, SYNC_GROUP, body)


def heartbeat(p: Play, member_id: str, generation: int, **other: Any) -> dict[str, Any]:
    return {"group_id": p.group, "generation_id": generation, "member_id": member_id, **other}


def leave(p: Play, by: str, member_id: str, **other: Any) -> Any:
    body = {"group_id": p.group, "member_id": member_id, "members": [{"member_id": member_id, **other}]}
    return p.ask(by, LEAVE_GROUP, body)


def describe(p: Play) -> Any:
    return p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group], "include_authorized_operations": True})


def list_groups(p: Play, **filters: Any) -> None:
    answer = p.ask("admin", LIST_GROUPS, filters, noted=False)
    mine = [group for group in answer.groups if group.group_id == p.group]
    p.answers.append(["admin", LIST_GROUPS, answer.error_code, *(str(group) for group in mine)])


def stable(p: Play, **how: Any) -> tuple[str, int]:
    """A group with one member, and a topic of two partitions; the member's id and its generation."""
    topic = p.scene.topic("grouped", 2)["name"]
    joined = p.join("A", JOIN_GROUP, joining(p.group, topic, **how))
    sync(p, "A", joined.member_id, joined.generation_id, (joined.member_id, assignment(topic, 0, 1)))
    return joined.member_id, joined.generation_id


def the_life_of_a_group(p: Play) -> None:
    topic = p.scene.topic("grouped", 2)["name"]
    describe(p)
    a, generation = stable(p)
    p.ask("A", HEARTBEAT, heartbeat(p, a, generation))
    describe(p)
    list_groups(p)
    list_groups(p, states_filter=["stable"], types_filter=["Classic"])
    list_groups(p, states_filter=["Empty"])
    list_groups(p, types_filter=["consumer"])
    second = joining(p.group, topic)
    p.send("B", JOIN_GROUP, second)
    if p.key != JOIN_GROUP or p.version >= 4:
        b = p.name(p.receive("B", JOIN_GROUP).member_id, "B")
        p.send("B", JOIN_GROUP, {**second, "member_id": b})
    p.until("A", HEARTBEAT, heartbeat(p, a, generation), lambda got: got.error_code == REBALANCE_IN_PROGRESS)
    describe(p)
    p.send("A", JOIN_GROUP, joining(p.group, topic, a))
    b = p.name(p.receive("B", JOIN_GROUP, noted=False).member_id, "B")
    generation = p.receive("A", JOIN_GROUP).generation_id
    waiting = {"protocol_type": "consumer", "protocol_name": "range"}
    p.send("B", SYNC_GROUP, {"group_id": p.group, "generation_id": generation, "member_id": b, **waiting})
    describe(p)
    sync(p, "A", a, generation, (a, assignment(topic, 0)), (b, assignment(topic, 1)))
    p.receive("B", SYNC_GROUP)
    sync(p, "B", b, generation)
    describe(p)
    p.ask("B", HEARTBEAT, heartbeat(p, b, generation))
    leave(p, "B", b)
    p.ask("B", HEARTBEAT, heartbeat(p, b, generation))
    p.ask("A", HEARTBEAT, heartbeat(p, a, generation))
    generation = p.ask("A", JOIN_GROUP, joining(p.group, topic, a)).generation_id
    sync(p, "A", a, generation, (a, assignment(topic, 0, 1)))
    p.ask("admin", DELETE_GROUPS, {"groups_names": [p.group]})
    leave(p, "A", a)
    describe(p)
    list_groups(p)
    p.ask("admin", DELETE_GROUPS, {"groups_names": [p.group, "nobody"]})
    describe(p)
    list_groups(p)


def joins_that_are_refused(p: Play) -> None:
    topic = p.scene.topic("grouped", 2)["name"]
    alone: tuple[dict[str, Any], ...] = (
        {"group_id": ""},
        {"session_timeout": 100},
        {"session_timeout": 100_000_000},
        {"protocols": []},
        {"protocol_type": ""},
        {"member_id": "made-up"},
        {"member_id": "made-up", "group_instance_id": "some-instance"},
    )
    for changed in alone:
        p.ask("A", JOIN_GROUP, {**joining(p.group, topic), **changed})
    a, _ = stable(p)
    changes: tuple[dict[str, Any], ...] = (
        {"protocol_type": "connect"},
        {"protocols": [{"name": "roundrobin", "metadata": subscription(topic)}]},
        {"protocols": []},
        {"member_id": "made-up"},
        {"session_timeout": 1},
    )
    for changed in changes:
        p.ask("B", JOIN_GROUP, {**joining(p.group, topic), **changed})
    p.ask("A", JOIN_GROUP, joining(p.group, topic, a, protocol_type="connect"))
    describe(p)


def subscriptions_that_are_noise(p: Play) -> None:
    """Of a kind that Kafka answers: there is worse, which leaves its clients waiting (see bad_input)."""
    for noise in (b"", b"\0", subscription("no-such-topic")[:-3]):
        joined = p.join("A", JOIN_GROUP, joining(p.group, "", protocols=[{"name": "range", "metadata": noise}]))
        sync(p, "A", joined.member_id, joined.generation_id, (joined.member_id, b"\xfe\xff noise"))
        describe(p)
        leave(p, "A", joined.member_id)


def strangers_and_latecomers(p: Play) -> None:
    for by_whom in ("nobody yet", "somebody"):
        a, generation = stable(p) if by_whom == "somebody" else ("", 1)
        p.ask("B", HEARTBEAT, heartbeat(p, "stranger", generation))
        p.ask("B", HEARTBEAT, heartbeat(p, a, generation - 1))
        p.ask("B", HEARTBEAT, heartbeat(p, a, generation + 1))
        p.ask("B", HEARTBEAT, heartbeat(p, a, generation) | {"group_id": ""})
        p.ask("B", HEARTBEAT, heartbeat(p, a, generation) | {"group_id": "nobodys"})
        sync(p, "B", "stranger", generation)
        sync(p, "B", a, generation - 1)
        sync(p, "B", a, generation, group_id="")
        leave(p, "B", "stranger")
        p.ask("B", LEAVE_GROUP, {"group_id": "", "member_id": a, "members": [{"member_id": a}]})
        p.ask("B", OFFSET_COMMIT, committing(p.group, p.scene.topic("grouped", 2), 5, member_id="stranger"))
    sync(p, "A", a, generation, protocol_type="connect", protocol_name="range")
    sync(p, "A", a, generation, protocol_type="consumer", protocol_name="roundrobin")
    sync(p, "A", a, generation, protocol_type=None, protocol_name=None)
    sync(p, "A", a, generation)


def several_leave_at_once(p: Play) -> None:
    a, _ = stable(p)
    members = [{"member_id": a}, {"member_id": "stranger"}, {"member_id": "", "group_instance_id": "nobodys"}]
    p.ask("A", LEAVE_GROUP, {"group_id": p.group, "members": members})
    describe(p)


def a_static_member(p: Play) -> None:
    topic = p.scene.topic("grouped", 2)["name"]
    static = {"group_instance_id": "desk-1"}
    first, generation = stable(p, **static)
    p.name(first, "first")
    p.ask("A", HEARTBEAT, heartbeat(p, first, generation, **static))
    again = p.ask("A", JOIN_GROUP, joining(p.group, topic, **static))
    second = p.name(again.member_id, "second")
    describe(p)
    p.ask("A", HEARTBEAT, heartbeat(p, first, generation, **static))
    p.ask("A", HEARTBEAT, heartbeat(p, second, again.generation_id, **static))
    p.ask("A", HEARTBEAT, heartbeat(p, second, again.generation_id, group_instance_id="desk-2"))
    p.ask("A", JOIN_GROUP, joining(p.group, topic, first, **static))
    sync(p, "A", first, again.generation_id, **static)
    sync(p, "A", second, again.generation_id, **static)
    mine = {"generation_id_or_member_epoch": again.generation_id}
    p.ask("A", OFFSET_COMMIT, committing(p.group, p.scene.topic("grouped", 2), 5, member_id=first, **mine, **static))
    p.ask("A", OFFSET_COMMIT, committing(p.group, p.scene.topic("grouped", 2), 5, member_id=second, **mine, **static))
    changed = [{"name": "range", "metadata": subscription(topic, "other")}]
    rejoined = p.ask("A", JOIN_GROUP, joining(p.group, topic, second, **static, protocols=changed))
    sync(p, "A", second, rejoined.generation_id, (second, assignment(topic, 0)), **static)
    leave(p, "A", first, **static)
    leave(p, "admin", "", group_instance_id="desk-9")
    leave(p, "admin", "", **static)
    describe(p)


def more_than_a_batch_holds(p: Play) -> None:
    topic = p.scene.topic("grouped", 2)["name"]
    joined = p.join("A", JOIN_GROUP, joining(p.group, topic))
    member, generation = joined.member_id, joined.generation_id
    sync(p, "A", member, generation, (member, b"x" * 1_100_000))
    describe(p)
    p.ask("A", HEARTBEAT, heartbeat(p, member, generation))
    again = p.ask("A", JOIN_GROUP, joining(p.group, topic, member))
    sync(p, "A", member, again.generation_id, (member, assignment(topic, 0, 1)))
    describe(p)


STORIES: Final = {
    "the life of a group": Story(
        the_life_of_a_group,
        (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS),
    ),
    "joins that are refused": Story(joins_that_are_refused, (JOIN_GROUP,)),
    "subscriptions that are noise": Story(subscriptions_that_are_noise, (JOIN_GROUP, DESCRIBE_GROUPS)),
    "strangers and latecomers": Story(strangers_and_latecomers, (SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT)),
    "more than a batch holds": Story(more_than_a_batch_holds, (SYNC_GROUP,), {SYNC_GROUP: 5}),
    "several leave at once": Story(several_leave_at_once, (LEAVE_GROUP,), {LEAVE_GROUP: 3}),
    "a static member": Story(
        a_static_member,
        (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP, OFFSET_COMMIT),
        {JOIN_GROUP: 5, SYNC_GROUP: 3, HEARTBEAT: 3, LEAVE_GROUP: 3, OFFSET_COMMIT: 7},
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    differences = play(scenes, STORIES[name])
    assert not differences, show(differences)
