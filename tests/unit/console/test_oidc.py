"""Logins by OpenID Connect: nobody ends a login that another browser began, and no provider is believed too much."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from barnabas.clients.errors import LoginFailed
from barnabas.clients.security import Security, from_properties
from barnabas.console import oidc
from barnabas.console.oidc import OidcFailed, OidcLogins, OidcSettings
from tests.support.provider import AUDIENCE, CLIENT, SECRET, Provider, running_provider

if TYPE_CHECKING:
    from collections.abc import Iterator

BACK = "http://localhost:8080/login/callback"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as provider:
        yield provider


@pytest.fixture
def logins(provider: Provider) -> OidcLogins:
    return OidcLogins(OidcSettings(issuer=provider.issuer, client_id=CLIENT, client_secret=SECRET))


def go(provider: Provider, logins: OidcLogins) -> tuple[str, dict[str, str]]:
    """A login as far as the provider's answer: what the browser keeps, and what it comes back with."""
    address, kept = logins.begin(BACK)
    assert address.startswith(f"{provider.issuer}/authorize?")
    back = provider.authorize({name: values[0] for name, values in parse_qs(urlsplit(address).query).items()})
    assert back.startswith(f"{BACK}?")
    return kept, {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}


def failure(provider: Provider, logins: OidcLogins) -> str:
    kept, answer = go(provider, logins)
    with pytest.raises(OidcFailed) as caught:
        logins.finish(kept, answer, BACK)
    return caught.value.word


def test_a_login_gives_the_token_of_the_user(provider: Provider, logins: OidcLogins) -> None:
    holder = logins.finish(*go(provider, logins), BACK)
    assert holder.user == "alice"
    token, ends = holder("")
    assert token.count(".") == 2
    assert 250 < ends - time.time() <= 300


def test_a_code_is_good_once_and_in_the_browser_that_began(provider: Provider, logins: OidcLogins) -> None:
    kept, answer = go(provider, logins)
    other, _ = go(provider, logins)
    for wrong in (None, "", "x.y", kept[:-1] + ("0" if kept[-1] != "0" else "1"), other):
        with pytest.raises(OidcFailed) as caught:
            logins.finish(wrong, answer, BACK)
        assert caught.value.word == "expired"
    with pytest.raises(OidcFailed):
        logins.finish(kept, {**answer, "state": ""}, BACK)
    assert provider.grants == [], "the provider is not asked for logins that are not ours"
    logins.finish(kept, answer, BACK)
    with pytest.raises(OidcFailed):
        logins.finish(kept, answer, BACK)


def test_a_login_of_another_process_or_of_yesterday_is_over(
    provider: Provider, logins: OidcLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, answer = go(provider, logins)
    with pytest.raises(OidcFailed):
        OidcLogins(logins.settings).finish(kept, answer, BACK)
    monkeypatch.setattr(oidc, "LOGIN_SECONDS", -1)
    assert failure(provider, logins) == "expired"


def test_what_a_provider_does_wrong_is_told_by_a_word(provider: Provider, logins: OidcLogins) -> None:
    provider.refuses = True
    assert failure(provider, logins) == "refused"
    provider.refuses, provider.nonce = False, "of another login"
    assert failure(provider, logins) == "token"
    answers: tuple[dict[str, Any], ...] = (
        {},
        {"access_token": 5},
        {"access_token": ""},
        {"access_token": "x" * 100_000},
        {"access_token": provider.sign(AUDIENCE), "id_token": "no token"},
        {"access_token": provider.sign(AUDIENCE), "id_token": provider.sign("another client")},
    )
    for provider.answer in answers:
        assert failure(provider, logins) == "token", provider.answer
    provider.answer = {"access_token": "opaque"}
    with pytest.raises(OidcFailed):
        _ = logins.finish(*go(provider, logins), BACK).user


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": None},
    ],
)
def test_a_provider_that_is_another_is_not_asked(
    provider: Provider, logins: OidcLogins, discovery: dict[str, Any]
) -> None:
    provider.discovery = discovery
    with pytest.raises(OidcFailed) as caught:
        logins.begin(BACK)
    assert caught.value.word == "provider"


def test_a_provider_that_fails_is_not_asked_by_everybody_who_begins_a_login(
    provider: Provider, logins: OidcLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each beginning waited ten seconds for one that did not answer, one after the other."""
    provider.discovery = {"issuer": "https://evil.example"}
    for _ in range(5):
        with pytest.raises(OidcFailed, match=r"evil\.example"):
            logins.begin(BACK)
    assert provider.asked == 1
    provider.discovery = {}
    monkeypatch.setattr("barnabas.console.oidc.time", clock(time.time(), time.monotonic() + oidc.FAILED_SECONDS))
    logins.begin(BACK)
    logins.begin(BACK)
    assert provider.asked == 2


def clock(now: float, monotonic: float | None = None) -> SimpleNamespace:
    return SimpleNamespace(time=lambda: now, monotonic=lambda: time.monotonic() if monotonic is None else monotonic)


def test_a_token_is_renewed_before_it_ends_and_over_when_it_is_not(
    provider: Provider, logins: OidcLogins, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = logins.finish(*go(provider, logins), BACK)
    first, ends = holder("")
    assert holder("") == (first, ends)
    monkeypatch.setattr("barnabas.console.oidc.time", clock(ends - 1))
    _, later = holder("")
    assert provider.grants == ["authorization_code", "refresh_token"]
    assert later > ends
    provider.answer = {"error": "invalid_grant"}
    monkeypatch.setattr("barnabas.console.oidc.time", clock(ends + 1000))
    with pytest.raises(LoginFailed):
        holder("")
    assert holder.is_over


def test_the_token_is_sent_in_the_form_that_brokers_read(provider: Provider, logins: OidcLogins) -> None:
    from barnabas.machines.security.oauthbearer import read_message

    holder = logins.finish(*go(provider, logins), BACK)
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": holder}
    security: Security = from_properties(given)
    sent: list[bytes] = []

    def exchange(message: bytes) -> bytes:
        sent.append(message)
        return b'{"status":"invalid_token"}' if len(sent) == 1 else b""

    security.authenticate(exchange)
    assert read_message(sent[0]).token == holder("")[0]
    assert sent[1:] == [b"\x01"]
