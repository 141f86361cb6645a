"""How brokers log in to each other, as their settings say it."""

from __future__ import annotations

import pytest

from barnabas.model.config.broker import BrokerConfig
from barnabas.model.config.sasl import (
    BrokerLogin,
    PasswordLogin,
    TicketLogin,
    TokenLogin,
    UnsignedLogin,
    broker_login,
)
from barnabas.model.errors import ConfigError

MECHANISM = "sasl.mechanism.inter.broker.protocol"
TOKENS = "https://issuer.example/token"
ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
PASSWORDS = {
    f"listener.name.brokers.{name}.sasl.jaas.config": f'{module} required username="{name}" password="p" user_x="y";'
    for name, module in (("plain", "PlainLoginModule"), ("scram-sha-512", "ScramLoginModule"))
}
KERBEROS = {
    "sasl.enabled.mechanisms": "GSSAPI,SCRAM-SHA-512",
    "listener.name.brokers.gssapi.sasl.jaas.config": (
        'Krb5LoginModule required useKeyTab=true keyTab="/k" principal="kafka/one@EXAMPLE.ORG";'
    ),
}
OAUTH = {
    "sasl.enabled.mechanisms": "OAUTHBEARER",
    MECHANISM: "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
    ALLOWED: f"file:///keys,file:///token,{TOKENS}",
    "sasl.oauthbearer.expected.issuer": "me",
    "sasl.oauthbearer.expected.audience": "kafka",
    "sasl.oauthbearer.token.endpoint.url": TOKENS,
    "listener.name.brokers.oauthbearer.sasl.jaas.config": (
        'OAuthBearerLoginModule required clientId="one" clientSecret="s" scope="all";'
    ),
}
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


def login(settings: dict[str, str]) -> BrokerLogin | None:
    config = BrokerConfig.load(
        {
            "log.dirs": "/nowhere",
            "listeners": "BROKERS://:9093",
            "listener.security.protocol.map": "BROKERS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            **settings,
        }
    )
    return broker_login(config.of_listener("BROKERS"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (
            {**PASSWORDS, "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512", MECHANISM: "SCRAM-SHA-512"},
            PasswordLogin("SCRAM-SHA-512", "scram-sha-512", "p"),
        ),
        ({**PASSWORDS, "sasl.enabled.mechanisms": "PLAIN"}, PasswordLogin("PLAIN", "plain", "p")),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, None),
        ({**PASSWORDS, **KERBEROS}, TicketLogin("kafka/one@EXAMPLE.ORG", "/k", "kafka")),
        (
            {**KERBEROS, MECHANISM: "GSSAPI", "sasl.kerberos.service.name": "kafka"},
            TicketLogin("kafka/one@EXAMPLE.ORG", "/k", "kafka"),
        ),
        (OAUTH, TokenLogin(TOKENS, "one", "s", "all")),
        (
            {
                **OAUTH,
                "sasl.oauthbearer.client.credentials.client.id": "two",
                "listener.name.brokers.oauthbearer.sasl.oauthbearer.client.credentials.client.secret": "t",
                "sasl.oauthbearer.sub.claim.name": "name",
                "listener.name.brokers.oauthbearer.sasl.login.callback.handler.class": HANDLER,
            },
            TokenLogin(TOKENS, "two", "t", "all", "name"),
        ),
        (
            {
                **OAUTH,
                "sasl.oauthbearer.token.endpoint.url": "file:///token",
                "listener.name.brokers.oauthbearer.sasl.jaas.config": "OAuthBearerLoginModule required;",
            },
            TokenLogin("file:///token"),
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                MECHANISM: "OAUTHBEARER",
                "sasl.oauthbearer.unsigned.tokens.enable": "true",
                "listener.name.brokers.oauthbearer.sasl.jaas.config": (
                    'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
                ),
            },
            UnsignedLogin("broker"),
        ),
    ],
)
def test_brokers_log_in_by_any_mechanism(settings: dict[str, str], expected: BrokerLogin | None) -> None:
    assert login(settings) == expected


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({**PASSWORDS, "sasl.enabled.mechanisms": "PLAIN", MECHANISM: "SCRAM-SHA-512"}, "does not offer"),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-512", MECHANISM: "SCRAM-SHA-512"}, "no user name and password"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": ""}, "have no tokens"),
        ({**OAUTH, "sasl.oauthbearer.token.endpoint.url": "http://issuer.example"}, "must begin with https"),
        ({**OAUTH, ALLOWED: "file:///keys"}, "does not have"),
        (
            {**OAUTH, "listener.name.brokers.oauthbearer.sasl.jaas.config": "OAuthBearerLoginModule required;"},
            "nothing to get tokens with",
        ),
        ({**OAUTH, "sasl.oauthbearer.jwt.retriever.class": "a.b.JwtBearerJwtRetriever"}, "Barnabas takes"),
        ({**OAUTH, "sasl.login.callback.handler.class": "org.example.Mine"}, "Barnabas takes"),
        ({**OAUTH, "sasl.oauthbearer.assertion.file": "/a"}, "with no assertion"),
        ({**OAUTH, "sasl.oauthbearer.assertion.private.key.file": "/k"}, "with no assertion"),
        (
            {**OAUTH, "listener.name.brokers.oauthbearer.sasl.oauthbearer.assertion.template.file": "/t"},
            r"listener\.name\.brokers\.oauthbearer\.sasl.*with no assertion",
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                MECHANISM: "OAUTHBEARER",
                "sasl.oauthbearer.unsigned.tokens.enable": "true",
            },
            "names no user",
        ),
    ],
)
def test_a_broker_that_could_not_log_in_does_not_start(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        login(settings)


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr((PasswordLogin("PLAIN", "x", "hidden"), TokenLogin(TOKENS, "x", "hidden")))
