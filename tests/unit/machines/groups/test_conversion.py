"""Groups that change their protocol while they work, and classic members of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.join_group.v9 import JoinGroupRequest
from kio.schema.leave_group.v5 import LeaveGroupRequest
from kio.schema.leave_group.v5.request import MemberIdentity
from kio.schema.types import GroupId

from barnabas.machines.groups.classic_group import ClassicGroup
from barnabas.machines.groups.consumer_group import ConsumerGroup
from barnabas.machines.groups.consumer_progress import JOIN, SESSION, SYNC
from barnabas.machines.groups.settings import MigrationPolicy
from barnabas.machines.groups.states import ClassicGroupState
from barnabas.machines.groups.table import TimerKey
from barnabas.model.errors import IllegalGeneration
from barnabas.protocol.coordinator_records import ConsumerGroupMetadataKey, GroupMetadataKey
from tests.support.classic_consumers import ClassicConsumer, assignment_bytes
from tests.support.consumer_groups import GROUP, Client, Consumer, Coordinator, topic_id

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS = topic_id("orders")


def coordinator_of(**settings: Any) -> Coordinator:
    """One whose classic groups gather at once."""
    return Coordinator({"orders": 4}, initial_rebalance_delay_ms=0, **settings)


def rest(members: Sequence[Consumer | ClassicConsumer]) -> None:
    """Let everybody go on until nothing moves."""
    for _ in range(30):
        for member in members:
            member.beat()
            member.coordinator.advance(10)
    had = [partition for member in members for partition in member.partitions()]
    assert sorted(had) == [("orders", index) for index in range(4)]


def classic_group(count: int, **settings: Any) -> tuple[Coordinator, list[ClassicConsumer]]:
    """A classic group at work."""
    coordinator = coordinator_of(**settings)
    members = [ClassicConsumer(coordinator) for _ in range(count)]
    rest(members)
    assert coordinator.classic_group.state is ClassicGroupState.STABLE
    return coordinator, members


class TestUpgrade:
    def test_classic_members_stay_and_share_with_the_new_one(self) -> None:
        coordinator, old = classic_group(2)
        generation = coordinator.classic_group.generation
        new = Consumer(coordinator, "new")
        assert new.beat().error_code is ErrorCode.none
        assert coordinator.group.epoch == generation + 1
        assert coordinator.group.classic_members == 2
        assert new.partitions() == set()
        rest([*old, new])
        assert new.partitions() and all(member.partitions() for member in old)
        assert {member.member_type for member in coordinator.describe().members} == {0, 1}

    def test_the_log_holds_one_group(self) -> None:
        coordinator, old = classic_group(2)
        Consumer(coordinator, "new").beat()
        again = coordinator.reloaded()
        assert set(again.group.members) == {*(member.member_id for member in old), "new"}
        records = {record.key: record.value for record in coordinator.log}
        assert records[GroupMetadataKey(GROUP)] is None
        assert records[ConsumerGroupMetadataKey(GROUP)] is not None

    def test_whoever_waits_in_the_classic_group_is_told_to_join_again(self) -> None:
        coordinator, old = classic_group(2)
        third = ClassicConsumer(coordinator)
        third.beat()
        assert third.beat() is None
        Consumer(coordinator, "new").beat()
        assert third.beat() is ErrorCode.rebalance_in_progress
        assert not any(key.kind.startswith("classic.") for key in coordinator.timers)
        assert [member.beat() for member in old] == [ErrorCode.rebalance_in_progress] * 2

    def test_an_empty_group_is_upgraded_whatever_the_policy(self) -> None:
        coordinator, (old,) = classic_group(1, consumer_migration_policy=MigrationPolicy.DISABLED)
        old.leave()
        assert coordinator.classic_group.is_empty
        new = Consumer(coordinator, "new")
        new.beat()
        assert len(new.partitions()) == 4
        assert coordinator.group.classic_members == 0

    @pytest.mark.parametrize(
        "settings", [{"consumer_migration_policy": MigrationPolicy.DOWNGRADE}, {"consumer_max_size": 1}]
    )
    def test_refused(self, settings: dict[str, Any]) -> None:
        coordinator, old = classic_group(2, **settings)
        log = list(coordinator.log)
        assert coordinator.heartbeat(member_id="new").error_code is ErrorCode.group_id_not_found
        assert coordinator.heartbeat(member_id="new", epoch=3).error_code is ErrorCode.group_id_not_found
        assert coordinator.log == log
        assert [member.beat() for member in old] == [ErrorCode.none, ErrorCode.none]

    def test_a_refused_join_leaves_the_classic_group_alone(self) -> None:
        coordinator, old = classic_group(1)
        answer = coordinator.heartbeat(member_id="new", subscribed_topic_regex="(")
        assert answer.error_code is ErrorCode.invalid_regular_expression
        assert old[0].beat() is ErrorCode.none

    def test_assignors_with_data_of_their_own_are_not_upgraded(self) -> None:
        coordinator = coordinator_of()
        members = [ClassicConsumer(coordinator, user_data=b"mine")]
        rest(members)
        answer = coordinator.heartbeat(member_id="new")
        assert answer.error_code is ErrorCode.group_id_not_found
        assert answer.error_message is not None and "assignor" in answer.error_message

    @pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1", b"\xff\xff", b"\0\1\x7f\xff\xff\xff"])
    def test_members_that_cannot_be_understood_are_not_upgraded(self, metadata: bytes) -> None:
        coordinator, (old,) = classic_group(1)
        (member,) = coordinator.classic_group.members.values()
        member.protocols = tuple(type(protocol)(protocol.name, metadata) for protocol in member.protocols)
        assert coordinator.heartbeat(member_id="new").error_code is ErrorCode.group_id_not_found
        assert old.beat() is ErrorCode.none

    def test_a_static_member_changes_its_protocol_with_its_partitions(self) -> None:
        coordinator = coordinator_of()
        old = ClassicConsumer(coordinator, instance_id="i")
        rest([old])
        new = Consumer(coordinator, "new", fields={"instance_id": "i"})
        new.beat()
        assert len(new.partitions()) == 4
        assert set(coordinator.group.members) == {"new"}

    def test_one_that_is_too_large_leaves_the_classic_group_at_work(self) -> None:
        coordinator, old = classic_group(2)
        log = list(coordinator.log)
        coordinator.is_full = True
        assert coordinator.heartbeat(member_id="new").error_code is ErrorCode.unknown_server_error
        coordinator.is_full = False
        assert coordinator.log == log
        assert coordinator.classic_group.state is ClassicGroupState.STABLE
        assert [member.beat() for member in old] == [ErrorCode.none] * 2
        coordinator.advance(11_000)
        assert coordinator.classic_group.is_empty, "sessions are still watched"

    def test_one_that_is_too_large_fails_whoever_waits_and_the_rebalance_goes_on(self) -> None:
        coordinator, old = classic_group(2)
        third = ClassicConsumer(coordinator)
        third.beat()
        assert third.beat() is None
        for member in old:
            member.beat()
        assert old[0].beat() is None
        coordinator.is_full = True
        coordinator.heartbeat(member_id="new")
        coordinator.is_full = False
        assert third.beat() is old[0].beat() is ErrorCode.unknown_server_error
        rest([*old, third])
        assert coordinator.classic_group.state is ClassicGroupState.STABLE


class TestDowngrade:
    def test_the_last_new_member_leaves_a_classic_group_behind(self) -> None:
        coordinator, old = classic_group(2)
        new = Consumer(coordinator, "new")
        rest([*old, new])
        epoch = coordinator.group.epoch
        assert new.leave().error_code is ErrorCode.none
        group = coordinator.classic_group
        assert (group.state, group.generation) == (ClassicGroupState.PREPARING_REBALANCE, epoch)
        assert not any(key.kind.startswith("consumer.") for key in coordinator.timers)
        rest(old)
        assert coordinator.classic_group.generation == epoch + 2, "the one between is only in the log"

    def test_whoever_has_not_joined_again_keeps_what_it_reads(self) -> None:
        coordinator, (old,) = classic_group(1)
        Consumer(coordinator, "new").beat()
        assert sum(len(indexes) for indexes in coordinator.group.targets[old.member_id].values()) == 2
        assert coordinator.heartbeat(member_id="new", epoch=-1).error_code is ErrorCode.none
        assert isinstance(coordinator.table.groups[GROUP], ClassicGroup)
        assert len(old.partitions()) == 4, "it does not know of any of this"
        after = Consumer(coordinator, "after")
        after.beat()
        assert after.partitions() == set()
        rest([old, after])

    def test_whoever_is_asked_to_give_back_keeps_it_too(self) -> None:
        coordinator = coordinator_of()
        old = ClassicConsumer(coordinator, cooperative=True)
        rest([old])
        Consumer(coordinator, "new").beat()
        assert old.beat() is ErrorCode.rebalance_in_progress
        assert old.beat() is ErrorCode.none
        assert coordinator.group.members[old.member_id].pending_revocation
        coordinator.heartbeat(member_id="new", epoch=-1)
        assert len(old.partitions()) == 4, "it joined, and has not learned yet what to give back"
        after = Consumer(coordinator, "after")
        after.beat()
        assert after.partitions() == set()
        rest([old, after])

    def test_the_log_holds_the_members_with_what_they_have(self) -> None:
        coordinator, old = classic_group(2)
        new = Consumer(coordinator, "new")
        rest([*old, new])
        new.leave()
        again = coordinator.reloaded()
        assert isinstance(again.table.groups[GROUP], ClassicGroup)
        for member in old:
            member.coordinator = again
            assert again.classic_group.members[member.member_id].assignment == assignment_bytes(member.owned)
        assert [member.beat() for member in old] == [ErrorCode.illegal_generation] * 2
        rest(old)

    def test_a_broker_that_dies_while_they_join_again_leaves_nothing_unread(self) -> None:
        coordinator, old = classic_group(2)
        new = Consumer(coordinator, "new")
        rest([*old, new])
        new.leave()
        while not all(member.phase == "sync" for member in old):
            for member in old:
                if member.phase != "sync":
                    member.beat()
        again = coordinator.reloaded()
        for member in old:
            member.coordinator = again
        rest(old)

    def test_a_new_member_that_falls_silent_does_the_same(self) -> None:
        coordinator, old = classic_group(1, consumer_session_timeout_ms=2_000)
        Consumer(coordinator, "new").beat()
        for _ in range(20):
            for member in old:
                member.beat()
            coordinator.advance(200)
        assert isinstance(coordinator.table.groups[GROUP], ClassicGroup)
        rest(old)

    @pytest.mark.parametrize("how", ["leave", "leave group", "fall silent"])
    def test_noise_in_the_protocol_that_is_chosen_then(self, how: str) -> None:
        """The broker understands one of the protocols of every member, and may choose another one for all of them."""
        coordinator = coordinator_of(consumer_session_timeout_ms=2_000)
        new = Consumer(coordinator, "new")
        new.beat()
        sticky = ClassicConsumer(coordinator, protocols=("sticky", "range"))
        sticky.beat()
        noisy = ClassicConsumer(coordinator, protocols=("range", "sticky"), noise={"sticky": b""})
        old = [sticky, noisy]
        rest([new, *old])
        if how == "leave":
            assert new.leave().error_code is ErrorCode.none
        elif how == "leave group":
            client = Client(version=5)
            request = LeaveGroupRequest(group_id=GroupId(GROUP), members=(MemberIdentity(member_id="new"),))
            coordinator.run(coordinator.rules.leave_group(request, client, coordinator.now_ms))
            assert client.answers[0].members[0].error_code is ErrorCode.none
        else:
            for _ in range(20):
                coordinator.advance(200)
                for member in old:
                    member.beat()
        assert coordinator.classic_group.protocol == "sticky"
        assert "new" not in coordinator.classic_group.members
        rest(old)

    @pytest.mark.parametrize("silent", [False, True])
    def test_one_that_is_too_large_only_removes_the_member(self, silent: bool) -> None:
        coordinator, old = classic_group(2, consumer_session_timeout_ms=2_000)
        new = Consumer(coordinator, "new")
        rest([*old, new])
        coordinator.is_full = True
        if silent:
            coordinator.advance(2_000)
        else:
            assert new.leave().error_code is ErrorCode.unknown_server_error
        coordinator.is_full = False
        assert set(coordinator.group.members) == {member.member_id for member in old}
        assert TimerKey(SESSION, GROUP, "new") not in coordinator.timers
        assert all(TimerKey(SESSION, GROUP, member.member_id) in coordinator.timers for member in old)
        Consumer(coordinator, "next").beat()
        assert [member.beat() for member in old] == [ErrorCode.rebalance_in_progress] * 2

    @pytest.mark.parametrize("settings", [{"consumer_migration_policy": MigrationPolicy.UPGRADE}, {"max_size": 1}])
    def test_not_allowed(self, settings: dict[str, Any]) -> None:
        coordinator = coordinator_of(**settings)
        new = Consumer(coordinator, "new")
        new.beat()
        old = [ClassicConsumer(coordinator) for _ in range(2)]
        rest([new, *old])
        new.leave()
        assert coordinator.group.classic_members == 2
        assert [member.beat() for member in old] == [ErrorCode.none] * 2

    def test_an_empty_group_becomes_classic_with_the_next_classic_member(self) -> None:
        coordinator = coordinator_of()
        new = Consumer(coordinator, "new")
        new.beat()
        new.leave()
        old = ClassicConsumer(coordinator)
        rest([old])
        assert isinstance(coordinator.table.groups[GROUP], ClassicGroup)
        assert isinstance(coordinator.reloaded().table.groups[GROUP], ClassicGroup)

    def test_a_static_member_that_comes_back_classic_keeps_its_partitions(self) -> None:
        coordinator = coordinator_of()
        new = Consumer(coordinator, "new", fields={"instance_id": "i"})
        new.beat()
        old = ClassicConsumer(coordinator, instance_id="i")
        assert old.beat() is ErrorCode.none
        assert coordinator.classic_group.state is ClassicGroupState.STABLE
        assert old.generation == coordinator.classic_group.generation
        assert old.beat() is ErrorCode.none
        assert len(old.partitions()) == 4
        assert old.beat() is ErrorCode.none
        assert isinstance(coordinator.reloaded().table.groups[GROUP], ClassicGroup)

    def test_a_static_member_that_comes_back_classic_waits_for_what_others_still_read(self) -> None:
        coordinator, (other,) = classic_group(1)
        Consumer(coordinator, "new", fields={"instance_id": "i"}).beat()
        old = ClassicConsumer(coordinator, instance_id="i")
        assert old.beat() is ErrorCode.none
        assert coordinator.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
        assert len(other.partitions()) == 4, "it has not been heard of since"
        assert old.beat() is ErrorCode.rebalance_in_progress
        rest([other, old])

    def test_a_static_member_that_comes_back_too_large_changes_nothing(self) -> None:
        coordinator = coordinator_of()
        new = Consumer(coordinator, "new", fields={"instance_id": "i"})
        new.beat()
        log = list(coordinator.log)
        coordinator.is_full = True
        assert ClassicConsumer(coordinator, instance_id="i").beat() is ErrorCode.unknown_server_error
        coordinator.is_full = False
        assert coordinator.log == log
        assert set(coordinator.group.members) == {"new"}
        assert new.beat(instance_id="i").error_code is ErrorCode.none

    def test_a_static_member_that_comes_back_with_other_topics_is_rebalanced(self) -> None:
        coordinator = coordinator_of()
        Consumer(coordinator, "new", ("orders", "more"), {"instance_id": "i"}).beat()
        old = ClassicConsumer(coordinator, instance_id="i")
        old.beat()
        assert coordinator.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
        rest([old])


class TestClassicMembers:
    def group_of_both(self) -> tuple[Coordinator, Consumer, ClassicConsumer]:
        coordinator = coordinator_of()
        new = Consumer(coordinator, "new")
        new.beat()
        old = ClassicConsumer(coordinator)
        rest([new, old])
        return coordinator, new, old

    def test_a_classic_member_joins_a_consumer_group(self) -> None:
        coordinator = coordinator_of()
        new = Consumer(coordinator, "new")
        new.beat()
        old = ClassicConsumer(coordinator)
        assert old.beat() is ErrorCode.member_id_required
        assert old.beat() is ErrorCode.none
        assert old.joined is not None
        assert (old.joined.protocol_type, old.joined.protocol_name, old.joined.leader) == ("consumer", "range", "")
        assert coordinator.group.members[old.member_id].client_id == "a-client"
        assert TimerKey(SYNC, GROUP, old.member_id) in coordinator.timers
        assert old.beat() is ErrorCode.none
        assert TimerKey(SYNC, GROUP, old.member_id) not in coordinator.timers
        assert old.partitions() == set()
        rest([new, old])
        assert len(old.partitions()) == 2

    def test_cooperative_members_keep_what_they_may(self) -> None:
        coordinator = coordinator_of()
        old = ClassicConsumer(coordinator, cooperative=True)
        rest([old])
        new = Consumer(coordinator, "new")
        new.beat()
        before = old.partitions()
        for _ in range(20):
            old.beat()
            assert len(old.partitions() & before) >= 2
            new.beat()
        rest([old, new])

    def test_who_is_told_to_join_has_its_rebalance_timeout_for_it(self) -> None:
        coordinator, _, old = self.group_of_both()
        Consumer(coordinator, "third").beat()
        assert old.beat() is ErrorCode.rebalance_in_progress
        first = coordinator.timers[TimerKey(JOIN, GROUP, old.member_id)]
        coordinator.advance(1_000)
        old.phase = "heartbeat"
        assert old.beat() is ErrorCode.rebalance_in_progress
        assert coordinator.timers[TimerKey(JOIN, GROUP, old.member_id)] == first
        coordinator.advance(2_000)
        assert old.member_id not in coordinator.group.members

    def test_a_join_that_is_too_large_changes_nothing(self) -> None:
        coordinator, _, old = self.group_of_both()
        Consumer(coordinator, "third").beat()
        assert old.beat() is ErrorCode.rebalance_in_progress
        coordinator.set_topics({"orders": 5})
        log, timers = list(coordinator.log), dict(coordinator.timers)
        coordinator.is_full = True
        assert old.beat() is ErrorCode.unknown_server_error
        coordinator.is_full = False
        assert (coordinator.log, coordinator.timers) == (log, timers)
        assert old.member_id in coordinator.group.asked_to_rejoin
        assert not coordinator.group.metadata_current
        assert old.beat() is ErrorCode.none

    def test_who_joins_but_does_not_sync_is_removed(self) -> None:
        coordinator, _, _ = self.group_of_both()
        third = ClassicConsumer(coordinator)
        third.beat()
        third.beat()
        coordinator.advance(3_000)
        assert third.member_id not in coordinator.group.members

    def test_sessions(self) -> None:
        coordinator, new, old = self.group_of_both()
        for _ in range(6):
            coordinator.advance(2_000)
            new.beat()
        assert set(coordinator.group.members) == {"new"}
        assert old.beat() is ErrorCode.unknown_member_id

    def test_a_sync_that_comes_too_late_is_told_to_join_again(self) -> None:
        coordinator, _, _ = self.group_of_both()
        third = ClassicConsumer(coordinator)
        third.beat()
        third.beat()
        Consumer(coordinator, "fourth").beat()
        assert third.beat() is ErrorCode.rebalance_in_progress
        assert TimerKey(JOIN, GROUP, third.member_id) in coordinator.timers

    def test_refusals(self) -> None:
        coordinator, new, old = self.group_of_both()
        old.generation += 1
        assert old.beat() is ErrorCode.illegal_generation
        stranger = ClassicConsumer(coordinator, member_id="new", generation=new.epoch, phase="heartbeat")
        assert stranger.beat() is ErrorCode.unknown_member_id
        odd = ClassicConsumer(coordinator, protocols=("sticky",))
        assert odd.beat() is ErrorCode.inconsistent_group_protocol
        fenced = ClassicConsumer(coordinator, instance_id="nobody", member_id="x")
        assert fenced.beat() is ErrorCode.unknown_member_id

    @pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\xff", b"\xff\xff"])
    def test_corrupt_subscriptions(self, metadata: bytes) -> None:
        coordinator, _, old = self.group_of_both()
        request = old._join_request()
        protocols = tuple(type(protocol)(name=protocol.name, metadata=metadata) for protocol in request.protocols)
        fields = {name: getattr(request, name) for name in JoinGroupRequest.__slots__}
        client = Client(version=9)
        log = list(coordinator.log)
        outcome = coordinator.rules.join_group(JoinGroupRequest(**{**fields, "protocols": protocols}), client, 0)
        coordinator.run(outcome)
        assert client.answers[0].error_code is ErrorCode.unknown_server_error
        assert coordinator.log == log

    def test_commits_of_classic_members_name_generations(self) -> None:
        coordinator, _, old = self.group_of_both()
        group = coordinator.group
        assert group.check_offset_commit(old.member_id, None, old.generation, 3) is None
        with pytest.raises(IllegalGeneration):
            group.check_offset_commit(old.member_id, None, old.generation + 1, 3)
        with pytest.raises(IllegalGeneration):
            group.check_offset_fetch(old.member_id, old.generation - 1, 0)

    def test_leaving(self) -> None:
        coordinator, new, old = self.group_of_both()
        client = Client(version=5)
        members = (
            MemberIdentity(member_id="nobody"),
            MemberIdentity(member_id="x", group_instance_id="i"),
            MemberIdentity(member_id=old.member_id),
        )
        request = LeaveGroupRequest(group_id=GroupId(GROUP), members=members)
        coordinator.run(coordinator.rules.leave_group(request, client, coordinator.now_ms))
        codes = [member.error_code for member in client.answers[0].members]
        assert codes == [ErrorCode.unknown_member_id, ErrorCode.unknown_member_id, ErrorCode.none]
        rest([new])

    def test_administrators_remove_static_members_by_their_instance(self) -> None:
        coordinator, new, _ = self.group_of_both()
        static = Consumer(coordinator, "static", fields={"instance_id": "i"})
        static.beat()
        members = (
            MemberIdentity(member_id="x", group_instance_id="i"),
            MemberIdentity(member_id="", group_instance_id="i"),
        )
        client = Client(version=5)
        request = LeaveGroupRequest(group_id=GroupId(GROUP), members=members)
        coordinator.run(coordinator.rules.leave_group(request, client, coordinator.now_ms))
        codes = [member.error_code for member in client.answers[0].members]
        assert codes == [ErrorCode.fenced_instance_id, ErrorCode.none]
        assert "static" not in coordinator.group.members
        assert isinstance(coordinator.table.groups[GROUP], ConsumerGroup)
        new.leave()
