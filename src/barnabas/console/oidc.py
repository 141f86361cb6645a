"""Logins by OpenID Connect: a provider says who somebody is, and its token is passed on to brokers (OAUTHBEARER).

The authorization code flow with PKCE. What a login needs to remember between its two halves is in a cookie of the
browser that began it, signed by this process: nobody else can end it there, and strangers who begin logins without end
take no memory. Where the browser goes after a login is never taken from a request.

Whether a token is good is for brokers to say: a session begins when the cluster has let its token in. What the console
reads of a token is the name that it shows, of a token that a broker has checked.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from barnabas.clients.errors import LoginFailed
from barnabas.clients.web import fetch
from barnabas.console.settings import is_loopback
from barnabas.machines.security.login_step import LoginRefused
from barnabas.machines.security.oauthbearer import LONGEST_TOKEN, read_payload

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger(__name__)

DISCOVERY: Final = "/.well-known/openid-configuration"
SECONDS: Final = 10.0
MOST_BYTES: Final = 1 << 20
KNOWN_SECONDS: Final = 3600.0
"""How long the provider's addresses are kept."""
FAILED_SECONDS: Final = 5.0
"""How long a provider is not asked again that did not tell its addresses: anybody can begin a login."""
LOGIN_SECONDS: Final = 600
"""How long a login may take."""
EARLY_SECONDS: Final = 30.0
"""How long before its end a token is renewed."""
SHORTEST_SECONDS: Final = 5.0
"""How long a token is taken to be good of which a provider does not tell, or says nonsense."""
EXPIRED: Final = "expired"
"""The word for a login that was not begun here, or long ago: anybody can come back with such."""
UNKNOWN: Final = "provider"
"""The word for a provider that does not tell its addresses, which is logged here, once each time it is asked."""


class OidcFailed(Exception):
    """A login that does not come about: a word for the page, and a sentence for the log."""

    def __init__(self, word: str, sentence: str) -> None:
        super().__init__(sentence)
        self.word = word


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """The provider, and what the console is to it."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    scope: str = "openid"
    claim: str = "sub"
    """Of a token, what the cluster takes for the user's name."""
    authority: Path | None = None

    @property
    def name(self) -> str:
        """What people know it by."""
        return urlsplit(self.issuer).netloc


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """The first half of a login."""

    state: str
    nonce: str
    verifier: str
    ends: float


@dataclass(frozen=True, slots=True)
class _Provider:
    """The provider's addresses."""

    authorization: str
    token: str
    until: float


def check_address(url: str, what: str) -> str:
    """The address, if what is sent there stays secret; raises OidcFailed."""
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        return url
    raise OidcFailed(UNKNOWN, f"{what} is {url}: it has to begin with https://")


