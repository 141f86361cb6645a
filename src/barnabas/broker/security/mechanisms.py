"""The SASL mechanisms of a broker's listeners, and where each finds what it compares with.

PLAIN's users stand in the configuration; SCRAM's in the metadata tree, below `/config/users`. What changes there counts
for the next login. A mechanism that must wait (for a thread, for keys from elsewhere) gives an awaitable step.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Protocol

from barnabas.machines.controller.image import ConfigResource
from barnabas.machines.security import plain
from barnabas.machines.security.login_step import Identity, LoginRefused, LoginStep
from barnabas.machines.security.scram import (
    BY_TITLE,
    NONCE_BYTES,
    InvalidCredential,
    ScramCredential,
    ScramMechanism,
    ScramOpening,
    ScramServer,
    read_opening,
)
from barnabas.machines.security.scram_decoys import ScramDecoys
from barnabas.model.config import sasl
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from barnabas.broker.security.delegation_tokens import DelegationTokens
    from barnabas.broker.security.kerberos import Kerberos
    from barnabas.broker.security.oauth_tokens import OAuthTokens
    from barnabas.broker.settings import Changed, Settings
    from barnabas.machines.controller.image import ClusterImage
    from barnabas.metadata.images.cache import Delta, MetadataCache
    from barnabas.model.clock import Clock

    Found = tuple[ScramCredential, Identity | None]
    """What a client has to prove that it knows, and who it is then; None for nobody."""

logger = logging.getLogger(__name__)


class MechanismLogin(Protocol):
    """One login by one mechanism."""

    def respond(self, message: bytes) -> LoginStep | Awaitable[LoginStep]:
        """Answer the client's next message. Raises LoginRefused."""
        ...


class Mechanisms:
    """The mechanisms of all listeners; `secret` gives the cluster's, and raises StoreError before it is known."""

    def __init__(
        self,
        settings: Settings,
        metadata: MetadataCache,
        secret: Callable[[], bytes],
        clock: Clock,
        tokens: DelegationTokens | None,
    ) -> None:
        self._settings = settings
        self._tokens = tokens
        self._oauth = {
            listener.name: _oauth_tokens(settings, listener.name, clock)
            for listener in settings.static.listeners
            if listener.uses_sasl
            and sasl.OAUTHBEARER in settings.of_listener(listener.name).items("sasl.enabled.mechanisms")
        }
        self._kerberos = {
            listener.name: _kerberos(settings, listener.name)
            for listener in settings.static.listeners
            if listener.uses_sasl
            and sasl.GSSAPI in settings.of_listener(listener.name).items("sasl.enabled.mechanisms")
        }
        self._metadata = metadata
        self._secret = secret
        self._passwords: dict[str, Mapping[str, str]] = {}
        """PLAIN's, by listener, as far as they were asked for."""
        self._enabled: dict[str, tuple[str, ...]] = {}
        """What a listener offers, likewise."""
        self._max_reauth_ms: dict[tuple[str, str], int] = {}
        """By listener and mechanism, after how many milliseconds a client has to log in again, likewise."""
        settings.subscribe(self._on_settings)
        self._users = ScramDecoys()
        self._note_users(metadata.image, metadata.image.configs)
        metadata.subscribe(self._on_change)

    def enabled(self, listener: str) -> tuple[str, ...]:
        """The mechanisms that a listener offers; OAUTHBEARER and GSSAPI cannot be added while the broker runs."""
        if listener not in self._enabled:
            enabled = self._settings.of_listener(listener).items("sasl.enabled.mechanisms")
            loaded = {sasl.OAUTHBEARER: listener in self._oauth, sasl.GSSAPI: listener in self._kerberos}
            self._enabled[listener] = tuple(
                each for each in enabled if each in sasl.MECHANISMS and loaded.get(each, True)
            )
        return self._enabled[listener]

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """After how long a client has to log in again; 0 for never."""
        key = listener, mechanism
        if key not in self._max_reauth_ms:
            values = self._settings.of_listener(listener).of_mechanism(mechanism)
            self._max_reauth_ms[key] = max(values.number("connections.max.reauth.ms"), 0)
        return self._max_reauth_ms[key]

    def begin(self, listener: str, mechanism: str) -> MechanismLogin:
        """Begin a login by a mechanism that the listener offers."""
        if mechanism == sasl.OAUTHBEARER:
            return self._oauth[listener].begin()
        if mechanism == sasl.GSSAPI:
            return self._kerberos[listener].begin()
        if mechanism in BY_TITLE:
            return _ScramLogin(BY_TITLE[mechanism], self._find_scram)
        return _PlainLogin(self._plain_passwords(listener))

    def _on_settings(self, changed: Changed) -> None:
        self._passwords.clear()
        self._enabled.clear()
        self._max_reauth_ms.clear()

    def _on_change(self, delta: Delta) -> None:
        gone = delta.before.configs.keys() - delta.after.configs.keys() if delta.is_whole else frozenset()
        self._note_users(delta.after, delta.after.configs.keys() | gone if delta.is_whole else delta.configs)

    def _note_users(self, image: ClusterImage, changed: Iterable[ConfigResource]) -> None:
        for resource in changed:
            if resource.kind == "users" and resource.client_id is None:
                self._users.note(resource.name, image.config(resource))

    def _plain_passwords(self, listener: str) -> Mapping[str, str]:
        if listener not in self._passwords:
            try:
                module = sasl.login_module(self._settings.of_listener(listener), sasl.PLAIN)
            except ConfigError as error:  # somebody wrote it into the metadata tree past every check
                logger.error("Nobody can log in by PLAIN on listener %s: %s", listener, error)
                module = None
            self._passwords[listener] = {} if module is None else sasl.passwords(module)
        return self._passwords[listener]

    def _find_scram(self, mechanism: ScramMechanism, opening: ScramOpening) -> Found | Awaitable[Found]:
        """The credential of the user or token that logs in, and who it is then; a decoy and None if there is none."""
        secret = self._secret()
        if opening.is_token:  # all tokens have the shape of Kafka's credentials
            decoy = ScramCredential.decoy(mechanism, opening.name, secret)
            return (decoy, None) if self._tokens is None else self._tokens.find_scram(mechanism, opening, decoy)
        text = self._metadata.image.config(ConfigResource.user(opening.name)).get(mechanism.title)
        decoy, identity = self._users.make(mechanism, opening.name, secret), Identity(opening.name)
        try:  # whether the user is there or not, both are looked for: it must take as long
            credential = self._users.read(mechanism, opening.name, text)
        except InvalidCredential as error:
            logger.error("User %r cannot log in: %s", opening.name, error)
            credential = None
        return (decoy, None) if credential is None else (credential, identity)


