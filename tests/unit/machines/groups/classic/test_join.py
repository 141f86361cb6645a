"""JoinGroup, rule by rule: who may join, under which id, and what they agree on."""

from __future__ import annotations

import pytest

from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.settings import GroupSettings
from barnabas.model.errors import ErrorCode
from barnabas.protocol.coordinator_records import CoordinatorRecord, GroupMetadataKey, GroupMetadataValue, decode
from tests.support.classic_groups import GROUP, Caller, Groups, subscription

PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
EMPTY = ClassicGroupState.EMPTY


def with_id(groups: Groups, **joining: object) -> str:
    """An id that was given out."""
    caller = groups.join(**joining)  # type: ignore[arg-type]  # passed on as it is
    assert caller.error is ErrorCode.member_id_required
    member_id = caller.answer.member_id
    assert isinstance(member_id, str)
    return member_id


def test_a_client_without_an_id_is_given_one_and_joins_with_it() -> None:
    groups = Groups()
    first = groups.join(client_id="alpha")
    assert first.error is ErrorCode.member_id_required
    assert first.answer.member_id == "alpha-id1"
    assert groups.group.state is EMPTY
    second = groups.join("alpha-id1")
    assert second.waits
    assert groups.group.state is PREPARING
    groups.advance(3_000)
    assert second.error is ErrorCode.none
    assert second.answer.generation_id == 1
    assert second.answer.leader == second.answer.member_id == "alpha-id1"
    assert [member.member_id for member in second.answer.members] == ["alpha-id1"]
    assert second.answer.protocol_name == "range"
    assert second.answer.protocol_type == "consumer"


def test_before_version_4_a_client_joins_at_once() -> None:
    groups = Groups()
    caller = groups.join(version=3)
    assert caller.waits
    groups.advance(3_000)
    assert caller.answer.member_id == "client-id1"


def test_a_static_member_joins_at_once_and_is_named_after_its_instance() -> None:
    groups = Groups()
    caller = groups.join(instance_id="one")
    groups.advance(3_000)
    assert caller.answer.member_id == "one-id1"
    assert caller.answer.members[0].group_instance_id == "one"


def test_a_new_group_is_written_to_the_log_at_once() -> None:
    groups = Groups()
    groups.join()
    key, value = groups.log[0]
    assert len(groups.log) == 1
    assert decode(key, value) == CoordinatorRecord(
        GroupMetadataKey(GROUP), GroupMetadataValue("", 0, None, None, groups.now_ms, ())
    )
    assert groups.reload().group.state is EMPTY


def test_a_member_that_the_group_does_not_know() -> None:
    groups = Groups()
    caller = groups.join("stranger")
    assert caller.error is ErrorCode.unknown_member_id
    assert caller.answer.member_id == "stranger"
    assert not groups.table.groups
    assert not groups.log
    groups.stable(None)
    assert groups.join("stranger").error is ErrorCode.unknown_member_id


def test_an_empty_group_id() -> None:
    assert Groups().join(group_id="").error is ErrorCode.invalid_group_id


