"""What a listener's sasl.* settings mean: its mechanisms, PLAIN's passwords, and how brokers log in to each other.

As in Kafka, login modules are set for one mechanism of one listener: `listener.name.X.MECHANISM.sasl.jaas.config`. What
a broker logs in with stands there, too: a user name and a password (PLAIN, SCRAM), a principal and a keytab (GSSAPI),
or what an issuer gives it a token for (OAUTHBEARER).
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

MODULES: Final = {
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


BETWEEN_BROKERS: Final = "sasl.mechanism.inter.broker.protocol"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"  # the name of a key
CLIENT_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
CLIENT_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"  # the name of a key
SCOPE: Final = "sasl.oauthbearer.scope"
RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_ASSERTIONS: Final = (
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.template.file",
)
"""What tells Kafka's brokers to get their tokens with a signed assertion."""
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_SUBJECT: Final = "unsecuredLoginStringClaim_sub"
_LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler",)


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
    check_url(values, "sasl.oauthbearer.jwks.endpoint.url")
    if not values.text_or_none("sasl.oauthbearer.expected.issuer"):
        raise ConfigError(
            "sasl.oauthbearer.expected.issuer is not set: tokens of any issuer with the same keys would pass"
        )
    if not values.items("sasl.oauthbearer.expected.audience"):
        raise ConfigError("sasl.oauthbearer.expected.audience is not set: tokens for other services would pass")


def check_url(values: ListenerValues, key: str) -> None:
    """Refuse an address that the list of allowed ones does not have, with ConfigError."""
    url, name = values.text(key), values.name_of(key)
    if not url.startswith(("https://", "file:///")):
        raise ConfigError(f"{name} is {url}: it must begin with https:// or file:///")
    if url not in values.items(ALLOWED_URLS):
        raise ConfigError(f"{name} is {url}, which {ALLOWED_URLS} does not have: add it there if it is right")


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
    if modules[0].name.rpartition(".")[2] != MODULES[mechanism]:
        raise ConfigError(f"{key} has {modules[0].shown}: {mechanism} needs {MODULES[mechanism]}")
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


class PasswordLogin(NamedTuple):
    """By PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"PasswordLogin({self.mechanism}, {self.username})"


class TicketLogin(NamedTuple):
    """By GSSAPI."""

    principal: str
    keytab: str
    service: str
    """The first part of the principals of all brokers."""

    mechanism: str = GSSAPI


class TokenLogin(NamedTuple):
    """By OAUTHBEARER, with a token of an issuer, or of a file that somebody else writes."""

    url: str
    """https://... of the issuer's tokens, or file:///..."""
    client_id: str = ""
    client_secret: str = ""
    scope: str = ""
    subject_claim: str = "sub"
    mechanism: str = OAUTHBEARER

    def __repr__(self) -> str:
        return f"TokenLogin({self.url}, {self.client_id})"


class UnsignedLogin(NamedTuple):
    """By OAUTHBEARER with a token that nobody has signed, for development."""

    subject: str
    subject_claim: str = "sub"
    mechanism: str = OAUTHBEARER


BrokerLogin = PasswordLogin | TicketLogin | TokenLogin | UnsignedLogin


