"""Tokens of OAUTHBEARER: whose signature counts, where keys come from, and how often they are fetched."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

from barnabas.broker.security import issuer_keys
from barnabas.broker.security.https_documents import MOST_BYTES, DocumentUnavailable, fetch
from barnabas.broker.security.issuer_keys import read_keys
from barnabas.broker.security.oauth_tokens import MOST_TRIED, OAuthTokens
from barnabas.machines.security.login_step import LoginRefused, LoginStep
from barnabas.model.clock import ManualClock
from barnabas.model.config.broker import BrokerConfig
from barnabas.model.errors import ConfigError
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = 1_700_000_000
URL = "https://issuer.example/keys"
RSA = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
EC = ECKey.generate_key("P-256", {"kid": "two"}, private=True)
STRANGER = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
CLAIMS: dict[str, Any] = {"iss": "me", "aud": "kafka", "sub": "alice", "iat": NOW, "exp": NOW + 600}
SIGNED = {
    "sasl.oauthbearer.jwks.endpoint.url": URL,
    "org.apache.kafka.sasl.oauthbearer.allowed.urls": URL,
    "sasl.oauthbearer.expected.issuer": "me",
    "sasl.oauthbearer.expected.audience": "kafka,other",
}


def config(settings: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.load(
        {
            "log.dirs": "/nowhere",
            "listeners": "PLAINTEXT://:9092,LOGIN://:9093",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            **settings,
        }
    )


class Issuer:
    """Publishes keys; counts how often they are fetched."""

    def __init__(self, *keys: Any) -> None:
        self.document = json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()
        self.fetched = 0

    def __call__(self, url: str) -> bytes:
        self.fetched += 1
        if not self.document:
            raise DocumentUnavailable("it is away")
        return self.document


def tokens(
    issuer: Callable[[str], bytes], clock: ManualClock | None = None, settings: dict[str, str] | None = None
) -> OAuthTokens:
    values = config(SIGNED if settings is None else settings).of_listener("LOGIN").of_mechanism("OAUTHBEARER")
    return OAuthTokens(values, clock or ManualClock(NOW * 1000), issuer)


def message(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


async def attempt(checked: OAuthTokens, token: str) -> LoginStep:
    """Log in with a token; as a client does, answer a refusal with one byte."""
    login = checked.begin()
    step = await login.respond(message(token))
    return step if step.identity is not None else await login.respond(b"\x01")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned(claims: dict[str, Any], alg: str = "none") -> str:
    return ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": alg}, claims)) + "."


def by_shared_secret(claims: dict[str, Any], secret: bytes) -> str:
    signed = ".".join(_base64(json.dumps(part).encode()) for part in ({"alg": "HS256", "kid": "one"}, claims))
    return f"{signed}.{_base64(hmac.digest(secret, signed.encode(), 'sha256'))}"


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256")])
async def test_a_token_that_a_key_has_signed_is_accepted(key: Any, algorithm: str) -> None:
    token = jwt.encode({"alg": algorithm, "kid": key.kid}, CLAIMS, key, algorithms=[algorithm])
    step = await attempt(tokens(Issuer(RSA, EC)), token)
    assert step.identity is not None
    assert (step.identity.principal, step.identity.expires_ms) == ("User:alice", CLAIMS["exp"] * 1000)


async def test_a_token_that_names_no_key_is_checked_with_those_that_suit_it() -> None:
    """A name (kid) is optional, and an issuer that is about to change its key publishes two."""
    for_another = RSAKey.generate_key(2048, {"kid": "three", "alg": "PS256"}, private=True)
    issuer = Issuer(for_another, STRANGER, EC, RSA)
    for key, algorithm in ((RSA, "RS256"), (STRANGER, "PS384"), (EC, "ES256"), (for_another, "PS256")):
        token = jwt.encode({"alg": algorithm}, CLAIMS, key, algorithms=[algorithm])
        assert (await attempt(tokens(issuer), token)).identity is not None
    for key in (RSAKey.generate_key(2048), RSAKey.import_key(for_another.as_pem(private=True))):
        with pytest.raises(LoginRefused):
            await attempt(tokens(issuer), jwt.encode({"alg": "RS256"}, CLAIMS, key))
    with pytest.raises(LoginRefused, match="none is of the kind that it needs"):
        await attempt(tokens(Issuer(RSA)), jwt.encode({"alg": "ES256"}, CLAIMS, EC))
    many = Issuer(*[RSAKey.import_key({**STRANGER.as_dict(), "kid": str(number)}) for number in range(MOST_TRIED)], RSA)
    with pytest.raises(LoginRefused):
        await attempt(tokens(many), jwt.encode({"alg": "RS256"}, CLAIMS, RSA))


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, STRANGER), id="of another key"),
        pytest.param(unsigned(CLAIMS), id="CVE-2026-33557: without a signature"),
        pytest.param(unsigned(CLAIMS, "RS256"), id="with an empty signature"),
        pytest.param(unsigned(CLAIMS, "NONE"), id="without a signature, in capitals"),
        pytest.param(
            by_shared_secret(CLAIMS, RSA.as_pem(private=False)),
            id="signed with the public key as a shared secret",
        ),
        pytest.param(jwt.encode({"alg": "RS256", "kid": "one"}, {**CLAIMS, "aud": "web"}, RSA), id="another audience"),
        pytest.param(jwt.encode({"alg": "RS256", "kid": "one"}, {**CLAIMS, "iss": "you"}, RSA), id="another issuer"),
        pytest.param("a.b.c", id="no token"),
        pytest.param("e30", id="one part"),
        pytest.param("W10.e30.x", id="a list as a header"),
    ],
)
async def test_any_other_token_is_refused_without_a_word_of_why(token: str) -> None:
    with pytest.raises(LoginRefused) as refused:
        await attempt(tokens(Issuer(RSA, EC)), token)
    assert refused.value.message == '{"status":"invalid_token"}'


async def test_no_token_is_accepted_while_there_are_no_keys_cve_2026_110985() -> None:
    issuer = Issuer(RSA)
    issuer.document = b""
    for token in (unsigned(CLAIMS), jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, RSA)):
        with pytest.raises(LoginRefused, match=r"no keys|without|signed"):
            await attempt(tokens(issuer), token)


async def test_keys_are_fetched_again_for_a_key_that_is_not_known_but_not_at_every_login() -> None:
    issuer, clock = Issuer(RSA), ManualClock(NOW * 1000)
    checked = tokens(issuer, clock)
    new = jwt.encode({"alg": "ES256", "kid": "two"}, CLAIMS, EC)
    for _ in range(10):
        with pytest.raises(LoginRefused):
            await attempt(checked, new)
    assert issuer.fetched == 1
    issuer.document = Issuer(RSA, EC).document
    clock.advance(10_000)
    assert (await attempt(checked, new)).identity is not None
    assert (await attempt(checked, jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, RSA))).identity is not None
    assert issuer.fetched == 2


async def test_who_logs_in_while_the_first_keys_are_fetched_waits_for_them() -> None:
    issuer = Issuer(RSA)
    fetching, going_on = threading.Event(), threading.Event()

    def fetch_slowly(url: str) -> bytes:
        fetching.set()
        assert going_on.wait(30)
        return issuer(url)

    token = jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, RSA)
    checked = tokens(fetch_slowly)
    logins = [asyncio.create_task(checked.begin().respond(message(token))) for _ in range(3)]
    assert await asyncio.to_thread(fetching.wait, 30)
    going_on.set()
    assert all(step.identity is not None for step in await asyncio.gather(*logins))
    assert issuer.fetched == 1


class SlowIssuer(Issuer):
    """Answers when it is told to."""

    def __init__(self, *keys: Any) -> None:
        super().__init__(*keys)
        self.may_answer = threading.Event()

    def __call__(self, url: str) -> bytes:
        document = super().__call__(url)
        assert self.may_answer.wait(30)
        return document


async def test_who_has_a_known_key_waits_for_no_fetch_whatever_keys_others_name() -> None:
    issuer, clock = SlowIssuer(RSA), ManualClock(NOW * 1000)
    issuer.may_answer.set()
    checked = tokens(issuer, clock)
    known = jwt.encode({"alg": "RS256", "kid": "one"}, {**CLAIMS, "exp": NOW + 10**6}, RSA)
    await attempt(checked, known)
    issuer.may_answer.clear()
    clock.advance(3_600_000)  # the keys are old, too
    made_up = [
        asyncio.ensure_future(attempt(checked, jwt.encode({"alg": "ES256", "kid": f"made up {n}"}, CLAIMS, EC)))
        for n in range(50)
    ]
    await until(lambda: issuer.fetched == 2)
    async with asyncio.timeout(10):
        for _ in range(3):
            assert (await attempt(checked, known)).identity is not None
    clock.advance(3_600_000)
    assert (await attempt(checked, known)).identity is not None
    assert issuer.fetched == 2, "one fetch at a time, however long it takes"
    made_up[0].cancel()
    issuer.may_answer.set()
    results = await asyncio.gather(*made_up, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(result, LoginRefused) for result in results[1:])
    assert checked._keys._waiting == 0
    assert issuer.fetched <= 3


async def test_tokens_that_wait_for_keys_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer = SlowIssuer(RSA)
    checked = tokens(issuer)
    token = jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, RSA)
    monkeypatch.setattr(issuer_keys, "MOST_WAITING", 3 * len(token))
    waiting = [asyncio.ensure_future(attempt(checked, token)) for _ in range(3)]
    await until(lambda: issuer.fetched == 1)
    with pytest.raises(LoginRefused, match="too many others"):
        await attempt(checked, token)
    issuer.may_answer.set()
    assert all(step.identity is not None for step in await asyncio.gather(*waiting))


async def test_keys_that_cannot_be_fetched_again_go_on_counting() -> None:
    issuer, clock = Issuer(RSA), ManualClock(NOW * 1000)
    checked = tokens(issuer, clock)
    token = jwt.encode({"alg": "RS256", "kid": "one"}, {**CLAIMS, "exp": NOW + 10**6}, RSA)
    await attempt(checked, token)
    issuer.document = b""
    clock.advance(3_600_000)
    assert (await attempt(checked, token)).identity is not None
    await until(lambda: issuer.fetched == 2)
    assert (await attempt(checked, token)).identity is not None


async def test_tokens_without_a_signature_pass_only_behind_the_key_for_development() -> None:
    checked = tokens(Issuer(), settings={"sasl.oauthbearer.unsigned.tokens.enable": "true"})
    assert (await attempt(checked, unsigned({"sub": "dev", "iat": NOW, "exp": NOW + 1}))).identity is not None
    for token in (
        unsigned({"sub": "dev", "iat": NOW - 99, "exp": NOW - 50}),
        jwt.encode({"alg": "RS256"}, CLAIMS, RSA),
        unsigned(CLAIMS, "RS256"),
    ):
        with pytest.raises(LoginRefused):
            await attempt(checked, token)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""}, "no keys to check tokens with"),
        ({"org.apache.kafka.sasl.oauthbearer.allowed.urls": ""}, "does not have"),
        ({"org.apache.kafka.sasl.oauthbearer.allowed.urls": URL + "/other"}, "does not have"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///etc/passwd"}, "does not have"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "http://169.254.169.254/"}, "must begin with https"),
        ({"sasl.oauthbearer.expected.issuer": ""}, "expected.issuer is not set"),
        ({"sasl.oauthbearer.expected.audience": ""}, "expected.audience is not set"),
        ({"sasl.oauthbearer.unsigned.tokens.enable": "true"}, "are both set"),
    ],
)
def test_a_broker_does_not_start_with_less_cve_2025_27817(changed: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        config(SIGNED | changed)


async def test_a_mechanism_may_have_its_own_settings() -> None:
    prefix = "listener.name.login.oauthbearer."
    settings = {prefix + name if name.startswith("sasl") else name: text for name, text in SIGNED.items()}
    token = jwt.encode({"alg": "RS256", "kid": "one"}, CLAIMS, RSA)
    assert (await attempt(tokens(Issuer(RSA), settings=settings), token)).identity


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "the keys.json"
    file.write_bytes(Issuer(RSA).document)
    assert [key.kid for key in read_keys(fetch(file.as_uri()))] == ["one"]
    with pytest.raises(DocumentUnavailable):
        fetch((tmp_path / "absent").as_uri())
    file.write_bytes(b" " * (MOST_BYTES + 1))
    with pytest.raises(DocumentUnavailable, match="more than"):
        fetch(file.as_uri())


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "AAAA"}]}'])
def test_a_document_without_public_keys_is_none(document: bytes) -> None:
    with pytest.raises(DocumentUnavailable):
        read_keys(document)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "ftp://127.0.0.1/", "data:,x"])
def test_nothing_but_https_is_fetched(url: str) -> None:
    with pytest.raises(DocumentUnavailable):
        fetch(url)
