"""The token of a broker: where it comes from, for how long it is used, and what is not taken for one."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.security import https_documents
from barnabas.broker.security.broker_tokens import BrokerTokens, message_of, unsigned
from barnabas.broker.security.https_documents import DocumentUnavailable, fetch
from barnabas.machines.security.oauthbearer import read_message, read_payload
from barnabas.model.clock import ManualClock
from barnabas.model.config.sasl import TokenLogin, UnsignedLogin
from tests.support.tls import Certificate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = 1_700_000_000
LOGIN = TokenLogin("https://issuer.example/token", "one", "s:ecret", "a scope")


def token(number: int, ends: object = NOW + 1000) -> str:
    return unsigned(UnsignedLogin(str(number)), NOW * 1000) if ends is None else _signed({"sub": number, "exp": ends})


def _signed(claims: dict[str, Any]) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.c2ln"


class Issuer:
    """Gives a new token each time, or what it was told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[bytes | None] = []

    def __call__(self, *request: Any) -> bytes:
        self.asked.append(request)
        answer = self.answers.pop(0) if self.answers else json.dumps({"access_token": token(len(self.asked))}).encode()
        if answer is None:
            raise DocumentUnavailable("it is away")
        return answer


async def test_a_token_is_used_for_most_of_its_time_and_asked_for_once() -> None:
    issuer, clock = Issuer(), ManualClock(NOW * 1000)
    tokens = BrokerTokens(LOGIN, clock, lambda: 0.8, issuer)
    assert set(await asyncio.gather(*(tokens.get() for _ in range(5)))) == {token(1)}
    ((url, form, headers),) = issuer.asked
    assert (url, form) == (LOGIN.url, b"grant_type=client_credentials&scope=a+scope")
    assert headers["Authorization"] == "Basic " + base64.b64encode(b"one:s:ecret").decode()
    clock.advance(799_000)
    assert await tokens.get() == token(1)
    clock.advance(2_000)
    assert await tokens.get() == token(2)


async def test_an_old_token_is_used_while_the_issuer_is_away_and_not_when_it_is_over() -> None:
    issuer, clock = Issuer(), ManualClock(NOW * 1000)
    tokens = BrokerTokens(LOGIN, clock, lambda: 0.5, issuer)
    first = await tokens.get()
    issuer.answers = [None] * 100
    clock.advance(600_000)
    for _ in range(5):
        assert await tokens.get() == first
    assert len(issuer.asked) == 2, "the issuer is left alone for a while"
    clock.advance(400_001)
    with pytest.raises(DocumentUnavailable, match="away"):
        await tokens.get()


async def test_a_file_is_read_again_for_every_login(tmp_path: Path) -> None:
    file = tmp_path / "token"
    tokens = BrokerTokens(TokenLogin(file.as_uri()), ManualClock(NOW * 1000), lambda: 0.8)
    for number in (1, 2):
        file.write_text(token(number) + "\n")
        assert await tokens.get() == token(number)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"access_token": 1}',
        b'{"access_token": "opaque"}',
        json.dumps({"access_token": token(1, NOW - 1)}).encode(),
        json.dumps({"access_token": token(1, "soon")}).encode(),
        json.dumps({"access_token": "x" * 100_000}).encode(),
        b'{"access_token": "e30.{}.\xc3\xa4"}',
    ],
)
async def test_what_is_no_token_is_not_used(answer: bytes) -> None:
    issuer = Issuer()
    issuer.answers = [answer]
    with pytest.raises(DocumentUnavailable) as refused:
        await BrokerTokens(LOGIN, ManualClock(NOW * 1000), lambda: 0.8, issuer).get()
    assert "xxx" not in str(refused.value)


def test_an_unsigned_token_says_what_brokers_for_development_want() -> None:
    text = unsigned(UnsignedLogin("broker", "name"), NOW * 1000)
    assert read_message(message_of(text)).token == text
    assert read_payload(text) == {"name": "broker", "iat": NOW, "exp": NOW + 3600}


@pytest.fixture
def https_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[Any]]]:
    """A server with a certificate that the system trusts, by what SSL_CERT_FILE says."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(
                (self.path, self.headers["Authorization"], self.rfile.read(int(self.headers["Content-Length"])))
            )
            self.send_response(302 if self.path == "/elsewhere" else 200)
            self.send_header("Location", "/token")
            self.end_headers()
            self.wfile.write(b"x" * (https_documents.MOST_BYTES + 1) if self.path == "/large" else b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    shown = Certificate.made(tmp_path, "issuer")
    monkeypatch.setenv("SSL_CERT_FILE", str(shown.authority))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(shown.certificate, shown.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def test_a_form_is_posted_over_https_and_no_redirect_is_followed(
    https_server: tuple[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, seen = https_server
    assert fetch(f"{url}/token", b"a=b", {"Authorization": "Basic x"}) == b"{}"
    assert seen == [("/token", "Basic x", b"a=b")]
    with pytest.raises(DocumentUnavailable, match="302"):
        fetch(f"{url}/elsewhere", b"a=b")
    with pytest.raises(DocumentUnavailable, match="more than"):
        fetch(f"{url}/large", b"a=b")
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(DocumentUnavailable, match="certificate"):
        fetch(f"{url}/token", b"a=b")
    assert len(seen) == 3
