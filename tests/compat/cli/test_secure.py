"""The command line on a secured broker: what keeps a client out, or is not allowed, is one line."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from barnabas.cli.main import cli as program
from barnabas.net.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from barnabas.testing.secure import KafkaSecure, SecureUser

OF_LIBRDKAFKA = ("topics --list", "produce --topic t", "consume --topic t", "consumer-perf --topic t --num-records 1")
OF_OURS = ("groups --list", "users --list")
LOGIN = "the broker does not let user alice in by SCRAM-SHA-512: the password is wrong, or there is no such user"
SPEAKS = "the listener speaks SASL_SSL, by SCRAM-SHA-512, and security.protocol of the client is"


def run(server: str, properties: Path | None, command: str) -> tuple[int, list[str]]:
    """The exit code of a command, and the lines it has printed."""
    words = [*command.split(), "--bootstrap-server", server]
    if properties is not None:
        words += ["--command-config", str(properties)]
    done = CliRunner().invoke(program, words, input="x\n")
    return done.exit_code, done.output.splitlines()


def write(path: Path, user: SecureUser, **changes: str) -> Path:
    """The user's properties with some changes; a value of "" is left out."""
    given = {**user.java, **{name.replace("_", "."): value for name, value in changes.items()}}
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items() if value))
    return path


def one_line(server: str, properties: Path | None, commands: Sequence[str]) -> set[str]:
    """The one line that each of the commands has printed."""
    told = set()
    for command in commands:
        code, lines = run(server, properties, command)
        assert (code, len(lines)) == (1, 1), (command, lines)
        told.add(lines[0].removeprefix("Error: ").partition(". Look at")[0])
    return told


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sasl_jaas_config": "", "sasl_username": "alice", "sasl_password": "wrong"}, LOGIN),
        ({"sasl_mechanism": "SCRAM-SHA-256"}, "SCRAM-SHA-256 is not enabled on this listener: it takes SCRAM-SHA-512"),
        ({"security_protocol": "PLAINTEXT", "sasl_jaas_config": ""}, f"{SPEAKS} PLAINTEXT"),
        ({"security_protocol": "SASL_PLAINTEXT"}, f"{SPEAKS} SASL_PLAINTEXT"),
        ({"security_protocol": "SSL", "sasl_jaas_config": ""}, f"{SPEAKS} SSL"),
    ],
    ids=["password", "mechanism", "plaintext", "login without TLS", "TLS without login"],
)
def test_every_command_says_in_one_line_what_keeps_it_out(
    kafka_secure: KafkaSecure,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    changes: dict[str, str],
    told: str,
) -> None:
    properties = write(tmp_path / "client.properties", kafka_secure.user("alice"), **changes)
    server = kafka_secure.bootstrap_servers
    assert one_line(server, properties, (*OF_LIBRDKAFKA, *OF_OURS)) == {f"{server}: {told}"}
    assert capfd.readouterr() == ("", ""), "librdkafka has logged something"


def test_a_client_without_properties_is_told_what_the_listener_speaks(kafka_secure: KafkaSecure) -> None:
    server = kafka_secure.bootstrap_servers
    assert one_line(server, None, (*OF_LIBRDKAFKA, *OF_OURS)) == {f"{server}: {SPEAKS} PLAINTEXT"}


def test_a_client_with_tls_is_told_that_the_listener_has_none(
    bootstrap: str, kafka_secure: KafkaSecure, tmp_path: Path
) -> None:
    properties = write(tmp_path / "client.properties", kafka_secure.user("alice"))
    told = "the listener speaks PLAINTEXT, and security.protocol of the client is SASL_SSL"
    assert one_line(bootstrap, properties, (OF_LIBRDKAFKA[1], OF_OURS[0])) == {f"{bootstrap}: {told}"}


