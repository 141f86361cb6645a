"""Users are added and deleted by real clients and tools, and clients go on when their sessions end.

That clients log in by every mechanism, and are refused with a wrong password, is in `tests/matrix`.
"""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from tests.compat.sasl.conftest import NAME, PASSWORD, SESSION_MS
from tests.support import java
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.compat.sasl.conftest import SaslBroker

JAVA = "4.3.0"


def librdkafka(broker: SaslBroker, mechanism: str, name: str = NAME, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
        "log_level": 0,
    }


def java_properties(folder: Path, mechanism: str, name: str = NAME, password: str = PASSWORD) -> str:
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    file = folder / f"{uuid.uuid4().hex}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{kind}LoginModule required "
        f'username="{name}" password="{password}";\n'
    )
    return str(file)


def make_topic(config: dict[str, Any], topic: str) -> None:
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)


def first_error(config: dict[str, Any]) -> KafkaError:
    """Why librdkafka does not get in."""
    errors: list[KafkaError] = []
    noticing: dict[str, Any] = {**config, "error_cb": errors.append}
    client = AdminClient(noticing)

    def error() -> KafkaError | None:
        client.poll(0.1)
        return errors[0] if errors else None

    return wait_until(error, "an error", 30)


def test_apache_kafkas_tools(sasl_broker: SaslBroker, tmp_path: Path) -> None:
    """Its kafka-configs adds a user, who can use the tools until kafka-configs deletes it."""

    def tool(name: str, config: str, *arguments: str, stdin: str = "") -> str:
        flag = "--command-config"
        return java.tool(JAVA, name, "--bootstrap-server", sasl_broker.bootstrap, flag, config, *arguments, stdin=stdin)

    def configs(*arguments: str) -> str:
        entity = ("--entity-type", "users", "--entity-name", "dora")
        return tool("configs", java_properties(tmp_path, "PLAIN", "admin", "admin"), *entity, *arguments)

    configs(
        "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=explorer],SCRAM-SHA-512=[password=boots]"
    )
    assert "dora\tSCRAM-SHA-256,SCRAM-SHA-512\n" in sasl_broker.users("--list")
    tool("topics", java_properties(tmp_path, "SCRAM-SHA-256", "dora", "explorer"), "--list")
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    with pytest.raises(java.ToolFailed, match="Authentication failed during authentication due to invalid credentials"):
        tool("topics", java_properties(tmp_path, "SCRAM-SHA-256", "dora", "explorer"), "--list")


def test_a_user_is_added_and_deleted_by_librdkafka(sasl_broker: SaslBroker) -> None:
    admin = AdminClient(librdkafka(sasl_broker, "PLAIN"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    for change in (
        UserScramCredentialUpsertion("erin", info, b"first"),
        UserScramCredentialUpsertion("erin", info, b"second"),
    ):
        admin.alter_user_scram_credentials([change])["erin"].result(30)
    describing = admin.describe_user_scram_credentials(["erin"])
    assert isinstance(describing, dict)
    described = describing["erin"].result(30)
    assert [found.iterations for found in described.scram_credential_infos] == [4096]
    assert AdminClient(librdkafka(sasl_broker, "SCRAM-SHA-256", "erin", "second")).list_topics(timeout=30).brokers
    error = first_error(librdkafka(sasl_broker, "SCRAM-SHA-256", "erin", "first"))
    assert error.code() == KafkaError._AUTHENTICATION
    deletion = UserScramCredentialDeletion("erin", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([deletion])["erin"].result(30)
    error = first_error(librdkafka(sasl_broker, "SCRAM-SHA-256", "erin", "second"))
    assert error.code() == KafkaError._AUTHENTICATION


def test_a_client_under_load_logs_in_again_and_again(sasl_broker: SaslBroker) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    config = librdkafka(sasl_broker, "SCRAM-SHA-512")
    make_topic(config, topic)
    failed: list[object] = []
    disconnected: list[KafkaError] = []
    producer = Producer({**config, "error_cb": disconnected.append})
    ends = time.monotonic() + 2 * SESSION_MS / 1000
    sent = 0
    while time.monotonic() < ends:
        producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        sent += 1
        producer.poll(0.001)
    assert producer.flush(30) == 0
    assert (failed, disconnected) == ([], [])
    assert Consumer({**config, "group.id": topic}).get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (
        0,
        sent,
    )


def test_apache_kafkas_producer_logs_in_again(sasl_broker: SaslBroker, tmp_path: Path) -> None:
    config = java_properties(tmp_path, "SCRAM-SHA-256")
    words = ["--topic", "java", "--num-records", "1500", "--record-size", "10", "--throughput", "300"]
    shown = java.tool(
        JAVA, "producer-perf-test", *words, "--bootstrap-server", sasl_broker.bootstrap, "--command-config", config
    )
    assert "1500 records sent" in shown
    assert "WARN" not in shown
