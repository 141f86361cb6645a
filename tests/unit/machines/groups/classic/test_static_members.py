"""Static members: one instance id, one member, whichever process it runs in."""

from __future__ import annotations

import pytest
from kio.schema.leave_group.v5.request import MemberIdentity

from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.model.errors import ErrorCode
from tests.support.classic_groups import Groups, subscription

PREPARING = ClassicGroupState.PREPARING_REBALANCE
STABLE = ClassicGroupState.STABLE


def test_a_restarted_follower_gets_its_assignment_without_a_rebalance() -> None:
    groups = Groups()
    a, b = groups.stable("a", "b")
    caller = groups.join(instance_id="b")
    assert groups.group.state is STABLE
    assert caller.answer.generation_id == 1
    assert caller.answer.leader == a
    assert caller.answer.members == ()
    assert not caller.answer.skip_assignment
    new = caller.answer.member_id
    assert new not in (a, b)
    assert groups.sync(new, instance_id="b").answer.assignment == f"for {b}".encode()
    assert groups.heartbeat(b, instance_id="b") is ErrorCode.fenced_instance_id
    assert groups.heartbeat(b) is ErrorCode.unknown_member_id


def test_the_new_id_is_in_the_log() -> None:
    groups = Groups()
    groups.stable("a", "b")
    new = groups.join(instance_id="b").answer.member_id
    reloaded = groups.reload()
    assert reloaded.heartbeat(new, instance_id="b") is ErrorCode.none
    assert reloaded.group.stored == groups.group.stored


def test_a_restarted_leader_is_told_to_skip_the_assignment() -> None:
    groups = Groups()
    _, b = groups.stable("a", "b")
    caller = groups.join(instance_id="a", version=9)
    new = caller.answer.member_id
    assert caller.answer.leader == new
    assert caller.answer.skip_assignment
    assert {member.member_id for member in caller.answer.members} == {new, b}
    assert groups.group.state is STABLE
    assert groups.group.leader == new


def test_before_version_9_a_restarted_leader_is_told_that_its_former_self_leads() -> None:
    groups = Groups()
    a, _ = groups.stable("a", "b")
    caller = groups.join(instance_id="a", version=8)
    assert caller.answer.leader == a
    assert caller.answer.member_id != a
    assert caller.answer.members == ()
    assert not caller.answer.skip_assignment
    assert groups.group.leader == caller.answer.member_id


def test_other_topics_of_a_restarted_member_are_known_without_a_rebalance() -> None:
    groups = Groups()
    groups.stable("a")
    groups.join(instance_id="a", protocols={"range": subscription("other")})
    assert groups.group.state is STABLE
    assert groups.group.is_subscribed_to("other")
    assert not groups.group.is_subscribed_to("t")


def test_a_restarted_member_that_changes_the_vote_begins_a_rebalance() -> None:
    groups = Groups()
    both = {"range": b"", "sticky": b""}
    groups.stable("a", protocols=both)
    assert groups.group.protocol == "range"
    caller = groups.join(instance_id="a", protocols={"sticky": b"", "range": b""})
    assert caller.answer.generation_id == 2
    assert caller.answer.protocol_name == "sticky"


@pytest.mark.parametrize("assigned", [False, True])
def test_a_member_that_restarts_during_a_rebalance_replaces_its_former_self(assigned: bool) -> None:
    groups = Groups()
    joins = [groups.join(instance_id=name) for name in "ab"]
    groups.advance(6_000)
    if assigned:
        groups.settle(joins)
        earlier = groups.join(joins[0].answer.member_id, instance_id="a")
    else:
        earlier = groups.sync(joins[0].answer.member_id, instance_id="a", generation=0)
        assert earlier.error is ErrorCode.illegal_generation
        earlier = groups.sync(joins[1].answer.member_id, instance_id="b")
    assert earlier.waits
    instance = "a" if assigned else "b"
    again = groups.join(instance_id=instance)
    assert earlier.error is ErrorCode.fenced_instance_id
    assert again.waits
    assert groups.group.state is PREPARING
    other = joins[1 if assigned else 0].answer.member_id
    rejoin = groups.join(other, instance_id="b" if assigned else "a")
    assert again.answer.generation_id == rejoin.answer.generation_id == 2
    assert len(groups.group.members) == 2


