"""`barnabas get-offsets`, `delete-records`, `log-dirs`, `broker-api-versions`, `features`, beside Kafka's own tools."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.support import java
from tests.support.brokers import Barnabas
from tests.support.groups import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from subprocess import CompletedProcess

    from tests.compat.cli.conftest import Cli
    from tests.compat.conftest import TopicMaker

    Ours = Callable[..., CompletedProcess[str]]

T0 = 1_700_000_000_000


class Theirs:
    """Apache Kafka's tool, on the same broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def __call__(self, tool: str, *arguments: object) -> str:
        return java.tool("4.3.0", tool, "--bootstrap-server", self._bootstrap, *map(str, arguments))


@pytest.fixture
def theirs(bootstrap: str) -> Theirs:
    return Theirs(bootstrap)


@pytest.fixture
def ours(cli: Cli, bootstrap: str) -> Ours:
    def run(tool: str, *arguments: object) -> CompletedProcess[str]:
        return cli(tool, "--bootstrap-server", bootstrap, *arguments)

    return run


@pytest.fixture
def topic(bootstrap: str, new_topic: TopicMaker) -> str:
    """Three partitions, two of them with ten records that are a second apart."""
    name = new_topic(3)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(20):
        producer.produce(name, b"x" * 100, partition=number % 2, timestamp=T0 + number // 2 * 1000)
    assert producer.flush(30) == 0
    return name


class TestGetOffsets:
    @pytest.mark.parametrize(
        "words",
        [
            ("--topic", "{}"),
            ("--topic", "{}", "--time", "max-timestamp", "--exclude-internal-topics"),
            ("--topic-partitions", "{}:1-,no-such-topic:0", "--time", str(T0 + 3500)),
        ],
    )
    def test_agrees_with_kafka_get_offsets(
        self, ours: Ours, theirs: Theirs, topic: str, words: tuple[str, ...]
    ) -> None:
        filled = [word.format(topic) for word in words]
        found = ours("get-offsets", *filled)
        assert (found.returncode, found.stderr) == (0, "")
        assert found.stdout == theirs("get-offsets", *filled)

    def test_times_and_partitions(self, ours: Ours, topic: str) -> None:
        def found(*words: str) -> dict[int, int]:
            rows = json.loads(ours("get-offsets", "--topic", topic, *words, "--json").stdout)
            return {row["partition"]: row["offset"] for row in rows}

        assert found() == found("--time", "-1") == {0: 10, 1: 10, 2: 0}
        assert found("--time", "earliest") == {0: 0, 1: 0, 2: 0}
        assert found("--time", str(T0 + 4001), "--partitions", "0,2") == {0: 5}
        assert found("--time", str(T0 + 60_000)) == {}

    def test_nothing_that_matches(self, ours: Ours, unused_topic: str) -> None:
        missing = ours("get-offsets", "--topic", unused_topic)
        assert missing.returncode == 1
        assert missing.stderr.startswith("Error: No partition matches. `barnabas topics")


def test_delete_records_agrees_with_kafka_delete_records(
    ours: Ours, theirs: Theirs, topic: str, tmp_path: Path
) -> None:
    """Each tool deletes the same from a partition of its own; what is not there is told, and the rest is done."""
    file = tmp_path / "offsets.json"

    def write(*partitions: tuple[int, int]) -> None:
        entries = [{"topic": topic, "partition": number, "offset": offset} for number, offset in partitions]
        file.write_text(json.dumps({"partitions": entries, "version": 1}))

    write((0, 4))
    mine = ours("delete-records", "--offset-json-file", file)
    assert (mine.returncode, mine.stderr) == (0, "")
    write((1, 4))
    assert mine.stdout.replace(f"{topic}-0", f"{topic}-1") == theirs("delete-records", "--offset-json-file", file)

    write((0, -1), (7, 1), (1, 99))
    partly = ours("delete-records", "--offset-json-file", file, "--json")
    assert partly.returncode == 1
    assert [(row["partition"], row["lowWatermark"], row["error"]) for row in json.loads(partly.stdout)] == [
        (0, 10, None),
        (1, None, "offset 99 is not in the partition, nor is it its end"),
        (7, None, "there is no such partition, or it has no leader"),
    ]
    assert partly.stderr == f"Error: Nothing was deleted from {topic}-1, {topic}-7.\n"


def test_log_dirs_agrees_with_kafka_log_dirs(ours: Ours, theirs: Theirs, topic: str) -> None:
    def parts(text: str) -> tuple[list[str], Any]:
        *head, last = text.splitlines()
        document = json.loads(last)
        for broker in document["brokers"]:
            for directory in broker["logDirs"]:
                directory["partitions"].sort(key=lambda partition: partition["partition"])
        return head, document

    words = ("--describe", "--topic-list", f"{topic},no-such-topic")
    mine = ours("log-dirs", *words)
    assert (mine.returncode, mine.stderr) == (0, "")
    assert parts(mine.stdout) == parts(theirs("log-dirs", *words))
    missing = ours("log-dirs", "--describe", "--broker-list", "77")
    assert missing.returncode == 1
    assert "There is no broker 77. The brokers that are up: 1" in missing.stderr


def test_broker_api_versions_agrees_with_kafka_broker_api_versions(ours: Ours, theirs: Theirs) -> None:
    mine = ours("broker-api-versions")
    assert (mine.returncode, mine.stderr) == (0, "")
    assert mine.stdout == theirs("broker-api-versions")


def test_features_agrees_with_kafka_features(ours: Ours, theirs: Theirs) -> None:
    epoch = partial(re.sub, r"Epoch: \d+", "Epoch: N")
    mine = ours("features", "describe")
    assert (mine.returncode, mine.stderr) == (0, "")
    assert epoch(mine.stdout) == epoch(theirs("features", "describe"))
    words = ("disable", "--feature", "transaction.version", "--dry-run")
    possible = ours("features", *words)
    assert (possible.returncode, possible.stdout) == (0, "transaction.version can be disabled.\n")
    assert theirs("features", *words) == possible.stdout
    refused = ours("features", "upgrade", "--feature", "no.such.feature=1")
    assert refused.returncode == 1
    assert refused.stderr.startswith("Error: Could not upgrade no.such.feature to 1. ")
    assert ours("features", "describe").stdout == mine.stdout


def test_a_feature_is_switched_off_and_on_again(cli: Cli, tmp_path: Path) -> None:
    """Without group.version 1 there is no new group protocol, also after a restart."""

    def level(broker: Barnabas) -> int:
        told = json.loads(cli("features", "--bootstrap-server", broker.bootstrap, "describe", "--json").stdout)
        (found,) = [one for one in told["features"] if one["feature"] == "group.version"]
        return int(found["finalizedVersionLevel"])

    def change(broker: Barnabas, *words: str) -> str:
        done = cli("features", "--bootstrap-server", broker.bootstrap, *words)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def write(broker: Barnabas) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"hello")
        assert producer.flush(30) == 0

    def read(broker: Barnabas) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "readers",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe(["t"])
            (message,) = consumer.consume(1, timeout=60)
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            return [message.value() or b""]
        finally:
            consumer.close()

    with Barnabas(tmp_path, QUICK) as broker:
        write(broker)
        assert read(broker) == [b"hello"]
        assert change(broker, "disable", "--feature", "group.version") == "group.version was disabled.\n"
        broker.stop()
    with Barnabas(tmp_path, QUICK) as broker:
        assert level(broker) == 0
        with pytest.raises(KafkaException) as refused:
            read(broker)
        assert "ConsumerGroupHeartbeat fatal error: Broker: API version not supported" in refused.value.args[0].str()
        told = change(broker, "upgrade", "--feature", "group.version=1")
        assert told == "group.version was upgraded to 1.\n"
        assert level(broker) == 1
        write(broker)
        assert read(broker) == [b"hello"]
