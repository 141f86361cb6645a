"""A consumer group becomes a classic one when its last member of the new protocol is gone, while it works."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import MemberIdentity

from barnabas.machines.groups.classic.group import ClassicGroup
from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.consumer.rebalance import SESSION
from barnabas.machines.groups.settings import MigrationPolicy
from barnabas.machines.groups.table import TimerKey
from tests.support.classic_consumers import ClassicConsumer, assignment_bytes
from tests.support.consumer_groups import GROUP, Consumer
from tests.unit.machines.groups.migration.mixed_groups import classic_group, coordinator_of, leave_group, rest


def test_the_last_new_member_leaves_a_classic_group_behind() -> None:
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


def test_whoever_has_not_joined_again_keeps_what_it_reads() -> None:
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


def test_whoever_is_asked_to_give_back_keeps_it_too() -> None:
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


def test_the_log_holds_the_members_with_what_they_have() -> None:
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


def test_a_broker_that_dies_while_they_join_again_leaves_nothing_unread() -> None:
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


def test_a_new_member_that_falls_silent_does_the_same() -> None:
    coordinator, old = classic_group(1, consumer_session_timeout_ms=2_000)
    Consumer(coordinator, "new").beat()
    for _ in range(20):
        for member in old:
            member.beat()
        coordinator.advance(200)
    assert isinstance(coordinator.table.groups[GROUP], ClassicGroup)
    rest(old)


@pytest.mark.parametrize("how", ["leave", "leave group", "fall silent"])
def test_noise_in_the_protocol_that_is_chosen_then(how: str) -> None:
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
        assert leave_group(coordinator, MemberIdentity(member_id="new")) == [ErrorCode.none]
    else:
        for _ in range(20):
            coordinator.advance(200)
            for member in old:
                member.beat()
    assert coordinator.classic_group.protocol == "sticky"
    assert "new" not in coordinator.classic_group.members
    rest(old)


@pytest.mark.parametrize("silent", [False, True])
def test_one_that_is_too_large_only_removes_the_member(silent: bool) -> None:
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
def test_not_allowed(settings: dict[str, Any]) -> None:
    coordinator = coordinator_of(**settings)
    new = Consumer(coordinator, "new")
    new.beat()
    old = [ClassicConsumer(coordinator) for _ in range(2)]
    rest([new, *old])
    new.leave()
    assert coordinator.group.classic_members == 2
    assert [member.beat() for member in old] == [ErrorCode.none] * 2


def test_an_empty_group_becomes_classic_with_the_next_classic_member() -> None:
    coordinator = coordinator_of()
    new = Consumer(coordinator, "new")
    new.beat()
    new.leave()
    old = ClassicConsumer(coordinator)
    rest([old])
    assert isinstance(coordinator.table.groups[GROUP], ClassicGroup)
    assert isinstance(coordinator.reloaded().table.groups[GROUP], ClassicGroup)


def test_a_static_member_that_comes_back_classic_keeps_its_partitions() -> None:
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


def test_a_static_member_that_comes_back_classic_waits_for_what_others_still_read() -> None:
    coordinator, (other,) = classic_group(1)
    Consumer(coordinator, "new", fields={"instance_id": "i"}).beat()
    old = ClassicConsumer(coordinator, instance_id="i")
    assert old.beat() is ErrorCode.none
    assert coordinator.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
    assert len(other.partitions()) == 4, "it has not been heard of since"
    assert old.beat() is ErrorCode.rebalance_in_progress
    rest([other, old])


def test_a_static_member_that_comes_back_too_large_changes_nothing() -> None:
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


def test_a_static_member_that_comes_back_with_other_topics_is_rebalanced() -> None:
    coordinator = coordinator_of()
    Consumer(coordinator, "new", ("orders", "more"), {"instance_id": "i"}).beat()
    old = ClassicConsumer(coordinator, instance_id="i")
    old.beat()
    assert coordinator.classic_group.state is ClassicGroupState.PREPARING_REBALANCE
    rest([old])