def test_whoever_has_an_old_id_is_fenced_everywhere() -> None:
    groups = Groups()
    a, _ = groups.stable("a", "b")
    groups.join(instance_id="a")
    assert groups.join(a, instance_id="a").error is ErrorCode.fenced_instance_id
    assert groups.sync(a, instance_id="a").error is ErrorCode.fenced_instance_id
    assert groups.heartbeat(a, instance_id="a") is ErrorCode.fenced_instance_id
    left = groups.leave(MemberIdentity(member_id=a, group_instance_id="a"))
    assert [member.error_code for member in left.answer.members] == [ErrorCode.fenced_instance_id]


def test_an_instance_id_that_nobody_has() -> None:
    groups = Groups()
    a, _ = groups.stable("a", "b")
    assert groups.heartbeat(a, instance_id="nobody") is ErrorCode.unknown_member_id
    assert groups.join(a, instance_id="nobody").error is ErrorCode.unknown_member_id


def test_a_static_member_is_removed_by_its_instance_id_alone() -> None:
    groups = Groups()
    a, _ = groups.stable("a", "b")
    caller = groups.leave(
        MemberIdentity(member_id="", group_instance_id="b", reason="scaled down"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
        MemberIdentity(member_id=""),
    )
    assert caller.error is ErrorCode.none
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in caller.answer.members] == [
        ("", "b", ErrorCode.none),
        ("", "nobody", ErrorCode.unknown_member_id),
        ("", None, ErrorCode.unknown_member_id),
    ]
    assert groups.group.state is PREPARING
    assert "b (scaled down)" in groups.group.rebalance_reason
    assert list(groups.group.members) == [a]
    assert list(groups.group.instances) == ["a"]


def test_after_the_session_of_a_static_member_its_place_is_free() -> None:
    groups = Groups()
    _, b = groups.stable("a", "b")
    groups.expire("session", b)
    caller = groups.join(b, instance_id="b")
    assert caller.error is ErrorCode.unknown_member_id
    assert groups.join(instance_id="b").waits


def test_a_restarted_member_is_not_missed_by_the_timer_of_assignments() -> None:
    groups = Groups()
    joins = [groups.join(instance_id=name) for name in "ab"]
    groups.advance(6_000)
    leader, follower = (caller.answer.member_id for caller in joins)
    groups.sync(leader, instance_id="a", assignments={leader: b"1", follower: b"2"})
    assert groups.group.pending_syncs == {follower}
    new = groups.join(instance_id="b").answer.member_id
    assert not groups.group.pending_syncs
    groups.expire("sync")
    assert groups.group.state is STABLE
    assert groups.sync(new, instance_id="b").answer.assignment == b"2"


@pytest.mark.parametrize("instance", ["a", "b"])
def test_a_restarted_member_that_is_too_large_leaves_its_former_self_in_place(instance: str) -> None:
    groups = Groups()
    ids = dict(zip("ab", groups.stable("a", "b"), strict=True))
    log, timers, leader = list(groups.log), dict(groups.timers), groups.group.leader
    groups.is_full = True
    caller = groups.join(instance_id=instance, protocols={"range": subscription("other")}, session_ms=7_000)
    groups.is_full = False
    assert caller.error is ErrorCode.unknown_server_error
    assert (groups.log, groups.timers, groups.group.leader) == (log, timers, leader)
    assert groups.heartbeat(ids[instance], instance_id=instance) is ErrorCode.none
    assert groups.sync(ids[instance], instance_id=instance).answer.assignment == f"for {ids[instance]}".encode()
    former, stored = groups.group.members[ids[instance]], groups.reload().group.members[ids[instance]]
    assert (former.protocols, former.session_timeout_ms) == (stored.protocols, stored.session_timeout_ms)
