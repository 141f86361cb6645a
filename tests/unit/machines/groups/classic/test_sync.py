"""SyncGroup, Heartbeat and LeaveGroup, rule by rule, and the timers that watch over members."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from kio.schema.leave_group.v5.request import MemberIdentity

from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.rules import ClassicRules
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.model.errors import ErrorCode
from tests.support.classic_groups import Groups

if TYPE_CHECKING:
    from tests.support.classic_groups import Caller

PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
EMPTY = ClassicGroupState.EMPTY


def joined(groups: Groups, *instance_ids: str, **joining: int) -> list[str]:
    """Members that have joined and not asked for assignments; the first leads."""
    callers = [groups.join(instance_id=name, **joining) for name in instance_ids]  # type: ignore[arg-type]  # timeouts
    while groups.group.initial_delay is not None:
        groups.expire("join")
    return [caller.answer.member_id for caller in callers]


class TestSync:
    def test_followers_wait_for_the_leader(self) -> None:
        groups = Groups()
        leader, follower, third = joined(groups, "a", "b", "c")
        waiting = groups.sync(follower)
        assert waiting.waits
        leading = groups.sync(leader, assignments={leader: b"L", follower: b"F", "stranger": b"S"})
        assert leading.answer.assignment == b"L"
        assert waiting.answer.assignment == b"F"
        assert waiting.answer.protocol_name == "range"
        assert waiting.answer.protocol_type == "consumer"
        assert groups.group.state is STABLE
        late = groups.sync(third)
        assert late.answer.assignment == b""
        assert late.error is ErrorCode.none

    def test_assignments_that_are_too_large_begin_a_new_round_in_which_all_are_watched(self) -> None:
        groups = Groups()
        leader, follower = joined(groups, "a", "b", session_ms=10_000)
        waiting = groups.sync(follower)
        groups.heartbeat(leader)
        groups.expire("session", follower)  # it waits, and need not be heard of
        groups.is_full = True
        assert groups.sync(leader, assignments={leader: b"x" * 10}).error is ErrorCode.unknown_server_error
        assert waiting.error is ErrorCode.unknown_server_error
        assert groups.group.state is PREPARING
        groups.is_full = False
        groups.advance(20_000)
        assert groups.group.state is EMPTY

    def test_the_assignments_are_in_the_log(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b")
        reloaded = groups.reload()
        assert reloaded.group.state is STABLE
        assert reloaded.group.generation == 1
        assert reloaded.group.leader == a
        assert reloaded.sync(b).answer.assignment == f"for {b}".encode()

    def test_who_may_not_sync(self) -> None:
        groups = Groups()
        leader, _ = joined(groups, "a", "b")
        assert groups.sync("stranger").error is ErrorCode.unknown_member_id
        assert groups.sync(leader, generation=0).error is ErrorCode.illegal_generation
        assert groups.sync(leader, generation=2).error is ErrorCode.illegal_generation
        assert groups.sync(leader, protocol_name="other").error is ErrorCode.inconsistent_group_protocol
        assert groups.sync(leader, protocol_type="other").error is ErrorCode.inconsistent_group_protocol
        assert groups.sync(leader, generation=1, group_id="none").error is ErrorCode.unknown_member_id
        assert groups.sync(leader, generation=1, group_id="").error is ErrorCode.invalid_group_id
        assert groups.group.state is COMPLETING

    def test_old_versions_name_no_protocol(self) -> None:
        groups = Groups()
        (leader,) = joined(groups, "a")
        assert groups.sync(leader, protocol_name=None, protocol_type=None).error is ErrorCode.none

    def test_of_two_syncs_of_one_member_the_earlier_is_told_to_join_again(self) -> None:
        groups = Groups()
        leader, follower = joined(groups, "a", "b")
        earlier = groups.sync(follower)
        later = groups.sync(follower)
        assert earlier.error is ErrorCode.rebalance_in_progress
        groups.sync(leader, assignments={follower: b"F"})
        assert later.answer.assignment == b"F"

    def test_a_new_member_sends_everybody_back_to_join(self) -> None:
        groups = Groups()
        _, follower = joined(groups, "a", "b")
        waiting = groups.sync(follower)
        groups.join(instance_id="c")
        assert waiting.error is ErrorCode.rebalance_in_progress
        assert waiting.answer.protocol_name is None
        assert groups.sync(follower).error is ErrorCode.rebalance_in_progress

    def test_members_that_never_ask_for_assignments_are_removed(self) -> None:
        groups = Groups()
        leader, follower = joined(groups, "a", "b", session_ms=100_000, rebalance_ms=30_000)
        groups.sync(leader, assignments={leader: b"L"})
        groups.advance(29_999)
        assert groups.group.state is STABLE
        groups.advance(1)
        assert groups.group.state is PREPARING
        assert list(groups.group.members) == [leader]
        assert follower in groups.group.rebalance_reason

    def test_a_leader_that_never_assigns_is_removed_and_the_rest_joins_again(self) -> None:
        groups = Groups()
        leader, follower = joined(groups, "a", "b", session_ms=100_000, rebalance_ms=30_000)
        waiting = groups.sync(follower)
        groups.advance(30_000)
        assert waiting.error is ErrorCode.rebalance_in_progress
        rejoin = groups.join(follower, instance_id="b")
        assert rejoin.answer.leader == follower
        assert leader not in groups.group.members

    def test_nobody_is_removed_once_all_have_asked(self) -> None:
        groups = Groups()
        groups.stable("a", "b", session_ms=1_000_000, rebalance_ms=30_000)
        assert not any(key.kind == "classic.sync" for key in groups.timers)
        groups.advance(100_000)
        assert groups.group.state is STABLE

    def test_a_waiting_member_needs_no_heartbeats_and_has_a_full_session_afterwards(self) -> None:
        groups = Groups()
        leader, follower = joined(groups, "a", "b", session_ms=10_000, rebalance_ms=60_000)
        waiting = groups.sync(follower)
        for _ in range(3):
            groups.advance(9_000)
            assert groups.heartbeat(leader) is ErrorCode.none
        groups.sync(leader, assignments={follower: b"F"})
        assert waiting.error is ErrorCode.none
        groups.advance(9_999)
        assert follower in groups.group.members
        groups.advance(1)
        assert follower not in groups.group.members


class TestHeartbeat:
    def test_in_each_state(self) -> None:
        groups = Groups()
        leader, follower = joined(groups, "a", "b")
        assert groups.heartbeat(leader) is ErrorCode.none
        groups.sync(leader)
        groups.sync(follower)
        assert groups.heartbeat(leader) is ErrorCode.none
        groups.join(instance_id="c")
        assert groups.heartbeat(leader) is ErrorCode.rebalance_in_progress

    def test_who_is_not_a_member(self) -> None:
        groups = Groups()
        (member,) = groups.stable("a")
        assert groups.heartbeat("stranger") is ErrorCode.unknown_member_id
        assert groups.heartbeat(member, generation=0) is ErrorCode.illegal_generation
        assert groups.heartbeat(member, generation=1, group_id="none") is ErrorCode.unknown_member_id
        assert groups.heartbeat(member, generation=1, group_id="") is ErrorCode.invalid_group_id
        pending = groups.join().answer.member_id
        assert groups.heartbeat(pending) is ErrorCode.unknown_member_id
        groups.leave(member)
        assert groups.group.state is not STABLE
        assert groups.heartbeat(member) is ErrorCode.unknown_member_id

    def test_it_keeps_a_member(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b", session_ms=10_000)
        for _ in range(5):
            groups.advance(9_999)
            assert groups.heartbeat(a) is ErrorCode.none
            assert groups.heartbeat(b) is ErrorCode.none
        assert groups.group.state is STABLE

    def test_a_member_that_falls_silent_is_removed(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b", session_ms=10_000)
        groups.advance(5_000)
        groups.heartbeat(a)
        groups.advance(5_000)
        assert groups.heartbeat(a) is ErrorCode.rebalance_in_progress
        rejoin = groups.join(a, instance_id="a")
        assert rejoin.answer.generation_id == 2
        assert b not in groups.group.members

    def test_a_group_that_falls_silent_is_empty_and_says_so_in_the_log(self) -> None:
        groups = Groups()
        groups.stable(None, None, session_ms=10_000)
        groups.advance(200_000)
        assert groups.group.state is EMPTY
        assert groups.group.generation == 2
        assert groups.group.leader is None
        assert groups.group.protocol is None
        assert groups.group.protocol_type == "consumer"
        reloaded = groups.reload().group
        assert (reloaded.state, reloaded.generation, reloaded.members) == (EMPTY, 2, {})
        assert reloaded.state_since_ms == groups.group.state_since_ms != groups.now_ms


class TestLeave:
    def codes(self, caller: Caller) -> list[ErrorCode]:
        return [member.error_code for member in caller.answer.members]

    def test_the_last_member_leaves_an_empty_group(self) -> None:
        groups = Groups()
        (a,) = groups.stable(None)
        caller = groups.leave(a)
        assert self.codes(caller) == [ErrorCode.none]
        assert caller.answer.members[0].member_id == a
        assert groups.group.state is EMPTY
        assert groups.group.generation == 2
        assert not groups.timers

    def test_generations_go_on_after_a_group_was_empty(self) -> None:
        groups = Groups()
        (a,) = groups.stable(None)
        groups.leave(a)
        again = groups.reload()
        (b,) = again.stable(None)
        assert again.group.generation == 3
        assert again.heartbeat(b) is ErrorCode.none

    def test_a_leader_that_leaves_is_followed_by_another(self) -> None:
        groups = Groups()
        a, b, c = groups.stable(None, None, None)
        groups.leave(a)
        assert groups.group.state is PREPARING
        joins = [groups.join(member) for member in (c, b)]
        assert {caller.answer.leader for caller in joins} == {b}

    def test_many_at_once(self) -> None:
        groups = Groups()
        a, b, c = groups.stable(None, None, None)
        caller = groups.leave(a, "stranger", b, b)
        assert self.codes(caller) == [
            ErrorCode.none, ErrorCode.unknown_member_id, ErrorCode.none, ErrorCode.unknown_member_id,
        ]  # fmt: skip
        assert list(groups.group.members) == [c]

    def test_nothing_happens_if_nobody_leaves(self) -> None:
        groups = Groups()
        groups.stable(None)
        groups.leave("stranger")
        assert groups.group.state is STABLE

    def test_a_group_that_is_not_there(self) -> None:
        groups = Groups()
        caller = groups.leave("a", MemberIdentity(member_id="b", group_instance_id="i"), group_id="none")
        assert caller.error is ErrorCode.none
        assert self.codes(caller) == [ErrorCode.unknown_member_id] * 2
        assert caller.answer.members[1].group_instance_id == "i"
        caller = groups.leave("a", group_id="")
        assert caller.error is ErrorCode.invalid_group_id
        assert caller.answer.members == ()

    def test_an_id_that_was_given_out(self) -> None:
        groups = Groups()
        (a,) = groups.stable("a")
        pending = groups.join().answer.member_id
        assert self.codes(groups.leave(pending)) == [ErrorCode.none]
        assert groups.group.state is STABLE
        pending = groups.join().answer.member_id
        waiting = groups.join(a, instance_id="a")
        assert waiting.waits
        groups.leave(pending)
        assert waiting.answer.generation_id == 2

    def test_who_waits_for_something_and_is_removed_learns_it(self) -> None:
        groups = Groups()
        a, b = joined(groups, "a", "b")
        sync = groups.sync(b)
        groups.leave(b)
        assert sync.error is ErrorCode.unknown_member_id
        join = groups.join(instance_id="c")
        assert join.waits
        groups.leave(MemberIdentity(member_id="", group_instance_id="c"))
        assert join.error is ErrorCode.unknown_member_id
        assert join.answer.member_id == ""
        assert list(groups.group.members) == [a]

    def test_everybody_leaves_before_the_first_rebalance_is_done(self) -> None:
        groups = Groups()
        groups.join(instance_id="a")
        groups.leave(MemberIdentity(member_id="", group_instance_id="a"))
        assert groups.group.state is PREPARING
        groups.advance(3_000)
        assert groups.group.state is EMPTY
        (member,) = groups.stable(None)
        assert groups.heartbeat(member) is ErrorCode.none


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_whoever_waits_is_answered_when_the_coordinator_goes(phase: str) -> None:
    groups = Groups()
    a, b = joined(groups, "a", "b")
    waiting = groups.sync(b) if phase == "sync" else groups.join(a, instance_id="a", protocols={"range": b"new"})
    assert waiting.waits
    groups.take(groups.rules.abandon(ErrorCode.not_coordinator))
    assert waiting.error is ErrorCode.not_coordinator
    assert groups.group.state is ClassicGroupState.DEAD
    assert not groups.timers


def test_groups_that_only_have_offsets_cost_nothing_when_the_coordinator_goes() -> None:
    groups = Groups()
    joined(groups, "a")
    idle = ClassicGroup("b")
    groups.table.groups["b"] = idle
    with patch.object(ClassicRules, "dissolve") as dissolve:
        groups.take(groups.rules.abandon(ErrorCode.not_coordinator))
    assert dissolve.call_count == 1
    assert idle.state is groups.group.state is ClassicGroupState.DEAD


def test_timers_of_groups_and_members_that_are_gone_do_nothing() -> None:
    groups = Groups()
    a, b = groups.stable("a", "b")
    stale = dict(groups.timers)
    groups.leave(a, b)
    for key in stale:
        groups.timers[key] = groups.now_ms
        groups.fire(key)
    assert groups.group.state is EMPTY
    groups.delete()
    for key in stale:
        groups.timers[key] = groups.now_ms
        groups.fire(key)
    assert not groups.table.groups
