"""An OpenID provider that lets everybody in as alice, for logins to the console; it can be told to misbehave."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

if TYPE_CHECKING:
    from collections.abc import Iterator

CLIENT: Final = "barnabas-console"
SECRET: Final = "the secret & of the console"
AUDIENCE: Final = "kafka"


class Provider:
    """What the provider knows, and what it was asked for."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"}, private=True)
        self.issuer = ""
        self.seconds = 300
        """How long tokens are good."""
        self.refuses = False
        self.nonce: str | None = None
        """A nonce in place of the right one."""
        self.discovery: dict[str, Any] = {}
        """What it says otherwise of itself."""
        self.answer: dict[str, Any] | None = None
        """What it answers in place of a token."""
        self.asked = 0
        """How often it was asked for its addresses."""
        self.grants: list[str] = []
        self.codes: dict[str, dict[str, str]] = {}

    @property
    def keys(self) -> str:
        """The keys that brokers check tokens with."""
        return json.dumps({"keys": [self.key.as_dict(private=False)]})

    def describe(self) -> dict[str, Any]:
        """Its addresses."""
        self.asked += 1
        told = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
        }
        return told | self.discovery

    def authorize(self, asked: dict[str, str]) -> str:
        """Where the browser goes on."""
        assert asked["client_id"] == CLIENT
        assert asked["code_challenge_method"] == "S256"
        assert asked["response_type"] == "code"
        if self.refuses:
            answer = {"error": "access_denied", "error_description": "<script>window.harmed = 1</script>"}
        else:
            code = f"code-{len(self.codes)}"
            self.codes[code] = asked
            answer = {"code": code}
        return f"{asked['redirect_uri']}?{urlencode({**answer, 'state': asked['state']})}"

    def token(self, asked: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        """What a client gets for a code or a refresh token."""
        self.grants.append(asked["grant_type"])
        pair = base64.b64encode(urlencode({CLIENT: SECRET}).replace("=", ":", 1).encode()).decode()
        if authorization != f"Basic {pair}":
            return 401, {"error": "invalid_client"}
        if self.answer is not None:
            return 200, self.answer
        nonce = None
        if asked["grant_type"] == "authorization_code":
            begun = self.codes.pop(asked["code"], None)
            digest = base64.urlsafe_b64encode(hashlib.sha256(asked["code_verifier"].encode()).digest())
            if begun is None or digest.rstrip(b"=").decode() != begun["code_challenge"]:
                return 400, {"error": "invalid_grant"}
            assert asked["redirect_uri"] == begun["redirect_uri"]
            nonce = self.nonce or begun["nonce"]
        told = {"access_token": self.sign(AUDIENCE), "expires_in": self.seconds, "refresh_token": "again"}
        return 200, told | ({} if nonce is None else {"id_token": self.sign(CLIENT, nonce=nonce)})

    def sign(self, audience: str, **claims: str) -> str:
        """A token of alice."""
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": audience, "sub": "alice", **claims}
        return jwt.encode({"alg": "RS256", "kid": "one"}, {**claims, "iat": now, "exp": now + self.seconds}, self.key)


@contextmanager
def running_provider() -> Iterator[Provider]:
    """A provider for as long as the block lasts."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize({k: v[0] for k, v in parse_qs(parts.query).items()}))
                self.end_headers()
            else:
                self._send(200, provider.describe())

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"])).decode()
            asked = {name: values[0] for name, values in parse_qs(body).items()}
            self._send(*provider.token(asked, self.headers.get("authorization", "")))

        def _send(self, status: int, value: dict[str, Any]) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
