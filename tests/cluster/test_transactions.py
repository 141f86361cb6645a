"""Transactions on a cluster: coordinators and partitions on different brokers, and the brokers stopped and killed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from tests.support.clusters import Cluster
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

PARTITIONS = 3


def values(bootstrap: str, topic: str) -> list[str]:
    """All committed records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    found: list[str] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None, f"partitions {ended} ended, after {found}"
        error = message.error()
        if error is None:
            found.append((message.value() or b"").decode())
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition() or 0)
    consumer.close()
    return sorted(found)


def test_a_transaction_over_partitions_of_all_brokers_outlives_each_of_them(tmp_path: Path) -> None:
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    with Cluster(tmp_path, 3, settings) as cluster:
        cluster.create("accounts", PARTITIONS, 3, min_insync_replicas="2")
        producers = {}
        for name in ("a", "b", "c", "d"):
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0})
            producer.init_transactions(60)
            producers[name] = producer
        wanted = []

        def work(round_: int) -> None:
            for name, producer in producers.items():
                for commits in (True, False):
                    producer.begin_transaction()
                    for index in range(PARTITIONS):
                        value = f"{round_}-{name}-{index}"
                        producer.produce("accounts", value if commits else "aborted", partition=index)
                        if commits:
                            wanted.append(value)
                    if commits:
                        producer.commit_transaction(60)
                    else:
                        producer.flush(60)
                        producer.abort_transaction(60)

        def is_read() -> bool:
            """A commit is answered before the markers are written that let its records be read."""
            return values(cluster.bootstrap, "accounts") == sorted(wanted)

        work(0)
        wait_until(is_read, "the records of all committed transactions, and no others")
        for broker_id in (1, 2, 3):
            cluster.nodes[broker_id].kill()
            work(broker_id)
            cluster.start(broker_id)
            for index in range(PARTITIONS):
                cluster.wait_for_isr("accounts", {1, 2, 3}, index)
            wait_until(is_read, "the records of all committed transactions, and no others")