def test_a_client_with_a_login_is_told_that_none_is_asked_for(
    bootstrap: str, kafka_secure: KafkaSecure, tmp_path: Path
) -> None:
    properties = write(tmp_path / "client.properties", kafka_secure.user("alice"), security_protocol="SASL_PLAINTEXT")
    told = "the listener asks for no login: security.protocol is without SASL_ there"
    assert one_line(bootstrap, properties, (OF_LIBRDKAFKA[1], OF_OURS[0])) == {f"{bootstrap}: {told}"}


@contextmanager
def server_with(certificate: str, folder: Path) -> Iterator[str]:
    """Something that shows this certificate on a port of this machine."""
    file = folder / "server.pem"
    file.write_text(certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection = listening.accept()[0]
                except OSError:
                    return
                try:
                    context.wrap_socket(connection, server_side=True).close()
                except OSError:
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(30)


@pytest.mark.parametrize(
    ("hosts", "days_ago", "told"),
    [
        (["other.example"], 0, "the broker's certificate is for other host names than 127.0.0.1"),
        (["127.0.0.1"], 9, "the broker's certificate has expired"),
        (None, 0, "the broker's certificate is of a CA that is not trusted here"),
    ],
    ids=["host", "expired", "CA"],
)
def test_what_is_wrong_with_a_brokers_certificate_is_said(
    tmp_path: Path, hosts: list[str] | None, days_ago: int, told: str
) -> None:
    authority = Authority.create("a CA")
    (tmp_path / "ca.pem").write_text(authority.own.certificate)
    properties = tmp_path / "client.properties"
    properties.write_text(f"security.protocol=SSL\nssl.ca.location={tmp_path / 'ca.pem'}\n")
    issuer = authority if hosts else Authority.create("another CA")
    shown = issuer.issue("broker", hosts or ["127.0.0.1"], days=8, now=datetime.now(UTC) - timedelta(days=days_ago))
    with server_with(shown.keystore, tmp_path) as server:
        for line in one_line(server, properties, (*OF_LIBRDKAFKA, *OF_OURS)):
            assert line.startswith(f"{server}: {told}")


def test_tokens_are_made_listed_renewed_and_ended(kafka_secure: KafkaSecure, tmp_path: Path) -> None:
    properties = write(tmp_path / "client.properties", kafka_secure.user("alice"))
    server = kafka_secure.bootstrap_servers
    _, lines = run(server, properties, "delegation-tokens --create --renewer-principal User:bob")
    token_id, hmac, owner, requester, renewers, *_ = lines[-1].split()
    assert lines[0] == f"Created delegation token with tokenId : {token_id}"
    assert (owner, requester, renewers) == ("User:alice", "User:alice", "User:bob")
    for action, told in (("--renew", "Completed renew"), ("--expire", "Completed expire")):
        words = ["delegation-tokens", action, "--bootstrap-server", server, "--command-config", str(properties)]
        done = CliRunner().invoke(program, words, input=f"{hmac}\n")
        assert (done.exit_code, told in done.output, hmac in done.output) == (0, True, False), done.output
    _, lines = run(server, properties, "delegation-tokens --describe")
    assert lines[0] == "Total number of tokens : 0"


def test_tools_that_measure_log_in_too(kafka_secure: KafkaSecure, tmp_path: Path) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    kafka_secure.allow(alice, "Read", "Write", topic=topic)
    kafka_secure.allow(alice, "Read", "DescribeConfigs", "AlterConfigs", group="*")
    properties = write(tmp_path / "client.properties", alice)
    for command in (
        f"producer-perf --topic {topic} --num-records 20 --record-size 10 --throughput -1",
        f"consumer-perf --topic {topic} --num-records 20",
        f"latency --topic {topic} --num-records 3 --producer-acks all --record-size 10",
        f"share-consumer-perf --topic {topic} --num-records 20 --group perf",
    ):
        code, lines = run(kafka_secure.bootstrap_servers, properties, command)
        assert code == 0, lines
