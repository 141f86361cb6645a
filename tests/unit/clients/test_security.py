from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.java_properties import from_java
from barnabas.clients.security import Security, from_properties, scram
from tests.support.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_said_is_plaintext() -> None:
    assert from_properties({"client.id": "x"}) == Security()


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_password(name: str) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", name: "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    assert from_properties(properties) == Security(None, "PLAIN", "u", "p")


def test_tls_checks_names_and_certificates_unless_told_otherwise() -> None:
    checked = from_properties({"security.protocol": "ssl"}).tls
    assert checked is not None
    assert (checked.check_hostname, checked.verify_mode) == (True, ssl.CERT_REQUIRED)
    any_name = from_properties({"security.protocol": "ssl", "ssl.endpoint.identification.algorithm": "none"}).tls
    assert any_name is not None
    assert (any_name.check_hostname, any_name.verify_mode) == (False, ssl.CERT_REQUIRED)
    anyone = from_properties({"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"}).tls
    assert anyone is not None
    assert (anyone.check_hostname, anyone.verify_mode) == (False, ssl.CERT_NONE)


@pytest.mark.parametrize(
    ("properties", "complaint"),
    [
        ({"security.protocol": "tls"}, "security.protocol is tls, and not one of plaintext, ssl"),
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism GSSAPI works only in connections of librdkafka"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}, "needs sasl.username and sasl.password"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}, "a file of the ssl.* properties cannot"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "/me.p12"}, "/me.p12 cannot be read: No such file"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "/me.jks"}, "names a Java key store"),
        ({"security.protocol": "ssl", "ssl.truststore.location": "/ca.jks"}, "keytool -exportcert"),
        ({"security.protocol": "ssl", "ssl.certificate.pem": "x", "ssl.key.pem": "y"}, "must have one private key"),
    ],
)
def test_what_cannot_be_done_is_said(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidClientConfig) as caught:
        from_properties(properties)
    assert complaint in str(caught.value)


def test_a_client_shows_its_certificate_in_whichever_form_it_has_it(tmp_path: Path) -> None:
    issued = Authority().issue("client")
    pem = issued.write(tmp_path / "client.pem")
    (tmp_path / "client.p12").write_bytes(issued.pkcs12("secret"))
    (tmp_path / "ca.pem").write_text(Authority().pem)
    trusting = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    for own in (
        {"ssl.certificate.location": str(pem), "ssl.key.location": str(pem)},
        {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(pem)},
        {"ssl.keystore.location": str(tmp_path / "client.p12"), "ssl.keystore.password": "secret"},
        {"ssl.keystore.key": issued.key, "ssl.keystore.certificate.chain": issued.certificate},
        {"ssl.key.pem": issued.encrypted_key("s"), "ssl.certificate.pem": issued.certificate, "ssl.key.password": "s"},
    ):
        context = from_properties({"security.protocol": "SSL", **trusting, **own}).tls
        assert context is not None
        assert len(context.get_ca_certs()) >= 1


def test_javas_names_and_librdkafkas_say_the_same() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" '
        'password="b\\"c";',
        "ssl.endpoint.identification.algorithm": "",
        "ssl.protocol": "TLSv1.3",
    }
    assert from_java(java) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": 'b"c',
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert from_java(from_java(java)) == from_java(java)


class Rfc7677:
    """The exchange that RFC 7677 gives as an example."""

    def __init__(self, final: bytes) -> None:
        self.sent: list[bytes] = []
        self.answers = [
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            final,
        ]

    def __call__(self, message: bytes) -> bytes:
        self.sent.append(message)
        return self.answers[len(self.sent) - 1]


def test_scram_is_that_of_the_rfc() -> None:
    exchange = Rfc7677(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    scram("SCRAM-SHA-256", "user", "pencil", exchange, nonce="rOprNGfwEbeRWgbNEkqO")
    assert exchange.sent == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    with pytest.raises(InvalidClientConfig, match="could not prove that it knows the password"):
        scram("SCRAM-SHA-256", "user", "pencil", Rfc7677(b"v=AAAA"), nonce="rOprNGfwEbeRWgbNEkqO")


def test_names_with_commas_are_escaped() -> None:
    exchange = Rfc7677(b"")
    with pytest.raises(InvalidClientConfig):
        scram("SCRAM-SHA-256", "a,b=c", "pencil", exchange)
    assert exchange.sent[0].startswith(b"n,,n=a=2Cb=3Dc,r=")


@pytest.mark.parametrize("seen_late", [True, False])
def test_a_socket_whose_other_end_is_gone_before_tls_is_not_left_open(seen_late: bool) -> None:
    class Connected(socket.socket):
        def getpeername(self) -> object:
            return ("127.0.0.1", 1) if seen_late else super().getpeername()

    plain = Connected()  # to nobody, as when the other end has just reset it
    number = plain.fileno()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ConnectionResetError, match="broker closed the connection before TLS began"):
        Security(tls=context).wrap(plain, "broker")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
