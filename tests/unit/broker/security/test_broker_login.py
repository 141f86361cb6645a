"""A broker logs in to another one: what it sends, and what it makes of answers that are no login."""

from __future__ import annotations

from datetime import timedelta
from io import BytesIO
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_writer
from kio.static.primitive import i64Timedelta

from barnabas.broker.security.broker_login import BrokerLogins
from barnabas.broker.settings import Settings
from barnabas.machines.security.oauthbearer import INVALID_TOKEN, read_message, read_payload
from barnabas.metadata.images.cache import MetadataCache
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.net.channel import ChannelBroken
from tests.support.sasl import PLAIN_MODULE

if TYPE_CHECKING:
    from pathlib import Path

JAAS = "listener.name.brokers.{}.sasl.jaas.config"
PLAIN = {JAAS.format("plain"): f'{PLAIN_MODULE} required username="one" password="s" user_x="y";'}
SCRAM = {JAAS.format("scram-sha-256"): 'ScramLoginModule required username="one" password="s";'}
UNSIGNED = {
    "sasl.oauthbearer.unsigned.tokens.enable": "true",
    JAAS.format("oauthbearer"): 'OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="one";',
}


class OtherBroker:
    """Answers SaslHandshake, and messages of a login with what it was told to."""

    def __init__(self, *answers: SaslAuthenticateResponse, handshake: ErrorCode = ErrorCode.none) -> None:
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self._handshake = handshake

    async def __call__(self, key: int, version: int, body: bytes, *, flexible: bool = True) -> memoryview:
        answer: Any
        if key == 17:
            answer = SaslHandshakeResponse(error_code=self._handshake, mechanisms=())
        else:
            self.asked.append(body)
            answer = self.answers.pop(0)
        data = BytesIO(b"\0" if flexible else b"")
        data.seek(0, 2)
        entity_writer(type(answer))(data, answer)
        return memoryview(data.getvalue())


def answer(message: bytes = b"", error: ErrorCode = ErrorCode.none, lifetime_ms: int = 0) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error,
        error_message=None if error is ErrorCode.none else "no",
        auth_bytes=message,
        session_lifetime=i64Timedelta.parse(timedelta(milliseconds=lifetime_ms)),
    )


async def log_in(mechanism: str, settings: dict[str, str], other: OtherBroker) -> float | None:
    config = BrokerConfig.load(
        {
            "log.dirs": "/nowhere",
            "listeners": "BROKERS://:9093",
            "listener.security.protocol.map": "BROKERS:SASL_PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "sasl.enabled.mechanisms": mechanism,
            "sasl.mechanism.inter.broker.protocol": mechanism,
            **settings,
        }
    )
    return await BrokerLogins(Settings(config, MetadataCache()), ManualClock()).log_in(other, "localhost")


async def test_plain_and_tokens_take_one_message_and_a_session_is_replaced_before_its_end() -> None:
    other = OtherBroker(answer(lifetime_ms=10_000), answer())
    assert await log_in("PLAIN", PLAIN, other) == 8.5
    assert b"\0one\0s" in other.asked[0]
    assert await log_in("OAUTHBEARER", UNSIGNED, other) is None
    sent = other.asked[1]
    token = read_message(sent[sent.index(b"n,,") : sent.rindex(b"\1") + 1]).token
    assert read_payload(token)["sub"] == "one"


@pytest.mark.parametrize(
    ("mechanism", "settings", "answers", "words"),
    [
        ("PLAIN", PLAIN, [answer(error=ErrorCode.sasl_authentication_failed)], "refused the login of this one: no"),
        ("OAUTHBEARER", UNSIGNED, [answer(INVALID_TOKEN)], "refused the token of this one"),
        ("SCRAM-SHA-256", SCRAM, [answer(b"r=other,s=AAAA,i=4096")], "challenge cannot be used"),
    ],
)
async def test_a_login_that_is_refused_breaks_the_channel(
    mechanism: str, settings: dict[str, str], answers: list[SaslAuthenticateResponse], words: str
) -> None:
    with pytest.raises(ChannelBroken, match=words):
        await log_in(mechanism, settings, OtherBroker(*answers))


async def test_a_broker_without_a_token_or_a_mechanism_says_so(tmp_path: Path) -> None:
    missing = (tmp_path / "token").as_uri()
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": missing,
        "org.apache.kafka.sasl.oauthbearer.allowed.urls": missing,
        "sasl.oauthbearer.expected.issuer": "me",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.token.endpoint.url": missing,
    }
    with pytest.raises(ChannelBroken, match=r"this broker cannot log in by OAUTHBEARER: .*No such file"):
        await log_in("OAUTHBEARER", settings, OtherBroker())
    with pytest.raises(ChannelBroken, match="unsupported_sasl_mechanism"):
        await log_in("PLAIN", PLAIN, OtherBroker(handshake=ErrorCode.unsupported_sasl_mechanism))