@pytest.mark.parametrize(("session_ms", "fine"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_session_timeouts_have_bounds(session_ms: int, fine: bool) -> None:
    error = Groups().join(session_ms=session_ms).error
    assert error is (ErrorCode.member_id_required if fine else ErrorCode.invalid_session_timeout)


def test_a_first_member_must_name_a_protocol() -> None:
    groups = Groups()
    assert groups.join(protocols=()).error is ErrorCode.inconsistent_group_protocol
    assert groups.join(protocol_type="").error is ErrorCode.inconsistent_group_protocol
    assert not groups.table.groups


def test_members_must_share_a_protocol_and_its_type() -> None:
    groups = Groups()
    (member,) = groups.stable(None, protocols={"range": b"", "sticky": b""})
    assert groups.join(protocols={"other": b""}).error is ErrorCode.inconsistent_group_protocol
    assert groups.join(protocol_type="connect").error is ErrorCode.inconsistent_group_protocol
    assert groups.join(member, protocols={"other": b""}).error is ErrorCode.inconsistent_group_protocol
    assert groups.join(protocols={"sticky": b""}).error is ErrorCode.member_id_required
    assert groups.group.state is STABLE


def test_the_protocol_with_most_votes_of_those_that_all_speak_is_chosen() -> None:
    groups = Groups()
    joins = [
        groups.join(instance_id="a", protocols={"range": b"1", "sticky": b"1", "only-a": b"1"}),
        groups.join(instance_id="b", protocols={"sticky": b"2", "range": b"2"}),
        groups.join(instance_id="c", protocols={"only-c": b"3", "sticky": b"3", "range": b"3"}),
    ]
    groups.advance(60_000)
    assert {caller.answer.protocol_name for caller in joins} == {"sticky"}
    assert [member.metadata for member in joins[0].answer.members] == [b"1", b"2", b"3"]


def test_a_protocol_named_twice_counts_once() -> None:
    groups = Groups()
    caller = groups.join(instance_id="a", protocols=[("range", b"1"), ("range", b"2")])
    other = groups.join(instance_id="b")
    groups.advance(60_000)
    assert caller.answer.protocol_name == other.answer.protocol_name == "range"


def test_only_the_leader_is_told_the_members() -> None:
    groups = Groups()
    joins = [groups.join(instance_id=name) for name in "abc"]
    groups.advance(60_000)
    assert {caller.answer.leader for caller in joins} == {"a-id1"}
    assert [len(caller.answer.members) for caller in joins] == [3, 0, 0]


def test_the_first_rebalance_waits_longer_while_members_keep_coming() -> None:
    groups = Groups()
    first = groups.join(instance_id="a", rebalance_ms=8_000)
    groups.advance(2_000)
    groups.join(instance_id="b", rebalance_ms=8_000)
    groups.advance(2_000)
    assert first.waits
    groups.join(instance_id="c", rebalance_ms=8_000)
    groups.advance(3_999)
    assert first.waits
    groups.advance(1)
    assert len(first.answer.members) == 3


def test_the_first_rebalance_never_waits_much_longer_than_the_rebalance_timeout() -> None:
    groups = Groups()
    first = groups.join(instance_id="a", rebalance_ms=8_000)
    for name in "bcdefghij":
        groups.advance(1_000)
        groups.join(instance_id=name, rebalance_ms=8_000)
    assert not first.waits


def test_the_first_rebalance_ends_with_its_delay_if_nobody_else_comes() -> None:
    groups = Groups()
    first = groups.join(instance_id="a", rebalance_ms=8_000)
    groups.advance(2_999)
    assert first.waits
    groups.advance(1)
    assert not first.waits


def test_an_id_that_nobody_joins_with_is_taken_back() -> None:
    groups = Groups()
    member_id = with_id(groups, session_ms=7_000)
    groups.advance(7_000)
    assert not groups.group.pending_joins
    assert groups.join(member_id).error is ErrorCode.unknown_member_id


def test_an_id_that_was_given_out_does_not_disturb_a_stable_group() -> None:
    groups = Groups()
    groups.stable("a")
    with_id(groups)
    groups.expire("session", "client-id2")
    assert groups.group.state is STABLE


def test_a_rebalance_waits_for_ids_that_were_given_out() -> None:
    groups = Groups()
    (member,) = groups.stable("a")
    pending = with_id(groups)
    rejoin = groups.join(member, instance_id="a")
    assert rejoin.waits
    joined = groups.join(pending)
    assert not rejoin.waits
    assert not joined.waits
    again = groups.join(member, instance_id="a", protocols={"range": b"new"})
    assert again.waits
    lost = with_id(groups)
    groups.join(pending)
    assert again.waits
    groups.expire("session", lost)
    assert again.answer.generation_id == 3


def test_an_id_that_was_given_out_is_never_a_static_member() -> None:
    groups = Groups()
    member_id = with_id(groups)
    assert groups.join(member_id, instance_id="a").error is ErrorCode.unknown_member_id


def test_joins_during_a_rebalance_take_part_in_it() -> None:
    groups = Groups()
    a, b = groups.stable("a", "b")
    newcomer = groups.join(instance_id="c")
    assert groups.group.state is PREPARING
    assert groups.heartbeat(a, instance_id="a") is ErrorCode.rebalance_in_progress
    rejoins = [groups.join(a, instance_id="a"), groups.join(b, instance_id="b")]
    assert {caller.answer.generation_id for caller in (newcomer, *rejoins)} == {2}
    assert groups.group.state is COMPLETING


def test_members_that_do_not_join_in_time_are_removed() -> None:
    groups = Groups()
    a, b = groups.stable(None, None, session_ms=100_000, rebalance_ms=20_000)
    rejoin = groups.join(a, session_ms=100_000, rebalance_ms=20_000)
    groups.advance(19_999)
    assert rejoin.waits
    groups.advance(1)
    assert [member.member_id for member in rejoin.answer.members] == [a]
    assert groups.heartbeat(b) is ErrorCode.unknown_member_id


def test_static_members_that_do_not_join_stay_until_their_session_ends() -> None:
    groups = Groups()
    a, b = groups.stable("a", "b", session_ms=50_000, rebalance_ms=20_000)
    rejoin = groups.join(a, instance_id="a", session_ms=50_000, rebalance_ms=20_000)
    groups.advance(20_000)
    assert {member.member_id for member in rejoin.answer.members} == {a, b}


def test_a_leader_that_does_not_join_is_followed_by_one_that_has() -> None:
    groups = Groups()
    a, b = groups.stable("a", "b", session_ms=100_000, rebalance_ms=20_000)
    assert groups.group.leader == a
    groups.join(b, instance_id="b", protocols={"range": b"new"}, session_ms=100_000)
    groups.advance(60_000)
    assert groups.group.leader == b
    assert a in groups.group.members


def test_a_rebalance_that_nobody_joins_looks_again() -> None:
    groups = Groups(GroupSettings(initial_rebalance_delay_ms=0))
    a, b = groups.stable("a", "b", session_ms=100_000, rebalance_ms=0)
    groups.expire("session", b)
    assert groups.group.state is PREPARING
    for _ in range(3):
        groups.expire("join")
        assert groups.group.state is PREPARING
    rejoin = groups.join(a, instance_id="a")
    assert rejoin.answer.generation_id == 2


def test_a_leader_that_joins_again_begins_a_rebalance() -> None:
    groups = Groups()
    a, _ = groups.stable("a", "b")
    caller = groups.join(a, instance_id="a")
    assert caller.waits
    assert groups.group.state is PREPARING
    assert groups.group.rebalance_reason == f"{a} leads and joins again; it says: not provided"


def test_a_follower_that_joins_again_with_nothing_new_is_told_the_generation() -> None:
    groups = Groups()
    _, b = groups.stable("a", "b")
    caller = groups.join(b, instance_id="b")
    assert caller.answer.generation_id == 1
    assert caller.answer.members == ()
    assert groups.group.state is STABLE


def test_a_follower_that_joins_again_with_other_metadata_begins_a_rebalance() -> None:
    groups = Groups()
    _, b = groups.stable("a", "b")
    caller = groups.join(b, instance_id="b", protocols={"range": subscription("t", "u")}, reason="more topics")
    assert caller.waits
    assert groups.group.state is PREPARING
    assert groups.group.rebalance_reason.endswith("it says: more topics")


def test_a_member_that_missed_the_answer_is_told_again_before_the_assignments_are_there() -> None:
    groups = Groups()
    joins = [groups.join(instance_id=name) for name in "ab"]
    groups.advance(6_000)
    assert groups.group.state is COMPLETING
    leader, follower = (caller.answer.member_id for caller in joins)
    again = groups.join(leader, instance_id="a")
    assert again.answer == joins[0].answer
    again = groups.join(follower, instance_id="b")
    assert again.answer == joins[1].answer
    assert groups.group.state is COMPLETING


def test_other_metadata_before_the_assignments_are_there_begins_a_rebalance() -> None:
    groups = Groups()
    joins = [groups.join(instance_id=name) for name in "ab"]
    groups.expire("join")
    groups.expire("join")
    a, b = (caller.answer.member_id for caller in joins)
    waiting = groups.sync(b, instance_id="b")
    groups.join(b, instance_id="b", protocols={"range": b"new"})
    assert waiting.error is ErrorCode.rebalance_in_progress
    assert groups.group.state is PREPARING
    assert groups.sync(a, instance_id="a").error is ErrorCode.rebalance_in_progress


def test_of_two_joins_of_one_member_the_earlier_is_told_to_join_again() -> None:
    groups = Groups()
    a, b = groups.stable("a", "b")
    earlier = groups.join(a, instance_id="a")
    later = groups.join(a, instance_id="a")
    assert earlier.error is ErrorCode.rebalance_in_progress
    assert later.waits
    groups.join(b, instance_id="b")
    assert later.error is ErrorCode.none


def test_a_first_join_that_waits_too_long_is_answered_and_the_member_forgotten() -> None:
    groups = Groups()
    a, _ = groups.stable(None, None, session_ms=1_000_000, rebalance_ms=1_000_000)
    newcomer = groups.join(version=3, rebalance_ms=1_000_000)
    groups.advance(5 * 60_000 - 1)
    assert newcomer.waits
    groups.advance(1)
    assert newcomer.error is ErrorCode.unknown_member_id
    assert newcomer.answer.member_id == ""
    assert len(groups.group.members) == 2
    assert groups.heartbeat(a) is ErrorCode.rebalance_in_progress


def test_a_waiting_member_needs_no_heartbeats() -> None:
    groups = Groups()
    a, b = groups.stable(None, None, session_ms=10_000, rebalance_ms=100_000)
    rejoin = groups.join(a, session_ms=10_000, rebalance_ms=100_000)
    groups.expire("session", a)
    assert a in groups.group.members
    groups.expire("session", b)
    assert rejoin.answer.generation_id == 2, "the silent member is gone, so all have joined"
    groups.advance(9_999)
    assert a in groups.group.members
    groups.advance(1)
    assert a not in groups.group.members


class TestMaxSize:
    def groups(self, size: int) -> Groups:
        return Groups(GroupSettings(max_size=size))

    def turned_away(self, caller: Caller) -> bool:
        return caller.error is ErrorCode.group_max_size_reached and caller.answer.member_id == ""

    def test_a_full_group_takes_nobody_else(self) -> None:
        groups = self.groups(2)
        _, b = groups.stable(None, None)
        assert self.turned_away(groups.join())
        assert not groups.join(b).waits
        assert groups.group.state is STABLE

    def test_during_a_rebalance_only_those_who_have_joined_count(self) -> None:
        groups = self.groups(2)
        a, b = groups.stable(None, None)
        first = groups.join(a)
        pending = groups.join(version=9)
        assert pending.error is ErrorCode.member_id_required
        second = groups.join(pending.answer.member_id)
        assert self.turned_away(groups.join(b))
        assert first.answer.generation_id == second.answer.generation_id == 2
        assert b not in groups.group.members

    def test_an_id_that_was_given_out_is_taken_back_when_there_is_no_room(self) -> None:
        groups = self.groups(1)
        (a,) = groups.stable("a")
        groups.join(a, instance_id="a", protocols={"range": b"new"})
        assert self.turned_away(groups.join())

    def test_who_joined_may_join_again(self) -> None:
        groups = self.groups(2)
        a, b = groups.stable("a", "b")
        groups.join(a, instance_id="a")
        assert groups.join(a, instance_id="a").waits
        assert groups.join(b, instance_id="b").error is ErrorCode.none

    def test_a_loaded_group_that_is_too_large_joins_again(self) -> None:
        groups = Groups()
        members = groups.stable(None, None, None)
        smaller = Groups(GroupSettings(max_size=2), groups.log, groups.now_ms)
        assert smaller.group.state is PREPARING
        callers = [smaller.join(member) for member in members]
        assert [caller.error for caller in callers] == [
            ErrorCode.none,
            ErrorCode.none,
            ErrorCode.group_max_size_reached,
        ]