def _oauth_tokens(settings: Settings, listener: str, clock: Clock) -> OAuthTokens:
    from barnabas.broker.security.oauth_tokens import OAuthTokens  # here: most brokers have no use for it

    return OAuthTokens(settings.of_listener(listener).of_mechanism(sasl.OAUTHBEARER), clock)


def _kerberos(settings: Settings, listener: str) -> Kerberos:
    from barnabas.broker.security.kerberos import Kerberos  # here: it loads a library of the system

    return Kerberos(settings.of_listener(listener).of_mechanism(sasl.GSSAPI))


class _PlainLogin:
    """A login by PLAIN."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords

    def respond(self, message: bytes) -> LoginStep:
        """Check the only message."""
        return plain.log_in(message, self._passwords)


class _ScramLogin:
    """A login by SCRAM."""

    def __init__(
        self, mechanism: ScramMechanism, find: Callable[[ScramMechanism, ScramOpening], Found | Awaitable[Found]]
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._server: ScramServer | None = None
        self._identity: Identity | None = None

    def respond(self, message: bytes) -> LoginStep | Awaitable[LoginStep]:
        """Send the challenge, then check the proof."""
        if self._server is None:
            opening = read_opening(message)
            found = self._find(self._mechanism, opening)
            return self._challenge(opening, found) if isinstance(found, tuple) else self._wait_for(opening, found)
        signature = self._server.prove(message)
        if self._identity is None:
            raise LoginRefused("there is no such user")
        return LoginStep(signature, self._identity)

    async def _wait_for(self, opening: ScramOpening, found: Awaitable[Found]) -> LoginStep:
        return self._challenge(opening, await found)

    def _challenge(self, opening: ScramOpening, found: Found) -> LoginStep:
        credential, self._identity = found
        self._server = ScramServer(self._mechanism, opening, credential, secrets.token_urlsafe(NONCE_BYTES))
        return LoginStep(self._server.challenge)
