"""Real clients over TLS: those that may come in, and those that must not."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from barnabas.testing.broker import Broker, BrokerFailed
from barnabas.testing.cluster import Cluster
from barnabas.testing.kafka import KafkaCluster
from tests.support import jars, java
from tests.support.certificates import Authority
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

KAFKA = "4.3.0"
NAMED = "listener.security.protocol.map"
"""A broker for tests calls its listener PLAINTEXT; what it speaks stands here."""


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one CA, of a broker and of a client."""

    folder: Path
    authority: Authority

    @staticmethod
    def made(folder: Path) -> Files:
        files = Files(folder, Authority())
        files.authority.write(files.ca)
        files.authority.issue("127.0.0.1", common_name="broker").write(files.broker)
        client = files.authority.issue("client.example", common_name="alice")
        client.write(files.client)
        client.write(files.client_key, client.key)
        client.write(files.client_certificate, client.certificate)
        return files

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def broker(self) -> Path:
        return self.folder / "broker.pem"

    @property
    def client(self) -> Path:
        return self.folder / "client.pem"

    @property
    def client_key(self) -> Path:
        return self.folder / "client.key"

    @property
    def client_certificate(self) -> Path:
        return self.folder / "client.crt"

    def settings(self, **more: str) -> dict[str, object]:
        """What a broker is started with."""
        return {
            NAMED: "PLAINTEXT:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
            **{name.replace("_", "."): text for name, text in more.items()},
        }

    def librdkafka(self, servers: str, *, known: bool = False) -> dict[str, Any]:
        """What librdkafka's clients are given; with `known` they show a certificate."""
        own = {"ssl.certificate.location": str(self.client_certificate), "ssl.key.location": str(self.client_key)}
        return {
            "bootstrap.servers": servers,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.ca),
            **(own if known else {}),
        }

    def client_config(self) -> dict[str, Any]:
        """What clients are given, without an address."""
        return {name: value for name, value in self.librdkafka("").items() if name != "bootstrap.servers"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.made(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def broker(files: Files) -> Iterator[Broker]:
    with Broker(files.settings(ssl_client_auth="requested")) as running:
        yield running


@pytest.fixture(scope="module")
def strict(files: Files) -> Iterator[Broker]:
    """A broker that wants to know its clients."""
    with Broker(files.settings(ssl_client_auth="required")) as running:
        yield running


def failure(config: dict[str, Any]) -> str:
    """Why librdkafka cannot connect."""
    told: list[KafkaError] = []
    producer = Producer({**config, "error_cb": told.append, "log_level": 0})
    wait_until(lambda: producer.poll(0.05) >= 0 and told, "librdkafka says why it cannot connect", 20)
    return " ".join(error.str() for error in told)


@pytest.mark.parametrize("known", [False, True])
def test_librdkafka_writes_and_reads(files: Files, broker: Broker, known: bool) -> None:
    config = files.librdkafka(broker.bootstrap_servers, known=known)
    topic = f"librdkafka-{known}"
    values = [os.urandom(900_000) for _ in range(20)] + [b"%d" % number for number in range(5000)]
    producer = Producer(config)
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    assert read_all(config, topic, len(values)) == values


def read_all(config: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**config, "group.id": f"readers-of-{topic}"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count - len(found), 30)
            assert messages
            found += [message.value() or b"" for message in messages if message.error() is None]
        return found
    finally:
        consumer.close()


def test_old_data_is_read_from_the_disk(files: Files, broker: Broker) -> None:
    config = files.librdkafka(broker.bootstrap_servers)
    values = [os.urandom(500_000) for _ in range(60)]
    producer = Producer(config)
    for value in values:
        producer.produce("cold", value, partition=0)
    assert producer.flush(60) == 0
    for segment in (broker.data / "cold-0").glob("*.log"):
        with segment.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert read_all(config, "cold", len(values)) == values


def test_kafka_python_writes_and_reads(files: Files, strict: Broker) -> None:
    config = {
        "bootstrap_servers": strict.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(files.ca),
        "ssl_certfile": str(files.client_certificate),
        "ssl_keyfile": str(files.client_key),
    }
    producer = KafkaProducer(**config)
    for number in range(100):
        producer.send("kafka-python", b"%d" % number)
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("kafka-python", auto_offset_reset="earliest", group_id="k", **config)
    assert [int(next(consumer).value) for _ in range(100)] == list(range(100))
    consumer.close()


async def test_aiokafka_writes_reads_and_leaves_at_once(files: Files, broker: Broker) -> None:
    context = create_ssl_context(cafile=str(files.ca))
    config = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SSL", "ssl_context": context}

    async def story() -> list[int]:
        producer = AIOKafkaProducer(**config)
        await producer.start()
        for number in range(100):
            await producer.send("aiokafka", b"%d" % number)
        await producer.stop()
        consumer = AIOKafkaConsumer("aiokafka", auto_offset_reset="earliest", group_id="a", **config)
        await consumer.start()
        found = [int((await consumer.getone()).value or b"-1") for _ in range(100)]
        await consumer.stop()
        return found

    assert await asyncio.wait_for(story(), 60) == list(range(100))


def test_javas_console_tools_write_and_read(files: Files, strict: Broker, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={files.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={java_keystore(files, tmp_path)}\n"
    )
    to = ("--bootstrap-server", strict.bootstrap_servers, "--topic", "java", "--command-config", str(properties))
    java.tool(KAFKA, "console-producer", *to, stdin="".join(f"{number}\n" for number in range(100)))
    read = java.tool(KAFKA, "console-consumer", *to, "--from-beginning", "--max-messages", "100")
    assert read.split() == [str(number) for number in range(100)]


def java_keystore(files: Files, folder: Path) -> Path:
    """Java reads keys as PKCS8 only."""
    path = folder / "java.pem"
    done = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", files.client_key], capture_output=True, check=True, text=True
    )
    path.write_text(done.stdout + files.client_certificate.read_text())
    return path


def test_kcat_writes_and_reads(files: Files, broker: Broker) -> None:
    words = [jars.program("kcat"), "-b", broker.bootstrap_servers, "-t", "kcat"]
    words += ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={files.ca}"]
    subprocess.run([*words, "-P"], input=b"hello\n", check=True, timeout=60)
    done = subprocess.run([*words, "-C", "-e", "-q", "-o", "beginning"], capture_output=True, check=True, timeout=60)
    assert done.stdout == b"hello\n"


def test_our_own_command_line_writes_and_reads(files: Files, strict: Broker, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    config = files.librdkafka(strict.bootstrap_servers, known=True)
    properties.write_text("".join(f"{name}={value}\n" for name, value in config.items() if "bootstrap" not in name))
    login = ["--bootstrap-server", strict.bootstrap_servers, "--command-config", str(properties)]

    def barnabas(*words: str, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "barnabas.cli.main", *words, *login],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    barnabas("topics", "--create", "--topic", "own")
    barnabas("produce", "--topic", "own", stdin="a\nb\n")
    assert barnabas("consume", "--topic", "own", "--from-beginning", "--max-messages", "2").split() == ["a", "b"]
    assert "own" in barnabas("log-dirs", "--describe")


def test_whoever_does_not_trust_the_broker_stays_away(files: Files, broker: Broker, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    Authority().write(other)
    config = files.librdkafka(broker.bootstrap_servers)
    assert "certificate verify failed" in failure({**config, "ssl.ca.location": str(other)})
    localhost = f"localhost:{broker.port}"
    assert "certificate verify failed" in failure({**config, "bootstrap.servers": localhost})


def test_an_expired_certificate_does_not_do_for_brokers(files: Files, tmp_path: Path) -> None:
    expired = files.authority.issue("127.0.0.1", not_after=datetime.now(UTC) - timedelta(days=1))
    path = expired.write(tmp_path / "expired.pem")
    with pytest.raises(BrokerFailed, match=r"brokers would not trust each other .* has expired"):
        Broker({**files.settings(), "ssl.keystore.location": str(path)}).start()


def test_an_expired_certificate_is_refused_by_clients(files: Files, tmp_path: Path) -> None:
    expired = files.authority.issue("127.0.0.1", not_after=datetime.now(UTC) - timedelta(days=1))
    path = expired.write(tmp_path / "expired.pem")
    port = free_port()
    settings = files.settings() | {
        "ssl.keystore.location": str(path),
        "listeners": f"BROKERS://127.0.0.1:0,CLIENTS://127.0.0.1:{port}",
        NAMED: "BROKERS:PLAINTEXT,CLIENTS:SSL",
        "inter.broker.listener.name": "BROKERS",
    }
    with Broker(settings) as own:
        assert "clients refuse it now" in own.log()
        assert "certificate verify failed" in failure(files.librdkafka(f"127.0.0.1:{port}"))


def test_whoever_shows_no_certificate_stays_out(files: Files, strict: Broker) -> None:
    told = failure(files.librdkafka(strict.bootstrap_servers))
    assert "certificate required" in told.lower() or "alert" in told.lower() or "disconnected" in told.lower()
    wait_until(lambda: "ssl.client.auth is required" in strict.log(), "the broker says so", 10)
    assert Producer(files.librdkafka(strict.bootstrap_servers, known=True)).list_topics(timeout=10)


def test_a_client_without_tls_stays_out_and_is_told_of(files: Files, broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    with pytest.raises(KafkaException):
        producer.list_topics(timeout=2)
    wait_until(lambda: "the client does not speak TLS" in broker.log(), "the broker says so")


def test_brokers_for_tests_can_have_tls(files: Files) -> None:
    with (
        Cluster(files.settings(), brokers=2, client_config=files.client_config()) as cluster,
        KafkaCluster(cluster, "tls") as kafka,
    ):
        topic = kafka.topic()
        kafka.send(topic, "a", "b")
        assert kafka.values(topic, 2) == ["a", "b"]
        assert cluster.leader(topic) in cluster.brokers


def test_an_idle_connection_takes_little_memory(files: Files) -> None:
    many, request = 200, struct.pack(">ihhih1s", 11, 18, 0, 7, 1, b"x")
    context = ssl.create_default_context(cafile=str(files.ca))

    with Broker(files.settings()) as own, ExitStack() as stack:

        def connect() -> None:
            plain = stack.enter_context(socket.create_connection(("127.0.0.1", own.port), timeout=30))
            client = stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1"))
            client.sendall(request)
            assert client.recv(4)

        def kilobytes() -> int:
            (line,) = re.findall(r"^Private_Dirty: +(\d+) kB", smaps.read_text(), re.MULTILINE)
            return int(line)

        smaps = Path(f"/proc/{own.pid}/smaps_rollup")
        for _ in range(20):
            connect()
        before = kilobytes()
        for _ in range(many):
            connect()
        assert (kilobytes() - before) / many < 60


def test_a_certificate_is_changed_by_dynamic_config_under_an_open_connection(files: Files, tmp_path: Path) -> None:
    with Broker(files.settings()) as own:
        config = files.librdkafka(own.bootstrap_servers)
        admin = AdminClient(config)
        producer = Producer(config)
        assert producer.list_topics(timeout=10)
        new = files.authority.issue("127.0.0.1", "another.example", common_name="broker")
        other = files.authority.issue("127.0.0.1", common_name="somebody else")
        name = "listener.name.plaintext.ssl.keystore.location"

        def alter(path: Path) -> None:
            entry = ConfigEntry(name, str(path), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(30)

        with pytest.raises(KafkaException, match=r"ssl\.allow\.dn\.changes"):
            alter(other.write(tmp_path / "other.pem"))
        with pytest.raises(KafkaException, match="cannot be read"):
            alter(tmp_path / "absent.pem")
        alter(new.write(tmp_path / "new.pem"))
        wait_until(lambda: "another.example" in shown(own), "new clients are shown the new certificate", 20)
        producer.produce("t", b"still here")
        assert producer.flush(30) == 0


def shown(broker: Broker) -> str:
    """The certificate that a new client is shown, as openssl prints it."""
    first = subprocess.run(
        ["openssl", "s_client", "-connect", broker.bootstrap_servers], input=b"", capture_output=True, timeout=20
    )
    printed = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName"], input=first.stdout, capture_output=True, timeout=20
    )
    return printed.stdout.decode()
