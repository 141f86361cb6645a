"""Tokens of OAUTHBEARER: the keys that sign them, and whether a token was signed by one of them.

The keys (JWKS) come from a file or over https, from the one address that is configured, if the list of allowed
addresses has it: whoever may change a broker's configuration must not make it read other files or reach inside other
networks (CVE-2025-27817). Redirects are not followed. They are fetched in a thread, again after
sasl.oauthbearer.jwks.endpoint.refresh.ms, and sooner when a token names a key that is not among them, but not more
often than sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms allows. While there are no keys, no token is accepted.

Only signatures that need a private key count: with a shared secret (HS256), the public key itself could be taken for
the secret. A token without a signature is accepted only by a broker whose `sasl.oauthbearer.unsigned.tokens.enable`
says so, and then none with one is looked at.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from barnabas.machines.security.login_step import LoginRefused, LoginStep
from barnabas.machines.security.oauthbearer import INVALID_TOKEN, Expectations, identify, read_message
from barnabas.model.base_error import BarnabasError
from barnabas.model.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from joserfc.jwk import KeySet

    from barnabas.machines.security.oauthbearer import BearerMessage
    from barnabas.model.clock import Clock
    from barnabas.model.config.per_listener import ListenerValues

logger = logging.getLogger(__name__)

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "Ed25519",
    "EdDSA",
)
MOST_KEY_BYTES: Final = 1024 * 1024
FETCH_SECONDS: Final = 10.0
"""To wait for the next bytes of the keys."""
MOST_FETCH_SECONDS: Final = 20.0
"""To wait for all of them."""


class KeysUnavailable(BarnabasError):
    """The keys cannot be read, or are none."""


class OAuthTokens:
    """The tokens of one listener."""

    def __init__(self, values: ListenerValues, clock: Clock, fetch: Callable[[str], bytes] | None = None) -> None:
        _require_joserfc()
        self._clock = clock
        self._fetch = fetch or fetch_keys
        self._accepts_unsigned = values.flag("sasl.oauthbearer.unsigned.tokens.enable")
        self._url = values.text_or_none("sasl.oauthbearer.jwks.endpoint.url")
        self._expected = Expectations(
            None if self._accepts_unsigned else values.text("sasl.oauthbearer.expected.issuer"),
            frozenset(values.items("sasl.oauthbearer.expected.audience")),
            values.text("sasl.oauthbearer.sub.claim.name"),
            values.number("sasl.oauthbearer.clock.skew.seconds"),
        )
        self._refresh_ms = values.number("sasl.oauthbearer.jwks.endpoint.refresh.ms")
        self._backoff_ms = values.number("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms")
        self._keys: KeySet | None = None
        self._fetched_ms = 0
        self._tried_ms: int | None = None
        self._fetching = asyncio.Lock()

    def begin(self) -> OAuthLogin:
        """Begin a login."""
        return OAuthLogin(self.check)

    async def check(self, message: BearerMessage) -> LoginStep:
        """Who a token stands for. Raises LoginRefused."""
        claims = read_unsigned(message.token) if self._accepts_unsigned else await self._verified(message.token)
        identity = identify(claims, self._expected, message.authorization_id, self._clock.now_ms())
        return LoginStep(b"", identity)

    async def _verified(self, token: str) -> Mapping[str, object]:
        """The claims of a token that one of the keys has signed."""
        keys = await self._current_keys(_key_id(token))
        return await asyncio.to_thread(verify, token, keys)

    async def _current_keys(self, key_id: str | None) -> KeySet:
        """The keys, fetched again if they are old or do not have this one.

        Who needs a key that is not there waits for a fetch that is under way, as all do that log in when a broker has
        just started; others wait for nobody.
        """
        if not _has(self._keys, key_id) or self._should_fetch(key_id):
            async with self._fetching:
                if self._should_fetch(key_id):
                    await self._fetch_keys(self._clock.now_ms())
        if self._keys is None:
            raise LoginRefused("there are no keys to check the token's signature with")
        return self._keys

    def _should_fetch(self, key_id: str | None) -> bool:
        now = self._clock.now_ms()
        if self._tried_ms is not None and now - self._tried_ms < self._backoff_ms:
            return False
        return now - self._fetched_ms >= self._refresh_ms or not _has(self._keys, key_id)

    async def _fetch_keys(self, now: int) -> None:
        self._tried_ms = now
        try:
            assert self._url is not None  # the configuration was checked
            async with asyncio.timeout(MOST_FETCH_SECONDS):
                document = await asyncio.to_thread(self._fetch, self._url)
            self._keys, self._fetched_ms = read_keys(document), now
        except (KeysUnavailable, TimeoutError) as error:
            logger.error("The keys of OAUTHBEARER tokens cannot be fetched from %s: %s", self._url, error)


class OAuthLogin:
    """A login by OAUTHBEARER. A token that is refused is answered first, as the mechanism has it."""

    def __init__(self, check: Callable[[BearerMessage], Awaitable[LoginStep]]) -> None:
        self._check = check
        self._refused: LoginRefused | None = None

    async def respond(self, message: bytes) -> LoginStep:
        """Check the token; after one that was refused, the client's next message ends the login."""
        if self._refused is not None:
            raise LoginRefused(str(self._refused), self._refused.message or INVALID_TOKEN.decode())
        try:
            return await self._check(read_message(message))
        except LoginRefused as error:
            if error.message is not None:
                raise
            self._refused = error
            return LoginStep(INVALID_TOKEN)


