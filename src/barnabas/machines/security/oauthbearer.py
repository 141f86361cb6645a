"""OAUTHBEARER (RFC 7628): the client sends a token that somebody else has signed; the token says who it is.

What is checked of a token, once its signature is known to be right: issuer and audience are the expected ones, it has
begun and is not over (give or take the allowed skew of clocks), and it names its subject. A token is only ever checked
against expectations that were set: there are no defaults that let anything pass.
"""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.machines.security.login_step import Identity, LoginRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

LONGEST_TOKEN: Final = 64 * 1024
"""Bytes of a token: more than any issuer puts into one."""
LONGEST_MESSAGE: Final = LONGEST_TOKEN + 8 * 1024
"""Bytes of a message with a token. Anybody can send one, and reading it takes the event loop's time."""
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""What a client is sent whose token is refused; it answers with a message of one byte, and is disconnected."""

_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^\x00=,\x01]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x09\x0a\x0d\x20-\x7e]*\x01){1,100})\x01"
)
_BEARER: Final = re.compile(r"bearer +([-_.A-Za-z0-9]+)", re.IGNORECASE)


class BearerMessage(NamedTuple):
    """What a client sends."""

    token: str
    authorization_id: str

    def __repr__(self) -> str:
        return "BearerMessage"


class Expectations(NamedTuple):
    """What must be true of a token."""

    issuer: str | None
    """None only for unsigned tokens, which prove nothing anyway."""
    audiences: frozenset[str]
    subject_claim: str
    skew_seconds: int


def read_message(message: bytes) -> BearerMessage:
    """Read the client's first message. Raises LoginRefused."""
    if len(message) > LONGEST_MESSAGE:
        raise LoginRefused("the OAUTHBEARER message is too long")
    match = _MESSAGE.fullmatch(message)
    if match is None:
        raise LoginRefused("the OAUTHBEARER message cannot be read")
    pairs = dict(pair.split("=", 1) for pair in match["pairs"].decode("ascii").split("\x01")[:-1])
    bearer = _BEARER.fullmatch(pairs.get("auth", ""))
    if bearer is None:
        raise LoginRefused("the OAUTHBEARER message has no bearer token")
    if len(bearer[1]) > LONGEST_TOKEN:
        raise LoginRefused("the token is too long")
    try:
        return BearerMessage(bearer[1], (match["authzid"] or b"").decode())
    except UnicodeDecodeError:
        raise LoginRefused("the OAUTHBEARER message is not UTF-8") from None


def read_part(part: str) -> dict[str, Any]:
    """A part of a token, which is JSON in base64. Raises LoginRefused."""
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise LoginRefused("the token cannot be read") from None
    if not isinstance(value, dict):
        raise LoginRefused("the token cannot be read")
    return value


def read_payload(token: str) -> dict[str, Any]:
    """The claims of a token, whoever has signed it. Raises LoginRefused."""
    parts = token.split(".")
    if len(parts) != 3:
        raise LoginRefused("the token cannot be read")
    return read_part(parts[1])


def identify(claims: Mapping[str, object], expected: Expectations, authorization_id: str, now_ms: int) -> Identity:
    """Who a token with these claims stands for. Raises LoginRefused; the reason shows no claim but times."""
    now, skew = now_ms / 1000, expected.skew_seconds
    ends, issued, begins = (_time(claims, name) for name in ("exp", "iat", "nbf"))
    if ends is None or issued is None:
        raise LoginRefused("the token does not say when it was issued (iat), or when it ends (exp)")
    if ends + skew <= now:
        raise LoginRefused("the token is over")
    if issued - skew > now or (begins is not None and begins - skew > now):
        raise LoginRefused("the token has not begun yet")
    if expected.issuer is not None:
        if claims.get("iss") != expected.issuer:
            raise LoginRefused("the token's issuer is not the expected one (sasl.oauthbearer.expected.issuer)")
        if not expected.audiences & _texts(claims.get("aud")):
            raise LoginRefused("the token is for another audience (sasl.oauthbearer.expected.audience)")
    name = claims.get(expected.subject_claim)
    if not isinstance(name, str) or not name.strip():
        raise LoginRefused(f"the token has no claim {expected.subject_claim} that names its subject")
    if any("\ud800" <= char <= "\udfff" for char in name):  # JSON can have that, and no message about its owner could
        raise LoginRefused(f"the token's claim {expected.subject_claim} is no text in Unicode")
    if authorization_id not in ("", name):
        raise LoginRefused(
            "the client asked to act as somebody else",
            f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different from "
            f"the token's principal name ({name})",
        )
    return Identity(name, expires_ms=int(ends * 1000))


def _time(claims: Mapping[str, object], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 40:
        raise LoginRefused(f"the token's claim {name} is no time")
    return value


def _texts(value: object) -> frozenset[str]:
    """An audience is one text, or several."""
    items = value if isinstance(value, list) else [value]
    return frozenset(item for item in items if isinstance(item, str))
