"""Metrics of real clients (KIP-714): librdkafka and Kafka's own tool push them, and the receiver can read them."""

from __future__ import annotations

import re

from confluent_kafka import Producer

from barnabas.console.telemetry.figures import ClientFigures, figures_of
from barnabas.console.telemetry.otlp import parse
from barnabas.testing.broker import Broker
from tests.support.collector import Collector, running_collector
from tests.support.java import tool
from tests.support.waiting import wait_until

RECORDS = 80


def names(collector: Collector, client: str) -> set[bytes]:
    """The metrics that a client has sent."""
    sent = zip(collector.headers, collector.bodies, strict=False)
    bodies = [body for headers, body in sent if headers["X-Kafka-Client-Id"] == client]
    return {name for body in bodies for name in re.findall(rb"org\.apache\.kafka\.[a-z.]+", body)}


def figures(collector: Collector, client: str) -> ClientFigures:
    """What the console makes of a client's last push."""
    sent = zip(collector.headers, collector.bodies, strict=False)
    bodies = [body for headers, body in sent if headers["X-Kafka-Client-Id"] == client]
    return figures_of(parse(bodies[-1]).points)


def test_librdkafka_and_java_push_their_metrics() -> None:
    """Both compress as they like. Java pushes a last time when it closes, however short its life was."""
    with running_collector() as collector:
        config = {"telemetry.otlp.endpoint": collector.url, "telemetry.interval.ms": 100}
        with Broker(config) as broker:
            server = broker.bootstrap_servers
            producer = Producer({"bootstrap.servers": server, "client.id": "librdkafka"})

            def has_pushed() -> bool:
                producer.produce("told", b"x")
                producer.poll(0.02)
                return "librdkafka" in [each["X-Kafka-Client-Id"] for each in collector.headers]

            wait_until(has_pushed, "librdkafka to push")
            producer.flush()
            given = [f"bootstrap.servers={server}", "client.id=java", "linger.ms=0"]
            words = ["--topic", "told", "--num-records", str(RECORDS), "--record-size", "10", "--throughput", "20"]
            tool("4.3.0", "producer-perf-test", *words, "--producer-props", *given)
            wait_until(lambda: names(collector, "java") or None, "Java's client to push")
    assert any(name.startswith(b"org.apache.kafka.producer.") for name in names(collector, "librdkafka"))
    assert any(name.startswith(b"org.apache.kafka.producer.") for name in names(collector, "java"))
    assert {each["X-Kafka-Principal"] for each in collector.headers} == {"User:ANONYMOUS"}
    software = {each["X-Kafka-Client-Id"]: each["X-Kafka-Client-Software"] for each in collector.headers}
    assert software["java"] == "apache-kafka-java 4.3.0"
    assert "rdkafka-2" in software["librdkafka"]
    told = {"librdkafka": figures(collector, "librdkafka"), "java": figures(collector, "java")}
    assert {each.kind for each in told.values()} == {"producer"}
    assert all(each.latency is not None and each.worst is not None for each in told.values()), told
    assert told["java"].records and told["java"].bytes, told
