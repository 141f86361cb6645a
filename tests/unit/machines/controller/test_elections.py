"""Who leads when brokers come and go."""

from __future__ import annotations

from uuid import UUID

from barnabas.machines.controller.changes import BrokersChanged
from barnabas.machines.controller.elections import NO_STATE, Live, elect, new_partition
from barnabas.machines.controller.image import (
    NO_LEADER,
    BrokerImage,
    ClusterImage,
    Endpoint,
    PartitionImage,
    TopicImage,
)
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import CreateTopics, Registered, TopicToCreate
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.model.ids import NO_ID


def up(*brokers: int) -> Live:
    return Live(frozenset(brokers))


def broker(number: int) -> BrokerImage:
    return BrokerImage(broker_id=number, epoch=number, endpoints={"PLAINTEXT": Endpoint("h", 9092)})


def test_a_new_partition_is_led_by_its_first_replica_that_is_up() -> None:
    assert new_partition(0, (1, 2, 3), {1, 2, 3}) == PartitionImage(0, 1, 0, (1, 2, 3), (1, 2, 3))
    assert new_partition(0, (1, 2, 3), {2, 3}) == PartitionImage(0, 2, 0, (1, 2, 3), (2, 3))
    assert new_partition(0, (1,), {2}).partition_epoch == NO_STATE


def test_nothing_happens_while_all_are_up() -> None:
    partition = PartitionImage(0, 2, 4, (1, 2), (2, 1), 7)
    assert elect(partition, up(1, 2, 3)) is partition


def test_a_follower_that_went_leaves_the_isr() -> None:
    assert elect(PartitionImage(0, 1, 4, (1, 2, 3), (1, 2, 3), 7), up(1, 3)) == PartitionImage(
        0, 1, 5, (1, 2, 3), (1, 3), 8
    )


def test_a_leader_that_went_is_followed_by_the_next_replica_in_sync() -> None:
    assert elect(PartitionImage(0, 1, 4, (1, 2, 3), (1, 3), 7), up(2, 3)) == PartitionImage(0, 3, 5, (1, 2, 3), (3,), 8)


def test_without_anyone_in_sync_there_is_no_leader_and_the_isr_stays() -> None:
    orphan = elect(PartitionImage(0, 1, 4, (1, 2), (1,), 7), up(2))
    assert orphan == PartitionImage(0, NO_LEADER, 5, (1, 2), (1,), 8)
    assert elect(orphan, up(2, 3)) is orphan
    assert elect(orphan, up(1, 2)) == PartitionImage(0, 1, 6, (1, 2), (1,), 9)


def test_a_partition_without_state_starts_when_a_replica_comes() -> None:
    waiting = PartitionImage(0, NO_LEADER, NO_STATE, (1, 2), (), NO_STATE, (2,), (1,))
    assert elect(waiting, up(3)) is waiting
    assert elect(waiting, up(2)) == PartitionImage(0, 2, 0, (1, 2), (2,), 0, (2,), (1,))


def controller(*brokers: BrokerImage, topics: dict[str, TopicImage] | None = None) -> ControllerMachine:
    image = ClusterImage(brokers={found.broker_id: found for found in brokers}, topics=topics or {})
    return ControllerMachine(image, TopicDefaults(), lambda: UUID(int=7))


def register(machine: ControllerMachine, *brokers: BrokerImage) -> ClusterImage:
    machine.replay(machine.handle(Registered({found.broker_id: found for found in brokers})).changes)
    return machine.image


def test_moves_leaders_when_a_broker_goes_and_when_it_comes_back() -> None:
    machine = controller(broker(1), broker(2))
    machine.replay(machine.handle(CreateTopics([TopicToCreate("t", 4, 2), TopicToCreate("single", 2, 1)])).changes)
    image = register(machine, broker(2))
    assert set(image.brokers) == {2}
    assert {partition.leader for partition in image.topics["t"].partitions} == {2}
    assert {partition.leader for partition in image.topics["single"].partitions} == {2, NO_LEADER}
    image = register(machine, broker(1), broker(2))
    assert {partition.leader for partition in image.topics["single"].partitions} == {1, 2}


def test_a_broker_that_registers_again_is_seen() -> None:
    machine = controller(broker(1))
    register(machine, broker(1))
    again = BrokerImage(broker_id=1, epoch=99, endpoints=broker(1).endpoints)
    outcome = machine.handle(Registered({1: again}))
    assert BrokersChanged({1: again}) in outcome.changes


def test_says_nothing_when_nothing_is_new() -> None:
    machine = controller(broker(1))
    register(machine, broker(1))
    assert machine.handle(Registered({1: broker(1)})).changes == ()


def test_gives_an_id_to_a_topic_that_has_none() -> None:
    old = TopicImage("old", NO_ID, (PartitionImage(0, 1, 3, (1,), (1,), 2),))
    image = register(controller(broker(1), topics={"old": old}), broker(1))
    assert image.topics["old"] == TopicImage("old", UUID(int=7), old.partitions)
    assert image.topic_names == {UUID(int=7): "old"}
