"""The command line of a user without rules: each refusal is one line that names the operation and the resource."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from barnabas import Producer
from barnabas.clients.errors import RequestRefused
from tests.compat.cli.test_secure import run, write

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.testing.secure import KafkaSecure

HINT = "No rule allows it to the user of --command-config: an administrator makes one with `barnabas acls --add"
OF_TOPIC_T = "Describe on topic t"


def refusal(server: str, properties: Path, command: str) -> str:
    """The one line that says what is not allowed; other lines are those of Kafka's tools."""
    code, lines = run(server, properties, command)
    told = [line.removeprefix("Error: ") for line in lines if HINT in line]
    assert (code, len(told)) == (1, 1), lines
    assert [line for line in lines if "authorization failed" in line or "FATAL" in line] == []
    return told[0]


@pytest.mark.parametrize(
    ("command", "words", "permission", "rule"),
    [
        ("topics --create --topic t", "create topic t", "Create on topic t", "Create --topic t"),
        ("topics --describe --topic t", "describe topic t", OF_TOPIC_T, "Describe --topic t"),
        ("topics --delete --topic t", "delete topic t", "Delete on topic t", "Delete --topic t"),
        ("topics --alter --topic t --partitions 2", "alter topic t", "Alter on topic t", "Alter --topic t"),
        ("configs --describe --topic t", "describe topic t", OF_TOPIC_T, "Describe --topic t"),
        (
            "configs --alter --topic t --add-config retention.ms=1",
            "change the configs of topic t",
            "AlterConfigs on topic t",
            "AlterConfigs --topic t",
        ),
        (
            "configs --describe --broker-defaults",
            "describe the configs of all brokers",
            "DescribeConfigs on the cluster",
            "DescribeConfigs --cluster",
        ),
        ("produce --topic t", "write to topic t", "Write on topic t", "Write --topic t"),
        ("consume --topic t --from-beginning", "read topic t", "Read on topic t", "Read --topic t"),
        (
            "consumer-perf --topic t --num-records 1 --group g",
            "read topic t in group g",
            "Read on group g",
            "Read --group g",
        ),
        (
            "producer-perf --topic t --num-records 1 --record-size 1 --throughput -1 --transactional-id x",
            "use transactional id x",
            "Write on transactional id x",
            "Write --transactional-id x",
        ),
        ("groups --describe --group g", "describe group g", "Describe on group g", "Describe --group g"),
        ("groups --delete --group g", "delete group g", "Delete on group g", "Delete --group g"),
        (
            "share-groups --delete-offsets --group g --topic t",
            "delete offsets of group g",
            "Delete on group g",
            "Delete --group g",
        ),
        (
            "transactions describe --transactional-id x",
            "describe transactional id x",
            "Describe on transactional id x",
            "Describe --transactional-id x",
        ),
        ("get-offsets --topic t", "describe topic t", OF_TOPIC_T, "Describe --topic t"),
        ("groups --delete-offsets --group g --topic t", "describe topic t", OF_TOPIC_T, "Describe --topic t"),
        (
            "transactions describe-producers --topic t --partition 0",
            "describe topic t",
            OF_TOPIC_T,
            "Describe --topic t",
        ),
        (
            "log-dirs --describe",
            "see the log directories of brokers",
            "Describe on the cluster",
            "Describe --cluster",
        ),
        (
            "leader-election --election-type preferred --all-topic-partitions",
            "elect leaders",
            "Alter on the cluster",
            "Alter --cluster",
        ),
        ("reassign-partitions --list", "list reassignments", "Describe on the cluster", "Describe --cluster"),
        ("features upgrade --feature share.version=2", "change features", "Alter on the cluster", "Alter --cluster"),
        ("cluster unregister --id 7", "unregister brokers", "Alter on the cluster", "Alter --cluster"),
        ("users --list", "list users", "Describe on the cluster", "Describe --cluster"),
        ("acls --list", "list ACLs", "Describe on the cluster", "Describe --cluster"),
        ("acls --remove --force --topic t", "remove ACLs", "Alter on the cluster", "Alter --cluster"),
        ("quotas --list", "list quotas", "DescribeConfigs on the cluster", "DescribeConfigs --cluster"),
        (
            "delegation-tokens --create --owner-principal User:admin",
            "create delegation tokens of User:admin",
            "CreateTokens on user User:admin",
            "CreateTokens --user-principal User:admin",
        ),
    ],
)
def test_what_is_not_allowed_is_said(
    kafka_secure: KafkaSecure, tmp_path: Path, command: str, words: str, permission: str, rule: str
) -> None:
    properties = write(tmp_path / "client.properties", kafka_secure.user("alice"))
    told = refusal(kafka_secure.bootstrap_servers, properties, command)
    assert f"o permission to {words} ({permission}). {HINT}" in told
    assert told.endswith(f" --allow-principal User:NAME --operation {rule}`.")


