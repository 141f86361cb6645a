"""What a listener's sasl.* settings mean: its mechanisms, PLAIN's passwords, and how brokers log in to each other.

As in Kafka, login modules are set for one mechanism of one listener: `listener.name.X.MECHANISM.sasl.jaas.config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.config.jaas import parse_jaas
from barnabas.model.config.per_listener import prefix_of
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.model.config.jaas import LoginModule
    from barnabas.model.config.per_listener import ListenerValues

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS: Final = (PLAIN, *SCRAM, OAUTHBEARER, GSSAPI)
"""Those that a listener can offer."""
BETWEEN_BROKERS: Final = (PLAIN, *SCRAM)
"""Those that brokers can log in to each other by."""

_MODULES: Final = {
    PLAIN: "PlainLoginModule",
    **dict.fromkeys(SCRAM, "ScramLoginModule"),
    OAUTHBEARER: "OAuthBearerLoginModule",
    GSSAPI: "Krb5LoginModule",
}
UNSIGNED: Final = "sasl.oauthbearer.unsigned.tokens.enable"
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"

_USER: Final = "user_"
_HANDLER: Final = "sasl.server.callback.handler.class"
_VALIDATOR: Final = "OAuthBearerValidatorCallbackHandler"


class BrokerLogin(NamedTuple):
    """How a broker logs in to others."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"BrokerLogin({self.mechanism}, {self.username})"


class KerberosLogin(NamedTuple):
    """What a broker proves itself with to clients of GSSAPI."""

    principal: str
    keytab: str


def check_sasl(values: ListenerValues) -> None:
    """Refuse sasl.* settings that a listener cannot use, with ConfigError."""
    key = values.name_of("sasl.enabled.mechanisms")
    enabled = values.items("sasl.enabled.mechanisms")
    if not enabled:
        raise ConfigError(f"{key} is empty: name at least one of {', '.join(MECHANISMS)}")
    for mechanism in enabled:
        if mechanism not in MECHANISMS:
            raise ConfigError(
                f"listener {values.listener} would offer {mechanism}, which Barnabas does not have: "
                f"set {key} to some of {', '.join(MECHANISMS)}"
            )
        _check_handler(values.of_mechanism(mechanism), mechanism)
        if mechanism == OAUTHBEARER:
            _check_tokens(values.of_mechanism(OAUTHBEARER))
        if mechanism == GSSAPI:
            kerberos_login(values)
            continue
        module = login_module(values, mechanism)
        if mechanism == PLAIN and (module is None or not passwords(module)):
            raise ConfigError(
                f"listener {values.listener} offers PLAIN, and there are no users: set {jaas_key(values, PLAIN)} to "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";'
            )


def _check_handler(values: ListenerValues, mechanism: str) -> None:
    handler = values.text_or_none(_HANDLER)
    if handler and not (mechanism == OAUTHBEARER and handler.rpartition(".")[2] == _VALIDATOR):
        raise ConfigError(
            f"{values.name_of(_HANDLER)} is {handler}: Barnabas cannot run Java classes; take the key out"
        )


def _check_tokens(values: ListenerValues) -> None:
    """Tokens are checked against keys, an issuer and an audience, or are for development."""
    url_key = values.name_of("sasl.oauthbearer.jwks.endpoint.url")
    url = values.text_or_none("sasl.oauthbearer.jwks.endpoint.url")
    if values.flag(UNSIGNED):
        if url:
            raise ConfigError(f"{UNSIGNED} and {url_key} are both set: tokens are signed, or they are not")
        return
    if not url:
        raise ConfigError(
            f"listener {values.listener} offers OAUTHBEARER, and there are no keys to check tokens with: set "
            f"{url_key} to the address of the issuer's JWKS document"
        )
    if not url.startswith(("https://", "file:///")):
        raise ConfigError(f"{url_key} is {url}: it must begin with https:// or file:///")
    if url not in values.items(ALLOWED_URLS):
        raise ConfigError(f"{url_key} is {url}, which {ALLOWED_URLS} does not have: add it there if it is right")
    if not values.text_or_none("sasl.oauthbearer.expected.issuer"):
        raise ConfigError(
            "sasl.oauthbearer.expected.issuer is not set: tokens of any issuer with the same keys would pass"
        )
    if not values.items("sasl.oauthbearer.expected.audience"):
        raise ConfigError("sasl.oauthbearer.expected.audience is not set: tokens for other services would pass")


