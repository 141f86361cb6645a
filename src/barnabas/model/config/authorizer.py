"""Whether a broker asks for permissions, and whom it never refuses: authorizer.class.name and super.users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.model.config.values import Values

AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's authorizers: of today, and of its ZooKeeper mode. Both mean Barnabas's own."""


def has_authorizer(values: Values) -> bool:
    """Whether the broker asks for permissions."""
    return bool(values.text("authorizer.class.name"))


def super_users(values: Values) -> frozenset[str]:
    """The principals that may do everything. Raises ConfigError."""
    users = frozenset(part.strip() for part in values.text("super.users").split(";") if part.strip())
    for user in users:
        try:
            check_principal(user)
        except ValueError as error:
            raise ConfigError(
                f"super.users has {user!r}: {error}; write principals like User:alice, with semicolons between them"
            ) from None
    return users


def check_authorizer(values: Values) -> None:
    """Refuse an authorizer that is not here, and super users that are no principals. Raises ConfigError."""
    name = values.text("authorizer.class.name")
    if name and name not in AUTHORIZERS:
        raise ConfigError(
            f"authorizer.class.name is {name}: Barnabas runs no Java class. Set it to {AUTHORIZERS[0]}, which stands "
            "for the same rules built into Barnabas, or leave it empty to let everybody do everything"
        )
    super_users(values)


def check_principal(text: str) -> None:
    """Refuse what is no principal. Raises ValueError.

    >>> check_principal("User:CN=b,O=c")
    """
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError("expected a string in format principalType:principalName")
