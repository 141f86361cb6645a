"""Leaders ask the controller for another ISR."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.machines.controller.image import PartitionImage
from barnabas.machines.controller.requests import AlterIsr, ElectLeaders, IsrChange, LogDirFailed, Registered, ShutDown
from barnabas.model.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    StaleBrokerEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tests.support.controllers import TOPIC_ID, brokers, controller, run

if TYPE_CHECKING:
    from barnabas.machines.controller.machine import ControllerMachine

LED = PartitionImage(0, 1, 4, (1, 2, 3), (1, 2), 7)


def ask(machine: ControllerMachine, change: IsrChange, *, broker: int = 1, epoch: int | None = None) -> object:
    request = AlterIsr(broker, 10 * broker if epoch is None else epoch, [change])
    return run(machine, request)[change.topic_id, change.index]


def change(*isr: int, leader_epoch: int = 4, partition_epoch: int = 7, **others: object) -> IsrChange:
    return replace(IsrChange(TOPIC_ID, 0, leader_epoch, partition_epoch, isr), **others)  # type: ignore[arg-type]  # for brevity


@pytest.mark.parametrize("isr", [(1, 2, 3), (1,), (1, 3), (2, 1)])
def test_the_isr_grows_and_shrinks_in_the_same_leadership(isr: tuple[int, ...]) -> None:
    machine = controller(LED)
    assert ask(machine, change(*isr)) == replace(LED, isr=isr, partition_epoch=8)
    assert machine.image.partition("t", 0) == replace(LED, isr=isr, partition_epoch=8)


def test_the_same_isr_voids_earlier_proposals() -> None:
    machine = controller(LED)
    assert ask(machine, change(1, 2)) == replace(LED, partition_epoch=8)
    assert isinstance(ask(machine, change(1, 2, 3)), InvalidUpdateVersion)


@pytest.mark.parametrize(
    ("wanted", "broker", "error"),
    [
        (change(1, leader_epoch=5), 1, NotController),
        (change(1, partition_epoch=8), 1, NotController),
        (change(1, leader_epoch=3), 1, FencedLeaderEpoch),
        (change(1, partition_epoch=6), 1, InvalidUpdateVersion),
        (change(1, 2), 2, InvalidRequest),
        (change(2), 1, InvalidRequest),
        (change(), 1, InvalidRequest),
        (change(1, 2, 2), 1, InvalidRequest),
        (change(1, 9), 1, InvalidRequest),
        (change(1, topic_id=UUID(int=5)), 1, UnknownTopicId),
        (change(1, index=1), 1, UnknownTopicOrPartition),
        (change(1, 3, broker_epochs=(10, 29)), 1, IneligibleReplica),
    ],
)
def test_refuses(wanted: IsrChange, broker: int, error: type[ApiError]) -> None:
    machine = controller(LED)
    assert isinstance(ask(machine, wanted, broker=broker), error)
    assert machine.image.partition("t", 0) == LED


@pytest.mark.parametrize(("broker", "epoch"), [(1, 9), (1, 11), (4, 40)])
def test_refuses_a_broker_that_is_not_the_one_registered(broker: int, epoch: int) -> None:
    assert isinstance(ask(controller(LED, up=(1, 2, 3)), change(1), broker=broker, epoch=epoch), StaleBrokerEpoch)


def test_knows_the_registration_that_caught_up() -> None:
    assert ask(controller(LED), change(1, 3, broker_epochs=(-1, 30))) == replace(LED, isr=(1, 3), partition_epoch=8)


def test_a_broker_that_is_not_up_cannot_be_in_sync() -> None:
    machine = controller(replace(LED, isr=(1,)))
    run(machine, Registered(brokers(1, 2)))
    assert isinstance(ask(machine, change(1, 3)), IneligibleReplica)


def test_a_broker_that_is_about_to_stop_cannot_be_in_sync() -> None:
    machine = controller(replace(LED, isr=(1,)))
    run(machine, ShutDown(3, 30))
    assert isinstance(ask(machine, change(1, 3)), IneligibleReplica)


def test_a_replica_on_a_failed_disk_cannot_be_in_sync() -> None:
    machine = controller(replace(LED, isr=(1,)))
    run(machine, LogDirFailed(3, [("t", 0)]))
    assert isinstance(ask(machine, change(1, 3)), IneligibleReplica)


def test_a_leader_that_is_about_to_stop_is_followed_by_whoever_it_brings_in_sync() -> None:
    machine = controller(replace(LED, isr=(1,)))
    assert run(machine, ShutDown(1, 10)) == {1: (("t", 0),)}
    assert isinstance(ask(machine, change(1, 2)), NewLeaderElected)
    assert machine.image.partition("t", 0) == PartitionImage(0, 2, 5, (1, 2, 3), (2,), 8)


def test_parts_of_a_request_see_each_other() -> None:
    machine = controller(LED)
    answers = run(machine, AlterIsr(1, 10, [change(1), change(1, 2, 3)]))
    assert isinstance(answers[TOPIC_ID, 0], InvalidUpdateVersion)
    assert machine.image.partition("t", 0) == replace(LED, isr=(1,), partition_epoch=8)


def test_elections_go_on_from_the_new_isr() -> None:
    machine = controller(replace(LED, replicas=(3, 1, 2)))
    ask(machine, change(1, 3))
    run(machine, ElectLeaders("preferred"))
    assert machine.image.partition("t", 0) == PartitionImage(0, 3, 5, (3, 1, 2), (1, 3), 9)
