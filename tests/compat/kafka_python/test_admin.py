"""kafka-python's admin client: topics, partitions, configs, records, log directories."""

from __future__ import annotations

import uuid
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource
from kafka.errors import InvalidTopicError, OffsetOutOfRangeError, TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.compat.conftest import TopicMaker


@pytest.fixture
def client(bootstrap: str) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as opened:
        yield opened


def configs(client: KafkaAdminClient, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = client.describe_configs([ConfigResource("topic", topic)], config_filter="all")
    return {key: entry["value"] for key, entry in found["topic"][topic].items()}


def fill(bootstrap: str, topic: str, count: int) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)
        producer.flush(30)


def test_a_topic_is_made_described_grown_and_deleted(client: KafkaAdminClient, unused_topic: str) -> None:
    client.create_topics(
        {unused_topic: {"num_partitions": 2, "replication_factor": 1, "configs": {"retention.ms": "5000000"}}},
        wait_for_metadata=True,
    )
    assert unused_topic in client.list_topics()
    [described] = client.describe_topics([unused_topic])
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1]
    client.create_partitions({unused_topic: 4})
    wait_until(lambda: len(client.describe_topics([unused_topic])[0]["partitions"]) == 4, "four partitions")
    [by_id] = client.describe_topics([uuid.UUID(described["topic_id"])])
    assert by_id["name"] == unused_topic
    client.delete_topics([unused_topic])
    wait_until(lambda: unused_topic not in client.list_topics(), "the topic to be gone")


def test_refusals_are_told(client: KafkaAdminClient, new_topic: TopicMaker, unused_topic: str) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        client.create_topics([new_topic()])
    with pytest.raises(InvalidTopicError):
        client.create_topics(["no spaces, please"])
    with pytest.raises(UnknownTopicOrPartitionError):
        client.delete_topics([unused_topic])


@pytest.mark.parametrize("incremental", [True, False])
def test_configs_are_altered_and_reset(client: KafkaAdminClient, new_topic: TopicMaker, incremental: bool) -> None:
    topic = new_topic(1, {"retention.ms": "5000000"})
    answer = client.alter_configs([ConfigResource("topic", topic, {"segment.ms": "70000"})], incremental=incremental)
    assert answer == {"topic": {topic: "OK"}}
    wait_until(lambda: configs(client, topic)["segment.ms"] == "70000", "segment.ms")
    assert configs(client, topic)["retention.ms"] == "5000000"
    client.reset_configs([ConfigResource("topic", topic, {"retention.ms": None})], incremental=incremental)
    wait_until(lambda: configs(client, topic)["retention.ms"] == "604800000", "retention.ms")


def test_records_are_deleted(client: KafkaAdminClient, bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    fill(bootstrap, topic, 30)
    place = TopicPartition(topic, 0)
    assert client.delete_records({place: 12})[place]["low_watermark"] == 12
    with pytest.raises(OffsetOutOfRangeError):
        client.delete_records({place: 31})


def test_log_directories_tell_sizes(client: KafkaAdminClient, bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic, 100)
    [broker] = client.describe_log_dirs({topic: [0, 1]})
    [folder] = broker["log_dirs"]
    assert folder["error_code"] == 0
    assert folder["total_bytes"] > folder["usable_bytes"] > 0
    [found] = folder["topics"]
    sizes = {partition["partition_index"]: partition["partition_size"] for partition in found["partitions"]}
    assert sizes[0] > 100
    assert sizes[1] == 0


def test_the_cluster_is_described(client: KafkaAdminClient) -> None:
    described = client.describe_cluster()
    [broker] = described["brokers"]
    assert described["controller_id"] == broker["broker_id"]
