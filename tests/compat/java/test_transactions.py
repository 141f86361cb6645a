"""Apache Kafka's Java producer with transactions: it speaks transaction.version 2, where each has its own epoch."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support import java
from tests.support.java_producers import JavaClients
from tests.support.markers import wait_for_markers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.conftest import TopicMaker

VERSION = "4.3.0"


def read(bootstrap: str, topic: str, count: int, isolation: str = "read_committed") -> list[str]:
    """The values of a topic with one partition, which must be `count`."""
    values = read_all(bootstrap, topic, isolation)
    assert len(values) == count
    return values


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """The values of a topic with one partition."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "isolation.level": isolation}
    consumer = Consumer(settings | {"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[str] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{len(values)} records, and nothing more comes"
        if message.error() is not None:
            break
        values.append((message.value() or b"").decode())
    consumer.close()
    return values


def test_the_producer_commits_many_transactions(bootstrap: str, new_topic: TopicMaker) -> None:
    topic, name = new_topic(), f"perf-{uuid.uuid4().hex[:8]}"
    printed = java.tool(
        VERSION,
        "producer-perf-test",
        *("--topic", topic, "--num-records", "5000", "--record-size", "100", "--throughput", "5000"),
        *("--bootstrap-server", bootstrap, "--transactional-id", name, "--transaction-duration-ms", "50"),
    )
    assert "5000 records sent" in printed
    wait_for_markers(bootstrap, topic)
    read(bootstrap, topic, 5000)
    described = java.tool(
        VERSION, "transactions", "--bootstrap-server", bootstrap, "describe", "--transactional-id", name
    )
    assert "CompleteCommit" in described
    listed = java.tool(VERSION, "transactions", "--bootstrap-server", bootstrap, "list")
    assert name in listed


def test_records_are_copied_exactly_once_with_their_offsets(bootstrap: str, new_topic: TopicMaker) -> None:
    source, target, run = new_topic(), new_topic(), uuid.uuid4().hex[:8]
    producer = Producer({"bootstrap.servers": bootstrap})
    sent = [f"record {number}" for number in range(1000)]
    for value in sent:
        producer.produce(source, value)
    assert producer.flush(30) == 0
    printed = java.tool(
        VERSION,
        "transactional-message-copier",
        *("--broker-list", bootstrap, "--input-topic", source, "--input-partition", "0", "--output-topic", target),
        *("--transactional-id", f"copier-{run}", "--consumer-group", f"group-{run}", "--max-messages", "1000"),
        *("--transaction-size", "50", "--enable-random-aborts"),
    )
    last = json.loads(printed.strip().splitlines()[-1])
    assert last["remaining"] == 0
    wait_for_markers(bootstrap, target)
    assert read(bootstrap, target, len(sent)) == sent


def test_a_producer_that_took_too_long_aborts_and_goes_on(
    bootstrap: str, new_topic: TopicMaker, tmp_path: Path
) -> None:
    topic, name = new_topic(), f"slow-{uuid.uuid4().hex[:8]}"
    with JavaClients(tmp_path / "java.log") as clients:
        slow = clients.producer(
            {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 2000}
        )
        slow.init_transactions()
        slow.begin_transaction()
        slow.produce(topic, "slow")
        slow.flush()
        other = Producer({"bootstrap.servers": bootstrap})
        other.produce(topic, "plain")
        assert other.flush(30) == 0
        wait_until(lambda: read_all(bootstrap, topic) == ["plain"], "the abort of the slow transaction")
        slow.abort_transaction()
        slow.begin_transaction()
        slow.produce(topic, "next")
        slow.commit_transaction()
    wait_for_markers(bootstrap, topic)
    assert read(bootstrap, topic, 2) == ["plain", "next"]
