"""GSSAPI before there is a client: what a listener needs, and what is said where it is missing."""

from __future__ import annotations

import sys

import pytest

from barnabas.broker.security.kerberos import Kerberos
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError, StartupError

KEY = "listener.name.login.gssapi.sasl.jaas.config"
MODULE = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "log.dirs": "/nowhere",
            "listeners": "PLAINTEXT://:9092,LOGIN://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            **{name.replace("__", "."): text for name, text in settings.items()},
        }
    )


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "offers GSSAPI .*and has no keytab: set listener.name.login.gssapi.sasl.jaas.config"),
        ({KEY: f'{MODULE} principal="kafka/h@R";'}, "has no keytab"),
        ({KEY: f'{MODULE} keyTab="/k";'}, "has no keytab"),
        ({KEY: 'a.b.PlainLoginModule required keyTab="/k" principal="p";'}, "GSSAPI needs Krb5LoginModule"),
        (
            {KEY: f'{MODULE} keyTab="/k" principal="kafka/h@R";', "sasl.kerberos.service.name": "other"},
            "which is not one of the service other",
        ),
    ],
)
def test_a_listener_needs_a_keytab_and_the_principal_of_its_service(settings: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config(**settings)


def test_a_missing_package_is_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = config(**{KEY: f'{MODULE} keyTab="/k" principal="kafka/h@R";'})
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(StartupError, match=r"pip install 'barnabas\[kerberos\]'"):
        Kerberos(loaded.of_listener("LOGIN").of_mechanism("GSSAPI"))