def jaas_key(values: ListenerValues, mechanism: str) -> str:
    """The key of a mechanism's login module."""
    return f"{prefix_of(values.listener)}{mechanism.lower()}.sasl.jaas.config"


def login_module(values: ListenerValues, mechanism: str) -> LoginModule | None:
    """The login module of one mechanism, if there is one. Raises ConfigError."""
    key, text = jaas_key(values, mechanism), values.of_mechanism(mechanism).own_value("sasl.jaas.config")
    if text is None:
        return None
    modules = parse_jaas(key, str(text))
    if len(modules) != 1:
        raise ConfigError(f"{key} has {len(modules)} login modules: it must have one")
    if modules[0].name.rpartition(".")[2] != _MODULES[mechanism]:
        raise ConfigError(f"{key} has {modules[0].shown}: {mechanism} needs {_MODULES[mechanism]}")
    return modules[0]


def kerberos_login(values: ListenerValues) -> KerberosLogin:
    """The broker's own principal, and its keytab. Raises ConfigError."""
    key, module = jaas_key(values, GSSAPI), login_module(values, GSSAPI)
    options: Mapping[str, str] = {} if module is None else module.options
    principal, keytab = options.get("principal"), options.get("keyTab")
    if not principal or not keytab:
        raise ConfigError(
            f"listener {values.listener} offers GSSAPI (the default of sasl.enabled.mechanisms), and has no keytab: "
            f"set {key} to com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            f'keyTab="..." principal="kafka/HOST@REALM"; or name other mechanisms in '
            f"{values.name_of('sasl.enabled.mechanisms')}"
        )
    service = values.text_or_none("sasl.kerberos.service.name")
    if service and principal.partition("/")[0].partition("@")[0] != service:
        raise ConfigError(
            f"{key} has the principal {principal}, which is not one of the service {service} "
            f"({values.name_of('sasl.kerberos.service.name')}): clients would ask for another"
        )
    return KerberosLogin(principal, keytab.removeprefix("FILE:"))


def passwords(module: LoginModule) -> Mapping[str, str]:
    """The passwords of PLAIN's users."""
    return {name.removeprefix(_USER): text for name, text in module.options.items() if name.startswith(_USER)}


def broker_login(values: ListenerValues) -> BrokerLogin | None:
    """How this broker logs in to others on their listener; None if it cannot. Raises ConfigError.

    If sasl.mechanism.inter.broker.protocol has its default, which no broker of ours can use, the first mechanism with a
    user name and a password is taken.
    """
    enabled = values.items("sasl.enabled.mechanisms")
    if values.value("sasl.mechanism.inter.broker.protocol") == GSSAPI:
        candidates = (_login(values, mechanism) for mechanism in enabled if mechanism in BETWEEN_BROKERS)
        return next((login for login in candidates if login is not None), None)
    key = values.name_of("sasl.mechanism.inter.broker.protocol")
    mechanism = values.text("sasl.mechanism.inter.broker.protocol")
    if mechanism not in enabled:
        raise ConfigError(
            f"{key} is {mechanism}, which listener {values.listener} for brokers does not offer: it must be one of "
            f"sasl.enabled.mechanisms ({', '.join(enabled)})"
        )
    if mechanism not in BETWEEN_BROKERS:
        raise ConfigError(f"{key} is {mechanism}: brokers log in to each other by {', '.join(BETWEEN_BROKERS)}")
    login = _login(values, mechanism)
    if login is None:
        raise ConfigError(
            f"{key} is {mechanism}, and this broker has no user name and password for it: set them in "
            f'{jaas_key(values, mechanism)}, as {_MODULES[mechanism]} required username="..." password="...";'
        )
    return login


def _login(values: ListenerValues, mechanism: str) -> BrokerLogin | None:
    module = login_module(values, mechanism)
    options: Mapping[str, str] = {} if module is None else module.options
    if not options.get("username") or "password" not in options:
        return None
    return BrokerLogin(mechanism, options["username"], options["password"])
