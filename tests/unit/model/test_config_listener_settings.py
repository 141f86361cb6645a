"""Settings of single listeners, and the rules for ssl.* keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.clients.java_properties import from_java
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.properties import parse_properties
from barnabas.model.config.tls import client_auth
from barnabas.model.errors import ConfigError

ROOT = Path(__file__).parents[3]
TWO = {
    "listeners": "INSIDE://:9092,OUTSIDE://:9093",
    "listener.security.protocol.map": "INSIDE:SSL,OUTSIDE:SASL_SSL",
    "inter.broker.listener.name": "INSIDE",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "ssl.keystore.type": "PEM",
    "ssl.keystore.location": "/etc/broker.pem",
}


def test_a_setting_of_a_listener_counts_for_it_alone() -> None:
    config = BrokerConfig.load(
        TWO
        | {
            "listener.name.outside.ssl.keystore.location": "/etc/outside.pem",
            "listener.name.outside.max.connections": "7",
        }
    )
    assert config.warnings == ()
    inside, outside = config.of_listener("INSIDE"), config.of_listener("OUTSIDE")
    assert inside.text("ssl.keystore.location") == "/etc/broker.pem"
    assert outside.text("ssl.keystore.location") == "/etc/outside.pem"
    assert (inside.number("max.connections"), outside.number("max.connections")) == (2**31 - 1, 7)
    assert (inside.own_value("max.connections"), outside.own_value("max.connections")) == (None, 7)
    assert outside.name_of("ssl.keystore.location") == "listener.name.outside.ssl.keystore.location"
    assert inside.name_of("ssl.keystore.location") == "ssl.keystore.location"


def test_a_mechanism_wins_over_the_listener_and_the_listener_over_the_broker() -> None:
    config = BrokerConfig.load(
        TWO
        | {
            "connections.max.reauth.ms": "1",
            "listener.name.outside.connections.max.reauth.ms": "2",
            "listener.name.outside.scram-sha-256.connections.max.reauth.ms": "3",
        }
    )
    outside = config.of_listener("OUTSIDE")
    assert config.of_listener("INSIDE").number("connections.max.reauth.ms") == 1
    assert outside.of_mechanism("PLAIN").number("connections.max.reauth.ms") == 2
    assert outside.of_mechanism("SCRAM-SHA-256").number("connections.max.reauth.ms") == 3


def test_client_certificates_are_asked_for_on_sasl_listeners_only_by_their_own_setting() -> None:
    config = BrokerConfig.load(TWO | {"ssl.client.auth": "required"})
    assert client_auth(config.of_listener("INSIDE"), sasl=False) == "required"
    assert client_auth(config.of_listener("OUTSIDE"), sasl=True) == "none"
    config = BrokerConfig.load(TWO | {"listener.name.outside.ssl.client.auth": "requested"})
    assert client_auth(config.of_listener("OUTSIDE"), sasl=True) == "requested"


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"listener.name.OUTSIDE.ssl.key.password": "x"}, "did you mean listener.name.outside.ssl.key.password?"),
        ({"listener.name.outside.ssl.keystore.locatoin": "x"}, "did you mean listener.name.outside.ssl.keystore.lo"),
        (
            {"listener.name.outside.ssl.client.auth": "perhaps"},
            "Invalid value perhaps for configuration listener.name.outside.ssl.client.auth: String must be one of",
        ),
        ({"ssl.keystore.key": "k"}, "needs ssl.keystore.certificate.chain"),
        ({"ssl.keystore.certificate.chain": "c"}, "needs ssl.keystore.key"),
        ({"ssl.keystore.key": "k", "ssl.keystore.certificate.chain": "c"}, "both set"),
        ({"ssl.keystore.password": "p"}, "has no use with PEM"),
        ({"ssl.keystore.type": "PKCS12"}, "needs ssl.keystore.password"),
        ({"ssl.keystore.type": "BKS"}, "takes PEM and PKCS12"),
        ({"ssl.truststore.certificates": "c"}, "needs ssl.truststore.type=PEM"),
        (
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "c",
                "ssl.truststore.location": "/etc/ca.pem",
            },
            "both set",
        ),
        ({"ssl.truststore.password": "p"}, "needs ssl.truststore.location"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "no longer safe"),
        ({"ssl.enabled.protocols": "TLSv1.4"}, "is not one of"),
        ({"ssl.enabled.protocols": ""}, "is empty"),
        ({"ssl.protocol": "SSLv3"}, "it takes TLS"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "takes https"),
    ],
)
def test_what_cannot_be_used_stops_the_start(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(TWO | given)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("mechanism", ["plian", "PLAIN", "scram.sha.512"])
def test_a_mechanism_that_is_none_is_warned_of(mechanism: str) -> None:
    """A password was set for it, and nobody could log in by it."""
    config = BrokerConfig.load(TWO | {f"listener.name.outside.{mechanism}.sasl.jaas.config": "x required;"})
    assert config.warnings == (
        f"listener.name.outside.{mechanism}.sasl.jaas.config is ignored: {mechanism} is none of the mechanisms plain, "
        "scram-sha-256, scram-sha-512, oauthbearer, gssapi",
    )


def test_the_guide_to_security_starts_a_broker_without_a_warning() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    server, client, rules = re.findall(r"```properties\n(.*?)```", text.partition("## Identity")[0], re.DOTALL)
    config = BrokerConfig.load(parse_properties(server + rules))
    assert config.warnings == ()
    assert client_auth(config.of_listener("BROKERS"), sasl=False) == "required"
    assert client_auth(config.of_listener("CLIENTS"), sasl=False) == "none"
    assert from_java(parse_properties(client)) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/etc/barnabas/ca.pem",
    }


def test_a_listener_without_tls_needs_no_certificate() -> None:
    assert BrokerConfig.load({"listeners": "PLAINTEXT://:9092", "ssl.enabled.protocols": "TLSv1"}).warnings == ()


def test_the_guide_to_identity_starts_a_broker_without_a_warning() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## Identity")[2]
    server, *_ = re.findall(r"```properties\n(.*?)```", text, re.DOTALL)
    config = BrokerConfig.load(parse_properties(server))
    assert config.warnings == ()
    assert config.of_listener("SASL_PLAINTEXT").items("sasl.enabled.mechanisms") == ("SCRAM-SHA-512",)
