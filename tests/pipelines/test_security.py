"""Topics behind TLS: what a task and the driver say to them, and what they say of a broker that they may not trust."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from barnabas.clients.admin import admin
from barnabas.clients.errors import LoginFailed
from barnabas.pipelines.errors import NotWritten
from barnabas.pipelines.spark.cluster import TIMEOUT_SECONDS, ClusterView
from barnabas.pipelines.spark.read import reading
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.spark.read.options import batch_options
from barnabas.pipelines.spark.read.reading import read_ranges
from barnabas.pipelines.spark.read.selection import Selection
from barnabas.pipelines.spark.write import sending
from barnabas.pipelines.spark.write.options import sink_options
from barnabas.pipelines.spark.write.rows import SinkRecord
from barnabas.pipelines.spark.write.sending import send_plainly
from barnabas.testing.broker import Broker
from tests.support.spark import SETTINGS, texts
from tests.support.tls import Certificate, TlsRelay

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from barnabas.testing.secure import KafkaSecure

RECORD = SinkRecord("t", None, b"x", None, -1)
SOON = TIMEOUT_SECONDS / 2


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Certificate, Certificate]:
    """What the broker shows, and that of somebody else."""
    folder = tmp_path_factory.mktemp("certificates")
    return Certificate.made(folder, "broker"), Certificate.made(folder, "other")


@pytest.fixture(scope="module")
def servers(certificates: tuple[Certificate, Certificate]) -> Iterator[str]:
    """The address of a broker that tells its clients to come through TLS; it has a topic with one record."""
    with TlsRelay(certificates[0]) as relay:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}"}
        with Broker(advertised) as broker:
            relay.target = broker.port
            yield f"127.0.0.1:{relay.port}"


def trusting(servers: str, ca: Path) -> dict[str, str]:
    """Options as they were given to Java's clients."""
    return {
        "kafka.bootstrap.servers": servers,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(ca),
    }


def test_topics_are_written_and_read_through_tls(servers: str, certificates: tuple[Certificate, Certificate]) -> None:
    given = trusting(servers, certificates[0].authority)
    send_plainly([RECORD, RECORD], sink_options(given).client)
    client = batch_options(given | {"subscribe": "t"}).client
    with ClusterView(client) as cluster:
        (place,) = cluster.partitions(Selection(topics=("t",)))
        assert cluster.latest([place]) == {place: 2}
        cluster.commit("g", {place: 2})
        assert cluster.committed("g") == {place: 2}
    rows = [
        value
        for _, batches in read_ranges([OffsetRange(*place, 0, 2)], client)
        for batch in batches
        for value in batch.column("value")
    ]
    assert [value.as_py() for value in rows] == [b"x", b"x"]


def test_a_broker_that_is_not_trusted_is_named_soon(
    servers: str, certificates: tuple[Certificate, Certificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "METADATA_TIMEOUT", 1.0)
    monkeypatch.setattr(reading, "SHORT_SECONDS", 0.5)
    monkeypatch.setattr(sending, "LOGIN_SECONDS", 0.5)
    client = sink_options(trusting(servers, certificates[1].authority)).client
    began = time.monotonic()
    with ClusterView(client) as cluster, pytest.raises(LoginFailed, match="certificate verify failed"):
        cluster.partitions(Selection(pattern=re.compile(".*")))
    with pytest.raises(LoginFailed, match="certificate verify failed"):
        [list(batches) for _, batches in read_ranges([OffsetRange("t", 0, 0, 2)], client)]
    with pytest.raises(NotWritten, match=r"1 records did not arrive: .*certificate verify failed"):
        send_plainly([RECORD], client)
    assert time.monotonic() - began < SOON


def test_a_broker_that_takes_no_password_is_named_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "METADATA_TIMEOUT", 1.0)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "a",
        "sasl.password": "b",
    }
    with (
        Broker() as broker,
        ClusterView({"bootstrap.servers": broker.bootstrap_servers} | login) as cluster,
        pytest.raises(LoginFailed, match="SASL"),
    ):
        cluster.partitions(Selection(pattern=re.compile(".*")))


def test_a_login_and_permissions_are_enough_for_topics(kafka_secure: KafkaSecure) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    given = {f"kafka.{name}": value for name, value in alice.java.items()}
    record = SinkRecord(topic, None, b"x", None, -1)
    with pytest.raises(NotWritten, match="no permission to write to topic"):
        send_plainly([record], sink_options(given).client)
    kafka_secure.allow(alice, "Read", "Write", topic=topic)
    kafka_secure.allow(alice, "Read", group="g")
    send_plainly([record, record], sink_options(given).client)
    client = batch_options(given | {"subscribe": topic}).client
    with ClusterView(client) as cluster:
        (place,) = cluster.partitions(Selection(topics=(topic,)))
        cluster.commit("g", {place: 2})
        assert cluster.committed("g") == {place: 2}
    rows = [
        value
        for _, batches in read_ranges([OffsetRange(*place, 0, 2)], client)
        for batch in batches
        for value in batch.column("value")
    ]
    assert [value.as_py() for value in rows] == [b"x", b"x"]


PIPELINE = """\
name = "orders"
trigger = "available-now"
metrics = "{topic}-metrics"

[kafka]
"bootstrap.servers" = "localhost:1"

[sources.orders]
topic = "{topic}"

[steps.all]
sql = "SELECT value FROM orders"

[sinks.orders]
from = "all"
table = "tables/orders"
format = "delta"
"""
"""Its broker is another one: that of the command line goes before it."""


def barnabas(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "barnabas.cli.main", *words]
    return subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False, timeout=300)


@pytest.mark.timeout(600)  # on a busy machine Spark takes its time to start
def test_loads_and_pipelines_log_in_and_say_what_is_not_allowed(kafka_secure: KafkaSecure, tmp_path: Path) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.send(topic, "one", "two", "three")
    login = ("--command-config", str(alice.write_properties(tmp_path / "alice.properties")))
    server = ("--bootstrap-server", kafka_secure.bootstrap_servers)
    settings = [f"--conf={name}={value}" for name, value in texts(SETTINGS).items()]
    load = ("load", topic, "--to", "tables/load", "--format", "delta", "--metrics", "", *settings)
    pipeline = tmp_path / "pipeline.toml"
    pipeline.write_text(PIPELINE.format(topic=topic))

    refused = barnabas(tmp_path, *load, *server, *login)
    assert (refused.returncode, f"no permission to describe topic {topic}" in refused.stderr) == (1, True), refused
    kafka_secure.allow(alice, "Read", topic=topic)
    kafka_secure.allow(alice, "Create", "Read", "Write", topic=f"{topic}-metrics")
    kafka_secure.allow(alice, "Read", group="*")
    loaded = barnabas(tmp_path, *load, *server, *login)
    assert loaded.returncode == 0, loaded
    ran = barnabas(tmp_path, "pipeline", "run", str(pipeline), *settings, *server, *login)
    assert ran.returncode == 0, ran
    for name in ("load", "orders"):
        values = DeltaTable(str(tmp_path / "tables" / name)).to_pyarrow_table()["value"].to_pylist()
        assert sorted(values) == [b"one", b"three", b"two"], name
    told = barnabas(tmp_path, "pipeline", "status", "--json", str(pipeline), *server, *login)
    assert [each["lag"] for each in json.loads(told.stdout)] == [0], told
