"""Delegation tokens (KIP-48): a user has a token made, and whoever has the token can log in as that user for a while.

A token has an id, which is its user name for SCRAM, and an HMAC of the id by the cluster's secret key
(delegation.token.secret.key), which is its password. Only what is said of the token is stored: whoever reads the
metadata tree without knowing the key can log in with none of them.
"""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import DelegationTokenExpired, DelegationTokenOwnerMismatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet


LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: no token lives longer, since messages and dates have no later time."""


class TokenTimes(NamedTuple):
    """How long tokens live, in milliseconds."""

    longest: int
    """delegation.token.max.lifetime.ms"""
    unless_renewed: int
    """delegation.token.expiry.time.ms"""


class TokenParties(NamedTuple):
    """Whose a token is, who had it made (KIP-373: not always the owner), and who else may renew it."""

    owner: str
    requester: str
    renewers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """What is said of a token. Principals have their type: User:alice."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    ends_ms: int
    """After which it cannot be renewed."""
    expires_ms: int
    """After which it is not accepted, unless it is renewed before."""

    def is_expired(self, now_ms: int) -> bool:
        """Whether it is accepted no more."""
        return self.ends_ms < now_ms or self.expires_ms < now_ms

    def belongs_to(self, principal: str) -> bool:
        """Whether this is its owner, or somebody that may renew it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether this principal is told of it: also the one that had it made for its owner."""
        return self.belongs_to(principal) or principal == self.requester


def token_hmac(token_id: str, key: str) -> bytes:
    """The password of a token, as bytes."""
    return hmac.digest(key.encode(), token_id.encode(), "sha512")


def token_password(token_id: str, key: str) -> str:
    """The password of a token, as a client sends it."""
    return base64.b64encode(token_hmac(token_id, key)).decode()


def find_by_hmac(tokens: Iterable[TokenInfo], wanted: bytes, key: str) -> TokenInfo | None:
    """The token with this HMAC. All are looked at, so the time does not tell which it is."""
    found = None
    for token in tokens:
        if hmac.compare_digest(token_hmac(token.token_id, key), wanted):
            found = token
    return found


def create(token_id: str, parties: TokenParties, lifetime_ms: int, times: TokenTimes, now_ms: int) -> TokenInfo:
    """A new token; a lifetime of 0 or less is the longest. A renewer that is named twice is one."""
    lifetime = times.longest if lifetime_ms <= 0 else min(lifetime_ms, times.longest)
    ends = min(now_ms + lifetime, LATEST_MS)
    return TokenInfo(
        token_id=token_id,
        owner=parties.owner,
        requester=parties.requester,
        renewers=tuple(dict.fromkeys(parties.renewers)),
        issued_ms=now_ms,
        ends_ms=ends,
        expires_ms=min(ends, now_ms + times.unless_renewed),
    )


def of_owner(tokens: Iterable[TokenInfo], owner: str) -> list[TokenInfo]:
    """The tokens of an owner, with those that are expired: they are stored until they are removed."""
    return [token for token in tokens if token.owner == owner]


def expired(tokens: Iterable[TokenInfo], now_ms: int) -> list[TokenInfo]:
    """Those that are accepted no more."""
    return [token for token in tokens if token.is_expired(now_ms)]


def renew(token: TokenInfo, principal: str, period_ms: int, times: TokenTimes, now_ms: int) -> TokenInfo:
    """The token, accepted for longer. Raises DelegationTokenOwnerMismatch, DelegationTokenExpired."""
    _check_belongs(token, principal)
    _check_lives(token, now_ms)
    period = times.unless_renewed if period_ms < 0 else period_ms
    return replace(token, expires_ms=min(token.ends_ms, now_ms + period))


def expire(token: TokenInfo, principal: str, period_ms: int, now_ms: int) -> TokenInfo | None:
    """The token, accepted until then; None if it goes at once (a period below 0). Raises as `renew`."""
    _check_belongs(token, principal)
    if period_ms < 0:
        return None
    _check_lives(token, now_ms)
    return replace(token, expires_ms=min(token.ends_ms, now_ms + period_ms))


def visible(
    tokens: Iterable[TokenInfo],
    principal: str,
    owners: AbstractSet[str] | None,
    may_describe: Callable[[TokenInfo], bool],
) -> list[TokenInfo]:
    """The tokens that a principal is told of, of these owners or of all: its own, and others that it may describe."""
    return [
        token
        for token in tokens
        if (owners is None or not owners.isdisjoint((token.owner, token.requester, *token.renewers)))
        and (token.concerns(principal) or may_describe(token))
    ]


def _check_belongs(token: TokenInfo, principal: str) -> None:
    if not token.belongs_to(principal):
        raise DelegationTokenOwnerMismatch("Only the owner of a delegation token and its renewers may do this.")


def _check_lives(token: TokenInfo, now_ms: int) -> None:
    if token.is_expired(now_ms):
        raise DelegationTokenExpired("The delegation token is expired.")
