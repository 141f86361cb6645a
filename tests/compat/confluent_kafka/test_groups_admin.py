"""confluent-kafka's admin client on groups: listing, describing, moving and deleting what they committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.support.group_scenarios import Crew, send, wait_until_stable
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.member import Committed, Place, places_of
from tests.support.members.waiting import wait_until_read, wait_until_shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from tests.compat.conftest import TopicMaker


@pytest.fixture
def crew(bootstrap: str) -> Iterator[Crew]:
    crew = Crew(ConfluentMember, bootstrap)
    yield crew
    crew.go_home()


def test_groups_are_listed_by_state_and_kind(admin: AdminClient, new_topic: TopicMaker, crew: Crew) -> None:
    topic = new_topic()
    left = crew.join(topic)
    wait_until_shared([left], places_of(topic, 1))
    left.leave()
    crew.kind = ConfluentConsumerProtocolMember
    stays = crew.join(topic, group=f"{crew.group}-new")
    wait_until_shared([stays], places_of(topic, 1))
    wait_until_stable(crew.bootstrap, f"{crew.group}-new")
    listed = {group.group_id: group for group in admin.list_consumer_groups().result(30).valid}
    assert listed[crew.group].state is ConsumerGroupState.EMPTY
    assert listed[crew.group].type is ConsumerGroupType.CLASSIC
    assert not listed[crew.group].is_simple_consumer_group
    assert listed[f"{crew.group}-new"].state is ConsumerGroupState.STABLE
    assert listed[f"{crew.group}-new"].type is ConsumerGroupType.CONSUMER
    stable = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(30).valid
    assert f"{crew.group}-new" in {group.group_id for group in stable}
    assert crew.group not in {group.group_id for group in stable}
    classic = admin.list_consumer_groups(types={ConsumerGroupType.CLASSIC}).result(30).valid
    assert crew.group in {group.group_id for group in classic}
    assert f"{crew.group}-new" not in {group.group_id for group in classic}


@pytest.mark.parametrize("kind", [ConfluentMember, ConfluentConsumerProtocolMember], ids=["classic", "consumer"])
def test_a_group_is_described(
    admin: AdminClient, new_topic: TopicMaker, crew: Crew, kind: type[ConfluentMember]
) -> None:
    topic = new_topic(4)
    crew.kind = kind
    members = [crew.join(topic, instance=name) for name in ("desk-1", "desk-2")]
    wait_until_shared(members, places_of(topic, 4))
    wait_until_stable(crew.bootstrap, crew.group)
    described = admin.describe_consumer_groups([crew.group])[crew.group].result(30)
    assert described.state is ConsumerGroupState.STABLE
    assert described.coordinator.port == int(crew.bootstrap.rpartition(":")[2])
    assert {member.group_instance_id for member in described.members} == {"desk-1", "desk-2"}
    assert {member.host for member in described.members} == {"/127.0.0.1"}
    held = [
        (place.topic, place.partition) for member in described.members for place in member.assignment.topic_partitions
    ]
    assert sorted(held) == sorted(places_of(topic, 4))


def test_offsets_are_moved_while_nobody_is_there(
    admin: AdminClient, bootstrap: str, new_topic: TopicMaker, crew: Crew
) -> None:
    topic = new_topic(2)
    sent = send(bootstrap, topic, 2, 20)
    reader = crew.join(topic)
    wait_until_read([reader], sent)
    reader.commit()
    moved = ConsumerGroupTopicPartitions(crew.group, [TopicPartition(topic, 0, 4), TopicPartition(topic, 1, 8)])
    refused = admin.alter_consumer_group_offsets([moved])[crew.group].result(30)
    assert {place.error.code() for place in refused.topic_partitions or [] if place.error} == {
        KafkaError.UNKNOWN_MEMBER_ID
    }
    reader.leave()
    admin.alter_consumer_group_offsets([moved])[crew.group].result(30)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(crew.group)])[crew.group].result(30)
    assert sorted((place.partition, place.offset) for place in found.topic_partitions or []) == [(0, 4), (1, 8)]
    successor = crew.join(topic)
    wait_until_read([successor], [b"record 8", b"record 17"])
    assert len(successor.read) == 8


def test_groups_are_deleted_when_they_are_empty(admin: AdminClient, new_topic: TopicMaker, crew: Crew) -> None:
    topic = new_topic()
    member = crew.join(topic)
    wait_until_shared([member], places_of(topic, 1))
    member.commit({Place(topic, 0): Committed(1)})
    deleted = admin.delete_consumer_groups([crew.group, "nobodys"])
    with pytest.raises(KafkaException) as refused:
        deleted[crew.group].result(30)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    with pytest.raises(KafkaException) as refused:
        deleted["nobodys"].result(30)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    member.leave()
    admin.delete_consumer_groups([crew.group])[crew.group].result(30)
    assert crew.group not in {group.group_id for group in admin.list_consumer_groups().result(30).valid}
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(crew.group)])[crew.group].result(30)
    assert not found.topic_partitions
