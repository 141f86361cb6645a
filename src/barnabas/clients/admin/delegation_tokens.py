"""Delegation tokens of a cluster (KIP-48, KIP-373): whoever has one can log in as its owner for a while."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from barnabas.clients.errors import RequestRefused
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import create_tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kio.static.primitive import i64Timedelta

    from barnabas.clients.wire.connection import WireClient
    from barnabas.model.permissions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token. Its id and HMAC are name and password of a login by SCRAM; principals have their type: User:alice."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued: datetime
    expires: datetime
    ends: datetime
    """After which it cannot be renewed."""

    @property
    def password(self) -> str:
        """The HMAC as a client sends it."""
        return base64.b64encode(self.hmac).decode()

    def __repr__(self) -> str:
        return f"<DelegationToken {self.token_id} of {self.owner}>"


class IssuedTokens:
    """The delegation tokens of a cluster. All calls raise RequestRefused."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def create(
        self, *, owner: str | None = None, renewers: Sequence[str] = (), lifetime_ms: int = -1
    ) -> DelegationToken:
        """Have a token made, for oneself unless `owner` is another; -1 is the longest lifetime that brokers give."""
        from kio.schema.create_delegation_token.v3.request import CreatableRenewers, CreateDelegationTokenRequest

        kind, name = (None, None) if owner is None else _parts(owner)
        request = CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=tuple(
                CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in map(_parts, renewers)
            ),
            max_lifetime=_period(lifetime_ms),
        )
        answer = self._wire.ask(request, at_least=3 if owner else 1)
        _check(answer, None if owner is None else create_tokens_of(owner))
        return DelegationToken(
            token_id=answer.token_id,
            hmac=answer.hmac,
            owner=f"{answer.principal_type}:{answer.principal_name}",
            requester=f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}",
            renewers=tuple(renewers),
            issued=answer.issue_timestamp,
            expires=answer.expiry_timestamp,
            ends=answer.max_timestamp,
        )

    def renew(self, hmac: bytes, period_ms: int = -1) -> datetime:
        """Have a token accepted for longer; gives until when."""
        from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest

        return _expiry(self._wire.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period=_period(period_ms))))

    def expire(self, hmac: bytes, period_ms: int = -1) -> datetime:
        """Have a token accepted for shorter, or for -1 no more; gives until when."""
        from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest

        return _expiry(self._wire.ask(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period=_period(period_ms))))

    def describe(self, owners: Sequence[str] | None = None) -> list[DelegationToken]:
        """The tokens that one is told of, of these owners or of all."""
        from kio.schema.describe_delegation_token.v3.request import (
            DescribeDelegationTokenOwner,
            DescribeDelegationTokenRequest,
        )

        wanted = None
        if owners is not None:
            wanted = tuple(
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, owners)
            )
        answer = self._wire.ask(DescribeDelegationTokenRequest(owners=wanted))
        _check(answer)
        return [_described(token) for token in answer.tokens]


def _described(token: Any) -> DelegationToken:
    return DelegationToken(
        token_id=token.token_id,
        hmac=token.hmac,
        owner=f"{token.principal_type}:{token.principal_name}",
        requester=f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
        renewers=tuple(f"{each.principal_type}:{each.principal_name}" for each in token.renewers),
        issued=_moment(token.issue_timestamp),
        expires=_moment(token.expiry_timestamp),
        ends=_moment(token.max_timestamp),
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def _period(milliseconds: int) -> i64Timedelta:
    return cast("i64Timedelta", timedelta(milliseconds=milliseconds))


def _moment(milliseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def _expiry(answer: Any) -> datetime:
    _check(answer)
    until: datetime = answer.expiry_timestamp
    return until


def _check(answer: Any, action: Action | None = None) -> None:
    if answer.error_code != ErrorCode.none:
        message = _WORDS.get(answer.error_code, answer.error_code.name.upper())
        raise RequestRefused(answer.error_code, message, action)


_WORDS = {
    ErrorCode.delegation_token_auth_disabled: "delegation tokens are off: brokers need delegation.token.secret.key",
    ErrorCode.delegation_token_not_found: "there is no delegation token with this HMAC",
    ErrorCode.delegation_token_owner_mismatch: "only the owner of a delegation token and its renewers may do this",
    ErrorCode.delegation_token_request_not_allowed: (
        "delegation tokens are for connections with a login, and not for one by token"
    ),
    ErrorCode.delegation_token_expired: "the delegation token has expired",
    ErrorCode.invalid_principal_type: "owner and renewers of a delegation token are users, as User:alice",
}
"""These APIs send no message."""
