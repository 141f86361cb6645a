"""A consumer group as others see it: who may commit and fetch offsets, what is subscribed, how it is described."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.machines.controller.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from barnabas.machines.groups.consumer.describe import list_group
from barnabas.machines.groups.consumer.group import ConsumerGroup
from barnabas.machines.groups.consumer.metadata_hash import group_hash, topic_hash
from barnabas.model.errors import NonEmptyGroup, StaleMemberEpoch, UnknownMemberId, UnsupportedVersion
from tests.support.consumer_groups import Consumer, Coordinator, settle, topic_id

ORDERS = topic_id("orders")


@pytest.fixture
def group() -> ConsumerGroup:
    """m1 got all partitions in epoch 2, kept two of them in epoch 3, and m2 got the third in epoch 3."""
    coordinator = Coordinator()
    settle([Consumer(coordinator, "m1"), Consumer(coordinator, "m2")])
    assert [len(member.assigned[ORDERS]) for member in coordinator.group.members.values()] == [2, 1]
    return coordinator.group


class TestCommits:
    def test_members_in_their_epoch(self, group: ConsumerGroup) -> None:
        assert group.check_offset_commit("m1", None, 3, 9) is None

    def test_a_member_that_is_behind_commits_what_it_has_had_since(self, group: ConsumerGroup) -> None:
        check = group.check_offset_commit("m1", None, 2, 10)
        assert check is not None
        kept = sorted(group.members["m1"].assigned[ORDERS])
        for partition in kept:
            check("orders", ORDERS, partition)
        (lost,) = {0, 1, 2}.difference(kept)
        with pytest.raises(StaleMemberEpoch, match="is not assigned to member"):
            check("orders", ORDERS, lost)
        with pytest.raises(StaleMemberEpoch):
            check("orders", None, kept[0])

    def test_a_member_that_was_given_it_later_does_not(self, group: ConsumerGroup) -> None:
        check = group.check_offset_commit("m2", None, 2, 9)
        assert check is not None
        (partition,) = group.members["m2"].assigned[ORDERS]
        with pytest.raises(StaleMemberEpoch, match="lower than epoch 3"):
            check("orders", ORDERS, partition)

    def test_partitions_that_are_being_given_back_are_committed(self) -> None:
        coordinator = Coordinator()
        first = Consumer(coordinator, "m1", keeps=True)
        for consumer in (first, Consumer(coordinator, "m2"), first):
            consumer.beat()
        check = coordinator.group.check_offset_commit("m1", None, 1, 9)
        assert check is not None
        with pytest.raises(StaleMemberEpoch, match="lower"):
            check("orders", ORDERS, 0)
        assert coordinator.group.check_offset_commit("m1", None, 2, 9) is None

    def test_refused(self, group: ConsumerGroup) -> None:
        with pytest.raises(StaleMemberEpoch):
            group.check_offset_commit("m1", None, 4, 9)
        with pytest.raises(UnknownMemberId):
            group.check_offset_commit("m3", None, 3, 9)
        with pytest.raises(UnknownMemberId):
            group.check_offset_commit("", None, -1, 9)
        with pytest.raises(UnsupportedVersion):
            group.check_offset_commit("m1", None, 3, 8)

    def test_anybody_commits_to_an_empty_group(self) -> None:
        assert ConsumerGroup("g").check_offset_commit("", None, -1, 2) is None


def test_fetches(group: ConsumerGroup) -> None:
    group.check_offset_fetch(None, -1, 0)
    group.check_offset_fetch("m1", 3, 0)
    with pytest.raises(StaleMemberEpoch):
        group.check_offset_fetch("m1", 2, 0)
    with pytest.raises(UnknownMemberId):
        group.check_offset_fetch("m3", 3, 0)


def test_use_of_offsets(group: ConsumerGroup) -> None:
    assert group.offsets_unused_since(7, "orders") is None
    assert group.offsets_unused_since(7, "payments") == 7
    group.check_offset_delete()
    with pytest.raises(NonEmptyGroup):
        group.check_delete()
    ConsumerGroup("g").check_delete()


def test_description(group: ConsumerGroup) -> None:
    coordinator = Coordinator()
    first = Consumer(coordinator, "m1", keeps=True, fields={"rack_id": "r", "instance_id": "i"})
    for consumer in (first, Consumer(coordinator, "m2"), first):
        consumer.beat()
    described = coordinator.describe()
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    assert described.assignor_name == "uniform"
    member = described.members[0]
    assert (member.member_id, member.member_epoch, member.instance_id, member.rack_id) == ("m1", 2, "i", "r")
    assert (member.client_id, member.client_host, member.member_type) == ("a-client", "/10.0.0.1", 1)
    assert member.subscribed_topic_names == ("orders",)
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_name, assigned.partitions) == ("orders", (0, 1, 2))
    assert len(member.target_assignment.topic_partitions[0].partitions) == 2
    listed = list_group(coordinator.group)
    assert (listed.protocol_type, listed.group_state, listed.group_type) == ("consumer", "Reconciling", "consumer")


def test_hashes_are_kafkas() -> None:
    """The numbers are those of Apache Kafka 4.3.0's hashing of the same topic."""
    brokers = {
        number: BrokerImage(broker_id=number, epoch=1, endpoints={}, rack=rack)
        for number, rack in enumerate(["rack-é", "a", None])
    }
    topic = TopicImage(
        "orders",
        UUID("01234567-89ab-cdef-fedc-ba9876543210"),
        (PartitionImage(0, 0, 0, (0, 1), ()), PartitionImage(1, 2, 0, (2,), ())),
    )
    assert topic_hash(topic, brokers) == 6223700114446956081
    image = ClusterImage(topics={"orders": topic}, brokers=brokers)
    assert group_hash(["orders", "not there"], image, {}) == 7141008697377164025
    assert group_hash([], image, {}) == 0
