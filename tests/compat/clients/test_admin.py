"""The admin client: what it can do beyond what `barnabas topics` asks of it."""

from __future__ import annotations

import pytest

from barnabas.clients.admin import Admin
from barnabas.clients.errors import RequestRefused
from barnabas.clients.producer import Producer
from barnabas.clients.records import TopicPartition
from barnabas.model.errors import ErrorCode


def test_offsets_are_found_and_records_deleted(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(10):
            producer.send(topic, "x", partition=1, timestamp=10_000 * (number + 1))
    with Admin(bootstrap) as admin:
        partitions = admin.partitions(topic)
        first, second = partitions[:2]
        assert admin.end_offsets(partitions) == {p: 10 if p == second else 0 for p in partitions}
        assert admin.offsets_at(35_000, [first, second]) == {first: None, second: 3}
        assert admin.delete_records({second: 4}) == {second: 4}
        assert admin.beginning_offsets([second]) == {second: 4}
        assert admin.end_offsets([]) == admin.delete_records({}) == {}


def test_a_topic_is_made_by_name_once(bootstrap: str, unused_topic: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(unused_topic, 3, configs={"segment.bytes": "1048576"})
        assert len(admin.partitions(unused_topic)) == 3
        with pytest.raises(RequestRefused) as caught:
            admin.create_topic(unused_topic, 3)
        assert caught.value.code == ErrorCode.topic_already_exists
        admin.create_topic(unused_topic, 3, exist_ok=True)
        admin.delete_topics(unused_topic)


def test_what_is_not_there_is_told(bootstrap: str, unused_topic: str) -> None:
    with Admin(bootstrap) as admin:
        with pytest.raises(RequestRefused):
            admin.partitions(unused_topic)
        with pytest.raises(RequestRefused):
            admin.end_offsets([TopicPartition(unused_topic, 0)])
