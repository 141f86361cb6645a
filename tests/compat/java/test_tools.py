"""Apache Kafka 4.3.0's own command-line tools."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support import java

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker

VERSION = "4.3.0"


class Tools:
    """The tools, aimed at one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, name: str, *arguments: str, stdin: str = "") -> str:
        """Run `kafka-<name>.sh --bootstrap-server ... <arguments>`."""
        return java.tool(VERSION, name, "--bootstrap-server", self.bootstrap, *arguments, stdin=stdin)


@pytest.fixture
def tools(bootstrap: str) -> Tools:
    return Tools(bootstrap)


def fill(bootstrap: str, topic: str) -> None:
    """Ten records in partition 0, none in the others; the one with the highest timestamp is not the last."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        timestamp = 1_700_000_000_000 + (99 if number == 6 else number)
        producer.produce(topic, f"value {number}", f"key {number}", partition=0, timestamp=timestamp)
    assert producer.flush(30) == 0


def test_kafka_topics(tools: Tools, unused_topic: str) -> None:
    topic = ("--topic", unused_topic)
    created = tools("topics", "--create", *topic, "--partitions", "2", "--config", "segment.bytes=2000000")
    assert f"Created topic {unused_topic}." in created
    assert unused_topic in tools("topics", "--list").split()
    tools("topics", "--alter", *topic, "--partitions", "3")
    head, *partitions = tools("topics", "--describe", *topic).splitlines()
    assert f"Topic: {unused_topic}\t" in head
    assert re.search(r"TopicId: [\w-]{22}\tPartitionCount: 3\tReplicationFactor: 1\t", head)
    assert "segment.bytes=2000000" in head
    for number, line in enumerate(partitions):
        assert line.startswith(f"\tTopic: {unused_topic}\tPartition: {number}\t")
        found = re.search(r"\tLeader: (\d+)\tReplicas: (\d+)\tIsr: (\d+)\tElr: \tLastKnownElr: $", line)
        assert found, line
        assert found[1] == found[2] == found[3]
    with pytest.raises(java.ToolFailed) as refused:
        tools("topics", "--create", *topic)
    assert f"Topic '{unused_topic}' already exists" in refused.value.output
    tools("topics", "--delete", *topic)
    with pytest.raises(java.ToolFailed, match="does not exist"):
        tools("topics", "--describe", *topic)


def test_kafka_configs(tools: Tools, new_topic: TopicMaker) -> None:
    topic = new_topic(1, {"segment.bytes": "2000000"})
    entity = ("--entity-type", "topics", "--entity-name", topic)
    done = tools("configs", "--alter", *entity, "--add-config", "retention.ms=12345678,cleanup.policy=[compact,delete]")
    assert f"Completed updating config for topic {topic}." in done
    described = tools("configs", "--describe", *entity).splitlines()
    assert described == [
        f"Dynamic configs for topic {topic} are:",
        "  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}",
        "  retention.ms=12345678 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=12345678}",
        "  segment.bytes=2000000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:segment.bytes=2000000, "
        "DEFAULT_CONFIG:log.segment.bytes=1073741824}",
    ]
    tools("configs", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    assert len(tools("configs", "--describe", *entity).splitlines()) == 2
    with pytest.raises(java.ToolFailed, match=r"InvalidConfigurationException"):
        tools("configs", "--alter", *entity, "--add-config", "retention.ms=soon")


def test_kafka_configs_for_all_brokers(tools: Tools) -> None:
    defaults = ("--entity-type", "brokers", "--entity-default")
    tools("configs", "--alter", *defaults, "--add-config", "log.retention.bytes=123456789012")
    assert "log.retention.bytes=123456789012 sensitive=false" in tools("configs", "--describe", *defaults)
    tools("configs", "--alter", *defaults, "--delete-config", "log.retention.bytes")
    assert "log.retention.bytes" not in tools("configs", "--describe", *defaults)


def test_kafka_get_offsets(tools: Tools, bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic)
    for asked, first, second in [
        ("-1", "10", "0"),
        ("earliest", "0", "0"),
        ("max-timestamp", "6", ""),
        ("1700000000004", "4", ""),
    ]:
        found = tools("get-offsets", "--topic", topic, "--time", asked).split()
        assert found == [f"{topic}:0:{first}", *([f"{topic}:1:{second}"] if second else [])], asked


def test_kafka_broker_api_versions(tools: Tools, bootstrap: str) -> None:
    """The file beside this one is Kafka 4.3.0's own table: of the APIs that are served, the versions are the same."""
    head, *lines, _ = tools("broker-api-versions").splitlines()
    assert head.startswith(bootstrap)
    told = {line.strip().rstrip(",") for line in lines if "UNSUPPORTED" not in line}
    assert told >= {"Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]"}
    assert told <= set((Path(__file__).parent / "api_versions_4_3_0.txt").read_text().splitlines())


def test_kafka_log_dirs(tools: Tools, bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic(2)
    fill(bootstrap, topic)
    described = json.loads(tools("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    [folder] = described["brokers"][0]["logDirs"]
    assert folder["error"] is None
    sizes = {partition["partition"]: partition["size"] for partition in folder["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sizes[f"{topic}-0"] > 100
    assert sizes[f"{topic}-1"] == 0


def test_kafka_delete_records(
    tools: Tools, bootstrap: str, new_topic: TopicMaker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic = new_topic()
    fill(bootstrap, topic)
    file = tmp_path_factory.mktemp("delete") / "offsets.json"
    file.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 4}], "version": 1}))
    assert "low_watermark: 4" in tools("delete-records", "--offset-json-file", str(file))


def test_the_console_producer_and_consumer(tools: Tools, new_topic: TopicMaker) -> None:
    topic = new_topic()
    lines = [f"h:{number}\tkey {number}\tvalue {number}" for number in range(20)]
    tools(
        "console-producer", "--topic", topic, "--compression-codec", "zstd", "--reader-property", "parse.key=true",
        "--reader-property", "parse.headers=true",
        stdin="\n".join(lines),
    )  # fmt: skip
    printed = tools(
        "console-consumer", "--topic", topic, "--partition", "0", "--offset", "5", "--max-messages", "15",
        "--timeout-ms", "20000", "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
    )  # fmt: skip
    assert printed.splitlines() == lines[5:]


@pytest.mark.parametrize("settings", ["acks=all,compression.type=lz4", "acks=1,enable.idempotence=false"])
def test_the_performance_test(tools: Tools, new_topic: TopicMaker, settings: str) -> None:
    topic = new_topic(3)
    properties = [word for setting in settings.split(",") for word in ("--command-property", setting)]
    printed = tools(
        "producer-perf-test", "--topic", topic, "--num-records", "50000", "--record-size", "200",
        "--throughput", "-1", *properties,
    )  # fmt: skip
    assert "50000 records sent" in printed
    ends = tools("get-offsets", "--topic", topic).split()
    assert sum(int(line.rpartition(":")[2]) for line in ends) == 50_000
