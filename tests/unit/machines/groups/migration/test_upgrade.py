"""A classic group becomes a consumer group with the first member of the new protocol, while it works."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.machines.groups.classic.states import ClassicGroupState
from barnabas.machines.groups.settings import MigrationPolicy
from barnabas.protocol.coordinator_records import ConsumerGroupMetadataKey, GroupMetadataKey
from tests.support.classic_consumers import ClassicConsumer
from tests.support.consumer_groups import GROUP, Consumer
from tests.unit.machines.groups.migration.mixed_groups import classic_group, coordinator_of, rest


def test_classic_members_stay_and_share_with_the_new_one() -> None:
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


def test_the_log_holds_one_group() -> None:
    coordinator, old = classic_group(2)
    Consumer(coordinator, "new").beat()
    again = coordinator.reloaded()
    assert set(again.group.members) == {*(member.member_id for member in old), "new"}
    records = {record.key: record.value for record in coordinator.log}
    assert records[GroupMetadataKey(GROUP)] is None
    assert records[ConsumerGroupMetadataKey(GROUP)] is not None


def test_whoever_waits_in_the_classic_group_is_told_to_join_again() -> None:
    coordinator, old = classic_group(2)
    third = ClassicConsumer(coordinator)
    third.beat()
    assert third.beat() is None
    Consumer(coordinator, "new").beat()
    assert third.beat() is ErrorCode.rebalance_in_progress
    assert not any(key.kind.startswith("classic.") for key in coordinator.timers)
    assert [member.beat() for member in old] == [ErrorCode.rebalance_in_progress] * 2


def test_an_empty_group_is_upgraded_whatever_the_policy() -> None:
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
def test_refused(settings: dict[str, Any]) -> None:
    coordinator, old = classic_group(2, **settings)
    log = list(coordinator.log)
    assert coordinator.heartbeat(member_id="new").error_code is ErrorCode.group_id_not_found
    assert coordinator.heartbeat(member_id="new", epoch=3).error_code is ErrorCode.group_id_not_found
    assert coordinator.log == log
    assert [member.beat() for member in old] == [ErrorCode.none, ErrorCode.none]


def test_a_refused_join_leaves_the_classic_group_alone() -> None:
    coordinator, old = classic_group(1)
    answer = coordinator.heartbeat(member_id="new", subscribed_topic_regex="(")
    assert answer.error_code is ErrorCode.invalid_regular_expression
    assert old[0].beat() is ErrorCode.none


def test_assignors_with_data_of_their_own_are_not_upgraded() -> None:
    coordinator = coordinator_of()
    members = [ClassicConsumer(coordinator, user_data=b"mine")]
    rest(members)
    answer = coordinator.heartbeat(member_id="new")
    assert answer.error_code is ErrorCode.group_id_not_found
    assert answer.error_message is not None and "assignor" in answer.error_message


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1", b"\xff\xff", b"\0\1\x7f\xff\xff\xff"])
def test_members_that_cannot_be_understood_are_not_upgraded(metadata: bytes) -> None:
    coordinator, (old,) = classic_group(1)
    (member,) = coordinator.classic_group.members.values()
    member.protocols = tuple(type(protocol)(protocol.name, metadata) for protocol in member.protocols)
    assert coordinator.heartbeat(member_id="new").error_code is ErrorCode.group_id_not_found
    assert old.beat() is ErrorCode.none


def test_a_static_member_changes_its_protocol_with_its_partitions() -> None:
    coordinator = coordinator_of()
    old = ClassicConsumer(coordinator, instance_id="i")
    rest([old])
    new = Consumer(coordinator, "new", fields={"instance_id": "i"})
    new.beat()
    assert len(new.partitions()) == 4
    assert set(coordinator.group.members) == {"new"}


def test_one_that_is_too_large_leaves_the_classic_group_at_work() -> None:
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


def test_one_that_is_too_large_fails_whoever_waits_and_the_rebalance_goes_on() -> None:
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
