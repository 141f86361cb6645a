"""Quotas with real clients: they are slowed down to what they may use, whatever they know of quotas."""

from __future__ import annotations

import re
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from barnabas.cli.main import cli as commands
from tests.support import java
from tests.support.brokers import Barnabas
from tests.support.quotas import set_quotas
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

RATE: Final = 100_000
"""Bytes a second."""
SIZE: Final = 10_000
COUNT: Final = 30
"""Records: so many bytes as three seconds allow, of which the first comes at once."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    settings = {
        "quota.window.num": "2",  # with Kafka's eleven, a client may use ten seconds' share at once
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with Barnabas(tmp_path_factory.mktemp("quotas"), settings) as running:
        yield running
        assert running.alive, running.tail()
        assert "Traceback" not in running.log.read_text()
        began = time.monotonic()
        assert running.stop() == 0, running.tail()
        assert time.monotonic() - began < 10, "muted clients hold up the stop"


def produce_confluent(bootstrap: str, topic: str, client_id: str, **settings: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": client_id, "linger.ms": 0, **settings})
    for _ in range(COUNT):
        producer.produce(topic, b"x" * SIZE, partition=0)
        producer.flush(30)


def produce_kafka_python(bootstrap: str, topic: str, client_id: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=SIZE)) as producer:
        for future in [producer.send(topic, b"x" * SIZE, partition=0) for _ in range(COUNT)]:
            future.get(30)


def consume_confluent(bootstrap: str, topic: str, client_id: str) -> None:
    settings = {"group.id": client_id, "auto.offset.reset": "earliest", "client.id": client_id}
    with closing(Consumer({"bootstrap.servers": bootstrap, **settings})) as consumer:
        consumer.subscribe([topic])
        found: list[Any] = []

        def enough() -> bool:
            found.extend(consumer.consume(COUNT, 0.2))
            return len(found) >= COUNT

        wait_until(enough, "records")
        assert not any(message.error() for message in found)


def consume_kafka_python(bootstrap: str, topic: str, client_id: str) -> None:
    with closing(
        KafkaConsumer(topic, bootstrap_servers=bootstrap, client_id=client_id, auto_offset_reset="earliest")
    ) as consumer:
        found: list[Any] = []

        def enough() -> bool:
            for records in consumer.poll(200).values():
                found.extend(records)
            return len(found) >= COUNT

        wait_until(enough, "records")


def seconds_of(work: Any, *arguments: Any) -> float:
    began = time.monotonic()
    work(*arguments)
    return time.monotonic() - began


@pytest.mark.parametrize("produce", [produce_confluent, produce_kafka_python])
def test_a_producer_is_slowed_down(broker: Barnabas, produce: Any) -> None:
    name = produce.__name__
    set_quotas(broker.bootstrap, {"user": "ANONYMOUS", "client-id": name}, producer_byte_rate=RATE)
    assert 1.5 < seconds_of(produce, broker.bootstrap, name, name) < 20
    set_quotas(broker.bootstrap, {"user": "ANONYMOUS", "client-id": name}, producer_byte_rate=None)


@pytest.mark.parametrize("consume", [consume_confluent, consume_kafka_python])
def test_a_consumer_is_slowed_down(broker: Barnabas, consume: Any) -> None:
    name = consume.__name__
    produce_confluent(broker.bootstrap, name, "generous")
    set_quotas(broker.bootstrap, {"client-id": name}, consumer_byte_rate=RATE)
    assert 1.5 < seconds_of(consume, broker.bootstrap, name, name) < 20
    set_quotas(broker.bootstrap, {"client-id": name}, consumer_byte_rate=None)


PERF_CLIENT: Final = "perf-producer-client"
"""The client id of Java's perf tool, whatever it is told."""


def test_javas_producer_is_slowed_down_and_says_so(broker: Barnabas) -> None:
    set_quotas(broker.bootstrap, {"client-id": PERF_CLIENT}, producer_byte_rate=RATE)
    told = java.tool(
        "4.3.0",
        "producer-perf-test",
        *("--topic", "java", "--num-records", str(COUNT), "--record-size", str(SIZE), "--throughput", "-1"),
        *("--bootstrap-server", broker.bootstrap, "--print-metrics", "--command-property", "batch.size=10000"),
    )
    set_quotas(broker.bootstrap, {"client-id": PERF_CLIENT}, producer_byte_rate=None)
    sent = re.search(rf"^{COUNT} records sent, ([\d.]+) records/sec", told, re.MULTILINE)
    assert sent is not None, told
    assert float(sent[1]) * SIZE < 2 * RATE
    waited = re.search(r"produce-throttle-time-max\S*\s*:\s*([\d.]+)", told)
    assert waited is not None, told
    assert float(waited[1]) > 50


def cli(bootstrap: str, *words: str) -> str:
    done = CliRunner().invoke(commands, [*words, "--bootstrap-server", bootstrap])
    assert done.exit_code == 0, done.output
    return done.output


def test_kafka_configs_sets_and_shows_quotas_as_our_own_command_does(broker: Barnabas) -> None:
    server = ("--bootstrap-server", broker.bootstrap)
    pair = ("--entity-type", "users", "--entity-name", "al ice/1", "--entity-type", "clients", "--entity-default")
    java.tool(
        "4.3.0", "configs", *server, "--alter", *pair, "--add-config", "producer_byte_rate=1024,request_percentage=12.5"
    )
    entity = ("--user", "al ice/1", "--client-defaults")
    assert "producer_byte_rate=1024.0, request_percentage=12.5" in cli(
        broker.bootstrap, "configs", "--describe", *entity
    )
    cli(broker.bootstrap, "quotas", "--alter", *entity, "--delete-config", "request_percentage")
    cli(broker.bootstrap, "configs", "--alter", "--ip", "10.1.2.3", "--add-config", "connection_creation_rate=7")
    theirs = java.tool("4.3.0", "configs", *server, "--describe", *pair)
    assert theirs == cli(broker.bootstrap, "quotas", "--describe", *entity)
    assert "Quota configs for user-principal 'al ice/1', the default client-id are producer_byte_rate=1024.0" in theirs
    assert "Quota configs for ip '10.1.2.3' are connection_creation_rate=7.0" in cli(
        broker.bootstrap, "quotas", "--list"
    )
    cli(broker.bootstrap, "configs", "--alter", "--ip", "10.1.2.3", "--delete-config", "connection_creation_rate")
    assert "10.1.2.3" not in cli(broker.bootstrap, "quotas", "--list")
