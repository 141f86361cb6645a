"""What a broker is told brings it to the controller's image, whatever it knew before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from barnabas.machines.controller.image import BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from barnabas.metadata.announcements import announcements
from barnabas.metadata.updates import led, updated
from barnabas.protocol.internal import FULL, LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

BROKER = BrokerImage(broker_id=1, epoch=10, endpoints={"PLAINTEXT": Endpoint("one", 9092)}, rack="r")
OTHER = BrokerImage(broker_id=2, epoch=11, endpoints={"PLAINTEXT": Endpoint("two", 9092)})


def partitions(count: int, epochs: st.SearchStrategy[int]) -> st.SearchStrategy[tuple[PartitionImage, ...]]:
    """Partitions whose contents their epochs alone determine, as the controller has it."""

    def made(numbers: list[int]) -> tuple[PartitionImage, ...]:
        return tuple(
            PartitionImage(index, 1 + epoch % 2, epoch, ((1, 2), (2,), (1,))[epoch % 3], (1 + epoch % 2,), epoch)
            for index, epoch in enumerate(numbers)
        )

    return st.lists(epochs, min_size=count, max_size=count + 2).map(made)


def topics(epochs: st.SearchStrategy[int]) -> st.SearchStrategy[Mapping[str, TopicImage]]:
    def topic(name: str) -> st.SearchStrategy[TopicImage]:
        ids = st.integers(1, 3).map(lambda number: UUID(int=number))
        return st.builds(TopicImage, st.just(name), ids, partitions(1, epochs))

    return st.sets(st.sampled_from("abc")).flatmap(
        lambda names: st.fixed_dictionaries({name: topic(name) for name in names})
    )


def image(found: Mapping[str, TopicImage], *brokers: BrokerImage) -> ClusterImage:
    return ClusterImage(
        controller_id=2,
        controller_epoch=3,
        brokers={broker.broker_id: broker for broker in brokers},
        topics=found,
        topic_names={topic.topic_id: name for name, topic in found.items()},
    )


def no_partition_goes(old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]) -> bool:
    """A topic keeps the partitions that it has, under one id."""
    return all(
        old[name].topic_id != new[name].topic_id or len(old[name].partitions) <= len(new[name].partitions)
        for name in old.keys() & new.keys()
    )


def told(known: ClusterImage, before: ClusterImage | None, after: ClusterImage) -> ClusterImage:
    for message in announcements(before, after, BROKER):
        if isinstance(message, LeaderAndIsrRequest):
            known = led(known, message)
        elif isinstance(message, UpdateMetadataRequest):
            known = updated(known, message)
    return known


@settings(max_examples=50)
@given(topics(st.integers(0, 5)), topics(st.integers(6, 11)))
def test_a_broker_that_is_told_everything_knows_everything(
    old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]
) -> None:
    assume(no_partition_goes(old, new))
    after = image(new, BROKER, OTHER)
    found = told(image(old, BROKER), None, after)
    assert dict(found.topics) == dict(new)
    assert found.brokers.keys() == {1, 2}
    assert (found.controller_id, found.controller_epoch) == (2, 3)


@settings(max_examples=50)
@given(topics(st.integers(0, 5)), topics(st.integers(6, 11)))
def test_a_broker_that_is_told_what_changed_knows_everything(
    old: Mapping[str, TopicImage], new: Mapping[str, TopicImage]
) -> None:
    assume(no_partition_goes(old, new))
    before, after = image(old, BROKER), image(new, BROKER, OTHER)
    assert dict(told(before, before, after).topics) == dict(new)


def test_nothing_new_is_not_told() -> None:
    known = image({}, BROKER, OTHER)
    assert list(announcements(known, known, BROKER)) == []
    assert list(announcements(known, replace(known, features={"f": 1}), BROKER)) == []


def test_a_replica_that_is_none_any_more_is_stopped() -> None:
    topic_id = UUID(int=1)
    before = TopicImage("a", topic_id, (PartitionImage(0, 2, 4, (1, 2), (1, 2), 6),))
    after = TopicImage("a", topic_id, (PartitionImage(0, 2, 5, (2,), (2,), 7),))
    first, second = announcements(image({"a": before}, BROKER), image({"a": after}, BROKER), BROKER)
    assert isinstance(first, StopReplicaRequest)
    (state,) = first.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 5, True)
    assert isinstance(second, UpdateMetadataRequest)
    assert second.type != FULL


def test_a_deleted_topic_is_stopped_and_gone() -> None:
    topic = TopicImage("a", UUID(int=1), (PartitionImage(0, 1, 4, (1,), (1,), 6),))
    before = image({"a": topic}, BROKER)
    first, _ = announcements(before, image({}, BROKER), BROKER)
    assert isinstance(first, StopReplicaRequest)
    assert dict(told(before, before, image({}, BROKER)).topics) == {}


def test_a_replica_that_was_lost_with_a_disk_is_told_as_offline_until_its_broker_is_back() -> None:
    topic = TopicImage(
        "a", UUID(int=1), (PartitionImage(0, 1, 4, (1, 2), (1,), 6), PartitionImage(1, 1, 4, (1, 2), (1,), 6))
    )
    whole = image({"a": topic}, BROKER, OTHER)
    lost = replace(whole, failed={2: frozenset({("a", 0)})})
    found = told(whole, whole, lost)
    assert found.offline_replicas("a", topic.partitions[0]) == (2,)
    assert found.offline_replicas("a", topic.partitions[1]) == ()
    assert dict(told(image({}, BROKER), None, lost).failed) == dict(lost.failed)
    assert dict(told(found, lost, whole).failed) == {}


def test_messages_name_the_registration_that_they_are_for() -> None:
    for message in announcements(None, image({}, BROKER), BROKER):
        assert message.broker_epoch == BROKER.epoch
