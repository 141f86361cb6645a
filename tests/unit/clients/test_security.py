from __future__ import annotations

import ssl

import pytest

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.security import Security, from_properties, scram


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
        ({"security.protocol": "sasl_ssl"}, "sasl.mechanism GSSAPI does not work with this command"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN"}, "needs sasl.username and sasl.password"),
        ({"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}, "a file of the ssl.* properties cannot"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "/me.p12"}, "give files in PEM with ssl.certificate"),
    ],
)
def test_what_cannot_be_done_is_said(properties: dict[str, str], complaint: str) -> None:
    with pytest.raises(InvalidClientConfig) as caught:
        from_properties(properties)
    assert complaint in str(caught.value)


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
    scram("sha256", "user", "pencil", exchange, nonce="rOprNGfwEbeRWgbNEkqO")
    assert exchange.sent == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    ]


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    with pytest.raises(InvalidClientConfig, match="could not prove that it knows the password"):
        scram("sha256", "user", "pencil", Rfc7677(b"v=AAAA"), nonce="rOprNGfwEbeRWgbNEkqO")


def test_names_with_commas_are_escaped() -> None:
    exchange = Rfc7677(b"")
    with pytest.raises(InvalidClientConfig):
        scram("sha256", "a,b=c", "pencil", exchange)
    assert exchange.sent[0].startswith(b"n,,n=a=2Cb=3Dc,r=")
