"""Tokens of OAUTHBEARER: whether one was signed by a key of the issuer (`issuer_keys`), and who it stands for.

Only signatures that need a private key count: with a shared secret (HS256), the public key itself could be taken for
the secret. While there are no keys, no token is accepted. A token without a signature is accepted only by a broker
whose `sasl.oauthbearer.unsigned.tokens.enable` says so, and then none with one is looked at.

Signatures are checked in threads of their own (`login_threads`).
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.broker.security.https_documents import fetch
from barnabas.broker.security.issuer_keys import IssuerKeys
from barnabas.broker.security.login_threads import LoginThreads
from barnabas.machines.security.login_step import LoginRefused, LoginStep
from barnabas.machines.security.oauthbearer import INVALID_TOKEN, Expectations, identify, read_message, read_part
from barnabas.model.errors import StartupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from joserfc.jwk import Key, KeySet

    from barnabas.machines.security.oauthbearer import BearerMessage
    from barnabas.model.clock import Clock
    from barnabas.model.config.per_listener import ListenerValues

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

KEY_TYPES: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""By how an algorithm's name begins, the type of its keys."""
MOST_TRIED: Final = 8
"""Keys that a token which names none is checked with: anybody can send one, and each key takes time."""


class OAuthTokens:
    """The tokens of one listener."""

    def __init__(self, values: ListenerValues, clock: Clock, fetch_document: Callable[[str], bytes] = fetch) -> None:
        _require_joserfc()
        self._clock = clock
        self._accepts_unsigned = values.flag("sasl.oauthbearer.unsigned.tokens.enable")
        self._expected = Expectations(
            None if self._accepts_unsigned else values.text("sasl.oauthbearer.expected.issuer"),
            frozenset(values.items("sasl.oauthbearer.expected.audience")),
            values.text("sasl.oauthbearer.sub.claim.name"),
            values.number("sasl.oauthbearer.clock.skew.seconds"),
        )
        self._keys = IssuerKeys(values, clock, fetch_document)
        self._threads = LoginThreads("OAUTHBEARER")

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
        keys = await self._keys.find(_key_id(token), len(token))
        return await self._threads.run(partial(verify, token, keys), len(token))


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

    failure: Exception | None = None
    for each in _candidates(token, keys):
        try:
            claims: Mapping[str, object] = jwt.decode(token, each, algorithms=ALGORITHMS).claims
        except (JoseError, ValueError, RecursionError, TypeError, KeyError) as error:
            failure = error
        else:
            return claims
    reason = "none is of the kind that it needs" if failure is None else type(failure).__name__
    raise LoginRefused(f"the token was not signed by one of the keys: {reason}") from None


def _candidates(token: str, keys: KeySet) -> Sequence[KeySet | Key]:
    """What a token is checked with: the keys of the name that it gives, or those that suit it if it gives none."""
    header = read_part(token.partition(".")[0])
    if header.get("kid") is not None:
        return (keys,)
    key_type = KEY_TYPES.get(str(header.get("alg"))[:2])
    suitable = (key for key in keys if key.key_type == key_type)
    return tuple(islice(suitable, MOST_TRIED))


def read_unsigned(token: str) -> Mapping[str, object]:
    """The claims of a token without a signature. Raises LoginRefused."""
    header, _, rest = token.partition(".")
    payload, dot, signature = rest.partition(".")
    if not dot or signature or read_part(header).get("alg") != "none":
        raise LoginRefused("the token is not one without a signature")
    return read_part(payload)


def _key_id(token: str) -> str | None:
    key_id = read_part(token.partition(".")[0]).get("kid")
    return key_id if isinstance(key_id, str) else None


def _require_joserfc() -> None:
    try:
        import joserfc  # noqa: F401
    except ImportError:
        raise StartupError(
            "OAUTHBEARER needs joserfc, which is not installed: run `pip install 'barnabas[security]'`"
        ) from None
