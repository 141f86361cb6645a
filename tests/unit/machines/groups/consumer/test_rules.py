"""Heartbeats of the consumer protocol: what they are answered with, and what they are refused for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from barnabas.machines.groups.consumer.rebalance import SESSION
from barnabas.machines.groups.consumer.states import ConsumerGroupState, MemberState
from barnabas.machines.groups.table import TimerKey
from barnabas.protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    CoordinatorRecord,
    CurrentTopicPartitions,
)
from tests.support.consumer_groups import GROUP, Client, Consumer, Coordinator, settle, topic_id

ORDERS = topic_id("orders")


def two_members(**settings: Any) -> tuple[Coordinator, Consumer, Consumer]:
    """A group of two that share three partitions."""
    coordinator = Coordinator(**settings)
    consumers = (Consumer(coordinator, "m1"), Consumer(coordinator, "m2"))
    settle(consumers)
    return coordinator, *consumers


class TestJoining:
    def test_the_first_member_is_given_all_partitions_at_once(self) -> None:
        coordinator = Coordinator()
        answer = coordinator.heartbeat()
        assert answer.error_code is ErrorCode.none
        assert (answer.member_id, answer.member_epoch) == ("m1", 2)
        assert answer.heartbeat_interval == timedelta(seconds=5)
        assert answer.assignment is not None
        (topic,) = answer.assignment.topic_partitions
        assert (topic.topic_id, topic.partitions) == (ORDERS, (0, 1, 2))
        assert coordinator.state() is ConsumerGroupState.STABLE

    def test_old_clients_are_given_an_id(self) -> None:
        answer = Coordinator().heartbeat(Client(version=0), member_id="")
        assert (answer.error_code, answer.member_id) == (ErrorCode.none, "id-1")

    def test_a_second_member_waits_until_the_first_gives_back(self) -> None:
        coordinator = Coordinator()
        first, second = Consumer(coordinator, "m1"), Consumer(coordinator, "m2")
        first.beat()
        answer = second.beat()
        assert (answer.member_epoch, second.partitions()) == (3, set())
        assert coordinator.group.members["m2"].state is MemberState.UNRELEASED_PARTITIONS
        assert coordinator.state() is ConsumerGroupState.RECONCILING
        first.keeps = True
        assert first.beat().member_epoch == 2
        assert coordinator.group.members["m1"].state is MemberState.UNREVOKED_PARTITIONS
        second.beat()
        assert second.partitions() == set()
        first.keeps = False
        first.obey()
        assert first.beat().member_epoch == 3
        second.beat()
        assert len(second.partitions()) == 1
        assert coordinator.state() is ConsumerGroupState.STABLE

    def test_a_member_without_topics_is_a_member(self) -> None:
        coordinator = Coordinator()
        answer = coordinator.heartbeat(topics=[])
        assert answer.member_epoch == 1
        assert answer.assignment is not None and not answer.assignment.topic_partitions
        assert coordinator.state() is ConsumerGroupState.STABLE

    def test_topics_that_do_not_exist_yet_are_read_when_they_do(self) -> None:
        coordinator = Coordinator({"orders": 1})
        consumer = Consumer(coordinator, "m1", ("orders", "later"))
        consumer.beat()
        coordinator.set_topics({"orders": 1, "later": 2})
        settle([consumer])
        assert consumer.partitions() == {("orders", 0), ("later", 0), ("later", 1)}

    def test_rejoining_without_leaving_keeps_the_partitions(self) -> None:
        coordinator = Coordinator()
        coordinator.heartbeat()
        answer = coordinator.heartbeat()
        assert answer.assignment is not None and len(answer.assignment.topic_partitions[0].partitions) == 3
        assert answer.member_epoch == 2


class TestAnswers:
    def test_what_did_not_change_is_not_told_again(self) -> None:
        _, first, _ = two_members()
        assert first.beat().assignment is None

    def test_a_full_request_is_told_everything(self) -> None:
        _, first, _ = two_members()
        answer = first.beat(topics=["orders"], rebalance_timeout_ms=60_000)
        assert answer.assignment is not None

    def test_settings_of_the_group_hold(self) -> None:
        coordinator = Coordinator(consumer_heartbeat_interval_ms=777, consumer_session_timeout_ms=9_000)
        assert coordinator.heartbeat().heartbeat_interval == timedelta(milliseconds=777)
        assert coordinator.timers[TimerKey(SESSION, GROUP, "m1")] == coordinator.now_ms + 9_000


class TestRefusals:
    @pytest.mark.parametrize(
        ("fields", "version"),
        [
            ({"member_id": ""}, 1),
            ({"member_id": " "}, 1),
            ({"member_id": "", "epoch": 1}, 0),
            ({"member_id": "", "epoch": -1}, 0),
            ({"group_id": ""}, 1),
            ({"instance_id": ""}, 1),
            ({"rack_id": " "}, 1),
            ({"rebalance_timeout_ms": -1}, 1),
            ({"owned": {ORDERS: [0]}}, 1),
            ({"epoch": -2}, 1),
            ({"epoch": -3, "instance_id": "i"}, 1),
        ],
    )
    def test_requests_that_contradict_themselves(self, fields: dict[str, Any], version: int) -> None:
        coordinator = Coordinator()
        assert coordinator.heartbeat(Client(version=version), **fields).error_code is ErrorCode.invalid_request
        assert not coordinator.log

    def test_an_assignor_that_is_not_there(self) -> None:
        answer = Coordinator().heartbeat(server_assignor="sticky")
        assert answer.error_code is ErrorCode.unsupported_assignor
        assert answer.error_message is not None and "uniform, range" in answer.error_message

    def test_heartbeats_of_strangers(self) -> None:
        coordinator = Coordinator()
        assert coordinator.heartbeat(epoch=1).error_code is ErrorCode.group_id_not_found
        assert coordinator.heartbeat(epoch=-1).error_code is ErrorCode.group_id_not_found
        coordinator.heartbeat()
        assert coordinator.heartbeat(member_id="m2", epoch=1).error_code is ErrorCode.unknown_member_id
        assert coordinator.heartbeat(member_id="m2", epoch=-1).error_code is ErrorCode.unknown_member_id

    def test_a_full_group_takes_nobody_new(self) -> None:
        coordinator = Coordinator(consumer_max_size=1)
        coordinator.heartbeat()
        assert coordinator.heartbeat(member_id="m2").error_code is ErrorCode.group_max_size_reached
        assert coordinator.heartbeat().error_code is ErrorCode.none

    def test_epochs_that_are_not_the_members(self) -> None:
        coordinator, _, second = two_members()
        for epoch in (second.epoch + 1, second.epoch - 2):
            answer = coordinator.heartbeat(member_id="m2", epoch=epoch, owned={})
            assert answer.error_code is ErrorCode.fenced_member_epoch

    def test_the_previous_epoch_is_accepted_of_who_has_nothing_else(self) -> None:
        coordinator = Coordinator()
        coordinator.heartbeat(topics=[])
        coordinator.heartbeat(epoch=1, topics=["orders"], owned={})
        assert coordinator.heartbeat(epoch=1, owned={}).member_epoch == 2
        assert coordinator.heartbeat(epoch=1, owned={ORDERS: [0]}).error_code is ErrorCode.none
        assert coordinator.heartbeat(epoch=1).error_code is ErrorCode.fenced_member_epoch
        answer = coordinator.heartbeat(epoch=1, owned={ORDERS: [7]})
        assert answer.error_code is ErrorCode.fenced_member_epoch

    def test_a_pattern_that_does_not_compile(self) -> None:
        coordinator = Coordinator()
        answer = coordinator.heartbeat(subscribed_topic_regex="(")
        assert answer.error_code is ErrorCode.invalid_regular_expression
        assert not coordinator.log and not coordinator.timers


class TestLeaving:
    def test_partitions_of_who_leaves_go_to_the_others(self) -> None:
        coordinator, first, second = two_members()
        answer = second.leave()
        assert (answer.error_code, answer.member_id, answer.member_epoch) == (ErrorCode.none, "m2", -1)
        assert set(coordinator.group.members) == {"m1"}
        assert not any(key.member_id == "m2" for key in coordinator.timers)
        settle([first])
        assert len(first.partitions()) == 3

    def test_the_last_leaves_an_empty_group_behind(self) -> None:
        coordinator = Coordinator()
        consumer = Consumer(coordinator, "m1")
        consumer.beat()
        consumer.leave()
        assert coordinator.state() is ConsumerGroupState.EMPTY
        assert coordinator.group.epoch == 3
        assert coordinator.group.metadata_hash == 0

    def test_who_falls_silent_is_removed(self) -> None:
        coordinator, first, _ = two_members(consumer_session_timeout_ms=1_000)
        coordinator.advance(600)
        first.beat()
        coordinator.advance(600)
        assert set(coordinator.group.members) == {"m1"}

    def test_who_does_not_give_back_in_time_is_removed(self) -> None:
        coordinator = Coordinator()
        first = Consumer(coordinator, "m1", fields={"rebalance_timeout_ms": 2_000}, keeps=True)
        second = Consumer(coordinator, "m2")
        for consumer in (first, second, first):
            consumer.beat()
        coordinator.advance(1_500)
        first.beat()
        coordinator.advance(500)
        assert set(coordinator.group.members) == {"m2"}
        assert first.beat().error_code is ErrorCode.unknown_member_id


class TestStaticMembers:
    def test_an_instance_id_in_use_is_refused(self) -> None:
        coordinator = Coordinator()
        coordinator.heartbeat(instance_id="i")
        assert coordinator.heartbeat(member_id="m2", instance_id="i").error_code is ErrorCode.unreleased_instance_id
        answer = coordinator.heartbeat(member_id="m2", instance_id="i", epoch=2)
        assert answer.error_code is ErrorCode.fenced_instance_id
        answer = coordinator.heartbeat(member_id="m2", instance_id="i", epoch=-1)
        assert answer.error_code is ErrorCode.fenced_instance_id
        answer = coordinator.heartbeat(instance_id="other", epoch=2)
        assert answer.error_code is ErrorCode.unknown_member_id

    def test_who_comes_back_within_the_session_gets_its_partitions_without_a_rebalance(self) -> None:
        coordinator = Coordinator()
        first = Consumer(coordinator, "m1", fields={"instance_id": "i"})
        second = Consumer(coordinator, "m2")
        settle([first, second])
        had, epoch = first.partitions(), coordinator.group.epoch
        answer = first.leave(-2)
        assert answer.member_epoch == -2
        assert coordinator.state() is ConsumerGroupState.RECONCILING
        back = Consumer(coordinator, "m3", fields={"instance_id": "i"})
        back.beat()
        assert back.partitions() == had
        assert coordinator.group.epoch == epoch
        assert set(coordinator.group.members) == {"m2", "m3"}
        assert coordinator.state() is ConsumerGroupState.STABLE

    def test_who_does_not_come_back_is_removed_after_the_session(self) -> None:
        coordinator = Coordinator(consumer_session_timeout_ms=1_000)
        first = Consumer(coordinator, "m1", fields={"instance_id": "i"})
        first.beat()
        first.leave(-2)
        coordinator.advance(1_000)
        assert coordinator.group.is_empty

    def test_leaving_for_good(self) -> None:
        coordinator = Coordinator()
        consumer = Consumer(coordinator, "m1", fields={"instance_id": "i"})
        consumer.beat()
        consumer.leave(-1)
        assert coordinator.group.is_empty


class TestAssigning:
    def test_assignments_are_not_made_more_often_than_the_interval(self) -> None:
        coordinator = Coordinator(consumer_assignment_interval_ms=1_000)
        first, second = Consumer(coordinator, "m1"), Consumer(coordinator, "m2")
        first.beat()
        assert second.beat().member_epoch == 2
        assert coordinator.state() is ConsumerGroupState.ASSIGNING
        coordinator.advance(999)
        second.beat()
        assert coordinator.state() is ConsumerGroupState.ASSIGNING
        coordinator.advance(1)
        assert second.beat().member_epoch == 3
        settle([first, second])
        assert coordinator.state() is ConsumerGroupState.STABLE

    def test_an_assignment_of_a_clock_that_is_ahead_does_not_hold_up_the_next(self) -> None:
        coordinator = Coordinator(consumer_assignment_interval_ms=1_000)
        first, second = Consumer(coordinator, "m1"), Consumer(coordinator, "m2")
        first.beat()
        coordinator.now_ms -= 300_000
        assert second.beat().member_epoch == 3

    def test_most_members_choose_the_assignor(self) -> None:
        coordinator = Coordinator({"orders": 2, "payments": 2})
        consumers = [
            Consumer(coordinator, f"m{n}", ("orders", "payments"), {"server_assignor": "range"}) for n in range(2)
        ]
        settle(consumers)
        assert [sorted(consumer.partitions()) for consumer in consumers] == [
            [("orders", 0), ("payments", 0)],
            [("orders", 1), ("payments", 1)],
        ]
        assert coordinator.describe().assignor_name == "range"

    def test_an_assignor_that_is_no_longer_configured_is_not_used(self) -> None:
        coordinator = Coordinator()
        coordinator.heartbeat(server_assignor="range")
        again = Coordinator(log=coordinator.log, consumer_assignors=("uniform",))
        assert again.heartbeat(member_id="m2").error_code is ErrorCode.none

    def test_more_partitions_raise_the_epoch(self) -> None:
        coordinator, first, second = two_members()
        epoch = coordinator.group.epoch
        coordinator.set_topics({"orders": 6})
        settle([first, second])
        assert coordinator.group.epoch == epoch + 1
        assert len(first.partitions() | second.partitions()) == 6

    def test_topics_that_nobody_reads_change_nothing(self) -> None:
        coordinator, first, second = two_members()
        log = list(coordinator.log)
        coordinator.set_topics({"orders": 3, "payments": 5})
        settle([first, second])
        assert coordinator.log == log

    def test_a_deleted_topic_is_taken_away(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1})
        consumer = Consumer(coordinator, "m1", ("orders", "payments"))
        consumer.beat()
        coordinator.set_topics({"orders": 1})
        settle([consumer])
        assert set(consumer.owned) == {ORDERS}

    def test_a_smaller_subscription_is_obeyed_before_the_next_assignment(self) -> None:
        coordinator = Coordinator({"orders": 1, "payments": 1}, consumer_assignment_interval_ms=1_000)
        consumer = Consumer(coordinator, "m1", ("orders", "payments"))
        consumer.beat()
        answer = consumer.beat(topics=["orders"])
        assert coordinator.state() is ConsumerGroupState.ASSIGNING
        assert answer.assignment is not None
        assert [topic.topic_id for topic in answer.assignment.topic_partitions] == [ORDERS]


class TestReload:
    def test_members_have_sessions_again(self) -> None:
        coordinator, first, second = two_members()
        again = coordinator.reloaded()
        assert {key.member_id for key in again.timers if key.kind == SESSION} == {"m1", "m2"}
        first.coordinator = second.coordinator = again
        assert first.beat().error_code is ErrorCode.none
        again.advance(45_000)
        assert again.group.is_empty

    def test_a_member_that_was_asked_to_give_back_still_is(self) -> None:
        coordinator = Coordinator()
        first = Consumer(coordinator, "m1", fields={"rebalance_timeout_ms": 2_000}, keeps=True)
        for consumer in (first, Consumer(coordinator, "m2"), first):
            consumer.beat()
        again = coordinator.reloaded()
        again.advance(2_000)
        assert set(again.group.members) == {"m2"}

    def test_tombstones_remove_the_group(self) -> None:
        coordinator, *_ = two_members()
        for record in coordinator.group.tombstones():
            coordinator.rules.replay(record)
        assert GROUP not in coordinator.table.groups
        for record in coordinator.log:
            if record.value is None:
                coordinator.rules.replay(record)
        assert GROUP not in coordinator.table.groups

    def test_what_older_brokers_wrote_is_read(self) -> None:
        coordinator = Coordinator()
        coordinator.heartbeat()
        topics = (CurrentTopicPartitions(ORDERS, (0, 1)), CurrentTopicPartitions(UUID(int=77), ()))
        for record in (
            CoordinatorRecord(
                ConsumerGroupCurrentMemberAssignmentKey(GROUP, "m1"),
                ConsumerGroupCurrentMemberAssignmentValue(2, 1, 99, topics, ()),
            ),
            CoordinatorRecord(ConsumerGroupPartitionMetadataKey(GROUP), ConsumerGroupPartitionMetadataValue(())),
        ):
            coordinator.rules.replay(record)
        member = coordinator.group.members["m1"]
        assert (member.state, member.assigned) == (MemberState.UNKNOWN, {ORDERS: {0: 2, 1: 2}})
        assert coordinator.heartbeat(epoch=2).error_code is ErrorCode.fenced_member_epoch
        answer = coordinator.heartbeat()
        assert answer.assignment is not None and answer.assignment.topic_partitions[0].partitions == (0, 1, 2)
        coordinator.set_topics({"orders": 4})
        coordinator.heartbeat(epoch=answer.member_epoch)
        assert not coordinator.group.has_partition_metadata


def test_only_a_member_that_is_where_it_is_to_be_and_says_nothing_new_is_still_there() -> None:
    coordinator, client = Coordinator(), Client()
    epoch = coordinator.heartbeat().member_epoch
    coordinator.heartbeat(epoch=epoch)

    def is_there(member: str = "m1", epoch: int = epoch, name: str = client.client_id, host: str = "/10.0.0.1") -> bool:
        return coordinator.rules.still_there(GROUP, member, epoch, name, host) is not None

    assert is_there()
    assert not is_there(member="m2")
    assert not is_there(epoch=epoch - 1)
    assert not is_there(epoch=epoch + 1)
    assert not is_there(name="another client")
    assert not is_there(host="/10.0.0.2")
    coordinator.set_topics({"orders": 4})
    assert not is_there(), "its topics have to be compared"


def test_only_a_member_that_keeps_what_it_has_and_says_nothing_new_steps() -> None:
    coordinator, client = Coordinator({"orders": 1}), Client()
    epoch = coordinator.heartbeat().member_epoch
    coordinator.heartbeat(epoch=epoch)

    def steps(member: str = "m1", epoch: int = epoch, name: str = client.client_id, host: str = "/10.0.0.1") -> bool:
        return coordinator.rules.step(GROUP, member, epoch, name, host, coordinator.now_ms) is not None

    assert not steps(), "it is where it is to be"
    coordinator.heartbeat(member_id="m2")
    assert steps()
    assert not steps(member="m3")
    assert not steps(epoch=epoch - 1)
    assert not steps(epoch=epoch + 1)
    assert not steps(name="another client")
    assert not steps(host="/10.0.0.2")
    coordinator.heartbeat(epoch=epoch)
    assert coordinator.stepped == 1
    assert not steps()
    coordinator.heartbeat(member_id="m2", epoch=-1)
    behind = coordinator.group.member("m1").epoch
    assert not steps(epoch=behind), "there is no target assignment yet"
    coordinator.heartbeat(member_id="m3")
    assert steps(epoch=behind)
    coordinator.set_topics({"orders": 4})
    assert not steps(epoch=behind), "its topics have to be compared"
