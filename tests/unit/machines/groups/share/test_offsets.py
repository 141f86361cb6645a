"""How far share groups are, as the group coordinator sees it: altered, deleted, and gone with the group."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from barnabas.machines.groups.share.offsets import DeleteStates, InitializeStates
from barnabas.model.errors import ApiError
from tests.support.consumer_groups import GROUP, topic_id
from tests.support.share_groups import ShareCoordinator, Worker, work

ORDERS, PAYMENTS = topic_id("orders"), topic_id("payments")
ALL = frozenset(range(3))


def alter(coordinator: ShareCoordinator, group_id: str = GROUP) -> Any:
    offsets = {ORDERS: {0: 7, 1: 8}}
    return coordinator.ask(lambda client, now_ms: coordinator.rules.shares.alter(group_id, offsets, client, now_ms))


def begin_delete(coordinator: ShareCoordinator, *names: str) -> Any:
    topics = [coordinator.table.image.topics[name] for name in names]
    return coordinator.ask(lambda client, now_ms: coordinator.rules.shares.begin_delete(GROUP, topics, client, now_ms))


def delete_group(coordinator: ShareCoordinator, **how: bool) -> Any:
    return coordinator.ask(lambda client, now_ms: coordinator.rules.delete_group(GROUP, client, now_ms, **how))


def emptied(topics: dict[str, int] | None = None) -> ShareCoordinator:
    """A coordinator of a group whose only member has left."""
    coordinator = ShareCoordinator(topics)
    worker = Worker(coordinator, "m1", tuple(topics or {"orders": 3}))
    work([worker])
    worker.leave()
    return coordinator


def test_altering_offsets_makes_a_group_that_does_not_exist() -> None:
    coordinator = ShareCoordinator()
    assert alter(coordinator) == InitializeStates(GROUP, 1, {ORDERS: {0: 7, 1: 8}})
    states = coordinator.share.state_partitions
    assert states.initializing[ORDERS].partitions == {0, 1}
    coordinator.run(
        coordinator.rules.shares.initialize_ended(GROUP, {ORDERS: frozenset({0})}, {ORDERS: frozenset({1})}, 0)
    )
    states = coordinator.share.state_partitions
    assert (dict(states.initializing), set(states.initialized[ORDERS].partitions)) == ({}, {0})


def test_only_a_share_group_without_members_can_be_altered() -> None:
    coordinator = ShareCoordinator()
    work([Worker(coordinator, "m1")])
    refused = alter(coordinator)
    assert isinstance(refused, ApiError)
    assert refused.code is ErrorCode.non_empty_group
    other = ShareCoordinator()
    other.heartbeat(member_id="c1")
    assert alter(other).code is ErrorCode.group_id_not_found


def test_deleted_offsets_are_gone_for_members_that_come_later() -> None:
    coordinator = emptied({"orders": 3, "payments": 1})
    assert begin_delete(coordinator, "orders") == DeleteStates(GROUP, {ORDERS: ALL})
    states = coordinator.share.state_partitions
    assert (dict(states.deleting), set(states.initialized)) == ({ORDERS: "orders"}, {PAYMENTS})
    assert begin_delete(coordinator, "orders") == DeleteStates(GROUP, {ORDERS: ALL})
    coordinator.ask(lambda client, now_ms: coordinator.rules.shares.complete_delete(GROUP, {ORDERS}, client, now_ms))
    assert dict(coordinator.share.state_partitions.deleting) == {}
    assert begin_delete(coordinator, "orders") == DeleteStates(GROUP, {})
    worker = Worker(coordinator, "m2")
    worker.beat()
    assert [wanted.start_offsets for wanted in coordinator.wanted] == [{ORDERS: dict.fromkeys(range(3), -1)}]


def test_offsets_of_a_group_with_members_are_not_deleted() -> None:
    coordinator = ShareCoordinator()
    assert begin_delete(coordinator, "orders").code is ErrorCode.group_id_not_found
    work([Worker(coordinator, "m1")])
    assert begin_delete(coordinator, "orders").code is ErrorCode.non_empty_group


def test_a_topic_whose_offsets_were_being_deleted_is_initialized_again_by_a_member() -> None:
    coordinator = emptied()
    begin_delete(coordinator, "orders")
    Worker(coordinator, "m2").beat()
    states = coordinator.share.state_partitions
    assert (dict(states.deleting), states.initializing[ORDERS].partitions) == ({}, ALL)


def test_a_group_is_deleted_after_its_states() -> None:
    coordinator = emptied()
    assert delete_group(coordinator) == DeleteStates(GROUP, {ORDERS: ALL})
    assert coordinator.share.state_partitions.initialized == {}
    assert delete_group(coordinator) == DeleteStates(GROUP, {ORDERS: ALL})  # it was not heard of: once more
    assert delete_group(coordinator, states_deleted=True) is ErrorCode.none
    assert GROUP not in coordinator.table.groups


def test_states_that_are_being_made_are_deleted_with_the_group() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    worker.beat()
    worker.leave()
    assert delete_group(coordinator) == DeleteStates(GROUP, {ORDERS: ALL})


def test_a_group_without_states_is_deleted_at_once() -> None:
    coordinator = emptied()
    coordinator.change_topics({})
    assert delete_group(coordinator) is ErrorCode.none


def test_a_group_with_members_is_not_deleted() -> None:
    coordinator = ShareCoordinator()
    work([Worker(coordinator, "m1")])
    assert delete_group(coordinator) is ErrorCode.non_empty_group
    assert coordinator.share.state_partitions.initialized[ORDERS].partitions == ALL


def test_news_of_states_of_a_group_that_is_gone_are_passed_over() -> None:
    coordinator = ShareCoordinator()
    coordinator.run(coordinator.rules.shares.initialize_ended("nobody", {ORDERS: ALL}, {}, 0))
    assert coordinator.log == []


def test_states_that_were_made_of_a_topic_that_is_gone_are_passed_over() -> None:
    coordinator = ShareCoordinator()
    worker = Worker(coordinator, "m1")
    worker.beat()
    coordinator.change_topics({})
    coordinator.initialize()
    assert coordinator.share.state_partitions.initialized == {}


def test_all_partitions_with_state_are_told() -> None:
    coordinator = emptied()

    def told(group_id: str) -> Any:
        return coordinator.ask(
            lambda client, now_ms: coordinator.rules.shares.initialized_partitions(group_id, client, now_ms)
        )

    assert told(GROUP) == {ORDERS: ALL}
    assert told("nobody") == {}
