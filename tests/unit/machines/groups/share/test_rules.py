"""Share groups: who joins, what members get and when, who is refused, and what becomes of topics that change."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from barnabas.machines.groups.share.states import SHARE_TRANSITIONS, ShareGroupState
from barnabas.protocol.coordinator_records import (
    CoordinatorRecord,
    ShareGroupMetadataKey,
    ShareGroupStatePartitionMetadataKey,
)
from tests.support.consumer_groups import GROUP, topic_id
from tests.support.share_groups import ShareCoordinator, Worker, work

if TYPE_CHECKING:
    from collections.abc import Callable

ORDERS = topic_id("orders")


def keys(coordinator: ShareCoordinator) -> list[str]:
    return [type(key).__name__ for key, _ in coordinator.log]


def test_a_first_member_gets_partitions_once_their_states_are_made() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    first = worker.beat()
    assert (first.error_code, first.member_id, first.member_epoch) == (ErrorCode.none, "m1", 2)
    assert first.assignment is not None
    assert first.assignment.topic_partitions == ()
    (wanted,) = coordinator.wanted
    assert (wanted.group_id, wanted.state_epoch) == (GROUP, 2)
    assert wanted.start_offsets == {ORDERS: {0: -1, 1: -1, 2: -1}}
    assert worker.beat().assignment is None
    assert len(coordinator.wanted) == 1
    coordinator.initialize()
    assert worker.beat().member_epoch == 3
    assert worker.partitions() == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert worker.beat().assignment is None


def test_the_records_of_a_join_are_kafkas() -> None:
    coordinator = ShareCoordinator()
    Worker(coordinator, "m1").beat()
    assert keys(coordinator) == [
        "ShareGroupMemberMetadataKey",
        "ShareGroupMetadataKey",
        "ShareGroupTargetAssignmentMemberKey",
        "ShareGroupTargetAssignmentMetadataKey",
        "ShareGroupCurrentMemberAssignmentKey",
        "ShareGroupStatePartitionMetadataKey",
    ]


def test_members_share_partitions_when_there_are_more_of_them() -> None:
    coordinator = ShareCoordinator({"orders": 2})
    workers = [Worker(coordinator, f"m{number}") for number in range(5)]
    work(workers)
    counts = [sum(("orders", index) in worker.partitions() for worker in workers) for index in range(2)]
    assert counts == [3, 3]
    assert all(worker.partitions() for worker in workers)


def test_what_a_member_leaves_behind_goes_to_the_others() -> None:
    coordinator = ShareCoordinator()
    first, second = Worker(coordinator, "m1"), Worker(coordinator, "m2")
    work([first, second])
    assert len(first.partitions()) + len(second.partitions()) == 3
    answer = second.leave()
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.none, -1, None)
    work([first])
    assert len(first.partitions()) == 3


def test_a_member_that_falls_silent_is_removed() -> None:
    coordinator = ShareCoordinator(share_session_timeout_ms=45_000)
    work([Worker(coordinator, "m1")])
    coordinator.advance(44_998)
    assert not coordinator.share.is_empty
    coordinator.advance(2)
    assert coordinator.share.state is ShareGroupState.EMPTY
    assert coordinator.share.targets == {}


def test_a_group_that_was_read_from_its_log_waits_for_its_members() -> None:
    coordinator = ShareCoordinator()
    work([Worker(coordinator, "m1")])
    again = coordinator.restarted()
    assert again.share.members == coordinator.share.members
    again.advance(45_000)
    assert again.share.is_empty


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group_id": " "}, ErrorCode.invalid_request),
        ({"member_id": ""}, ErrorCode.invalid_request),
        ({"rack_id": ""}, ErrorCode.invalid_request),
        ({"topics": ()}, ErrorCode.invalid_request),
        ({"epoch": -2}, ErrorCode.invalid_request),
        ({"epoch": -1}, ErrorCode.group_id_not_found),
        ({"epoch": 3}, ErrorCode.group_id_not_found),
    ],
)
def test_a_heartbeat_that_makes_no_sense_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    coordinator = ShareCoordinator()
    assert coordinator.share_heartbeat(**fields).error_code is code
    assert coordinator.log == []


def test_a_member_in_another_epoch_is_fenced_but_not_in_the_one_before() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    work([worker])
    assert worker.epoch == 3
    assert coordinator.share_heartbeat(epoch=4).error_code is ErrorCode.fenced_member_epoch
    assert coordinator.share_heartbeat(epoch=1).error_code is ErrorCode.fenced_member_epoch
    assert coordinator.share_heartbeat(epoch=2).error_code is ErrorCode.none
    assert coordinator.share_heartbeat(member_id="m9", epoch=3).error_code is ErrorCode.unknown_member_id
    assert coordinator.share_heartbeat(member_id="m9", epoch=-1).error_code is ErrorCode.unknown_member_id


def test_a_full_group_takes_nobody_but_its_members() -> None:
    coordinator = ShareCoordinator(share_max_size=1)
    work([Worker(coordinator, "m1")])
    assert coordinator.share_heartbeat(member_id="m2").error_code is ErrorCode.group_max_size_reached
    assert coordinator.share_heartbeat(member_id="m1").error_code is ErrorCode.none


def test_a_group_of_another_kind_is_not_found() -> None:
    coordinator = ShareCoordinator()
    coordinator.heartbeat(member_id="c1")
    assert coordinator.share_heartbeat().error_code is ErrorCode.group_id_not_found
    other = ShareCoordinator()
    other.share_heartbeat()
    assert other.heartbeat(member_id="c1").error_code is ErrorCode.group_id_not_found


def test_a_member_that_joins_again_is_told_everything_again() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    work([worker])
    before = len(coordinator.log)
    answer = coordinator.share_heartbeat(epoch=0)
    assert answer.assignment is not None
    assert len(answer.assignment.topic_partitions[0].partitions) == 3
    assert len(coordinator.log) == before


def test_a_member_keeps_its_rack_and_names_another() -> None:
    coordinator = ShareCoordinator()
    coordinator.share_heartbeat(rack_id="a")
    coordinator.share_heartbeat(epoch=2)
    assert coordinator.share.members["m1"].rack_id == "a"
    coordinator.share_heartbeat(epoch=2, rack_id="b")
    assert coordinator.share.members["m1"].rack_id == "b"


def test_a_member_that_subscribes_to_something_else_gives_the_rest_back() -> None:
    coordinator = ShareCoordinator({"orders": 3, "payments": 2})
    worker = Worker(coordinator, "m1", ("orders",))
    work([worker])
    worker.beat(topics=("payments",))
    assert worker.partitions() == set()
    work([worker])
    assert worker.partitions() == {("payments", 0), ("payments", 1)}


def test_each_topic_is_shared_by_its_own_subscribers() -> None:
    coordinator = ShareCoordinator({"orders": 2, "payments": 2})
    workers = [
        Worker(coordinator, "m1", ("orders",)),
        Worker(coordinator, "m2", ("payments",)),
        Worker(coordinator, "m3", ("orders", "payments")),
    ]
    work(workers)
    assert [len(worker.partitions()) for worker in workers] == [1, 1, 2]
    assert {place for worker in workers for place in worker.partitions()} == {
        (name, index) for name in ("orders", "payments") for index in range(2)
    }


def test_a_topic_that_grows_gets_states_for_its_new_partitions() -> None:
    coordinator = ShareCoordinator({"orders": 1})
    worker = Worker(coordinator, "m1")
    work([worker])
    coordinator.change_topics({"orders": 3})
    worker.beat()
    assert [wanted.start_offsets for wanted in coordinator.wanted] == [{ORDERS: {1: -1, 2: -1}}]
    work([worker])
    assert len(worker.partitions()) == 3


def test_a_topic_that_comes_later_is_shared_too() -> None:
    coordinator = ShareCoordinator({"other": 1})
    worker = Worker(coordinator, "m1")
    work([worker])
    assert worker.partitions() == set()
    coordinator.change_topics({"other": 1, "orders": 1})
    work([worker])
    assert worker.partitions() == {("orders", 0)}


def test_a_topic_that_is_deleted_leaves_nothing_behind() -> None:
    coordinator = ShareCoordinator({"orders": 2, "payments": 1})
    worker = Worker(coordinator, "m1", ("orders", "payments"))
    work([worker])
    coordinator.change_topics({"payments": 1})
    work([worker])
    assert worker.partitions() == {("payments", 0)}
    assert set(coordinator.share.state_partitions.initialized) == {topic_id("payments")}
    settled = coordinator.share.epoch
    work([worker])
    assert coordinator.share.epoch == settled


def test_states_that_a_stop_left_of_a_topic_that_is_gone_are_no_reason_to_rebalance() -> None:
    coordinator = ShareCoordinator({"orders": 2, "payments": 1})
    worker = Worker(coordinator, "m1", ("orders", "payments"))
    work([worker])
    coordinator.set_topics({"payments": 1})  # nobody was told that the topic is gone
    work([worker])
    settled = coordinator.share.epoch
    work([worker])
    assert coordinator.share.epoch == settled
    assert worker.partitions() == {("payments", 0)}


def test_a_topic_that_was_made_again_begins_anew() -> None:
    coordinator = ShareCoordinator({"orders": 1})
    worker = Worker(coordinator, "m1")
    work([worker])
    coordinator.change_topics({"orders": 1}, generation=1)
    worker.beat()
    assert [list(wanted.start_offsets) for wanted in coordinator.wanted] == [[topic_id("orders", 1)]]


def test_states_that_could_not_be_made_are_asked_for_by_the_next_heartbeat() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    worker.beat()
    coordinator.initialize(fails=True)
    assert coordinator.share.state_partitions.initializing == {}
    worker.beat()
    assert len(coordinator.wanted) == 1


def test_states_of_which_nothing_is_heard_are_asked_for_again_after_a_while() -> None:
    coordinator = ShareCoordinator(share_initialize_retry_interval_ms=30_000)
    worker = Worker(coordinator, "m1")
    worker.beat()
    coordinator.advance(29_999)
    worker.beat()
    assert len(coordinator.wanted) == 1
    coordinator.advance(1)
    worker.beat()
    assert len(coordinator.wanted) == 2


def test_states_are_asked_for_again_though_the_clock_was_set_back() -> None:
    coordinator = ShareCoordinator(share_initialize_retry_interval_ms=30_000)
    worker = Worker(coordinator, "m1")
    worker.beat()
    coordinator.now_ms -= 300_000
    worker.beat()
    assert len(coordinator.wanted) == 2


def test_a_new_coordinator_gives_the_states_that_are_being_made_the_same_time() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    worker.beat()
    again = worker.coordinator = coordinator.restarted()
    worker.beat()
    assert again.wanted == []
    again.advance(30_000)
    worker.beat()
    assert len(again.wanted) == 1


def test_a_heartbeat_that_cannot_be_stored_asks_for_states_the_next_time() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    worker.beat()
    coordinator.initialize()
    coordinator.change_topics({"orders": 4})
    coordinator.is_full = True
    coordinator.share_heartbeat(epoch=worker.epoch)
    coordinator.is_full = False
    coordinator.wanted.clear()
    worker.beat()
    assert [wanted.start_offsets for wanted in coordinator.wanted] == [{ORDERS: {3: -1}}]


def test_assignments_are_made_no_more_often_than_their_interval_allows() -> None:
    coordinator = ShareCoordinator(share_assignment_interval_ms=1_000)
    first, second = Worker(coordinator, "m1"), Worker(coordinator, "m2")
    first.beat()
    coordinator.initialize()
    second.beat()
    first.beat()
    epoch = coordinator.share.epoch
    first.beat()
    assert (coordinator.share.epoch, coordinator.share.assignment_epoch) == (epoch, 2)
    assert first.partitions() == set()
    coordinator.advance(1_000)
    first.beat()
    assert coordinator.share.assignment_epoch == epoch
    assert first.partitions()


def test_a_heartbeat_in_a_rebalance_of_many_members_costs_as_much_as_in_one_of_few() -> None:
    def lines(size: int) -> int:
        coordinator = ShareCoordinator({"orders": 2})
        workers = [Worker(coordinator, f"m{number:03}") for number in range(size)]
        work(workers)
        Worker(coordinator, "guest").beat()
        return min(lines_of(worker.beat) for worker in workers[:3])

    assert lines(60) <= lines(6) * 1.2


def lines_of(call: Callable[[], object]) -> int:
    """How many lines are run."""
    count = 0

    def trace(*_: object) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return count


def test_an_assignment_of_a_clock_that_is_ahead_keeps_nobody_without_partitions() -> None:
    coordinator = ShareCoordinator(share_assignment_interval_ms=1_000)
    first, second = Worker(coordinator, "m1"), Worker(coordinator, "m2")
    first.beat()
    coordinator.initialize()
    coordinator.advance(1_000)
    first.beat()
    coordinator.now_ms -= 300_000
    second.beat()
    assert second.partitions()


def test_a_group_is_described_as_kafka_describes_it() -> None:
    coordinator = ShareCoordinator({"orders": 1})
    worker = Worker(coordinator, "m1")
    work([worker])
    group = coordinator.describe_share()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 3, 3)
    assert group.assignor_name == "simple"
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_host) == ("m1", 3, "/10.0.0.1")
    assert member.subscribed_topic_names == ("orders",)
    assert [(place.topic_name, place.partitions) for place in member.assignment.topic_partitions] == [("orders", (0,))]


def test_every_step_of_a_groups_life_is_in_the_table_and_taken() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    work([worker])
    worker.leave()
    coordinator.ask(lambda client, now_ms: coordinator.rules.delete_group(GROUP, client, now_ms, states_deleted=True))
    assert coordinator.share_steps == {(row.before, row.after) for row in SHARE_TRANSITIONS.rows}


def test_the_tombstones_of_a_deleted_group_remove_it_from_a_log_that_is_read_again() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    work([worker])
    worker.leave()
    coordinator.ask(lambda client, now_ms: coordinator.rules.delete_group(GROUP, client, now_ms, states_deleted=True))
    assert GROUP not in coordinator.table.groups
    assert coordinator.log[-2:] == [
        CoordinatorRecord(ShareGroupStatePartitionMetadataKey(GROUP), None),
        CoordinatorRecord(ShareGroupMetadataKey(GROUP), None),
    ]
    assert coordinator.restarted().table.groups == {}


def test_a_share_group_does_not_expire() -> None:
    coordinator = ShareCoordinator(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=1_000)
    coordinator.run(coordinator.rules.loaded(coordinator.now_ms))
    worker = Worker(coordinator, "m1")
    work([worker])
    worker.leave()
    coordinator.advance(10_000)
    assert GROUP in coordinator.table.groups
