"""AlterUserScramCredentials v0, DescribeUserScramCredentials v0: the users that log in by SCRAM.

- AlterUserScramCredentials: a client salts a password and sends the result, never the password. Only the controller
  answers; other brokers forward the request. All changes of one user are made, or none: an empty name, iterations
  below 4096 or above 16384, a salt of more than 1 KiB and a mechanism that is not known are UNACCEPTABLE_CREDENTIAL
  (the last one UNSUPPORTED_SASL_MECHANISM), a user and mechanism that the request names twice DUPLICATE_RESOURCE, the
  deletion of what is not there RESOURCE_NOT_FOUND. Clients that logged in before stay until they log in again.
- DescribeUserScramCredentials: mechanisms and iterations of some users, or of all. A user without a credential is
  RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE.
- Neither is allowed to somebody who logged in with a delegation token: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Credentials are kept in the metadata tree, below /config/users, where Kafka's ZooKeeper mode keeps them.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kio.schema.alter_user_scram_credentials.v0.response import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from kio.schema.describe_user_scram_credentials.v0.response import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from kio.static.primitive import i8, i32

from barnabas.broker.serving.long_answers import portions
from barnabas.broker.serving.throttle import NO_THROTTLE
from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.security.scram import (
    BY_NUMBER,
    BY_TITLE,
    LEAST_ITERATIONS,
    MOST_ITERATIONS,
    MOST_SALT,
    InvalidCredential,
    ScramCredential,
    ScramMechanism,
)
from barnabas.model.errors import (
    ApiError,
    DelegationTokenRequestNotAllowed,
    DuplicateResource,
    ErrorCode,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller


class Changes(NamedTuple):
    """What a request changes of one user."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]


async def alter_user_scram_credentials(
    broker: BrokerContext, request: AlterUserScramCredentialsRequest, caller: Caller
) -> AlterUserScramCredentialsResponse:
    """Set and delete credentials."""
    users: dict[str, Changes] = {}
    for deletion in request.deletions:
        users.setdefault(deletion.name, Changes([], [])).deletions.append(deletion)
    for upsertion in request.upsertions:
        users.setdefault(upsertion.name, Changes([], [])).upsertions.append(upsertion)
    errors: dict[str, ApiError | None] = {}
    try:
        _check_caller(caller)
    except ApiError as error:
        return _results(dict.fromkeys(users, error))
    edits = {ConfigResource.user(name): partial(_altered, name, changes) for name, changes in users.items()}
    for some in portions(list(edits.items())):
        for resource, failure in (await broker.controller.edit_configs(dict(some))).items():
            errors[resource.name] = failure
    return _results(errors)


def _results(errors: Mapping[str, ApiError | None]) -> AlterUserScramCredentialsResponse:
    return AlterUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterUserScramCredentialsResult(
                user=name,
                error_code=ErrorCode.none if error is None else error.code,
                error_message=None if error is None else str(error),
            )
            for name, error in errors.items()
        ),
    )


def _check_caller(caller: Caller) -> None:
    if caller.session.is_token:
        raise DelegationTokenRequestNotAllowed("Delegation Token requests are not allowed with this login.")


def _altered(name: str, changes: Changes, before: Mapping[str, str]) -> dict[str, str]:
    """What is kept of a user after the changes; raises an ApiError for the first that cannot be made."""
    if not name:
        raise UnacceptableCredential("Username must not be empty")
    numbers = Counter(deletion.mechanism for deletion in changes.deletions)
    numbers.update(upsertion.mechanism for upsertion in changes.upsertions)
    if max(numbers.values()) > 1:
        raise DuplicateResource("A user credential cannot be altered twice in the same request")
    after = dict(before)
    for deletion in changes.deletions:
        if after.pop(_mechanism(deletion.mechanism).title, None) is None:
            raise ResourceNotFound("Attempt to delete a user credential that does not exist")
    for upsertion in changes.upsertions:
        mechanism = _mechanism(upsertion.mechanism)
        after[mechanism.title] = _credential(mechanism, upsertion).encode()
    return after


def _mechanism(number: int) -> ScramMechanism:
    if number not in BY_NUMBER:
        raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    return BY_NUMBER[number]


def _credential(mechanism: ScramMechanism, upsertion: ScramCredentialUpsertion) -> ScramCredential:
    if upsertion.iterations < LEAST_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if upsertion.iterations > MOST_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")
    if not 0 < len(upsertion.salt) <= MOST_SALT:
        raise UnacceptableCredential(f"A salt has 1 to {MOST_SALT} bytes.")
    if len(upsertion.salted_password) != mechanism.key_bytes:
        raise UnacceptableCredential(f"A password salted for {mechanism.title} has {mechanism.key_bytes} bytes.")
    return ScramCredential.of_salted(mechanism, upsertion.salted_password, upsertion.salt, upsertion.iterations)


async def describe_user_scram_credentials(
    broker: BrokerContext, request: DescribeUserScramCredentialsRequest, caller: Caller
) -> DescribeUserScramCredentialsResponse:
    """List the mechanisms of users."""
    _check_caller(caller)
    image = broker.metadata.image
    if request.users:
        names = Counter(user.name for user in request.users)
    else:
        names = Counter(
            sorted(of.name for of, kept in image.configs.items() if of.kind == "users" and BY_TITLE.keys() & kept)
        )

    def describe(name: str) -> DescribeUserScramCredentialsResult:
        return _described(name, image.config(ConfigResource.user(name)), is_repeated=names[name] > 1)

    return DescribeUserScramCredentialsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        results=tuple(await broker.long_answers.each(names, describe)),
    )


def _described(name: str, kept: Mapping[str, str], *, is_repeated: bool) -> DescribeUserScramCredentialsResult:
    code, message, infos = ErrorCode.none, None, tuple[CredentialInfo, ...]()
    if is_repeated:
        code = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        infos = tuple(info for title in sorted(kept) if (info := _info(title, kept[title])) is not None)
    if not infos and not is_repeated:
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message, credential_infos=infos)


def _info(title: str, text: str) -> CredentialInfo | None:
    mechanism = BY_TITLE.get(title)
    if mechanism is None:
        return None
    try:
        iterations = ScramCredential.decode(text, mechanism).iterations
    except InvalidCredential:
        iterations = -1
    return CredentialInfo(mechanism=i8(mechanism.number), iterations=i32(iterations))