def verify(token: str, keys: KeySet) -> Mapping[str, object]:
    """The claims of a token that one of these keys has signed. Raises LoginRefused."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        claims: Mapping[str, object] = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
    except (JoseError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise LoginRefused(f"the token was not signed by one of the keys: {type(error).__name__}") from None
    return claims


def read_unsigned(token: str) -> Mapping[str, object]:
    """The claims of a token without a signature. Raises LoginRefused."""
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or signature or _json(header).get("alg") != "none":
        raise LoginRefused("the token is not one without a signature")
    return _json(payload)


def _json(part: str) -> dict[str, Any]:
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise LoginRefused("the token cannot be read") from None
    if not isinstance(value, dict):
        raise LoginRefused("the token cannot be read")
    return value


def _key_id(token: str) -> str | None:
    key_id = _json(token.partition(".")[0]).get("kid")
    return key_id if isinstance(key_id, str) else None


def _has(keys: KeySet | None, key_id: str | None) -> bool:
    return keys is not None and (key_id is None or any(key.kid == key_id for key in keys))


def read_keys(data: bytes) -> KeySet:
    """The public keys of a JWKS document; raises KeysUnavailable."""
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    try:
        found = json.loads(data)["keys"]
        public = [key for key in found if key.get("kty") in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig"]
        if not public:
            raise KeysUnavailable("it has no key that signatures can be checked with")
        return KeySet.import_key_set({"keys": public})
    except (JoseError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeysUnavailable(f"it is no JWKS document: {type(error).__name__}") from None


def fetch_keys(url: str) -> bytes:
    """Read a file, or fetch over https, which may take a while. Raises KeysUnavailable."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            with open(url2pathname(parts.path), "rb") as file:  # noqa: PTH123  # the path is a URL's
                return _limited(file.read(MOST_KEY_BYTES + 1))
        if parts.scheme != "https":
            raise KeysUnavailable("it is no https address")
        return _fetch_https(url)
    except (OSError, HTTPException) as error:
        raise KeysUnavailable(str(error)) from error


def _fetch_https(url: str) -> bytes:
    import ssl
    from urllib.request import HTTPDefaultErrorHandler, HTTPErrorProcessor, HTTPSHandler, OpenerDirector, Request

    opener = OpenerDirector()  # with nothing else: no redirects, no other schemes, no proxies
    for handler in (
        HTTPSHandler(context=ssl.create_default_context()),
        HTTPDefaultErrorHandler(),
        HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    response = opener.open(Request(url, headers={"Accept": "application/json"}), timeout=FETCH_SECONDS)
    assert response is not None  # an error was raised
    with response:
        return _limited(response.read(MOST_KEY_BYTES + 1))


def _limited(data: bytes) -> bytes:
    if len(data) > MOST_KEY_BYTES:
        raise KeysUnavailable(f"it has more than {MOST_KEY_BYTES} bytes")
    return data


def _require_joserfc() -> None:
    try:
        import joserfc  # noqa: F401
    except ImportError:
        raise StartupError(
            "OAUTHBEARER needs joserfc, which is not installed: run `pip install 'barnabas[security]'`"
        ) from None
