"""The admin client: what it can do beyond what `barnabas topics` asks of it."""

from __future__ import annotations

import threading
from contextlib import ExitStack, suppress
from functools import partial

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest

from barnabas.clients.admin.admin import Admin
from barnabas.clients.errors import BrokerUnreachable, RequestRefused
from barnabas.clients.producer.producer import Producer
from barnabas.clients.records import TopicPartition
from barnabas.clients.wire.connection import WireClient
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire.conversion import zero
from barnabas.testing.broker import Broker
from tests.support.waiting import wait_until


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
        for ask in (admin.partitions, admin.delete_topics):
            with pytest.raises(RequestRefused, match=f"^there is no topic {unused_topic}$"):
                ask(unused_topic)
        with pytest.raises(RequestRefused, match=f"^there is no partition {unused_topic}-0$"):
            admin.end_offsets([TopicPartition(unused_topic, 0)])


def test_groups_are_asked_again_after_all_brokers_were_away() -> None:
    """librdkafka would ask the broker that it has let go, in vain, or abort the process."""
    with Broker() as broker, ExitStack() as stack:
        with Admin(broker.bootstrap_servers) as patient:
            patient.create_topic("orders", 1)
        admins = [stack.enter_context(Admin(broker.bootstrap_servers, timeout=4)) for _ in range(4)]
        for offset in (1, 2):
            under_way = threading.Barrier(len(admins) + 1)
            threads = [threading.Thread(target=commit_on, args=(admin, offset, under_way)) for admin in admins]
            for thread in threads:
                thread.start()
            under_way.wait(90)
            broker.kill()
            for thread in threads:
                thread.join()
            broker.start()
            for admin in admins:
                wait_until(partial(answers, admin), "the broker")
                wait_until(partial(committed, admin, offset), "a coordinator")


def commit_on(admin: Admin, offset: int, under_way: threading.Barrier) -> None:
    """Commit without end, so that the broker dies while a commit is under way."""
    wait_until(lambda: committed(admin, offset), "a coordinator")
    under_way.wait(90)
    with suppress(BrokerUnreachable):
        while True:
            with suppress(RequestRefused):
                commit(admin, offset)


def answers(admin: Admin) -> bool:
    try:
        return bool(admin.topic_names())
    except BrokerUnreachable:
        return False


def committed(admin: Admin, offset: int) -> bool:
    """Whether the coordinator took it; a broker that has just started may still be loading, and a busy one is slow."""
    try:
        commit(admin, offset)
    except (RequestRefused, BrokerUnreachable):
        return False
    return True


def commit(admin: Admin, offset: int) -> None:
    admin.commit_group_offsets("g", {TopicPartition("orders", 0): offset})


def test_a_request_for_two_thousand_million_partitions_is_refused_at_once(bootstrap: str, unused_topic: str) -> None:
    enormous = zero(CreatableTopic, name=unused_topic, num_partitions=2**31 - 1, replication_factor=1)
    with WireClient(bootstrap, timeout=30) as cluster:
        (answer,) = cluster.ask(zero(CreateTopicsRequest, topics=(enormous,))).topics
    assert answer.error_code is ErrorCode.policy_violation
    with Admin(bootstrap) as admin:
        assert unused_topic not in [topic.name for topic in admin.topics()]
