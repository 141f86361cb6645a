"""Clients log in by GSSAPI, with tickets of a real KDC."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import gssapi
import pytest

from tests.support import jars, java
from tests.support.kdc import REALM, Kdc
from tests.support.processes import Process, free_port
from tests.support.sasl import authenticate, shake_hands
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
RULES = f"RULE:[2:$1;$2@$0](deploy;.*@{REALM})s/;.*//,DEFAULT"
"""deploy/HOST becomes deploy; others go by their first part, as by default."""


class KerberosBroker(Process):
    """`barnabas start` with a listener for GSSAPI, where alice and deploy may use the topic and nobody else may."""

    def __init__(self, folder: Path, kdc: Kdc) -> None:
        self.kdc = kdc
        self.bootstrap = f"localhost:{free_port()}"
        keytab = kdc.add("kafka/localhost")
        settings = {
            "listeners": f"KERBEROS://{self.bootstrap},OPEN://localhost:{free_port()}",
            "listener.security.protocol.map": "KERBEROS:SASL_PLAINTEXT,OPEN:PLAINTEXT",
            "inter.broker.listener.name": "OPEN",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": RULES,
            "listener.name.kerberos.gssapi.sasl.jaas.config": f"{MODULE} required useKeyTab=true storeKey=true "
            f'keyTab="{keytab}" principal="kafka/localhost@{REALM}";',
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:alice;User:deploy;User:ANONYMOUS",
            "log.dirs": str(folder / "data"),
        }
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        words = [sys.executable, "-m", "barnabas.cli.main", "start", "--config", str(properties)]
        super().__init__("barnabas", words, folder / "barnabas.log", kdc.env)
        try:
            self.wait_for_output(r"^.*\bready\b.*$")
        except BaseException:
            self.kill()
            raise


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KerberosBroker]:
    folder = tmp_path_factory.mktemp("kerberos")
    with Kdc(folder) as kdc, KerberosBroker(folder, kdc) as running:
        yield running
        assert running.stop() == 0, running.tail()


def create_by_java(broker: KerberosBroker, folder: Path, principal: str, topic: str) -> None:
    keytab = broker.kdc.add(principal)
    config = folder / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={MODULE} required useKeyTab=true storeKey=true "
        f'keyTab="{keytab}" principal="{principal}@{REALM}";\n'
    )
    env = {"JAVA_TOOL_OPTIONS": f"-Djava.security.krb5.conf={broker.kdc.config}"}
    given = ("--bootstrap-server", broker.bootstrap, "--command-config", str(config))
    java.tool("4.3.0", "topics", *given, "--create", "--topic", topic, env=env)


def test_javas_client_is_who_its_ticket_says(broker: KerberosBroker, tmp_path: Path) -> None:
    create_by_java(broker, tmp_path, "alice", "hers")
    assert "Created topic hers" in broker.output()
    with pytest.raises(java.ToolFailed, match="authorization failed"):
        create_by_java(broker, tmp_path, "mallory", "not-his")
    assert '"principal": "User:mallory"' in broker.output()


def test_kcat_logs_in_by_the_systems_library(broker: KerberosBroker) -> None:
    """With librdkafka of the system; that of confluent-kafka's wheels is built without GSSAPI."""
    keytab = broker.kdc.add("bob")
    words = [jars.program("kcat"), "-b", broker.bootstrap, "-L", "-m", "30", "-X", "security.protocol=SASL_PLAINTEXT"]
    words += ["-X", "sasl.mechanisms=GSSAPI", "-X", f"sasl.kerberos.keytab={keytab}"]
    words += ["-X", f"sasl.kerberos.principal=bob@{REALM}"]
    env = {**os.environ, **broker.kdc.env}
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
    assert "broker 1 at" in done.stdout, done.stderr


def create_by_kafka_python(broker: KerberosBroker, topic: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, whose environment says where its ticket is."""
    program = (
        "import kafka, kafka.admin; client = kafka.KafkaAdminClient("
        f"bootstrap_servers='{broker.bootstrap}', security_protocol='SASL_PLAINTEXT', sasl_mechanism='GSSAPI', "
        "sasl_kerberos_service_name='kafka', sasl_kerberos_domain_name='localhost', bootstrap_timeout_ms=30000); "
        f"client.create_topics([kafka.admin.NewTopic('{topic}', 1, 1)])"
    )
    env = {**os.environ, **broker.kdc.env}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=env)


def test_kafka_python_is_called_as_the_rules_say(broker: KerberosBroker) -> None:
    """It sends the broker's name as the one to act as; that counts for nothing."""
    broker.kdc.log_in("deploy/machine.example", broker.kdc.add("deploy/machine.example"))
    done = create_by_kafka_python(broker, "deployed")
    assert done.returncode == 0, done.stderr
    assert "Created topic deployed" in broker.output()


def ticket(service: str) -> bytes:
    """What a client sends first that wants to talk to a service of this host."""
    name = gssapi.Name(f"{service}@localhost", gssapi.NameType.hostbased_service)
    return bytes(gssapi.SecurityContext(name=name, mech=gssapi.MechType.kerberos, usage="initiate").step())


def test_a_ticket_for_another_service_does_not_do(broker: KerberosBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in broker.kdc.env.items():
        monkeypatch.setenv(name, value)
    broker.kdc.add("other/localhost")
    broker.kdc.log_in("carol", broker.kdc.add("carol"))
    for service, code in (("other", 58), ("kafka", 0)):
        with Connection(broker.bootstrap, 30) as client:
            shake_hands(client, "GSSAPI")
            assert authenticate(client, ticket(service)).error_code == code
    assert "GSSAPI refuses it" in broker.output()


@pytest.mark.parametrize("message", [b"", b"garbage", bytes(200_000)])
def test_what_is_no_ticket_does_not_do(broker: KerberosBroker, message: bytes) -> None:
    with Connection(broker.bootstrap, 30) as client:
        shake_hands(client, "GSSAPI")
        assert authenticate(client, message).error_code == 58
        assert client.receive_frame() is None
