"""The users of a cluster that log in by SCRAM. A password is salted here: no broker sees it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.clients.errors import RequestRefused
from barnabas.machines.security.scram import BY_NUMBER
from barnabas.machines.security.scram_salts import SALT_BITS, salt_of
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import on_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kio.schema.alter_user_scram_credentials.v0.request import AlterUserScramCredentialsRequest

    from barnabas.clients.wire.connection import WireClient
    from barnabas.machines.security.scram import ScramMechanism
    from barnabas.model.permissions import Action


@dataclass(frozen=True, slots=True)
class User:
    """A user, and the iterations of each mechanism that it can log in by."""

    name: str
    mechanisms: Mapping[str, int]


class Users:
    """The users of a cluster."""

    def __init__(self, wire: WireClient) -> None:
        self._wire = wire

    def describe(self) -> list[User]:
        """All users, by name; raises RequestRefused."""
        from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest

        answer = self._wire.ask(DescribeUserScramCredentialsRequest(users=None))
        _check(answer.error_code, answer.error_message, on_cluster("list users", "Describe"))
        return [
            User(found.user, {BY_NUMBER[info.mechanism].title: info.iterations for info in found.credential_infos})
            for found in sorted(answer.results, key=lambda found: found.user)
        ]

    def add(self, name: str, mechanism: ScramMechanism, password: str, iterations: int) -> None:
        """Let a user log in with this password by this mechanism; raises RequestRefused."""
        from kio.schema.alter_user_scram_credentials.v0.request import (
            AlterUserScramCredentialsRequest,
            ScramCredentialUpsertion,
        )
        from kio.static.primitive import i8, i32

        salt = salt_of(secrets.randbits(SALT_BITS))
        upsertion = ScramCredentialUpsertion(
            name=name,
            mechanism=i8(mechanism.number),
            iterations=i32(iterations),
            salt=salt,
            salted_password=mechanism.salted_password(password, salt, iterations),
        )
        self._alter(AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))

    def delete(self, name: str, mechanisms: Sequence[ScramMechanism]) -> None:
        """Let a user log in by these mechanisms no more; raises RequestRefused."""
        from kio.schema.alter_user_scram_credentials.v0.request import (
            AlterUserScramCredentialsRequest,
            ScramCredentialDeletion,
        )
        from kio.static.primitive import i8

        deletions = (ScramCredentialDeletion(name=name, mechanism=i8(each.number)) for each in mechanisms)
        self._alter(AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=()))

    def _alter(self, request: AlterUserScramCredentialsRequest) -> None:
        for result in self._wire.ask(request).results:
            _check(result.error_code, result.error_message, on_cluster("change users", "Alter"))


def _check(code: ErrorCode, message: str | None, action: Action) -> None:
    if code != ErrorCode.none:
        raise RequestRefused(code, message or code.name.upper(), action)
