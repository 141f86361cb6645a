"""librdkafka logs in with tokens that an issuer has signed, and again, and is refused with other tokens."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Producer
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.support.sasl import LoginBroker, login_broker
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
STRANGER = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
TOKEN_SECONDS = 60
SESSION_MS = 4500
"""librdkafka logs in again when nine tenths are over: what is left has to do on a busy machine."""


@pytest.fixture(scope="module")
def oauth_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoginBroker]:
    folder = tmp_path_factory.mktemp("oauth")
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [KEY.as_dict(private=False)]}))
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.expected.audience": "kafka",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    with login_broker(folder, settings) as broker:
        yield broker


def client(broker: LoginBroker, key: Any, issued: list[float], errors: list[KafkaError]) -> Producer:
    def token(_: str) -> tuple[str, float]:
        now = time.time()
        issued.append(now)
        claims = {"iss": "me", "aud": "kafka", "sub": "alice", "iat": int(now), "exp": int(now) + TOKEN_SECONDS}
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, key), now + TOKEN_SECONDS

    return Producer(
        {
            "bootstrap.servers": broker.login_address,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": token,
            "error_cb": errors.append,
            "log_level": 0,
        }
    )


def test_a_client_sends_for_longer_than_its_session_lasts(oauth_broker: LoginBroker) -> None:
    issued: list[float] = []
    errors: list[KafkaError] = []
    failed: list[object] = []
    producer = client(oauth_broker, KEY, issued, errors)
    assert producer.list_topics(timeout=30).brokers
    producer.poll(0)
    errors.clear()  # before it has its first token, librdkafka complains of that
    ends = time.monotonic() + 2 * SESSION_MS / 1000
    while time.monotonic() < ends:
        producer.produce("oauth", b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0.01)
    assert producer.flush(30) == 0
    assert failed == []
    assert issued
    assert errors == []


def test_a_token_of_somebody_else_does_not_get_in(oauth_broker: LoginBroker) -> None:
    errors: list[KafkaError] = []
    producer = client(oauth_broker, STRANGER, [], errors)
    wait_until(lambda: producer.poll(0.1) is not None and errors, "an error", 30)
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid_token" in errors[0].str()
