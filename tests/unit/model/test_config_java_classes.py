"""A broker does not run without the Java class that somebody relies on for identity, permission or quotas."""

from __future__ import annotations

import re

import pytest

from barnabas.model.config.authorizer import check_classes
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError

KAFKA = "org.apache.kafka.common.security"
OTHERS = {
    "alter.config.policy.class.name": "com.example.Policy",
    "client.quota.callback.class": "com.example.Quotas",
    "create.topic.policy.class.name": "com.example.Policy",
    "principal.builder.class": "com.example.DefaultKafkaPrincipalBuilder",
    "sasl.client.callback.handler.class": "com.example.Handler",
    "sasl.login.class": "com.example.Login",
    "sasl.oauthbearer.jwt.validator.class": f"{KAFKA}.oauthbearer.ClientJwtValidator",
    "ssl.engine.factory.class": "com.example.Engines",
    "ssl.trustmanager.algorithm": "TrustAnybody",
}
OF_LISTENERS = {
    f"listener.name.plaintext.{name}": text
    for name, text in OTHERS.items()
    if name.startswith(("principal.", "sasl.", "ssl."))
}
OF_MECHANISMS = {
    f"listener.name.plaintext.oauthbearer.{name}": OTHERS[name]
    for name in ("sasl.login.class", "sasl.oauthbearer.jwt.validator.class")
}
OWN = {
    "principal.builder.class": f"{KAFKA}.authenticator.DefaultKafkaPrincipalBuilder",
    "sasl.client.callback.handler.class": f"{KAFKA}.authenticator.SaslClientCallbackHandler",
    "sasl.login.class": f"{KAFKA}.authenticator.DefaultLogin",
    "sasl.oauthbearer.jwt.validator.class": f"{KAFKA}.oauthbearer.DefaultJwtValidator",
    "ssl.engine.factory.class": f"{KAFKA}.ssl.DefaultSslEngineFactory",
    "ssl.trustmanager.algorithm": "PKIX",
    "create.topic.policy.class.name": "",
}


@pytest.mark.parametrize(("name", "text"), (OTHERS | OF_LISTENERS | OF_MECHANISMS).items())
def test_a_class_that_decides_and_cannot_be_run_stops_the_start(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{re.escape(f'{name} is {text}')}: Barnabas runs no Java classes"):
        BrokerConfig.load({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.client.callback.handler.class", f"{KAFKA}.kerberos.KerberosClientCallbackHandler"),
        *(("ssl.trustmanager.algorithm", text) for text in ("SunX509", "SunPKIX", "X509", "X.509")),
    ],
)
def test_other_names_of_what_kafka_and_java_do_by_themselves_are_taken(name: str, text: str) -> None:
    check_classes({name: text})


def test_the_classes_of_kafka_are_taken_without_a_warning() -> None:
    assert BrokerConfig.load(OWN).warnings == ()
    check_classes({"metric.reporters": "com.example.Reporter"})
