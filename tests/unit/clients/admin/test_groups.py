"""What live brokers rarely answer; the rest is tested against them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.clients.admin.groups import GroupInfo, Groups
from barnabas.clients.errors import RequestRefused
from barnabas.clients.wire.connection import WireClient
from barnabas.model.errors import ErrorCode
from barnabas.model.ids import TopicPartition
from tests.unit.clients.scripted_broker import ScriptedBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE_GROUPS = 8, 9, 10, 15


@pytest.fixture
def old_broker() -> Iterator[ScriptedBroker]:
    """A broker that has no other groups than classic ones."""
    served = {OFFSET_COMMIT: (2, 8), OFFSET_FETCH: (1, 8), FIND_COORDINATOR: (0, 4), DESCRIBE_GROUPS: (0, 5)}
    with ScriptedBroker(served, {}) as broker:
        broker.answers[FIND_COORDINATOR] = lambda request: {
            "coordinators": [{"key": key, **broker.node()} for key in request.coordinator_keys]
        }
        yield broker


def describe(broker: ScriptedBroker, **group: Any) -> GroupInfo | RequestRefused:
    broker.answers[DESCRIBE_GROUPS] = lambda _: {"groups": [{"group_id": "g", **group}]}
    with Groups(WireClient(broker.bootstrap)) as groups:
        return groups.describe(["g"])["g"]


def member(assignment: bytes) -> dict[str, Any]:
    return {
        "member_id": "m",
        "client_id": "c",
        "client_host": "/h",
        "member_metadata": b"",
        "member_assignment": assignment,
    }


def test_a_classic_group_of_an_old_broker(old_broker: ScriptedBroker) -> None:
    newer_assignment = b"\0\3" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\5" + b"\0\0\0\1" + b"\xff\xff\xff\xff"
    group = describe(
        old_broker,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[member(newer_assignment), member(b"")],
    )
    assert isinstance(group, GroupInfo)
    assert (group.type, group.assignor, group.epoch) == ("Classic", "range", None)
    assert [one.assignment for one in group.members] == [(TopicPartition("t", 1), TopicPartition("t", 5)), ()]


@pytest.mark.parametrize(
    ("group", "code"),
    [
        ({"group_state": "Dead"}, ErrorCode.group_id_not_found),
        ({"group_state": "Stable", "protocol_type": "connect"}, ErrorCode.inconsistent_group_protocol),
        ({"error_code": ErrorCode.group_authorization_failed}, ErrorCode.group_authorization_failed),
        (
            {"group_state": "Stable", "protocol_type": "consumer", "members": [member(b"\0\0\0")]},
            ErrorCode.inconsistent_group_protocol,
        ),
    ],
)
def test_groups_that_cannot_be_described(old_broker: ScriptedBroker, group: dict[str, Any], code: ErrorCode) -> None:
    refused = describe(old_broker, **group)
    assert isinstance(refused, RequestRefused)
    assert refused.code == code


def test_committed_offsets_leave_out_what_there_is_not(old_broker: ScriptedBroker) -> None:
    partitions = [
        {"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 2},
        {"partition_index": 1, "committed_offset": 8, "committed_leader_epoch": -1},
        {"partition_index": 2, "committed_offset": -1, "committed_leader_epoch": -1},
    ]
    old_broker.answers[OFFSET_FETCH] = lambda _: {
        "groups": [{"group_id": "g", "topics": [{"name": "t", "partitions": partitions}]}]
    }
    with Groups(WireClient(old_broker.bootstrap)) as groups:
        found = groups.committed(["g"])["g"]
    assert {partition: (committed.offset, committed.leader_epoch) for partition, committed in found.items()} == {
        ("t", 0): (7, 2),
        ("t", 1): (8, None),
    }


def test_offsets_of_many_groups_are_asked_for_together_and_open_transactions_are_waited_for(
    old_broker: ScriptedBroker,
) -> None:
    asked: list[list[str]] = []

    def answer(request: Any) -> dict[str, Any]:
        assert request.require_stable
        asked.append([group.group_id for group in request.groups])
        unstable = {"partition_index": 0, "committed_offset": -1, "error_code": ErrorCode.unstable_offset_commit}
        told = {
            "a": unstable if len(asked) == 1 else {"partition_index": 0, "committed_offset": 3, "metadata": "note"},
            "b": {"partition_index": 0, "committed_offset": 7, "metadata": None},
            "none": {"partition_index": 0, "committed_offset": -1},
        }
        return {
            "groups": [{"group_id": name, "topics": [{"name": "t", "partitions": [told[name]]}]} for name in asked[-1]]
        }

    old_broker.answers[OFFSET_FETCH] = answer
    with Groups(WireClient(old_broker.bootstrap)) as groups:
        found = groups.settled(["a", "b", "none"], TopicPartition("t", 0))
    assert {name: (committed.offset, committed.metadata) for name, committed in found.items()} == {
        "a": (3, "note"),
        "b": (7, ""),
    }
    assert asked == [["a", "b", "none"], ["a"]]


def test_a_commit_that_a_member_stands_in_the_way_of(old_broker: ScriptedBroker) -> None:
    old_broker.answers[OFFSET_COMMIT] = lambda _: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "error_code": ErrorCode.unknown_member_id}]}]
    }
    with Groups(WireClient(old_broker.bootstrap)) as groups, pytest.raises(RequestRefused) as caught:
        groups.commit("g", {TopicPartition("t", 0): 1})
    assert str(caught.value) == "group g, partition t-0: the group has active members"
