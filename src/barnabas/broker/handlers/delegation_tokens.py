"""CreateDelegationToken v1–3, RenewDelegationToken v1–2, ExpireDelegationToken v1–2, DescribeDelegationToken v1–3.

A token lets whoever has it log in as its owner, by SCRAM (KIP-48). Every broker answers, since each reads and writes
the metadata tree.

- Without delegation.token.secret.key all of them are answered with DELEGATION_TOKEN_AUTH_DISABLED.
- On a connection without a login, or with a login by token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
- Create: renewers and owner must be of type User (INVALID_PRINCIPAL_TYPE). v3: an owner other than the caller needs
  CreateTokens on that user (KIP-373), else DELEGATION_TOKEN_AUTHORIZATION_FAILED. About a
  thousand of an owner are stored, expired ones that were not removed yet with them, and a token has at most 100
  renewers and takes 4 KB (POLICY_VIOLATION); Kafka has no such limits, and stores a renewer as often as it is named.
- Renew, Expire: only the owner and renewers may (DELEGATION_TOKEN_OWNER_MISMATCH); a token that is over cannot be
  (DELEGATION_TOKEN_EXPIRED). Expire with a period below 0 removes the token.
- Describe: the caller's own tokens, those that it had made and those that it may renew; others with Describe on the
  token or DescribeTokens on its owner.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast

from kio.schema.create_delegation_token.v3.response import CreateDelegationTokenResponse
from kio.schema.describe_delegation_token.v3.response import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenResponse,
)
from kio.schema.expire_delegation_token.v2.response import ExpireDelegationTokenResponse
from kio.schema.renew_delegation_token.v2.response import RenewDelegationTokenResponse
from kio.static.primitive import i64

from barnabas.broker.serving.caller import ANONYMOUS
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.security.acls import AclResourceType, Operation
from barnabas.machines.security.delegation_tokens import TokenParties
from barnabas.model.errors import (
    DelegationTokenAuthDisabled,
    DelegationTokenAuthorizationFailed,
    DelegationTokenRequestNotAllowed,
    ErrorCode,
    InvalidPrincipalType,
)
from barnabas.protocol.wire.durations import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.schema.create_delegation_token.v3.request import CreateDelegationTokenRequest
    from kio.schema.describe_delegation_token.v3.request import DescribeDelegationTokenRequest
    from kio.schema.expire_delegation_token.v2.request import ExpireDelegationTokenRequest
    from kio.schema.renew_delegation_token.v2.request import RenewDelegationTokenRequest
    from kio.static.primitive import TZAware

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.security.delegation_tokens import DelegationTokens
    from barnabas.broker.serving.caller import Caller
    from barnabas.machines.security.delegation_tokens import TokenInfo

USER: Final = "User"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


async def create_delegation_token(
    broker: BrokerContext, request: CreateDelegationTokenRequest, caller: Caller
) -> CreateDelegationTokenResponse:
    """Create a delegation token for the caller."""
    tokens = _tokens(broker, caller)
    owner = caller.principal
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    if owner != caller.principal and not _may(
        broker, caller, "CREATE_DELEGATION_TOKEN", Operation.CREATE_TOKENS, owner
    ):
        raise DelegationTokenAuthorizationFailed(f"This needs the permission CreateTokens on {owner}.")
    renewers = _principals(request.renewers)
    if any(not principal.startswith(f"{USER}:") for principal in (owner, *renewers)):
        raise InvalidPrincipalType("Owner and renewers of a delegation token must be users.")
    parties = TokenParties(owner, caller.principal, renewers)
    token = await tokens.create(parties, request.max_lifetime // MILLISECOND)
    (kind, _, name), (requester_kind, _, requester) = owner.partition(":"), caller.principal.partition(":")
    return CreateDelegationTokenResponse(
        error_code=ErrorCode.none,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester_kind,
        token_requester_principal_name=requester,
        issue_timestamp=_time(token.issued_ms),
        expiry_timestamp=_time(token.expires_ms),
        max_timestamp=_time(token.ends_ms),
        token_id=token.token_id,
        hmac=tokens.hmac(token),
        throttle_time=NO_THROTTLE,
    )


async def renew_delegation_token(
    broker: BrokerContext, request: RenewDelegationTokenRequest, caller: Caller
) -> RenewDelegationTokenResponse:
    """Put off the time at which a delegation token expires."""
    tokens = _tokens(broker, caller)
    until = await tokens.renew(request.hmac, caller.principal, request.renew_period // MILLISECOND)
    return RenewDelegationTokenResponse(
        error_code=ErrorCode.none, expiry_timestamp=_time(until), throttle_time=NO_THROTTLE
    )


async def expire_delegation_token(
    broker: BrokerContext, request: ExpireDelegationTokenRequest, caller: Caller
) -> ExpireDelegationTokenResponse:
    """Let a delegation token expire earlier, or now."""
    tokens = _tokens(broker, caller)
    until = await tokens.expire(request.hmac, caller.principal, request.expiry_time_period // MILLISECOND)
    return ExpireDelegationTokenResponse(
        error_code=ErrorCode.none, expiry_timestamp=_time(until), throttle_time=NO_THROTTLE
    )


async def describe_delegation_token(
    broker: BrokerContext, request: DescribeDelegationTokenRequest, caller: Caller
) -> DescribeDelegationTokenResponse:
    """List the delegation tokens that the caller may see."""
    tokens = _tokens(broker, caller)
    owners = None if request.owners is None else set(_principals(request.owners))

    def may_describe(token: TokenInfo) -> bool:
        api = "DESCRIBE_DELEGATION_TOKEN"
        return _may(broker, caller, api, Operation.DESCRIBE, token.token_id, AclResourceType.DELEGATION_TOKEN) or _may(
            broker, caller, api, Operation.DESCRIBE_TOKENS, token.owner
        )

    found = await tokens.visible(caller.principal, owners, may_describe)

    def describe(token: Any) -> DescribedDelegationToken:
        (kind, _, name), (requester_kind, _, requester) = token.owner.partition(":"), token.requester.partition(":")
        return DescribedDelegationToken(
            principal_type=kind,
            principal_name=name,
            token_requester_principal_type=requester_kind,
            token_requester_principal_name=requester,
            issue_timestamp=i64(token.issued_ms),
            expiry_timestamp=i64(token.expires_ms),
            max_timestamp=i64(token.ends_ms),
            token_id=token.token_id,
            hmac=tokens.hmac(token),
            renewers=tuple(
                DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
                for kind, _, name in (renewer.partition(":") for renewer in token.renewers)
            ),
        )

    return DescribeDelegationTokenResponse(
        error_code=ErrorCode.none,
        tokens=tuple(await broker.long_answers.each(found, describe, lambda token: len(token.renewers))),
        throttle_time=NO_THROTTLE,
    )


def _tokens(broker: BrokerContext, caller: Caller) -> DelegationTokens:
    """The cluster's tokens, for a client that has logged in, and not with one of them."""
    if caller.session.is_token or caller.principal == ANONYMOUS:
        raise DelegationTokenRequestNotAllowed(
            "Delegation tokens are managed on connections that logged in, and not with a delegation token."
        )
    if broker.tokens is None:
        raise DelegationTokenAuthDisabled(
            "Delegation tokens are disabled. To enable them, set delegation.token.secret.key on all brokers."
        )
    return broker.tokens


def _may(
    broker: BrokerContext,
    caller: Caller,
    api: str,
    operation: Operation,
    name: str,
    kind: AclResourceType = AclResourceType.USER,
) -> bool:
    """Whether rules allow this; to describe is asked for many tokens, and only what is allowed is logged."""
    if broker.permissions is None:
        return True
    quiet = operation is not Operation.CREATE_TOKENS
    return broker.permissions.of(caller, api).allows(operation, kind, name, quiet=quiet)


def _principals(named: Iterable[Any]) -> tuple[str, ...]:
    return tuple(f"{each.principal_type}:{each.principal_name}" for each in named)


def _time(milliseconds: int) -> TZAware:
    """kio's type takes whole seconds only; its writer takes all that its schema has."""
    return cast("TZAware", _EPOCH + milliseconds * MILLISECOND)
