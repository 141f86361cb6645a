"""Leaders that move because somebody wants them to."""

from __future__ import annotations

from uuid import UUID

import pytest

from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from barnabas.machines.controller.machine import ControllerMachine
from barnabas.machines.controller.requests import MoveLeader
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.model.errors import UnknownTopicOrPartition


def machine(partition: PartitionImage, *up: int) -> ControllerMachine:
    topic = TopicImage("t", UUID(int=1), (partition,))
    endpoints = {"PLAINTEXT": Endpoint("h", 9092)}
    brokers = {number: BrokerImage(broker_id=number, epoch=number, endpoints=endpoints) for number in up}
    image = ClusterImage(topics={"t": topic}, topic_names={topic.topic_id: "t"}, brokers=brokers)
    return ControllerMachine(image, TopicDefaults(), lambda: UUID(int=9))


@pytest.mark.parametrize(
    ("replicas", "isr", "up", "leader"),
    [
        ((1,), (1,), (1,), 1),
        ((1, 2, 3), (1, 2, 3), (1, 2, 3), 2),
        ((1, 2, 3), (1, 3), (1, 2, 3), 3),
        ((1, 2, 3), (1, 2, 3), (1, 3), 3),
    ],
)
def test_a_leader_moves_to_the_next_replica_in_sync_in_a_new_epoch(
    replicas: tuple[int, ...], isr: tuple[int, ...], up: tuple[int, ...], leader: int
) -> None:
    before = PartitionImage(0, 1, 4, replicas, isr, 7)
    decider = machine(before, *up)
    outcome = decider.handle(MoveLeader("t", 0))
    decider.replay(outcome.changes)
    after = decider.image.partition("t", 0)
    assert after is not None
    assert (after.leader, after.leader_epoch, after.partition_epoch) == (leader, 5, 8)
    assert dict(outcome.replies) == {"t": decider.image.topic("t")}


@pytest.mark.parametrize(("topic", "index"), [("u", 0), ("t", 1), ("t", -1)])
def test_what_is_not_there_cannot_be_moved(topic: str, index: int) -> None:
    outcome = machine(PartitionImage(0, 1, 0, (1,), (1,)), 1).handle(MoveLeader(topic, index))
    ((_, answer),) = outcome.replies
    assert isinstance(answer, UnknownTopicOrPartition)
    assert outcome.changes == ()
