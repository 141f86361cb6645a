"""Elections by hand, by permission and for balance."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.machines.controller.image import ALL_BROKERS, NO_LEADER, ConfigResource, PartitionImage
from barnabas.machines.controller.leaders import balance
from barnabas.machines.controller.requests import (
    AlterConfigs,
    ElectLeaders,
    LogDirFailed,
    MoveLeader,
    Registered,
    ShutDown,
)
from barnabas.model.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from tests.support.controllers import brokers, controller, run

LED = PartitionImage(0, 2, 4, (1, 2, 3), (1, 2), 7)
"""By its second replica."""
LOST = PartitionImage(0, NO_LEADER, 4, (1, 2, 3), (1,), 7)
"""Its only replica in sync is gone."""
ALLOWED = {"unclean.leader.election.enable": "true"}


class TestPreferred:
    def test_the_first_replica_leads_again(self) -> None:
        machine = controller(LED)
        after = replace(LED, leader=1, leader_epoch=5, partition_epoch=8)
        assert run(machine, ElectLeaders("preferred", [("t", 0)])) == {("t", 0): after}
        assert machine.image.partition("t", 0) == after

    def test_it_is_not_needed_when_it_leads(self) -> None:
        machine = controller(replace(LED, leader=1), replace(LED, index=1))
        answers = run(machine, ElectLeaders("preferred", [("t", 0), ("t", 0), ("t", 1)]))
        assert isinstance(answers["t", 0], ElectionNotNeeded)
        assert isinstance(answers["t", 1], PartitionImage)
        assert run(machine, ElectLeaders("preferred")) == {}

    def test_it_must_be_in_sync(self) -> None:
        answers = run(controller(replace(LED, isr=(2, 3))), ElectLeaders("preferred", [("t", 0)]))
        assert isinstance(answers["t", 0], PreferredLeaderNotAvailable)

    def test_it_must_not_be_about_to_stop(self) -> None:
        machine = controller(replace(LED, isr=(1, 2, 3)))
        run(machine, ShutDown(1, 10))
        answers = run(machine, ElectLeaders("preferred", [("t", 0)]))
        assert isinstance(answers["t", 0], PreferredLeaderNotAvailable)

    def test_what_is_not_there_has_no_leader(self) -> None:
        answers = run(controller(LED), ElectLeaders("preferred", [("t", 1), ("u", 0)]))
        assert {type(answer) for answer in answers.values()} == {UnknownTopicOrPartition}


class TestUnclean:
    def test_by_hand_whoever_is_up_leads_and_is_alone_in_sync(self) -> None:
        answers = run(controller(LOST, up=(2, 3)), ElectLeaders("unclean", [("t", 0)]))
        assert answers["t", 0] == PartitionImage(0, 2, 5, (1, 2, 3), (2,), 8)

    def test_somebody_must_be_up(self) -> None:
        answers = run(controller(LOST, up=(4,)), ElectLeaders("unclean"))
        assert isinstance(answers["t", 0], EligibleLeadersNotAvailable)

    def test_it_is_not_needed_where_somebody_leads(self) -> None:
        answers = run(controller(LED), ElectLeaders("unclean", [("t", 0)]))
        assert isinstance(answers["t", 0], ElectionNotNeeded)

    @pytest.mark.parametrize("resource", [ConfigResource.topic("t"), ConfigResource.broker(1), ALL_BROKERS])
    def test_a_setting_that_allows_it_has_it_held(self, resource: ConfigResource) -> None:
        machine = controller(LOST, up=(2, 3))
        assert run(machine, AlterConfigs({resource: ALLOWED})) == {resource: None}
        assert machine.image.partition("t", 0) == PartitionImage(0, 2, 5, (1, 2, 3), (2,), 8)

    def test_the_topic_has_the_last_word(self) -> None:
        machine = controller(LOST, up=(2, 3), configs={"unclean.leader.election.enable": "false"})
        run(machine, AlterConfigs({ALL_BROKERS: ALLOWED}))
        assert machine.image.partition("t", 0) == LOST

    def test_where_it_is_allowed_no_partition_waits_for_a_broker(self) -> None:
        machine = controller(replace(LED, isr=(2,)), configs=ALLOWED)
        run(machine, Registered(brokers(1, 3)))
        assert machine.image.partition("t", 0) == PartitionImage(0, 1, 5, (1, 2, 3), (1,), 8)

    def test_where_it_is_allowed_those_in_sync_still_come_first(self) -> None:
        machine = controller(replace(LED, isr=(2, 3)), configs=ALLOWED)
        run(machine, Registered(brokers(1, 3)))
        assert machine.image.partition("t", 0) == PartitionImage(0, 3, 5, (1, 2, 3), (3,), 8)


class TestBalance:
    def test_nothing_is_due_while_every_broker_leads_what_it_should(self) -> None:
        assert balance(controller(replace(LED, leader=1)).image, 10) is None

    def test_partitions_go_back_when_too_many_are_led_by_others(self) -> None:
        mine = [replace(LED, index=index, leader=1) for index in range(9)]
        image = controller(*mine, replace(LED, index=9)).image
        assert balance(image, 10) is None
        assert balance(image, 9) == ElectLeaders("preferred", (("t", 9),))
        assert balance(image, 0) == ElectLeaders("preferred", (("t", 9),))

    @pytest.mark.parametrize(
        "partition",
        [replace(LED, isr=(2, 3)), replace(LED, adding=(3,)), replace(LED, replicas=(6, 2, 1))],
    )
    def test_partitions_stay_whose_first_replica_cannot_lead(self, partition: PartitionImage) -> None:
        assert balance(controller(partition).image, 0) is None

    def test_nothing_goes_back_to_a_broker_that_stops_or_has_lost_its_disk(self) -> None:
        machine = controller(LED)
        run(machine, LogDirFailed(1, [("t", 0)]))
        assert balance(machine.image, 0) is None
        machine = controller(LED)
        run(machine, ShutDown(1, 10))
        assert balance(machine.image, 0) is None


class TestShutdown:
    def test_others_lead_and_are_in_sync(self) -> None:
        machine = controller(
            PartitionImage(0, 1, 4, (1, 2, 3), (1, 2, 3), 7),
            PartitionImage(1, 2, 4, (2, 1), (2, 1), 7),
            PartitionImage(2, 2, 4, (2, 1), (2,), 7),
        )
        assert run(machine, ShutDown(1, 10)) == {1: ()}
        assert machine.image.topics["t"].partitions == (
            PartitionImage(0, 2, 5, (1, 2, 3), (2, 3), 8),
            PartitionImage(1, 2, 5, (2, 1), (2,), 8),
            PartitionImage(2, 2, 4, (2, 1), (2,), 7),
        )
        assert machine.handle(ShutDown(1, 10)).changes == ()

    def test_names_what_nobody_else_can_lead(self) -> None:
        alone, single = PartitionImage(0, 1, 4, (1, 2), (1,), 7), PartitionImage(1, 1, 4, (1,), (1,), 7)
        machine = controller(alone, single)
        assert run(machine, ShutDown(1, 10)) == {1: (("t", 0),)}
        assert machine.image.topics["t"].partitions == (alone, single)

    def test_two_at_once_leave_the_last_to_lead(self) -> None:
        machine = controller(PartitionImage(0, 1, 4, (1, 2, 3), (1, 2, 3), 7))
        assert run(machine, ShutDown(2, 20)) == {2: ()}
        assert run(machine, ShutDown(3, 30)) == {3: ()}
        assert run(machine, ShutDown(1, 10)) == {1: (("t", 0),)}
        assert machine.image.partition("t", 0) == PartitionImage(0, 1, 6, (1, 2, 3), (1,), 9)

    @pytest.mark.parametrize(("broker", "epoch"), [(1, 9), (6, 60)])
    def test_refuses_a_broker_that_is_not_the_one_registered(self, broker: int, epoch: int) -> None:
        assert isinstance(run(controller(LED), ShutDown(broker, epoch))[broker], StaleBrokerEpoch)

    def test_is_over_when_the_broker_registers_anew(self) -> None:
        machine = controller(PartitionImage(0, 1, 4, (1, 2), (1, 2), 7))
        run(machine, ShutDown(1, 10))
        assert machine.image.leaving == {1}
        run(machine, Registered({**brokers(2), **brokers(1, epoch=11)}))
        assert machine.image.leaving == frozenset()


class TestRestart:
    def test_others_go_first(self) -> None:
        machine = controller(PartitionImage(0, 1, 4, (1, 2, 3), (1, 2, 3), 7), up=(1, 2, 3))
        run(machine, Registered({**brokers(2, 3), **brokers(1, epoch=11)}))
        assert machine.image.partition("t", 0) == PartitionImage(0, 2, 5, (1, 2, 3), (2, 3), 8)

    def test_the_last_one_goes_on_in_a_new_epoch(self) -> None:
        machine = controller(PartitionImage(0, 1, 4, (1, 2, 3), (1,), 7), up=(1, 2, 3))
        run(machine, Registered({**brokers(2, 3), **brokers(1, epoch=11)}))
        assert machine.image.partition("t", 0) == PartitionImage(0, 1, 5, (1, 2, 3), (1,), 8)

    def test_one_that_nobody_saw_counts_too(self) -> None:
        machine = controller(
            PartitionImage(0, 1, 4, (1, 2), (1, 2), 7), PartitionImage(1, 1, 4, (1, 2), (1, 2), 7), up=(1, 2)
        )
        run(machine, Registered(brokers(1, 2), {("t", 1): frozenset({1})}))
        assert machine.image.topics["t"].partitions == (
            PartitionImage(0, 1, 4, (1, 2), (1, 2), 7),
            PartitionImage(1, 2, 5, (1, 2), (2,), 8),
        )

    def test_a_partition_without_other_replicas_goes_on_as_it_was(self) -> None:
        machine = controller(PartitionImage(0, 1, 4, (1,), (1,), 7), up=(1,))
        run(machine, Registered(brokers(1, epoch=11)))
        assert machine.image.partition("t", 0) == PartitionImage(0, 1, 4, (1,), (1,), 7)


class TestFailedDisk:
    def test_others_lead_what_was_on_it(self) -> None:
        first, second = (PartitionImage(index, 1, 4, (1, 2, 3), (1, 2, 3), 7) for index in (0, 1))
        machine = controller(first, second)
        assert run(machine, LogDirFailed(1, [("t", 0), ("gone", 0)])) == {1: None}
        after = PartitionImage(0, 2, 5, (1, 2, 3), (2, 3), 8)
        assert machine.image.topics["t"].partitions == (after, second)
        assert machine.image.offline_replicas("t", after) == (1,)
        assert machine.image.offline_replicas("t", second) == ()
        assert machine.handle(LogDirFailed(1, [("t", 0)])).changes == ()

    def test_it_is_back_when_its_broker_names_it_no_more(self) -> None:
        lonely, shared = PartitionImage(0, 1, 4, (1, 2), (1,), 7), PartitionImage(1, 1, 4, (1, 2), (1, 2), 7)
        machine = controller(lonely, shared, up=(1, 2))
        run(machine, LogDirFailed(1, [("t", 0), ("t", 1)], is_all=True))
        assert [each.leader for each in machine.image.topics["t"].partitions] == [NO_LEADER, 2]
        run(machine, LogDirFailed(1, [("t", 1)], is_all=True))
        assert machine.image.failed == {1: {("t", 1)}}
        run(machine, LogDirFailed(1, [], is_all=True))
        assert machine.image.failed == {}
        found = machine.image.topics["t"].partitions
        assert found == (PartitionImage(0, 1, 6, (1, 2), (1,), 9), PartitionImage(1, 2, 5, (1, 2), (2,), 8))
        assert machine.handle(LogDirFailed(1, [], is_all=True)).changes == ()

    def test_it_is_back_when_the_broker_registers_anew(self) -> None:
        machine = controller(PartitionImage(0, 1, 4, (1, 2), (1,), 7), up=(1, 2))
        run(machine, LogDirFailed(1, [("t", 0)]))
        assert machine.image.partition("t", 0) == PartitionImage(0, NO_LEADER, 5, (1, 2), (1,), 8)
        run(machine, Registered({**brokers(2), **brokers(1, epoch=11)}))
        assert machine.image.failed == {}
        assert machine.image.partition("t", 0) == PartitionImage(0, 1, 6, (1, 2), (1,), 9)


def test_a_leader_is_moved_on_request_or_begins_anew() -> None:
    machine = controller(LED, PartitionImage(1, 1, 2, (1,), (1,), 3))
    run(machine, MoveLeader("t", 0))
    run(machine, MoveLeader("t", 1))
    assert machine.image.topics["t"].partitions == (
        PartitionImage(0, 1, 5, (1, 2, 3), (1, 2), 8),
        PartitionImage(1, 1, 3, (1,), (1,), 4),
    )
    assert isinstance(run(machine, MoveLeader("t", 2))["t"], UnknownTopicOrPartition)