class OidcLogins:
    """Begins and ends logins."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._key = secrets.token_bytes(32)
        self._provider: _Provider | None = None
        self._failed: tuple[float, OidcFailed] | None = None
        """Until when the provider is not asked again, and what was wrong."""
        self._lock = threading.Lock()

    def begin(self, redirect_uri: str) -> tuple[str, str]:
        """Where the browser has to go, and what it has to keep. Asks the provider; raises OidcFailed."""
        pending = PendingLogin(
            secrets.token_urlsafe(24), secrets.token_urlsafe(24), secrets.token_urlsafe(48), time.time() + LOGIN_SECONDS
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(pending.verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self.settings.scope,
            "state": pending.state,
            "nonce": pending.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = self._find_provider().authorization
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", self._sign(pending)

    def finish(self, kept: str | None, answer: Mapping[str, str], redirect_uri: str) -> TokenHolder:
        """Exchange what the provider sent back for a token; raises OidcFailed."""
        pending = self._open(kept)
        if not hmac.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
            raise OidcFailed(EXPIRED, "a login came back that was not begun in this browser")
        if "code" not in answer:
            raise OidcFailed("refused", f"the provider refused a login: {answer.get('error', '')[:100]!r}")
        holder = TokenHolder(self)
        identity = holder.take(
            {
                "grant_type": "authorization_code",
                "code": answer["code"],
                "redirect_uri": redirect_uri,
                "code_verifier": pending.verifier,
            }
        )
        if identity is not None:
            self._check_identity(identity, pending.nonce)
        return holder

    def ask_token(self, asked: Mapping[str, str]) -> dict[str, Any]:
        """What the provider answers to a request for a token; raises OidcFailed."""
        provider, settings = self._find_provider(), self.settings
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        form = dict(asked)
        if settings.client_secret is None:
            form["client_id"] = settings.client_id
        else:
            pair = urlencode({settings.client_id: settings.client_secret}).replace("=", ":", 1)
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return self._ask(provider.token, "token", headers, urlencode(form).encode())

    def _find_provider(self) -> _Provider:
        with self._lock:
            now = time.monotonic()
            if self._provider is not None and now < self._provider.until:
                return self._provider
            if self._failed is not None and now < self._failed[0]:
                raise OidcFailed(self._failed[1].word, str(self._failed[1]))
            try:
                self._provider, self._failed = self._ask_provider(), None
            except OidcFailed as error:
                self._failed = time.monotonic() + FAILED_SECONDS, error
                log.warning("Nobody can log in by OpenID Connect: %s", error)
                raise
            return self._provider

    def _ask_provider(self) -> _Provider:
        issuer = check_address(self.settings.issuer, "the provider")
        told = self._ask(f"{issuer.rstrip('/')}{DISCOVERY}", UNKNOWN)
        if told.get("issuer") != issuer:
            raise OidcFailed(UNKNOWN, f"{issuer} says that it is {str(told.get('issuer'))[:200]!r}")
        places = [told.get(name) for name in ("authorization_endpoint", "token_endpoint")]
        if not all(isinstance(each, str) for each in places):
            raise OidcFailed(UNKNOWN, f"{issuer} does not tell its addresses")
        authorization, token = (check_address(str(each), "an address of the provider") for each in places)
        return _Provider(authorization, token, time.monotonic() + KNOWN_SECONDS)

    def _ask(
        self, url: str, word: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> dict[str, Any]:
        try:
            told = json.loads(
                fetch(
                    url,
                    seconds=SECONDS,
                    most_bytes=MOST_BYTES,
                    headers=headers,
                    body=body,
                    authority=self.settings.authority,
                )
            )
        except (OSError, ValueError, RecursionError) as error:
            raise OidcFailed(word, f"{url} did not answer as it should: {error}") from error
        if not isinstance(told, dict):
            raise OidcFailed(word, f"{url} answered with something that is no JSON object")
        return told

    def _check_identity(self, identity: str, nonce: str) -> None:
        """That an identity token, which came from the provider itself, is of this login and for this console."""
        try:
            claims = read_payload(identity)
        except LoginRefused as error:
            raise OidcFailed("token", f"the identity token cannot be read: {error}") from error
        audience = claims.get("aud")
        meant = self.settings.client_id in (audience if isinstance(audience, list) else [audience])
        is_ours = hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode())
        if claims.get("iss") != self.settings.issuer or not meant or not is_ours:
            raise OidcFailed("token", "the identity token is of another login, another client or another provider")

    # What the browser keeps

    def _sign(self, pending: PendingLogin) -> str:
        text = json.dumps([pending.state, pending.nonce, pending.verifier, pending.ends])
        body = base64.urlsafe_b64encode(text.encode()).decode()
        return f"{body}.{self._signature(body)}"

    def _signature(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()

    def _open(self, kept: str | None) -> PendingLogin:
        body, _, signature = (kept or "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(body).encode()):
            raise OidcFailed(EXPIRED, "a login came back that was not begun in this browser, or before a restart")
        pending = PendingLogin(*json.loads(base64.urlsafe_b64decode(body)))
        if time.time() > pending.ends:
            raise OidcFailed(EXPIRED, f"a login took longer than {LOGIN_SECONDS} s")
        return pending


class TokenHolder:
    """The token of one session, which is renewed while the provider does that. Threads share it."""

    def __init__(self, logins: OidcLogins) -> None:
        self._logins = logins
        self._token = ""
        self._refresh: str | None = None
        self._ends = self._renew_at = 0.0
        self._lock = threading.Lock()
        self._is_forgotten = self._is_refused = False
        """Whether the session has ended; whether the provider did not renew the token when it was last asked."""

    @property
    def is_over(self) -> bool:
        """Whether there is no token any more, and will be none."""
        return self._is_forgotten or (self._is_refused and time.time() >= self._ends)

    def take(self, asked: Mapping[str, str]) -> str | None:
        """Get a token from the provider; its identity token, if there is one. Raises OidcFailed."""
        told = self._logins.ask_token(asked)
        token, lasts = told.get("access_token"), told.get("expires_in")
        if not isinstance(token, str) or not 0 < len(token) <= LONGEST_TOKEN:
            raise OidcFailed("token", f"the provider sent no access token: {str(told.get('error'))[:100]!r}")
        self._token = token
        good = isinstance(lasts, int | float) and not isinstance(lasts, bool) and 0 < lasts < 1e9
        seconds = float(lasts) if good else SHORTEST_SECONDS  # type: ignore[arg-type]
        self._ends = time.time() + seconds
        self._renew_at = self._ends - min(EARLY_SECONDS, seconds / 3)
        refresh, identity = told.get("refresh_token"), told.get("id_token")
        if isinstance(refresh, str):  # without a new one, the old one is still good
            self._refresh = refresh
        return identity if isinstance(identity, str) else None

    @property
    def user(self) -> str:
        """Whom the token names; raises OidcFailed. Believed only once a broker has let the token in."""
        claim = self._logins.settings.claim
        try:
            found = read_payload(self._token).get(claim)
        except LoginRefused as error:
            raise OidcFailed("token", f"the access token is not one that brokers can read: {error}") from error
        if not isinstance(found, str) or not found:
            raise OidcFailed("token", f"the access token has no claim {claim}")
        return found

    def __call__(self, _: str = "") -> tuple[str, float]:
        """A token and when it ends, in librdkafka's way (oauth_cb). Raises LoginFailed."""
        with self._lock:
            if not self.is_over and time.time() > self._renew_at:
                self._renew()
            if self.is_over:
                raise LoginFailed("Your login is over. Log in again.")
            return self._token, self._ends

    def _renew(self) -> None:
        if self._refresh is None:
            self._is_refused = True
            return
        try:
            self.take({"grant_type": "refresh_token", "refresh_token": self._refresh})
        except OidcFailed:
            self._is_refused = True  # while the old token is good it serves, and this is tried again
        else:
            self._is_refused = False

    def forget(self) -> None:
        """Forget the token."""
        self._is_forgotten, self._token, self._refresh = True, "", None
