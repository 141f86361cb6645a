"""Which metadata updates a change causes, and which not."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from kio.static.primitive import i16, i32

from barnabas.machines.controller.image import PartitionImage, TopicImage
from barnabas.metadata.images.announcements import announcements
from barnabas.metadata.images.updates import stopped, updated
from barnabas.model.errors import InvalidRequest
from barnabas.protocol.messages.inter_broker import FULL, StopReplicaRequest, UpdateMetadataRequest
from tests.support.announced import BROKER, OTHER, applied, image


def test_nothing_new_is_not_applied() -> None:
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


def test_a_stopped_replica_is_gone_before_the_controller_says_who_has_the_partition() -> None:
    topic_id = UUID(int=1)
    led, followed = PartitionImage(0, 1, 4, (1, 2), (1, 2), 6), PartitionImage(1, 2, 4, (1, 2), (1, 2), 6)
    moved = PartitionImage(0, 2, 5, (2,), (2,), 7), PartitionImage(1, 2, 5, (2,), (2,), 7)
    before = image({"a": TopicImage("a", topic_id, (led, followed))}, BROKER)
    after = image({"a": TopicImage("a", topic_id, moved)}, BROKER)
    message, update = announcements(before, after, BROKER)
    assert isinstance(message, StopReplicaRequest)
    assert isinstance(update, UpdateMetadataRequest)
    between = stopped(before, message, 1)
    found = [(each.leader, each.leader_epoch, each.replicas, each.isr) for each in between.topics["a"].partitions]
    assert found == [(-1, 4, (2,), (2,)), (2, 4, (2,), (2,))]
    assert updated(between, update).topics == after.topics
    assert applied(between, None, before).topics == before.topics, (
        "it counts, although its epochs are those from before"
    )
    assert stopped(after, message, 1).topics == after.topics


def test_an_image_that_is_newer_than_a_stopped_replica_stays() -> None:
    topic_id = UUID(int=1)
    before = image({"a": TopicImage("a", topic_id, (PartitionImage(0, 1, 4, (1, 2), (1, 2), 6),))}, BROKER)
    after = image({"a": TopicImage("a", topic_id, (PartitionImage(0, 2, 5, (2,), (2,), 7),))}, BROKER)
    message, _ = announcements(before, after, BROKER)
    assert isinstance(message, StopReplicaRequest)
    back = image({"a": TopicImage("a", topic_id, (PartitionImage(0, 1, 6, (1, 2), (1, 2), 9),))}, BROKER)
    assert stopped(back, message, 1).topics == back.topics
    assert stopped(image({}, BROKER), message, 1).topics == {}


def test_a_deleted_topic_is_stopped_and_gone() -> None:
    topic = TopicImage("a", UUID(int=1), (PartitionImage(0, 1, 4, (1,), (1,), 6),))
    before = image({"a": topic}, BROKER)
    first, _ = announcements(before, image({}, BROKER), BROKER)
    assert isinstance(first, StopReplicaRequest)
    assert dict(applied(before, before, image({}, BROKER)).topics) == {}


def test_a_replica_that_was_lost_with_a_disk_is_told_as_offline_until_its_broker_is_back() -> None:
    topic = TopicImage(
        "a", UUID(int=1), (PartitionImage(0, 1, 4, (1, 2), (1,), 6), PartitionImage(1, 1, 4, (1, 2), (1,), 6))
    )
    whole = image({"a": topic}, BROKER, OTHER)
    lost = replace(whole, failed={2: frozenset({("a", 0)})})
    found = applied(whole, whole, lost)
    assert found.offline_replicas("a", topic.partitions[0]) == (2,)
    assert found.offline_replicas("a", topic.partitions[1]) == ()
    assert dict(applied(image({}, BROKER), None, lost).failed) == dict(lost.failed)
    assert dict(applied(found, lost, whole).failed) == {}


def test_a_disk_that_takes_a_replica_in_sync_and_one_that_was_not_leaves_no_leader_behind() -> None:
    topic_id = UUID(int=1)
    left = PartitionImage(0, 1, 4, (1, 2), (1,), 6), PartitionImage(1, 1, 4, (1, 2), (1, 2), 6)
    shrunk = replace(left[1], leader_epoch=5, isr=(1,), partition_epoch=7)
    right = PartitionImage(2, 1, 4, (1, 2), (1,), 6)
    before = image({"a": TopicImage("a", topic_id, (*left, right))}, BROKER, OTHER)
    after = TopicImage("a", topic_id, (left[0], shrunk, right))
    lost = replace(image({"a": after}, BROKER, OTHER), failed={2: frozenset({("a", 0), ("a", 1), ("a", 2)})})
    found = applied(before, before, lost)
    assert found.topics["a"] == after
    assert dict(found.failed) == dict(lost.failed)
    for message in announcements(before, lost, BROKER):
        assert [each.topic_name for each in message.topic_states] == ["a"], "a topic is named once"


def test_brokers_that_are_told_again_as_they_are_known_are_no_change() -> None:
    """Fetchers and channels look at everything that they have when brokers come, go or move."""
    topic = TopicImage("a", UUID(int=1), (PartitionImage(0, 1, 4, (1,), (1,), 6),))
    known = image({}, BROKER, OTHER)
    after = applied(known, known, image({"a": topic}, BROKER, OTHER))
    assert after.topics == {"a": topic}
    assert after.brokers is known.brokers
    assert applied(known, known, image({}, BROKER)).brokers == {1: BROKER}


def test_messages_name_the_registration_that_they_are_for() -> None:
    for message in announcements(None, image({}, BROKER), BROKER):
        assert message.broker_epoch == BROKER.epoch


def test_a_message_that_no_controller_sends_is_refused() -> None:
    known = image({}, BROKER)
    topic = TopicImage("a", UUID(int=1), (PartitionImage(0, 1, 4, (1,), (1,), 6),))
    message = next(
        each
        for each in announcements(None, image({"a": topic}, BROKER), BROKER)
        if isinstance(each, UpdateMetadataRequest)
    )
    (broker,), (state,) = message.live_brokers, message.topic_states
    (partition,), (endpoint,) = state.partition_states, broker.endpoints
    for index in (-1, 2**31 - 1):
        wrong = replace(state, partition_states=(replace(partition, partition_index=i32(index)),))
        with pytest.raises(InvalidRequest):
            updated(known, replace(message, topic_states=(wrong,)))
    for protocol in (-1, 4):
        listens = replace(broker, endpoints=(replace(endpoint, security_protocol=i16(protocol)),))
        with pytest.raises(InvalidRequest):
            updated(known, replace(message, live_brokers=(listens,)))
