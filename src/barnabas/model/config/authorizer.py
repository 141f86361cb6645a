"""What decides about clients: authorizer.class.name and super.users, and other settings that name Java classes.

Barnabas runs no Java classes. Most settings that name one are ignored with a warning, but some decide about identity,
permission and shares: whoever set them relies on them. So a broker takes Kafka's own classes, whose work it does, and
refuses any other: it does not start with one, whether server.properties has it or the metadata tree, and refuses to
change to it while it runs. What another program writes into the tree meanwhile is ignored with an error in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.config.keys.all_keys import of_one_listener
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.config.values import Values

AUTHORIZERS: Final = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's authorizers: of today, and of its ZooKeeper mode. Both mean Barnabas's own."""

_SECURITY: Final = "org.apache.kafka.common.security"


class _Choice(NamedTuple):
    """What a key may have."""

    loss: str
    """What would not be so if anything else were ignored."""
    accepted: tuple[str, ...] = ()
    """What Kafka does by itself, under its names there."""


_CHOICES: Final[Mapping[str, _Choice]] = {
    "alter.config.policy.class.name": _Choice("changes of settings would not be held to its policy"),
    "client.quota.callback.class": _Choice("clients would have other quotas"),
    "create.topic.policy.class.name": _Choice("new topics would not be held to its policy"),
    "principal.builder.class": _Choice(
        "clients would be known by other names", (f"{_SECURITY}.authenticator.DefaultKafkaPrincipalBuilder",)
    ),
    "sasl.client.callback.handler.class": _Choice(
        "brokers would log in to each other in another way",
        (
            f"{_SECURITY}.authenticator.SaslClientCallbackHandler",
            f"{_SECURITY}.kerberos.KerberosClientCallbackHandler",
            f"{_SECURITY}.oauthbearer.internals.OAuthBearerSaslClientCallbackHandler",
        ),
    ),
    "sasl.login.class": _Choice(
        "brokers would log in to each other in another way",
        (
            f"{_SECURITY}.authenticator.DefaultLogin",
            f"{_SECURITY}.kerberos.KerberosLogin",
            f"{_SECURITY}.oauthbearer.internals.OAuthBearerRefreshingLogin",
        ),
    ),
    "sasl.oauthbearer.jwt.validator.class": _Choice(
        "tokens would be checked in another way",
        (f"{_SECURITY}.oauthbearer.DefaultJwtValidator", f"{_SECURITY}.oauthbearer.BrokerJwtValidator"),
    ),
    "ssl.engine.factory.class": _Choice(
        "connections would be encrypted in another way", (f"{_SECURITY}.ssl.DefaultSslEngineFactory",)
    ),
    "ssl.trustmanager.algorithm": _Choice(
        "certificates would be checked in another way", ("PKIX", "SunX509", "SunPKIX", "X509", "X.509")
    ),
}


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


def check_classes(texts: Mapping[str, str]) -> None:
    """Refuse settings of a broker or a listener whose classes Barnabas cannot stand for. Raises ConfigError."""
    for name, text in texts.items():
        choice = _CHOICES.get(of_one_listener(name) or name)
        if choice is not None and text.strip() and text.strip() not in choice.accepted:
            taken = f"take the key out, or set it to {choice.accepted[0]}" if choice.accepted else "take the key out"
            raise ConfigError(f"{name} is {text}: Barnabas runs no Java classes, so {choice.loss}; {taken}")
