"""confluent-kafka's AdminClient: topics, partitions, configs, offsets, records, the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.compat.conftest import has_leaders
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


def refusal(future: Any) -> KafkaError:
    """The error with which a request was refused."""
    with pytest.raises(KafkaException) as refused:
        future.result(30)
    error: KafkaError = refused.value.args[0]
    return error


def configs(admin: AdminClient, kind: ResourceType, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(30)
    return found


def source(entry: ConfigEntry) -> ConfigSource:
    """Where a value comes from (the client hands over the number)."""
    return ConfigSource(entry.source)


def fill(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, f"{number}", partition=0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(30) == 0


def test_a_topic_is_made_listed_described_and_deleted(admin: AdminClient, unused_topic: str) -> None:
    config = {"retention.ms": "3600000", "cleanup.policy": "compact,delete"}
    admin.create_topics([NewTopic(unused_topic, 3, 1, config=config)])[unused_topic].result(30)
    wait_until(lambda: has_leaders(admin, unused_topic, 3), "leaders")
    listed = admin.list_topics(timeout=30)
    assert unused_topic in listed.topics
    described = admin.describe_topics(TopicCollection([unused_topic]))[unused_topic].result(30)
    assert described.name == unused_topic
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"
    assert not described.is_internal
    brokers = set(listed.brokers)
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader.id in brokers
        assert [node.id for node in partition.replicas] == [partition.leader.id]
        assert [node.id for node in partition.isr] == [partition.leader.id]
    found = configs(admin, ResourceType.TOPIC, unused_topic)
    assert {key: found[key].value for key in config} == config
    admin.delete_topics([unused_topic])[unused_topic].result(30)
    wait_until(lambda: unused_topic not in admin.list_topics(timeout=30).topics, "the topic to be gone")


def test_a_deleted_topic_comes_back_empty_with_another_id(
    admin: AdminClient, bootstrap: str, new_topic: TopicMaker
) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 10)
    first = admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, "the topic to be gone")
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    wait_until(lambda: has_leaders(admin, topic, 1), "leaders")
    assert str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id) != str(first)
    place = TopicPartition(topic, 0)
    assert admin.list_offsets({place: OffsetSpec.latest()})[place].result(30).offset == 0


def test_the_brokers_defaults_decide_where_nothing_is_said(admin: AdminClient, unused_topic: str) -> None:
    admin.create_topics([NewTopic(unused_topic)])[unused_topic].result(30)
    wait_until(lambda: has_leaders(admin, unused_topic, 1), "leaders")


def test_a_manual_assignment_is_followed(admin: AdminClient, unused_topic: str) -> None:
    [broker] = admin.list_topics(timeout=30).brokers
    topic = NewTopic(unused_topic, num_partitions=2, replica_assignment=[[broker], [broker]])
    admin.create_topics([topic])[unused_topic].result(30)
    wait_until(lambda: has_leaders(admin, unused_topic, 2), "leaders")


def test_validation_alone_makes_nothing(admin: AdminClient, unused_topic: str) -> None:
    admin.create_topics([NewTopic(unused_topic, 1, 1)], validate_only=True)[unused_topic].result(30)
    assert unused_topic not in admin.list_topics(timeout=30).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name!", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("refused", 0, 1), KafkaError.INVALID_PARTITIONS),
        (NewTopic("refused", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("refused", 1, 0), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("refused", 1, replica_assignment=[[99]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("refused", 1, 1, config={"no.such.key": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("refused", 1, 1, config={"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (NewTopic("refused", 1, 1, config={"compression.type": "rar"}), KafkaError.INVALID_CONFIG),
        (NewTopic("refused", 1, 1, config={"segment.bytes": "3"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:12] if isinstance(value, NewTopic) else KafkaError(value).name(),
)
def test_a_topic_that_makes_no_sense_is_refused(admin: AdminClient, topic: NewTopic, code: int) -> None:
    error = refusal(admin.create_topics([topic])[topic.topic])
    assert error.code() == code
    assert error.str()
    assert "refused" not in admin.list_topics(timeout=30).topics


def test_a_name_is_given_once(admin: AdminClient, new_topic: TopicMaker) -> None:
    topic = new_topic()
    error = refusal(admin.create_topics([NewTopic(topic, 1, 1)])[topic])
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_what_is_not_there_cannot_be_changed(admin: AdminClient, unused_topic: str) -> None:
    unknown = KafkaError.UNKNOWN_TOPIC_OR_PART
    assert refusal(admin.delete_topics([unused_topic])[unused_topic]).code() == unknown
    assert refusal(admin.create_partitions([NewPartitions(unused_topic, 3)])[unused_topic]).code() == unknown
    assert refusal(admin.describe_topics(TopicCollection([unused_topic]))[unused_topic]).code() == unknown
    resource = ConfigResource(ResourceType.TOPIC, unused_topic)
    assert refusal(admin.describe_configs([resource])[resource]).code() == unknown


def test_partitions_grow_and_never_shrink(admin: AdminClient, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(30)
    wait_until(lambda: has_leaders(admin, topic, 5), "leaders")
    for count in (5, 4):
        error = refusal(admin.create_partitions([NewPartitions(topic, count)])[topic])
        assert error.code() == KafkaError.INVALID_PARTITIONS


def test_topic_configs_are_told_with_their_source(admin: AdminClient, new_topic: TopicMaker) -> None:
    found = configs(admin, ResourceType.TOPIC, new_topic(1, {"segment.bytes": "2000000"}))
    assert found["segment.bytes"].value == "2000000"
    assert source(found["segment.bytes"]) is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert found["retention.ms"].value == "604800000"
    assert source(found["retention.ms"]) is ConfigSource.DEFAULT_CONFIG
    assert found["retention.ms"].is_default
    assert "log.retention.ms" not in found
    assert not any(entry.is_read_only or entry.is_sensitive for entry in found.values())


def test_topic_configs_are_altered_one_by_one(admin: AdminClient, new_topic: TopicMaker) -> None:
    topic = new_topic(1, {"retention.ms": "1000000"})

    def alter(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry: Any = ConfigEntry(name, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def value(key: str) -> str | None:
        return configs(admin, ResourceType.TOPIC, topic)[key].value

    alter("segment.ms", "60000", AlterConfigOpType.SET)
    wait_until(lambda: value("segment.ms") == "60000", "segment.ms")
    assert value("retention.ms") == "1000000"
    alter("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    wait_until(lambda: value("cleanup.policy") == "delete,compact", "cleanup.policy")
    alter("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    wait_until(lambda: value("cleanup.policy") == "compact", "cleanup.policy")
    alter("retention.ms", None, AlterConfigOpType.DELETE)
    wait_until(lambda: value("retention.ms") == "604800000", "retention.ms")


@pytest.mark.parametrize(
    ("key", "value"), [("retention.ms", "soon"), ("no.such.key", "1"), ("min.insync.replicas", "0")]
)
def test_an_alteration_that_makes_no_sense_is_refused(
    admin: AdminClient, new_topic: TopicMaker, key: str, value: str
) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, new_topic(), incremental_configs=[entry])
    error = refusal(admin.incremental_alter_configs([resource])[resource])
    assert error.code() == KafkaError.INVALID_CONFIG
    assert key in error.str()


def test_altering_all_at_once_forgets_the_rest(admin: AdminClient, new_topic: TopicMaker) -> None:
    topic = new_topic(1, {"retention.ms": "1000000", "segment.ms": "60000"})
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"segment.ms": "70000"})
    with pytest.warns(DeprecationWarning):
        done = admin.alter_configs([resource])
    done[resource].result(30)
    wait_until(lambda: configs(admin, ResourceType.TOPIC, topic)["segment.ms"].value == "70000", "segment.ms")
    assert configs(admin, ResourceType.TOPIC, topic)["retention.ms"].value == "604800000"


def test_broker_configs_are_told_and_altered(admin: AdminClient, new_topic: TopicMaker) -> None:
    [broker] = admin.list_topics(timeout=30).brokers
    before = configs(admin, ResourceType.BROKER, str(broker))
    assert before["log.segment.bytes"].value == "1073741824"
    assert before["log.dirs"].is_read_only
    topic = new_topic()

    def alter(value: str | None, operation: AlterConfigOpType) -> None:
        entry: Any = ConfigEntry("log.flush.interval.ms", value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(30)

    def flush_ms() -> ConfigEntry:
        return configs(admin, ResourceType.TOPIC, topic)["flush.ms"]

    alter("12345", AlterConfigOpType.SET)
    wait_until(lambda: flush_ms().value == "12345", "the topic to follow its broker")
    assert source(flush_ms()) is ConfigSource.DYNAMIC_BROKER_CONFIG
    alter(None, AlterConfigOpType.DELETE)
    wait_until(lambda: flush_ms().value == "9223372036854775807", "the topic to follow its broker")


def test_a_read_only_broker_config_is_not_altered(admin: AdminClient) -> None:
    [broker] = admin.list_topics(timeout=30).brokers
    entry = ConfigEntry("log.dirs", "/nowhere", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
    assert refusal(admin.incremental_alter_configs([resource])[resource]).code() == KafkaError.INVALID_REQUEST


def test_offsets_are_listed_by_every_specification(admin: AdminClient, bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    place = TopicPartition(topic, 0)

    def offset(specification: OffsetSpec) -> tuple[int, int]:
        found = admin.list_offsets({place: specification})[place].result(30)
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (0, -1)
    assert offset(OffsetSpec.max_timestamp()) == (-1, -1)
    fill(bootstrap, topic, 100)
    assert offset(OffsetSpec.earliest()) == (0, -1)
    assert offset(OffsetSpec.latest()) == (100, -1)
    assert offset(OffsetSpec.max_timestamp()) == (99, 1_700_000_000_099)
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_042)) == (42, 1_700_000_000_042)
    assert offset(OffsetSpec.for_timestamp(1_700_000_000_100)) == (-1, -1)


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 100)
    place = TopicPartition(topic, 0, 40)
    assert admin.delete_records([place])[place].result(30).low_watermark == 40
    assert admin.list_offsets({place: OffsetSpec.earliest()})[place].result(30).offset == 40
    everything = TopicPartition(topic, 0, -1)
    assert admin.delete_records([everything])[everything].result(30).low_watermark == 100
    beyond = TopicPartition(topic, 0, 101)
    assert refusal(admin.delete_records([beyond])[beyond]).code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_is_described(admin: AdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster().result(30)
    [node] = described.nodes
    assert described.controller.id == node.id
    assert described.cluster_id == admin.list_topics(timeout=30).cluster_id
    assert len(described.cluster_id) == 22
    assert node.port == int(bootstrap.rpartition(":")[2])
