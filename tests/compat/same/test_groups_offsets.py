"""Committed offsets and what else is asked of a coordinator: Barnabas answers as Apache Kafka 4.3.0 does."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.compat.same.play import Play, Story, play, show
from tests.support.group_wire import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    JOIN_GROUP,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SYNC_GROUP,
    assignment,
    committing,
    fetching,
    joining,
)

if TYPE_CHECKING:
    from tests.compat.same.scene import Scene

NOWHERE: Final = {"name": "nowhere", "topic_id": uuid.UUID(int=77)}


def grouped(p: Play) -> dict[str, Any]:
    return p.scene.topic("grouped", 2)


def in_a_group(p: Play, *, state: str = "stable") -> tuple[str, int]:
    """A group with one member; its id and generation."""
    topic = grouped(p)["name"]
    joined = p.join("A", JOIN_GROUP, joining(p.group, topic))
    if state == "stable":
        body = {
            "group_id": p.group,
            "generation_id": joined.generation_id,
            "member_id": joined.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": joined.member_id, "assignment": assignment(topic, 0, 1)}],
        }
        p.ask("A", SYNC_GROUP, body)
    return joined.member_id, joined.generation_id


def without_a_group(p: Play) -> None:
    topic = grouped(p)
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, partitions=(0, 1, 9)))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 5, metadata="five", leader_epoch=0))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 6, index=1, metadata=None))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, partitions=(0, 1, 9)))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 3, metadata="x" * 4096))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 4, metadata="x" * 4097))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 4, index=9))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, -1))
    p.ask("A", OFFSET_COMMIT, committing(p.group, NOWHERE, 4))
    p.ask("A", OFFSET_COMMIT, committing("", topic, 4))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 4, member_id="stranger"))
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 4, generation_id_or_member_epoch=3))
    p.ask("A", OFFSET_COMMIT, {**committing(p.group, topic, 4), "topics": []})
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, NOWHERE, partitions=(0, 1, 9)))
    p.ask("A", OFFSET_FETCH, fetching("", topic))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, require_stable=True))
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group]})


def everything_of_a_group(p: Play) -> None:
    p.ask("A", OFFSET_FETCH, fetching(p.group))
    p.ask("A", OFFSET_COMMIT, committing(p.group, grouped(p), 5, metadata="five", leader_epoch=0))
    p.ask("A", OFFSET_COMMIT, committing(p.group, p.scene.topic("other"), 6))
    p.ask("A", OFFSET_FETCH, fetching(p.group))
    p.ask("A", OFFSET_FETCH, fetching(f"nobodys-{p.group}"))


def of_many_groups(p: Play) -> None:
    topic = grouped(p)
    second = f"second-{p.group}"
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 5))
    p.ask("A", OFFSET_COMMIT, committing(second, topic, 6, index=1))
    asked = [
        *fetching(p.group, topic)["groups"],
        *fetching(second)["groups"],
        *fetching(f"third-{p.group}", topic)["groups"],
    ]
    p.ask("A", OFFSET_FETCH, {"groups": asked})
    p.ask("A", OFFSET_FETCH, {"groups": []})


def within_a_group(p: Play) -> None:
    topic = grouped(p)
    member, generation = in_a_group(p)
    p.ask("B", OFFSET_COMMIT, committing(p.group, topic, 5))
    p.ask("B", OFFSET_COMMIT, committing(p.group, topic, 5, member_id="stranger"))
    for number in (generation, generation - 1, generation + 1, -1):
        mine = {"member_id": member, "generation_id_or_member_epoch": number}
        p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 5 + number, **mine))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, member_id=member, member_epoch=generation))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, member_id="stranger", member_epoch=generation))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic, member_id=member, member_epoch=generation + 5))


def before_a_group_is_ready(p: Play) -> None:
    member, generation = in_a_group(p, state="joined")
    mine = {"member_id": member, "generation_id_or_member_epoch": generation}
    p.ask("A", OFFSET_COMMIT, committing(p.group, grouped(p), 5, **mine))
    p.ask("A", OFFSET_FETCH, fetching(p.group, grouped(p)))


def deleting(p: Play) -> None:
    topic = grouped(p)
    other = p.scene.topic("other")
    wanted = [{"partition_index": 0}, {"partition_index": 1}, {"partition_index": 9}]
    body = {"group_id": p.group, "topics": [{**topic, "partitions": wanted}, {**other, "partitions": wanted[:1]}]}
    p.ask("admin", OFFSET_DELETE, body)
    for one in (topic, other):
        p.ask("A", OFFSET_COMMIT, committing(p.group, one, 5))
    p.ask("admin", OFFSET_DELETE, {**body, "topics": []})
    p.ask("admin", OFFSET_DELETE, {**body, "topics": [{**NOWHERE, "partitions": wanted[:1]}]})
    p.ask("admin", OFFSET_DELETE, {**body, "group_id": ""})
    p.ask("admin", OFFSET_DELETE, body)
    p.ask("admin", OFFSET_FETCH, fetching(p.group))
    for one in (topic, other):
        p.ask("A", OFFSET_COMMIT, committing(p.group, one, 6))
    in_a_group(p)
    p.ask("admin", OFFSET_DELETE, body)
    p.ask("admin", OFFSET_FETCH, fetching(p.group))


def deleting_a_group_of_offsets(p: Play) -> None:
    p.ask("A", OFFSET_COMMIT, committing(p.group, grouped(p), 5))
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group, "nobody"]})
    listed = p.ask("admin", LIST_GROUPS, {"states_filter": ["EMPTY", "nonsense"]}, noted=False)
    p.answers.append(["admin", [str(group) for group in listed.groups if group.group_id == p.group]])
    p.ask("admin", DELETE_GROUPS, {"groups_names": [p.group, p.group, "nobody"]})
    p.ask("admin", DELETE_GROUPS, {"groups_names": []})
    p.ask("admin", OFFSET_FETCH, fetching(p.group))


def more_than_a_batch_holds(p: Play) -> None:
    topic = grouped(p)
    [once] = committing(p.group, topic, 5, metadata="x" * 4000)["topics"][0]["partitions"]
    p.ask("A", OFFSET_COMMIT, {**committing(p.group, topic, 5), "topics": [{**topic, "partitions": [once] * 280}]})
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic))
    p.ask("admin", DESCRIBE_GROUPS, {"groups": [p.group]})
    p.ask("A", OFFSET_COMMIT, committing(p.group, topic, 6))
    p.ask("A", OFFSET_FETCH, fetching(p.group, topic))


def finding(p: Play) -> None:
    for kind in (0, 1, 2, 9, -1):
        p.ask("A", FIND_COORDINATOR, {"key": p.group, "key_type": kind, "coordinator_keys": [p.group]})
    p.ask("A", FIND_COORDINATOR, {"key": "", "key_type": 0, "coordinator_keys": [""]})
    p.ask("A", FIND_COORDINATOR, {"key": "a", "key_type": 0, "coordinator_keys": ["a", "b", "a"]})
    p.ask("A", FIND_COORDINATOR, {"key": "a", "key_type": 0, "coordinator_keys": []})


STORIES: Final = {
    "without a group": Story(without_a_group, (OFFSET_COMMIT, OFFSET_FETCH)),
    "everything of a group": Story(everything_of_a_group, (OFFSET_FETCH,), {OFFSET_FETCH: 2}),
    "of many groups": Story(of_many_groups, (OFFSET_FETCH,), {OFFSET_FETCH: 8}),
    "within a group": Story(within_a_group, (OFFSET_COMMIT, OFFSET_FETCH)),
    "before a group is ready": Story(before_a_group_is_ready, (OFFSET_COMMIT,)),
    "deleting": Story(deleting, (OFFSET_DELETE,)),
    "deleting a group of offsets": Story(deleting_a_group_of_offsets, (DELETE_GROUPS, LIST_GROUPS, DESCRIBE_GROUPS)),
    "more than a batch holds": Story(more_than_a_batch_holds, (OFFSET_COMMIT,), {OFFSET_COMMIT: 9}),
    "finding a coordinator": Story(finding, (FIND_COORDINATOR,)),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_story_ends_the_same(scenes: tuple[Scene, Scene], name: str) -> None:
    differences = play(scenes, STORIES[name])
    assert not differences, show(differences)
