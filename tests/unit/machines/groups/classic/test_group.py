"""What is asked of a classic group besides its protocol: offsets, topics, records, and what tools are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.machines.groups.classic import replies as replies
from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.members import ClassicMember
from barnabas.machines.groups.classic.states import CLASSIC_TRANSITIONS, ClassicGroupState, IllegalTransition
from barnabas.machines.groups.classic.subscription import subscribed_topics
from barnabas.machines.outcome import Draft
from barnabas.model.errors import (
    ApiError,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from barnabas.protocol.coordinator_records import (
    ClassicProtocol,
    CoordinatorRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from tests.support.classic_groups import GROUP, Groups, subscription

if TYPE_CHECKING:
    from collections.abc import Callable

PREPARING = ClassicGroupState.PREPARING_REBALANCE
COMPLETING = ClassicGroupState.COMPLETING_REBALANCE
STABLE = ClassicGroupState.STABLE
EMPTY = ClassicGroupState.EMPTY
DEAD = ClassicGroupState.DEAD


def raised(check: Callable[[], object]) -> type[ApiError] | None:
    try:
        check()
    except ApiError as error:
        return type(error)
    return None


class TestStates:
    def test_the_table_is_kafkas(self) -> None:
        before = {
            after: {b for b in ClassicGroupState if CLASSIC_TRANSITIONS.allows(b, after)} for after in ClassicGroupState
        }
        assert before == {
            EMPTY: {PREPARING},
            PREPARING: {STABLE, COMPLETING, EMPTY},
            COMPLETING: {PREPARING},
            STABLE: {COMPLETING},
            DEAD: {STABLE, PREPARING, COMPLETING, EMPTY},
        }
        assert all(row.cause for row in CLASSIC_TRANSITIONS.rows)

    def test_names_are_those_that_tools_know(self) -> None:
        names = [state.value for state in ClassicGroupState]
        assert names == ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]

    def test_an_illegal_step_is_refused(self) -> None:
        group = ClassicGroup("g")
        with pytest.raises(IllegalTransition, match="STABLE cannot follow EMPTY"):
            group.move_to(STABLE, 0)
        assert group.state is EMPTY


class TestTools:
    def test_a_stable_group_is_described_with_what_members_say_and_have(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b")
        described = replies.describe(groups.group)
        assert (described.group_id, described.group_state) == (GROUP, "Stable")
        assert (described.protocol_type, described.protocol_data) == ("consumer", "range")
        assert [member.member_id for member in described.members] == [a, b]
        first = described.members[0]
        assert first.group_instance_id == "a"
        assert (first.client_id, first.client_host) == ("client", "/127.0.0.1")
        assert first.member_metadata == subscription("t")
        assert first.member_assignment == f"for {a}".encode()
        assert described == replies.describe(groups.reload().group)

    def test_a_group_in_a_rebalance_is_described_without_what_members_say(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b")
        groups.join(a, instance_id="a")
        described = replies.describe(groups.group)
        assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
        assert {member.member_metadata for member in described.members} == {b""}
        groups.join(b, instance_id="b")
        assert replies.describe(groups.group).group_state == "CompletingRebalance"

    def test_an_empty_group(self) -> None:
        described = replies.describe(ClassicGroup("simple"))
        assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", ())

    def test_the_list_of_groups(self) -> None:
        groups = Groups()
        groups.stable("a")
        listed = replies.listed(groups.group)
        assert (listed.group_id, listed.protocol_type) == (GROUP, "consumer")
        assert (listed.group_state, listed.group_type) == ("Stable", "classic")


class TestOffsetCommits:
    def test_a_simple_consumer_commits_to_an_empty_group_only(self) -> None:
        group = ClassicGroup("simple")
        assert raised(lambda: group.check_offset_commit("", None, -1, 9)) is None
        assert raised(lambda: group.check_offset_commit("m", None, -1, 9)) is None
        assert raised(lambda: group.check_offset_commit("m", None, 0, 9)) is UnknownMemberId
        groups = Groups()
        groups.stable("a")
        assert raised(lambda: groups.group.check_offset_commit("", None, -1, 9)) is UnknownMemberId

    def test_a_member_commits_in_its_generation(self) -> None:
        groups = Groups()
        a, _ = groups.stable("a", "b")
        group = groups.group
        assert raised(lambda: group.check_offset_commit(a, None, 1, 9)) is None
        assert raised(lambda: group.check_offset_commit(a, "a", 1, 9)) is None
        assert raised(lambda: group.check_offset_commit(a, "b", 1, 9)) is FencedInstanceId
        assert raised(lambda: group.check_offset_commit(a, None, 2, 9)) is IllegalGeneration
        assert raised(lambda: group.check_offset_commit(a, None, -1, 9)) is IllegalGeneration
        assert raised(lambda: group.check_offset_commit("stranger", None, 1, 9)) is UnknownMemberId

    def test_the_last_generation_commits_until_the_next_has_begun(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b")
        groups.join(a, instance_id="a")
        assert raised(lambda: groups.group.check_offset_commit(b, None, 1, 9)) is None
        groups.join(b, instance_id="b")
        assert raised(lambda: groups.group.check_offset_commit(b, None, 1, 9)) is IllegalGeneration
        assert raised(lambda: groups.group.check_offset_commit(b, None, 2, 9)) is RebalanceInProgress

    def test_what_is_refused_in_each_state(self) -> None:
        groups = Groups()
        (a,) = groups.stable("a")
        group = groups.group
        assert raised(group.check_delete) is NonEmptyGroup
        assert raised(group.check_offset_delete) is None, "its topics are known"
        assert raised(lambda: group.check_offset_fetch(None, -1, 0)) is None
        groups.leave(a)
        assert group.is_empty
        assert raised(group.check_delete) is None
        groups.delete()
        assert GROUP not in groups.table.groups
        assert GROUP not in groups.reload().table.groups
        assert group.state is DEAD
        assert raised(group.check_delete) is GroupIdNotFound
        assert raised(group.check_offset_delete) is GroupIdNotFound
        assert raised(lambda: group.check_offset_fetch(None, -1, 0)) is GroupIdNotFound
        assert raised(lambda: group.check_offset_commit("", None, -1, 9)) is CoordinatorNotAvailable

    def test_offsets_of_members_that_are_no_consumers_stay(self) -> None:
        groups = Groups()
        groups.stable("worker", protocol_type="connect")
        assert raised(groups.group.check_offset_delete) is NonEmptyGroup


class TestRetention:
    def test_offsets_of_simple_consumers_age_from_their_commit(self) -> None:
        assert ClassicGroup("simple").offsets_unused_since(7, "t") == 7

    def test_offsets_of_an_empty_group_age_from_when_it_became_empty(self) -> None:
        groups = Groups()
        (a,) = groups.stable(None)
        groups.advance(1_000)
        groups.leave(a)
        assert groups.group.offsets_unused_since(7, "t") == groups.now_ms
        assert groups.reload().group.offsets_unused_since(7, "t") == groups.now_ms

    def test_old_records_do_not_say_when_a_group_became_empty(self) -> None:
        group = ClassicGroup("old")
        group.replay(GroupMetadataValue("consumer", 3, None, None, -1, ()))
        assert group.offsets_unused_since(7, "t") == 7

    def test_in_a_stable_group_only_topics_that_nobody_reads_age(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b")
        assert groups.group.offsets_unused_since(7, "t") is None
        assert groups.group.offsets_unused_since(7, "u") == 7
        groups.join(a, instance_id="a")
        assert groups.group.offsets_unused_since(7, "u") is None
        groups.join(b, instance_id="b")
        assert groups.group.offsets_unused_since(7, "u") is None

    def test_nothing_ages_while_the_topics_are_unknown(self) -> None:
        groups = Groups()
        groups.stable("a", protocols={"range": b"\x00"})
        assert groups.group.offsets_unused_since(7, "t") is None
        assert groups.group.is_subscribed_to("t")

    def test_nothing_of_a_group_that_is_no_consumers_ages_while_it_has_members(self) -> None:
        groups = Groups()
        groups.stable("worker", protocol_type="connect")
        assert groups.group.offsets_unused_since(7, "t") is None
        assert not groups.group.is_subscribed_to("t")


class TestSubscriptions:
    def test_topics_of_all_members_whatever_their_version(self) -> None:
        newer = subscription("b", "c", version=3) + b"more fields than we read"
        assert subscribed_topics([subscription("a", "b"), newer]) == frozenset({"a", "b", "c"})
        assert subscribed_topics([]) == frozenset()

    @pytest.mark.parametrize(
        "corrupt",
        [
            b"",
            b"\x00",
            b"\x00\x00",
            b"\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff",
            b"\x00\x00\x7f\xff\xff\xff",
            b"\x00\x00\x00\x00\x00\x01\x00\x02\xff\xff\xff\xff\xff\xff",
            b"\x00\x00\x00\x00\x00\x01\x00\x09t",
            subscription("t")[:-1],
        ],
    )
    def test_corrupt_bytes_harm_nobody(self, corrupt: bytes) -> None:
        assert subscribed_topics([subscription("t"), corrupt]) is None
        groups = Groups()
        a, _ = groups.stable("a", "b", protocols={"range": corrupt})
        assert groups.group.state is STABLE
        assert groups.heartbeat(a) is ErrorCode.none
        assert groups.reload().group.is_subscribed_to("anything")

    def test_an_empty_group_reads_nothing(self) -> None:
        groups = Groups()
        (a,) = groups.stable(None)
        assert groups.group.is_subscribed_to("t")
        groups.leave(a)
        assert not groups.group.is_subscribed_to("t")


def stored(member_id: str, *, instance_id: str | None = None, metadata: bytes = b"m") -> MemberMetadata:
    return MemberMetadata(member_id, instance_id, "client", "/127.0.0.1", -1, 9_000, metadata, b"assigned")


class TestReplay:
    def test_old_records_have_no_rebalance_timeout(self) -> None:
        group = ClassicGroup(GROUP)
        group.replay(GroupMetadataValue("consumer", 3, "range", "m", 5, (stored("m"),)))
        assert group.members["m"].rebalance_timeout_ms == 9_000

    def test_a_log_that_tells_of_several_generations(self) -> None:
        groups = Groups()
        key = GroupMetadataKey(GROUP)
        groups.replay(CoordinatorRecord(key, GroupMetadataValue("consumer", 1, "range", "a", 5, (stored("a"),))))
        groups.replay(CoordinatorRecord(key, GroupMetadataValue("consumer", 2, None, None, 6, ())))
        assert groups.group.is_empty
        members = (stored("b", instance_id="i"), stored("a", metadata=b"new"))
        groups.replay(CoordinatorRecord(key, GroupMetadataValue("consumer", 3, "sticky", "b", 7, members)))
        group = groups.group
        assert (group.state, group.generation, group.leader, group.protocol) == (STABLE, 3, "b", "sticky")
        assert group.instances == {"i": "b"}
        assert group.members["a"].metadata("sticky") == b"new"
        groups.replay(CoordinatorRecord(key, None))
        groups.replay(CoordinatorRecord(key, None))
        assert not groups.table.groups

    def test_a_leader_that_is_no_member_is_replaced(self) -> None:
        group = ClassicGroup(GROUP)
        group.replay(GroupMetadataValue("consumer", 3, None, "gone", 5, (stored("a"), stored("b"))))
        assert group.leader == "a"
        assert replies.describe(group).members[0].member_metadata == b"m"

    def test_after_a_reload_members_have_a_session_to_be_heard_of(self) -> None:
        groups = Groups()
        groups.stable("a", "b", session_ms=10_000)
        groups.advance(9_000)
        reloaded = groups.reload()
        reloaded.advance(9_999)
        assert len(reloaded.group.members) == 2
        reloaded.advance(1)
        assert reloaded.group.is_empty

    def test_a_rebalance_is_forgotten_by_a_reload_and_the_generation_is_used_again(self) -> None:
        groups = Groups()
        a, b = groups.stable("a", "b")
        joins = [groups.join(a, instance_id="a"), groups.join(b, instance_id="b")]
        assert joins[0].answer.generation_id == 2
        reloaded = groups.reload()
        assert reloaded.group.state is STABLE
        assert reloaded.group.generation == 1
        assert reloaded.sync(a, generation=2).error is ErrorCode.illegal_generation
        rejoin = reloaded.join(a, instance_id="a")
        reloaded.join(b, instance_id="b")
        assert rejoin.answer.generation_id == 2

    def test_a_live_member_keeps_the_protocols_that_the_log_does_not_hold(self) -> None:
        groups = Groups()
        both = {"range": b"r", "sticky": b"s"}
        (a,) = groups.stable("a", protocols=both)
        assert [protocol.name for protocol in groups.group.members[a].protocols] == ["range", "sticky"]
        assert [protocol.name for protocol in groups.reload().group.members[a].protocols] == ["range"]


class TestChangeOfKind:
    def member(self, member_id: str) -> ClassicMember:
        return ClassicMember(
            member_id=member_id,
            instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocols=(ClassicProtocol("range", subscription("t")),),
            assignment=b"assigned",
        )

    @pytest.mark.parametrize("reason", [None, "a member left"])
    def test_members_of_another_kind_of_group_become_a_classic_group(self, reason: str | None) -> None:
        groups = Groups()
        members = [self.member("a"), self.member("b")]
        group = ClassicGroup.of_members(GROUP, 7, "consumer", members, groups.now_ms)
        draft = Draft()  # type: ignore[var-annotated]  # as the rules annotate it
        draft.changes.append(group.record(groups.now_ms))
        groups.rules.adopt(draft, group, groups.now_ms, reason)
        groups.take(draft.outcome())
        assert groups.group is group
        assert (group.generation, group.leader, group.protocol) == (7, "a", "range")
        assert group.state is (STABLE if reason is None else PREPARING)
        assert group.is_subscribed_to("t")
        assert groups.reload().group.state is STABLE
        assert groups.heartbeat("b") is (ErrorCode.none if reason is None else ErrorCode.rebalance_in_progress)
        if reason is not None:
            joins = [groups.join(name) for name in "ab"]
            assert [caller.answer.generation_id for caller in joins] == [8, 8]

    def test_whoever_waits_in_a_group_that_is_dissolved_joins_again(self) -> None:
        groups = Groups()
        a, _ = groups.stable("a", "b")
        waiting = groups.join(a, instance_id="a")
        group = groups.group
        draft = Draft()  # type: ignore[var-annotated]  # as the rules annotate it
        groups.rules.dissolve(draft, group, ErrorCode.rebalance_in_progress)
        draft.changes.extend(group.tombstones())
        groups.take(draft.outcome())
        assert waiting.error is ErrorCode.rebalance_in_progress
        assert not groups.table.groups
        assert not groups.timers
        assert group.state is DEAD
