"""Partitions move to other brokers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.machines.controller.elections import NO_STATE
from barnabas.machines.controller.image import NO_LEADER, PartitionImage
from barnabas.machines.controller.reassignment import reassignments
from barnabas.machines.controller.requests import AlterIsr, IsrChange, Reassign, Registered
from barnabas.model.errors import (
    ApiError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NewLeaderElected,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from tests.support.controllers import TOPIC_ID, brokers, controller, run

if TYPE_CHECKING:
    from barnabas.machines.controller.machine import ControllerMachine

START = PartitionImage(0, 1, 4, (1, 2, 3), (1, 2, 3), 7)
UNDER_WAY = PartitionImage(0, 1, 5, (4, 5, 1, 2, 3), (1, 2, 3), 8, (4, 5), (2, 3))


def reassign(machine: ControllerMachine, *target: int) -> object:
    return run(machine, Reassign({("t", 0): target}))["t", 0]


def cancel(machine: ControllerMachine) -> object:
    return run(machine, Reassign({("t", 0): None}))["t", 0]


def in_sync(machine: ControllerMachine, *isr: int) -> object:
    """The leader says who is in sync."""
    partition = now(machine)
    change = IsrChange(TOPIC_ID, 0, partition.leader_epoch, partition.partition_epoch, isr)
    request = AlterIsr(partition.leader, 10 * partition.leader, [change])
    return run(machine, request)[TOPIC_ID, 0]


def now(machine: ControllerMachine) -> PartitionImage:
    partition = machine.image.partition("t", 0)
    assert partition is not None
    return partition


def test_has_both_sets_until_the_new_one_is_in_sync() -> None:
    machine = controller(START)
    assert reassign(machine, 4, 5, 1) == replace(UNDER_WAY)
    in_sync(machine, 1, 2, 3, 4)
    assert now(machine).is_reassigned
    assert in_sync(machine, 1, 2, 3, 4, 5) == PartitionImage(0, 1, 6, (4, 5, 1), (1, 4, 5), 10)


def test_a_leader_that_goes_is_told_so() -> None:
    machine = controller(START)
    reassign(machine, 4, 5)
    assert isinstance(in_sync(machine, 1, 2, 3, 4, 5), NewLeaderElected)
    assert now(machine) == PartitionImage(0, 4, 6, (4, 5), (4, 5), 9)


def test_nobody_in_sync_goes_if_that_leaves_one_alone() -> None:
    """It may be losing its power, and the logs of those that go are deleted."""
    machine = controller(PartitionImage(0, 2, 4, (2, 1), (2,), 7))
    reassign(machine, 3, 1)
    in_sync(machine, 2, 3)
    assert (set(now(machine).isr), now(machine).removing) == ({2, 3}, (2,))
    in_sync(machine, 2, 3, 1)
    assert (now(machine).replicas, set(now(machine).isr), now(machine).is_reassigned) == ((3, 1), {3, 1}, False)


def test_one_that_shall_be_the_only_one_may_be_alone() -> None:
    machine = controller(PartitionImage(0, 2, 4, (2,), (2,), 7))
    reassign(machine, 3)
    in_sync(machine, 2, 3)
    assert (now(machine).replicas, now(machine).isr, now(machine).leader) == ((3,), (3,), 3)


def test_another_order_of_the_replicas_is_there_at_once() -> None:
    assert reassign(controller(START), 3, 2, 1) == PartitionImage(0, 1, 5, (3, 2, 1), (1, 2, 3), 8)


def test_the_replicas_it_has_are_no_change() -> None:
    machine = controller(START)
    assert machine.handle(Reassign({("t", 0): (1, 2, 3)})).changes == ()


def test_fewer_replicas_are_there_at_once_if_they_are_in_sync() -> None:
    assert reassign(controller(START), 2, 3) == PartitionImage(0, 2, 5, (2, 3), (2, 3), 8)


def test_fewer_replicas_wait_until_all_are_in_sync() -> None:
    machine = controller(replace(START, isr=(1, 2)))
    assert reassign(machine, 2, 3) == PartitionImage(0, 1, 5, (2, 3, 1), (1, 2), 8, (), (1,))
    in_sync(machine, 1, 2, 3)
    assert now(machine) == PartitionImage(0, 2, 6, (2, 3), (2, 3), 9)


def test_a_replica_that_is_down_and_stays_is_not_waited_for() -> None:
    machine = controller(START)
    reassign(machine, 1, 2, 4)
    run(machine, Registered(brokers(1, 3, 4)))
    in_sync(machine, 1, 3, 4)
    assert now(machine) == PartitionImage(0, 1, 7, (1, 2, 4), (1, 4), 10)


def test_goes_on_when_a_broker_comes_back() -> None:
    machine = controller(UNDER_WAY)
    run(machine, Registered(brokers(1, 2, 3, 4)))
    run(machine, Registered(brokers(1, 2, 3, 4, 5)))
    assert now(machine) == UNDER_WAY


def test_another_one_takes_its_place_and_begins_where_it_began() -> None:
    machine = controller(replace(UNDER_WAY, isr=(1, 2, 3, 4)))
    assert reassign(machine, 1, 2, 5) == PartitionImage(0, 1, 6, (1, 2, 5, 3), (1, 2, 3), 9, (5,), (3,))


def test_back_to_where_it_began_ends_it() -> None:
    assert reassign(controller(UNDER_WAY), 1, 2, 3) == PartitionImage(0, 1, 6, (1, 2, 3), (1, 2, 3), 9)


def test_cancel_takes_what_came_away() -> None:
    machine = controller(replace(UNDER_WAY, isr=(1, 4), leader=4))
    assert cancel(machine) == PartitionImage(0, 1, 6, (1, 2, 3), (1,), 9)


def test_cancel_needs_somebody_in_sync() -> None:
    lost = replace(UNDER_WAY, isr=(4,), leader=4)
    assert isinstance(cancel(controller(lost)), InvalidReplicaAssignment)
    allowed = controller(lost, configs={"unclean.leader.election.enable": "true"})
    assert cancel(allowed) == PartitionImage(0, 1, 6, (1, 2, 3), (1,), 9)


def test_nobody_in_sync_may_go_all_at_once() -> None:
    machine = controller(replace(UNDER_WAY, isr=(4,), leader=4))
    assert isinstance(reassign(machine, 1, 5), InvalidReplicaAssignment)


@pytest.mark.parametrize(
    ("target", "error"),
    [((), InvalidReplicaAssignment), ((1, 9), InvalidReplicaAssignment), ((1, 1), InvalidReplicaAssignment)],
)
def test_refuses(target: tuple[int, ...], error: type[ApiError]) -> None:
    assert isinstance(reassign(controller(START), *target), error)


def test_refuses_what_is_not_there() -> None:
    answers = run(controller(START), Reassign({("t", 1): (1,), ("u", 0): None, ("t", 0): None}))
    assert {key: type(answer) for key, answer in answers.items()} == {
        ("t", 1): UnknownTopicOrPartition,
        ("u", 0): UnknownTopicOrPartition,
        ("t", 0): NoReassignmentInProgress,
    }


@pytest.mark.parametrize("start", [START, UNDER_WAY])
def test_refuses_another_number_of_replicas_when_asked_to(start: PartitionImage) -> None:
    request = Reassign({("t", 0): (1, 2)}, allow_replication_factor_change=False)
    assert isinstance(run(controller(start), request)["t", 0], InvalidReplicationFactor)
    request = Reassign({("t", 0): (1, 2, 5)}, allow_replication_factor_change=False)
    assert isinstance(run(controller(start), request)["t", 0], PartitionImage)


def test_a_partition_that_never_had_a_leader_starts_where_it_is_sent() -> None:
    waiting = PartitionImage(0, NO_LEADER, NO_STATE, (3,), (), NO_STATE)
    assert reassign(controller(waiting, up=(1, 2)), 1, 2) == PartitionImage(0, 1, 0, (1, 2), (1, 2), 0)


def test_lists_what_is_under_way() -> None:
    image = controller(START, replace(UNDER_WAY, index=1)).image
    moving = {("t", 1): replace(UNDER_WAY, index=1)}
    assert reassignments(image) == moving
    assert reassignments(image, {"t": [0, 1, 2], "u": [0]}) == moving
    assert reassignments(image, {"t": [0]}) == {}
