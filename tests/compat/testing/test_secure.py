"""The fixture `kafka_secure`: real clients of all kinds get in by its properties, and do what its rules allow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, Producer
from kafka import KafkaProducer

from barnabas.clients.errors import LoginFailed
from barnabas.clients.wire.diagnosis import check_login

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.testing.secure import KafkaSecure, SecureBroker


def produce(properties: dict[str, Any], topic: str) -> str | None:
    """What became of one record: the name of an error, or None."""
    told: list[str | None] = []
    producer = Producer({**properties, "log_level": 0, "message.timeout.ms": 20_000, "enable.idempotence": False})
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error.name() if error else None))
    producer.flush(30)
    return told[0]


def test_users_do_what_rules_allow(kafka_secure: KafkaSecure) -> None:
    topic, alice = kafka_secure.topic(), kafka_secure.user("alice")
    assert produce(alice.librdkafka, topic) == "TOPIC_AUTHORIZATION_FAILED"
    kafka_secure.allow(alice, "Write", "Read", topic=topic)
    assert produce(alice.librdkafka, topic) is None
    sender = KafkaProducer(**alice.kafka_python, retries=0)
    sender.send(topic, b"y").get(30)
    sender.close()
    assert asyncio.run(_read(alice.aiokafka, topic)) == [b"x", b"y"]
    kafka_secure.deny(alice, "Write", topic=topic)
    assert produce(alice.librdkafka, topic) == "TOPIC_AUTHORIZATION_FAILED"
    assert kafka_secure.values(topic, 2) == ["x", "y"], "the fixture itself is the administrator"


async def _read(keywords: dict[str, Any], topic: str) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(topic, auto_offset_reset="earliest", **keywords)
    await consumer.start()
    try:
        return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(2)]
    finally:
        await consumer.stop()


def test_a_certificate_is_a_login_of_its_own(kafka_secure: KafkaSecure) -> None:
    topic, carol = kafka_secure.topic(), kafka_secure.certificate("carol")
    kafka_secure.allow(carol, "Write", topic=topic.rpartition(".")[0], prefixed=True)
    assert produce(carol.librdkafka, topic) is None
    with pytest.raises(LoginFailed, match="does not accept the client's certificate: certificate expired"):
        check_login(carol.bootstrap_servers, kafka_secure.certificate("carol", expired=True).librdkafka)
    nobody = {"security.protocol": "SSL", "ssl.ca.location": str(kafka_secure.ca)}
    with pytest.raises(LoginFailed, match="asks for a certificate of the client"):
        check_login(carol.bootstrap_servers, nobody)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda kafka, _: {"ssl.ca.location": str(kafka.untrusted_ca())}, "a CA that is not trusted here"),
        (lambda *_: {"sasl.password": "wrong"}, "does not let user alice in by SCRAM-SHA-512"),
        (lambda *_: {"sasl.mechanism": "PLAIN"}, "PLAIN is not enabled on this listener: it takes SCRAM-SHA-512"),
        (lambda *_: {"security.protocol": "PLAINTEXT"}, "speaks SASL_SSL, by SCRAM-SHA-512, and .* is PLAINTEXT"),
        (lambda *_: {"security.protocol": "SSL"}, "speaks SASL_SSL, by SCRAM-SHA-512, and .* is SSL"),
        (lambda kafka, user: kafka.remove_user(user) or {}, "there is no such user"),
    ],
    ids=["unknown CA", "wrong password", "mechanism", "plaintext", "no login", "removed"],
)
def test_what_keeps_a_client_out_is_said(
    kafka_secure: KafkaSecure, change: Callable[..., dict[str, str]], told: str
) -> None:
    alice = kafka_secure.user("alice")
    check_login(alice.bootstrap_servers, alice.librdkafka)
    properties = {**alice.librdkafka, **change(kafka_secure, alice)}
    with pytest.raises(LoginFailed, match=told):
        check_login(alice.bootstrap_servers, properties)


def test_users_and_rules_end_with_their_test(kafka_secure: KafkaSecure, kafka_secure_broker: SecureBroker) -> None:
    with type(kafka_secure)(kafka_secure_broker, "another test") as inner:
        bob = inner.user("bob")
        inner.allow(bob, cluster=True)
        check_login(bob.bootstrap_servers, bob.librdkafka)
    with pytest.raises(LoginFailed):
        check_login(bob.bootstrap_servers, bob.librdkafka)
    with pytest.raises(TypeError, match="a rule needs something"):
        kafka_secure.allow("bob", "Read")
    consumer = Consumer({**kafka_secure.client_config, "bootstrap.servers": bob.bootstrap_servers, "group.id": "g"})
    consumer.close()
