"""What jobs gave to Java's clients, in librdkafka's words."""

from __future__ import annotations

import logging

import pytest

from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.spark.client_properties import against_idempotence, client_properties, without_api_timeout
from barnabas.pipelines.spark.write.marker_groups import MarkerGroup
from barnabas.pipelines.spark.write.sending import RecordSender


def test_what_librdkafka_knows_is_passed_on() -> None:
    given = {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", "isolation.level": "read_uncommitted"}
    assert client_properties(given) == given


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_the_password_in_a_jaas_line(module: str) -> None:
    line = f'org.apache.kafka.common.security.{module} required username="me" password=\'it\\\'s "x"\';'
    assert client_properties({"sasl.jaas.config": line}) == {"sasl.username": "me", "sasl.password": 'it\'s "x"'}


def test_a_login_module_of_java_alone_is_refused() -> None:
    line = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    with pytest.raises(InvalidOption, match="only Java has"):
        client_properties({"sasl.jaas.config": line})


def test_a_login_by_a_delegation_token_is_refused_with_words() -> None:
    line = 'a.ScramLoginModule required username="id" password="hmac" tokenauth="true";'
    with pytest.raises(InvalidOption, match="delegation token"):
        client_properties({"sasl.jaas.config": line})


def test_a_jaas_line_without_a_password_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no password"):
        client_properties({"sasl.jaas.config": "a.PlainLoginModule required username=me;"})


def test_stores_in_pem() -> None:
    given = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert client_properties(given) == {
        "ssl.ca.location": "/ca.pem",
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_a_java_key_store_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidOption, match="keytool -exportcert"):
        client_properties({"ssl.truststore.location": "/trust.jks"})
    for given in ({"ssl.keystore.location": "/me.jks"}, {"ssl.keystore.location": "/me", "ssl.keystore.type": "JKS"}):
        with pytest.raises(InvalidOption, match="keytool -importkeystore"):
            client_properties(given)


def test_a_pkcs12_key_store_is_librdkafkas_too() -> None:
    given = {"ssl.keystore.location": "/me.p12", "ssl.keystore.type": "PKCS12", "ssl.keystore.password": "x"}
    assert client_properties(given) == {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "x"}


@pytest.mark.parametrize("name", ["auto.offset.reset", "enable.auto.commit", "key.deserializer", "transactional.id"])
def test_what_the_source_decides_cannot_be_set(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"kafka.{name} cannot be set"):
        client_properties({name: "x"})


def test_what_means_nothing_to_librdkafka_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert client_properties({"max.poll.records": "500"}) == {}
    assert "kafka.max.poll.records has no effect" in caplog.text


@pytest.mark.parametrize("yes", ["true", "True", "t", "1"])
def test_idempotence_can_be_asked_for_in_all_words_of_librdkafka(yes: str) -> None:
    assert against_idempotence({"enable.idempotence": yes, "acks": "-1"}) == []


@pytest.mark.parametrize("name", ["enable.idempotence", "acks", "retries"])
def test_what_is_against_idempotence_is_named(name: str) -> None:
    assert against_idempotence({name: "0"}) == [name]


def test_how_long_we_ask_again_is_no_business_of_librdkafkas() -> None:
    """It would take it for how long a connection may be silent, up to five minutes."""
    given = {"bootstrap.servers": "127.0.0.1:1", "default.api.timeout.ms": "600000"}
    assert without_api_timeout(given) == {"bootstrap.servers": "127.0.0.1:1"}
    with MarkerGroup("g", given), RecordSender(given):
        pass