def broker_login(values: ListenerValues) -> BrokerLogin | None:
    """How this broker logs in to others on their listener; None if it cannot. Raises ConfigError.

    If the mechanism has its default, GSSAPI, and the listener does not offer that, the first mechanism with a user name
    and a password is taken.
    """
    enabled = values.items("sasl.enabled.mechanisms")
    mechanism = values.text(BETWEEN_BROKERS)
    if mechanism == GSSAPI and GSSAPI not in enabled:
        candidates = (_password_login(values, each) for each in enabled if each in (PLAIN, *SCRAM))
        return next((login for login in candidates if login is not None), None)
    if mechanism not in enabled:
        raise ConfigError(
            f"{values.name_of(BETWEEN_BROKERS)} is {mechanism}, which listener {values.listener} for brokers does not "
            f"offer: it must be one of sasl.enabled.mechanisms ({', '.join(enabled)})"
        )
    if mechanism == GSSAPI:
        return _ticket_login(values)
    if mechanism == OAUTHBEARER:
        return _token_login(values.of_mechanism(OAUTHBEARER), _options(values, mechanism))
    login = _password_login(values, mechanism)
    if login is None:
        module = MODULES[mechanism]
        raise ConfigError(
            f"{values.name_of(BETWEEN_BROKERS)} is {mechanism}, and this broker has no user name and password for "
            f'it: set them in {jaas_key(values, mechanism)}, as {module} required username="..." password="...";'
        )
    return login


def _options(values: ListenerValues, mechanism: str) -> Mapping[str, str]:
    module = login_module(values, mechanism)
    return {} if module is None else module.options


def _password_login(values: ListenerValues, mechanism: str) -> PasswordLogin | None:
    options = _options(values, mechanism)
    if not options.get("username") or "password" not in options:
        return None
    return PasswordLogin(mechanism, options["username"], options["password"])


def _ticket_login(values: ListenerValues) -> TicketLogin:
    """The service is the first part of this broker's principal, if no setting says so: brokers are all of one."""
    login = kerberos_login(values)
    named = values.text_or_none("sasl.kerberos.service.name") or _options(values, GSSAPI).get("serviceName")
    return TicketLogin(login.principal, login.keytab, named or login.principal.partition("/")[0].partition("@")[0])


def _token_login(values: ListenerValues, options: Mapping[str, str]) -> TokenLogin | UnsignedLogin:
    jaas, claim = jaas_key(values, OAUTHBEARER), values.text("sasl.oauthbearer.sub.claim.name")
    _refuse_other_classes(values)
    if values.flag(UNSIGNED):
        if not (subject := options.get(_SUBJECT)):
            raise ConfigError(f'brokers log in by OAUTHBEARER, and {jaas} names no user: add {_SUBJECT}="..."')
        return UnsignedLogin(subject, claim)
    url = values.text_or_none(TOKEN_URL)
    if not url:
        raise ConfigError(
            f"brokers log in by OAUTHBEARER, and have no tokens: set {values.name_of(TOKEN_URL)} to the address at "
            "which the issuer gives tokens, or to a file (file:///...) that has one"
        )
    check_url(values, TOKEN_URL)
    if url.startswith("file:"):
        return TokenLogin(url, subject_claim=claim)
    client_id = values.text_or_none(CLIENT_ID) or options.get("clientId")
    client_secret = values.text_or_none(CLIENT_SECRET) or options.get("clientSecret")
    if not client_id or not client_secret:
        raise ConfigError(
            f"brokers log in by OAUTHBEARER, and have nothing to get tokens with: set {CLIENT_ID} and {CLIENT_SECRET}, "
            f'or in {jaas} clientId="..." clientSecret="..."'
        )
    return TokenLogin(url, client_id, client_secret, values.text_or_none(SCOPE) or options.get("scope", ""), claim)


def _refuse_other_classes(values: ListenerValues) -> None:
    """Tokens are got as Kafka's own classes get them, which may be named."""
    for key, known in ((_LOGIN_HANDLER, _HANDLERS), (RETRIEVER, _RETRIEVERS)):
        name = values.text_or_none(key)
        if name and name.rpartition(".")[2] not in known:
            raise ConfigError(f"{values.name_of(key)} is {name}: Barnabas takes {', '.join(known)}, or none")
    for key in _ASSERTIONS:
        if values.text_or_none(key):
            raise ConfigError(
                f"{values.name_of(key)} is set: a broker of Barnabas gets its token with a client id and a secret "
                f"({CLIENT_ID}), or reads it from a file ({TOKEN_URL}), and with no assertion; take the key out"
            )
