"""Members that speak the classic protocol in a consumer group."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v5.request import MemberIdentity

from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.rebalance import JOIN, SYNC
from barnabas.machines.groups.table import TimerKey
from barnabas.model.errors import IllegalGeneration
from barnabas.protocol.messages.groups.join_group import JoinGroupRequest
from tests.support.classic_consumers import ClassicConsumer
from tests.support.consumer_groups import GROUP, Client, Consumer, Coordinator
from tests.unit.machines.groups.migration.mixed_groups import coordinator_of, leave_group, rest


def group_of_both() -> tuple[Coordinator, Consumer, ClassicConsumer]:
    coordinator = coordinator_of()
    new = Consumer(coordinator, "new")
    new.beat()
    old = ClassicConsumer(coordinator)
    rest([new, old])
    return coordinator, new, old


def test_a_classic_member_joins_a_consumer_group() -> None:
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


def test_cooperative_members_keep_what_they_may() -> None:
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


def test_who_is_told_to_join_has_its_rebalance_timeout_for_it() -> None:
    coordinator, _, old = group_of_both()
    Consumer(coordinator, "third").beat()
    assert old.beat() is ErrorCode.rebalance_in_progress
    first = coordinator.timers[TimerKey(JOIN, GROUP, old.member_id)]
    coordinator.advance(1_000)
    old.phase = "heartbeat"
    assert old.beat() is ErrorCode.rebalance_in_progress
    assert coordinator.timers[TimerKey(JOIN, GROUP, old.member_id)] == first
    coordinator.advance(2_000)
    assert old.member_id not in coordinator.group.members


def test_a_join_that_is_too_large_changes_nothing() -> None:
    coordinator, _, old = group_of_both()
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


def test_who_joins_but_does_not_sync_is_removed() -> None:
    coordinator, _, _ = group_of_both()
    third = ClassicConsumer(coordinator)
    third.beat()
    third.beat()
    coordinator.advance(3_000)
    assert third.member_id not in coordinator.group.members


def test_sessions() -> None:
    coordinator, new, old = group_of_both()
    for _ in range(6):
        coordinator.advance(2_000)
        new.beat()
    assert set(coordinator.group.members) == {"new"}
    assert old.beat() is ErrorCode.unknown_member_id


def test_a_sync_that_comes_too_late_is_told_to_join_again() -> None:
    coordinator, _, _ = group_of_both()
    third = ClassicConsumer(coordinator)
    third.beat()
    third.beat()
    Consumer(coordinator, "fourth").beat()
    assert third.beat() is ErrorCode.rebalance_in_progress
    assert TimerKey(JOIN, GROUP, third.member_id) in coordinator.timers


def test_refusals() -> None:
    coordinator, new, old = group_of_both()
    old.generation += 1
    assert old.beat() is ErrorCode.illegal_generation
    stranger = ClassicConsumer(coordinator, member_id="new", generation=new.epoch, phase="heartbeat")
    assert stranger.beat() is ErrorCode.unknown_member_id
    odd = ClassicConsumer(coordinator, protocols=("sticky",))
    assert odd.beat() is ErrorCode.inconsistent_group_protocol
    fenced = ClassicConsumer(coordinator, instance_id="nobody", member_id="x")
    assert fenced.beat() is ErrorCode.unknown_member_id


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\xff", b"\xff\xff"])
def test_corrupt_subscriptions(metadata: bytes) -> None:
    coordinator, _, old = group_of_both()
    request = old._join_request()
    protocols = tuple(type(protocol)(name=protocol.name, metadata=metadata) for protocol in request.protocols)
    fields = {name: getattr(request, name) for name in JoinGroupRequest.__slots__}
    client = Client(version=9)
    log = list(coordinator.log)
    outcome = coordinator.rules.join_group(JoinGroupRequest(**{**fields, "protocols": protocols}), client, 0)
    coordinator.run(outcome)
    assert client.answers[0].error_code is ErrorCode.unknown_server_error
    assert coordinator.log == log


def test_commits_of_classic_members_name_generations() -> None:
    coordinator, _, old = group_of_both()
    group = coordinator.group
    assert group.check_offset_commit(old.member_id, None, old.generation, 3) is None
    with pytest.raises(IllegalGeneration):
        group.check_offset_commit(old.member_id, None, old.generation + 1, 3)
    with pytest.raises(IllegalGeneration):
        group.check_offset_fetch(old.member_id, old.generation - 1, 0)


def test_leaving() -> None:
    coordinator, new, old = group_of_both()
    codes = leave_group(
        coordinator,
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="x", group_instance_id="i"),
        MemberIdentity(member_id=old.member_id),
    )
    assert codes == [ErrorCode.unknown_member_id, ErrorCode.unknown_member_id, ErrorCode.none]
    rest([new])


def test_administrators_remove_static_members_by_their_instance() -> None:
    coordinator, new, _ = group_of_both()
    static = Consumer(coordinator, "static", fields={"instance_id": "i"})
    static.beat()
    codes = leave_group(
        coordinator,
        MemberIdentity(member_id="x", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="i"),
    )
    assert codes == [ErrorCode.fenced_instance_id, ErrorCode.none]
    assert "static" not in coordinator.group.members
    assert isinstance(coordinator.table.groups[GROUP], ConsumerGroup)
    new.leave()
