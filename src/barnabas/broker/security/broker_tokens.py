"""The token by which a broker logs in to others (OAUTHBEARER): from its issuer, for its client id and secret.

A token is used for a part of its time, and then another one is asked for (sasl.login.refresh.window.factor, as in
Kafka). If the issuer cannot be reached, the old one is used for as long as it lasts. A file is read again each time:
whoever writes it renews it. One request to the issuer is under way at a time, and all that need a token wait for it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from barnabas.broker.daemon_threads import in_daemon_thread
from barnabas.broker.security.https_documents import DocumentUnavailable, fetch
from barnabas.machines.security.login_step import LoginRefused
from barnabas.machines.security.oauthbearer import LONGEST_TOKEN, read_payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.model.clock import Clock
    from barnabas.model.config.sasl import TokenLogin, UnsignedLogin

logger = logging.getLogger(__name__)

RETRY_SECONDS: Final = 10.0
"""After a request to the issuer that failed, while an old token can be used."""
UNSIGNED_SECONDS: Final = 3600


class _Token(NamedTuple):
    text: str
    renewed_ms: float
    """From when on another one is asked for."""
    ends_ms: float


class BrokerTokens:
    """Gets tokens. `share` gives the part of a token's time after which another one is asked for."""

    def __init__(
        self, login: TokenLogin, clock: Clock, share: Callable[[], float], fetch_document: Callable[..., bytes] = fetch
    ) -> None:
        self._login = login
        self._clock = clock
        self._share = share
        self._fetch_document = fetch_document
        self._token: _Token | None = None
        self._asking = asyncio.Lock()

    async def get(self) -> str:
        """A token that is not over. Raises DocumentUnavailable."""
        async with self._asking:
            token, now = self._token, self._clock.now_ms()
            if token is None or now >= token.renewed_ms:
                try:
                    token = await in_daemon_thread("broker-token", self._ask)
                except DocumentUnavailable as error:
                    if token is None or now >= token.ends_ms:
                        raise
                    logger.warning("%s issued no new token. The old one stays in use: %s", self._login.url, error)
                    token = token._replace(renewed_ms=now + RETRY_SECONDS * 1000)
                self._token = token
            return token.text

    def _ask(self) -> _Token:
        """Ask for a token, which may take a while."""
        login, now = self._login, self._clock.now_ms()
        if login.url.startswith("file:"):
            text, renewed = self._fetch_document(login.url).decode("ascii", "replace").strip(), -math.inf
        else:
            text, renewed = _token_of(self._fetch_document(login.url, *request_of(login))), math.inf
        if len(text) > LONGEST_TOKEN:
            raise DocumentUnavailable(f"its token has more than {LONGEST_TOKEN} bytes")
        try:
            ends = read_payload(text).get("exp")
        except LoginRefused as error:
            raise DocumentUnavailable(f"what it gives is no token: {error}") from None
        if isinstance(ends, bool) or not isinstance(ends, int | float) or not now < 1000 * ends < math.inf:
            raise DocumentUnavailable("its token is over, or does not say when it ends (exp)")
        return _Token(text, min(renewed, now + self._share() * (1000 * ends - now)), 1000 * ends)


def request_of(login: TokenLogin) -> tuple[bytes, dict[str, str]]:
    """Form and headers of a request for a token, by client credentials (RFC 6749, 4.4)."""
    form = {"grant_type": "client_credentials", **({"scope": login.scope} if login.scope else {})}
    credentials = base64.b64encode(f"{login.client_id}:{login.client_secret}".encode()).decode()
    return urlencode(form).encode(), {
        "Authorization": f"Basic {credentials}",
        "Content-Type": "application/x-www-form-urlencoded",
    }


def _token_of(document: bytes) -> str:
    try:
        found = json.loads(document)
        token = found.get("access_token") or found.get("id_token")
    except (ValueError, AttributeError, RecursionError):
        raise DocumentUnavailable("its answer cannot be read") from None
    if not isinstance(token, str) or not token.isascii():
        raise DocumentUnavailable("its answer has no token")
    return token


def unsigned(login: UnsignedLogin, now_ms: float) -> str:
    """A token without a signature, for development."""
    seconds = int(now_ms // 1000)
    claims: dict[str, Any] = {login.subject_claim: login.subject, "iat": seconds, "exp": seconds + UNSIGNED_SECONDS}
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
    return ".".join((*(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts), ""))


def message_of(token: str) -> bytes:
    """What a client of OAUTHBEARER sends (RFC 7628)."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()