@pytest.mark.parametrize("more", ["", " --sync"])
def test_a_producer_that_may_write_to_no_topic_is_told_by_one_line(
    kafka_secure: KafkaSecure, tmp_path: Path, capfd: pytest.CaptureFixture[str], more: str
) -> None:
    """Idempotent producers are refused a producer id first, which Kafka tells as something about the cluster."""
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.allow(alice, "Describe", topic=topic)
    properties = write(tmp_path / "client.properties", alice)
    code, lines = run(kafka_secure.bootstrap_servers, properties, f"produce --topic {topic}{more}")
    assert (code, len(lines)) == (1, 1), lines
    assert f"no permission to write to topic {topic}, nor to any other (Write on topic {topic}). {HINT}" in lines[0]
    assert capfd.readouterr() == ("", "")


def test_what_measures_names_it_too(
    kafka_secure: KafkaSecure, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.allow(alice, "Describe", topic=topic)
    server, properties = kafka_secure.bootstrap_servers, write(tmp_path / "client.properties", alice)
    load = f"producer-perf --topic {topic} --num-records 10 --record-size 10 --throughput -1"
    told = refusal(server, properties, f"{load} --command-property enable.idempotence=true")
    assert f"10 records were not stored; the first: no permission to write to topic {topic}, nor to any other" in told
    assert [line for line in caplog.messages if "FATAL" in line] == []
    told = refusal(server, properties, f"latency --topic {topic} --num-records 1")
    assert told.startswith(f"no permission to write to topic {topic} (Write on topic {topic})")


def test_a_forbidden_topic_keeps_records_of_no_other_from_being_deleted(
    kafka_secure: KafkaSecure, tmp_path: Path
) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.allow(alice, "Describe", "Delete", "Write", topic=topic)
    server, properties = kafka_secure.bootstrap_servers, write(tmp_path / "client.properties", alice)
    assert run(server, properties, f"produce --topic {topic}") == (0, [])
    wanted = [{"topic": name, "partition": 0, "offset": 1} for name in (topic, "t")]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": wanted}))
    code, lines = run(server, properties, f"delete-records --offset-json-file {file}")
    assert code == 1
    assert f"partition: {topic}-0\tlow_watermark: 1" in lines
    assert "partition: t-0\terror: no permission to describe topic t (Describe on topic t)" in lines


def test_who_reads_without_a_group_needs_no_group(kafka_secure: KafkaSecure, tmp_path: Path) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.allow(alice, "Read", "Write", topic=topic)
    server, properties = kafka_secure.bootstrap_servers, write(tmp_path / "client.properties", alice)
    assert run(server, properties, f"produce --topic {topic}") == (0, [])
    code, lines = run(server, properties, f"consume --topic {topic} --from-beginning --max-messages 1")
    assert (code, lines) == (0, ["x", "Processed a total of 1 messages"])
    told = refusal(server, properties, f"consume --topic {topic} --group g --from-beginning --max-messages 1")
    assert told.startswith("no permission to read in group g (Read on group g).")


def test_a_transactional_id_that_may_not_be_used_is_named(kafka_secure: KafkaSecure) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.allow(alice, "Describe", topic=topic)
    producer: Producer[str, str] = Producer(**_named(alice.librdkafka), transactional_id="x", log_level=0)
    with (
        pytest.raises(RequestRefused, match=r"no permission to use transactional id x \(Write on transactional id x\)"),
        producer.transaction(),
    ):
        raise AssertionError("it has begun")
    producer.close()


def _named(properties: dict[str, Any]) -> dict[str, Any]:
    """Properties as keywords."""
    return {name.replace(".", "_"): value for name, value in properties.items()}
