"""The controller's rules for topics."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

from barnabas.machines.controller.changes import ConfigChanged, TopicChanged
from barnabas.machines.controller.image import (
    ALL_BROKERS,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    Endpoint,
    TopicImage,
)
from barnabas.machines.controller.machine import Answer, ControllerMachine, Key
from barnabas.machines.controller.requests import (
    AlterConfigs,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ForgetBroker,
    NewPartitions,
    Registered,
    Request,
    TopicToCreate,
)
from barnabas.machines.controller.topics import TopicDefaults
from barnabas.model.errors import (
    ApiError,
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def machine(brokers: int = 3, defaults: TopicDefaults | None = None) -> ControllerMachine:
    ids = count(100)
    registered = {
        number: BrokerImage(broker_id=number, epoch=number, endpoints={"PLAINTEXT": Endpoint("host", 9092)})
        for number in range(1, brokers + 1)
    }
    return ControllerMachine(ClusterImage(brokers=registered), defaults or TopicDefaults(), lambda: UUID(int=next(ids)))


def run(controller: ControllerMachine, request: Request) -> Mapping[Key, Answer]:
    outcome = controller.handle(request)
    controller.replay(outcome.changes)
    return dict(outcome.replies)


def create(controller: ControllerMachine, *topics: TopicToCreate) -> Mapping[Key, Answer]:
    return run(controller, CreateTopics(topics))


def made(answer: Answer) -> TopicImage:
    assert isinstance(answer, TopicImage), answer
    return answer


def refused(answer: Answer, error: type[ApiError], message: str) -> None:
    assert type(answer) is error
    assert message in str(answer)


def test_creates_a_topic_with_all_of_its_partitions() -> None:
    controller = machine()
    topic = made(create(controller, TopicToCreate("orders", 6, 2, configs={"retention.ms": "5"}))["orders"])
    assert topic.topic_id == UUID(int=100)
    assert [partition.index for partition in topic.partitions] == list(range(6))
    for partition in topic.partitions:
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert len(set(partition.replicas)) == 2
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    image = controller.image
    assert image.topic("orders") is topic
    assert image.topic_by_id(UUID(int=100)) is topic
    assert image.partition("orders", 5) is topic.partitions[5]
    assert image.partition("orders", 6) is None
    assert image.topic_config("orders") == {"retention.ms": "5"}


def test_uses_the_defaults_for_what_is_left_open() -> None:
    controller = machine(defaults=TopicDefaults(4, 3))
    topic = made(create(controller, TopicToCreate("t"))["t"])
    assert len(topic.partitions) == 4
    assert all(len(partition.replicas) == 3 for partition in topic.partitions)


def test_deals_leaders_out_over_topics_of_one_partition() -> None:
    controller = machine()
    answers = create(controller, *(TopicToCreate(f"t{number}", 1, 1) for number in range(6)))
    leaders = [made(answers[f"t{number}"]).partitions[0].leader for number in range(6)]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_validate_only_changes_nothing() -> None:
    controller = machine()
    answers = run(controller, CreateTopics([TopicToCreate("t", 2, 1), TopicToCreate("", 1, 1)], validate_only=True))
    assert len(made(answers["t"]).partitions) == 2
    refused(answers[""], InvalidTopic, "empty")
    assert not controller.image.topics


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a b", "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("ä", "contains one or more characters"),
        ("a/b", "contains one or more characters"),
    ],
)
def test_refuses_names_that_no_topic_may_have(name: str, message: str) -> None:
    refused(create(machine(), TopicToCreate(name, 1, 1))[name], InvalidTopic, message)


def test_takes_the_longest_name() -> None:
    name = "x" * 249
    assert made(create(machine(), TopicToCreate(name, 1, 1))[name])


def test_refuses_what_exists_or_collides() -> None:
    controller = machine()
    create(controller, TopicToCreate("a.b", 1, 1))
    refused(create(controller, TopicToCreate("a.b", 1, 1))["a.b"], TopicAlreadyExists, "Topic 'a.b' already exists.")
    refused(create(controller, TopicToCreate("a_b", 1, 1))["a_b"], InvalidTopic, "collides with existing topic: a.b")
    answers = create(controller, TopicToCreate("c_d", 1, 1), TopicToCreate("c.d", 1, 1), TopicToCreate("cxd", 1, 1))
    made(answers["c_d"])
    refused(answers["c.d"], InvalidTopic, "collides")
    made(answers["cxd"])
    run(controller, DeleteTopics(["a.b"]))
    made(create(controller, TopicToCreate("a_b", 1, 1))["a_b"])


def test_refuses_invalid_configs_unless_the_name_is_refused_first() -> None:
    controller = machine()
    invalid = InvalidConfig("retention.ms is not a number")
    create(controller, TopicToCreate("known", 1, 1))
    refused(create(controller, TopicToCreate("t", 1, 1, config_error=invalid))["t"], InvalidConfig, "not a number")
    refused(
        create(controller, TopicToCreate("known", 1, 1, config_error=invalid))["known"], TopicAlreadyExists, "exists"
    )
    refused(create(controller, TopicToCreate(".", 1, 1, config_error=invalid))["."], InvalidTopic, "'.' is not allowed")
    assert list(controller.image.topics) == ["known"]


def test_an_internal_topic_keeps_its_number_of_partitions() -> None:
    controller = machine()
    create(controller, TopicToCreate("__consumer_offsets", 1, 1))
    answers = run(controller, CreatePartitions([NewPartitions("__consumer_offsets", 2)]))
    refused(answers["__consumer_offsets"], InvalidRequest, "cannot have more partitions")


def test_refuses_the_topic_of_another_protocol_and_names_given_twice() -> None:
    answers = create(
        machine(), TopicToCreate("__cluster_metadata", 1, 1), TopicToCreate("t", 1, 1), TopicToCreate("t", 2, 1)
    )
    refused(answers["__cluster_metadata"], InvalidRequest, "prohibited")
    refused(answers["t"], InvalidRequest, "Duplicate topic name.")


@pytest.mark.parametrize(
    ("topic", "error", "message"),
    [
        (TopicToCreate("t", 0, 1), InvalidPartitions, "invalid non-positive value"),
        (TopicToCreate("t", -2, 1), InvalidPartitions, "invalid non-positive value"),
        (TopicToCreate("t", 1, 0), InvalidReplicationFactor, "must be larger than 0"),
        (TopicToCreate("t", 1, 4), InvalidReplicationFactor, "because only 3 broker(s) are registered"),
        (TopicToCreate("t", 10_001, 1), PolicyViolation, "Excessively large number of partitions per request."),
        (TopicToCreate("t", 2**31 - 1, 1), PolicyViolation, "Excessively large number of partitions per request."),
        (TopicToCreate("t", 1, -1, [(0, [1])]), InvalidRequest, "numPartitions was not set to -1"),
        (TopicToCreate("t", -1, 1, [(0, [1])]), InvalidRequest, "replication factor was not set to -1"),
        (TopicToCreate("t", assignments=[(0, [1]), (0, [2])]), InvalidReplicaAssignment, "multiple manual"),
        (TopicToCreate("t", assignments=[(0, [1]), (2, [2])]), InvalidReplicaAssignment, "consecutive 0-based"),
        (TopicToCreate("t", assignments=[(0, [])]), InvalidReplicaAssignment, "empty replica list"),
        (TopicToCreate("t", assignments=[(0, [9])]), InvalidReplicaAssignment, "broker 9, but no such broker"),
        (TopicToCreate("t", assignments=[(0, [1, 1])]), InvalidReplicaAssignment, "broker 1 more than once"),
        (TopicToCreate("t", assignments=[(0, [1]), (1, [1, 2])]), InvalidReplicaAssignment, "not consistent"),
    ],
)
def test_refuses_what_cannot_be_placed(topic: TopicToCreate, error: type[ApiError], message: str) -> None:
    refused(create(machine(), topic)["t"], error, message)


def test_limits_all_topics_of_a_request_together() -> None:
    answers = create(machine(), TopicToCreate("a", 6000, 1), TopicToCreate("b", 4001, 1))
    refused(answers["a"], PolicyViolation, "Excessively")
    refused(answers["b"], PolicyViolation, "Excessively")


def test_follows_a_manual_assignment() -> None:
    topic = made(create(machine(), TopicToCreate("t", assignments=[(1, [2, 3]), (0, [3, 1])]))["t"])
    assert [partition.replicas for partition in topic.partitions] == [(3, 1), (2, 3)]
    assert [partition.leader for partition in topic.partitions] == [3, 2]


def test_deletes_topics_with_their_settings() -> None:
    controller = machine()
    topic = made(create(controller, TopicToCreate("t", 1, 1, configs={"retention.ms": "1"}))["t"])
    answers = run(controller, DeleteTopics(["t", "unknown", "twice", "twice"]))
    assert answers["t"] is topic
    refused(answers["unknown"], UnknownTopicOrPartition, "no topic 'unknown'")
    refused(answers["twice"], InvalidRequest, "Duplicate")
    assert controller.image.topic_by_id(topic.topic_id) is None
    assert controller.image.configs == {}


def test_a_topic_made_again_has_another_id_and_none_of_the_old_settings() -> None:
    controller = machine()
    old = made(create(controller, TopicToCreate("t", 1, 1, configs={"retention.ms": "1"}))["t"])
    run(controller, DeleteTopics(["t"]))
    new = made(create(controller, TopicToCreate("t", 1, 1))["t"])
    assert new.topic_id != old.topic_id
    assert controller.image.topic_config("t") == {}


def test_adds_partitions_in_turn() -> None:
    controller = machine()
    create(controller, TopicToCreate("other", 1, 1))
    before = made(create(controller, TopicToCreate("t", 2, 1))["t"])
    after = made(run(controller, CreatePartitions([NewPartitions("t", 6)]))["t"])
    assert after.partitions[:2] == before.partitions
    assert after.topic_id == before.topic_id
    leaders = [partition.leader for partition in after.partitions]
    assert sorted(leaders) == [1, 1, 2, 2, 3, 3]


def test_adds_partitions_by_hand_or_only_says_that_it_could() -> None:
    controller = machine()
    create(controller, TopicToCreate("t", 1, 1))
    wanted = CreatePartitions([NewPartitions("t", 3, [[2], [2]])], validate_only=True)
    assert len(made(run(controller, wanted)["t"]).partitions) == 3
    assert len(controller.image.topics["t"].partitions) == 1
    run(controller, CreatePartitions(wanted.topics))
    assert [partition.leader for partition in controller.image.topics["t"].partitions][1:] == [2, 2]


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (NewPartitions("nothing", 3), UnknownTopicOrPartition, "no topic"),
        (NewPartitions("t", 2), InvalidPartitions, "Topic already has 2 partition(s)."),
        (NewPartitions("t", 1), InvalidPartitions, "currently has 2 partition(s); 1 would not be an increase."),
        (NewPartitions("t", 10_003), PolicyViolation, "Excessively"),
        (NewPartitions("t", 2**31 - 1), PolicyViolation, "Excessively"),
        (NewPartitions("t", 4, [[1]]), InvalidReplicaAssignment, "add 2 additional partition(s), but only 1"),
        (NewPartitions("t", 3, [[9]]), InvalidReplicaAssignment, "broker 9"),
        (NewPartitions("t", 3, [[1, 2]]), InvalidReplicaAssignment, "not consistent"),
    ],
)
def test_refuses_partitions_that_cannot_be_added(request_: NewPartitions, error: type[ApiError], message: str) -> None:
    controller = machine()
    create(controller, TopicToCreate("t", 2, 1))
    refused(run(controller, CreatePartitions([request_]))[request_.name], error, message)


def test_replaces_settings_as_a_whole() -> None:
    controller = machine()
    create(controller, TopicToCreate("t", 1, 1, configs={"a": "1", "b": "2"}))
    topic, broker, unknown = ConfigResource.topic("t"), ConfigResource.broker(1), ConfigResource.topic("unknown")
    answers = run(
        controller, AlterConfigs({topic: {"b": "3"}, broker: {"c": "4"}, ALL_BROKERS: {"d": "5"}, unknown: {}})
    )
    assert answers[topic] is answers[broker] is answers[ALL_BROKERS] is None
    refused(answers[unknown], UnknownTopicOrPartition, "unknown")
    assert controller.image.config(topic) == {"b": "3"}
    assert controller.image.config(broker) == {"c": "4"}
    assert controller.image.config(ALL_BROKERS) == {"d": "5"}


def test_deciding_changes_nothing_until_it_is_replayed() -> None:
    controller = machine()
    before = controller.image
    outcome = controller.handle(CreateTopics([TopicToCreate("t", 1, 1)]))
    assert controller.image is before
    settings, topic = outcome.changes
    assert settings == ConfigChanged(ConfigResource.topic("t"), None, {})
    assert isinstance(topic, TopicChanged)
    controller.replay(outcome.changes)
    assert before.topics == {}
    assert controller.image.topics.keys() == {"t"}


class TestBrokersThatAreAway:
    def away(self, up: int, away: int) -> ControllerMachine:
        """A cluster in which the brokers with the highest ids went."""
        cluster = machine(up + away)
        staying = {number: cluster.image.brokers[number] for number in range(1, up + 1)}
        run(cluster, Registered(cluster.image.brokers))
        run(cluster, Registered(staying))
        return cluster

    def test_a_topic_may_have_replicas_on_them_and_is_in_sync_without_them(self) -> None:
        cluster = self.away(up=2, away=1)
        made = run(cluster, CreateTopics([TopicToCreate("t", 4, 3)]))["t"]
        assert isinstance(made, TopicImage)
        for partition in made.partitions:
            assert sorted(partition.replicas) == [1, 2, 3] and partition.replicas[-1] == 3
            assert sorted(partition.isr) == [1, 2]
        assert sorted(partition.leader for partition in made.partitions) == [1, 1, 2, 2]

    def test_they_are_taken_last_and_in_turn(self) -> None:
        cluster = self.away(up=3, away=3)
        for factor, replicas in ((3, {1, 2, 3}), (4, {1, 2, 3, 4, 5, 6})):
            made = run(cluster, CreateTopics([TopicToCreate(f"t{factor}", 6, factor)]))[f"t{factor}"]
            assert isinstance(made, TopicImage)
            assert {each for partition in made.partitions for each in partition.replicas} == replicas

    def test_they_may_be_named_beside_one_that_is_up(self) -> None:
        cluster = self.away(up=1, away=1)
        made = run(cluster, CreateTopics([TopicToCreate("t", assignments=((0, (2, 1)),))]))["t"]
        assert isinstance(made, TopicImage)
        assert (made.partitions[0].leader, made.partitions[0].isr) == (1, (1,))
        refused = run(cluster, CreateTopics([TopicToCreate("u", assignments=((0, (2,)),))]))["u"]
        assert isinstance(refused, InvalidReplicaAssignment) and "are fenced" in str(refused)
        grown = run(cluster, CreatePartitions([NewPartitions("t", 2)]))["t"]
        assert isinstance(grown, TopicImage) and grown.partitions[1].replicas == (1, 2)

    def test_more_replicas_than_known_brokers_are_refused(self) -> None:
        refused = run(self.away(up=2, away=1), CreateTopics([TopicToCreate("t", 1, 4)]))["t"]
        assert isinstance(refused, InvalidReplicationFactor) and "only 3 broker(s) are registered" in str(refused)

    def test_a_broker_that_is_forgotten_gets_no_replicas(self) -> None:
        cluster = self.away(up=2, away=1)
        assert isinstance(run(cluster, ForgetBroker(2))[2], InvalidRequest), "it is up"
        assert isinstance(run(cluster, ForgetBroker(7))[7], BrokerIdNotRegistered)
        assert run(cluster, ForgetBroker(3)) == {3: None}
        assert isinstance(run(cluster, ForgetBroker(3))[3], BrokerIdNotRegistered)
        assert isinstance(run(cluster, CreateTopics([TopicToCreate("t", 1, 3)]))["t"], InvalidReplicationFactor)
