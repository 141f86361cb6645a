"""GSSAPI (RFC 4752): a client proves by a ticket of Kerberos who it is; the broker proves itself by its keytab.

Messages go back and forth until the context of GSSAPI stands. Then the broker offers security layers: none, since TLS
does that; the client takes it, and says in whose name it wants to act. That name is not looked at, as in Kafka: some
clients send the broker's name there. A client always is who its ticket says.

The arithmetic and the files (keytab, replay cache) are the system's library's (`gssapi` binds it), in threads of their
own (`login_threads`).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.security.login_threads import LoginThreads
from barnabas.machines.security.kerberos_names import KerberosNames, NoLocalName
from barnabas.machines.security.login_step import Identity, LoginRefused, LoginStep
from barnabas.model.config import sasl
from barnabas.model.errors import ConfigError, StartupError

if TYPE_CHECKING:
    from barnabas.model.config.per_listener import ListenerValues

logger = logging.getLogger(__name__)

LONGEST_MESSAGE: Final = 64 * 1024
"""Bytes of a message: tickets with many groups have tens of thousands."""
MOST_ROUNDS: Final = 10
"""Messages until the context must stand; Kerberos needs one or two."""
NO_LAYER: Final = 1
OFFER: Final = bytes((NO_LAYER, 0, 0, 0))
"""The layers that are offered, and the most bytes of a wrapped message: none."""


class Kerberos:
    """What all logins by GSSAPI on one listener share. Raises ConfigError, StartupError."""

    def __init__(self, values: ListenerValues) -> None:
        gssapi = load_gssapi()
        login = sasl.kerberos_login(values)
        try:
            name = gssapi.Name(login.principal, gssapi.NameType.kerberos_principal)
            self._credentials = gssapi.Credentials(
                name=name,
                usage="accept",
                mechs=[gssapi.MechType.kerberos],  # else other mechanisms could be negotiated inside of this one
                store={"keytab": login.keytab},
            )
            realm = str(gssapi.Name("x", gssapi.NameType.user).canonicalize(gssapi.MechType.kerberos)).partition("@")[2]
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(
                f"listener {values.listener} cannot offer GSSAPI as {login.principal} with the keytab {login.keytab}: "
                f"{error}"
            ) from None
        self._names = KerberosNames(values.items("sasl.kerberos.principal.to.local.rules"), realm)
        self._threads = LoginThreads(sasl.GSSAPI)

    def begin(self) -> GssapiLogin:
        """Begin a login."""
        context = load_gssapi().SecurityContext(creds=self._credentials, usage="accept")
        context.__DEFER_STEP_ERRORS__ = False  # what is refused is refused at once, and not after a message about it
        return GssapiLogin(context, self._names, self._threads)


class GssapiLogin:
    """A login by GSSAPI."""

    def __init__(self, context: Any, names: KerberosNames, threads: LoginThreads) -> None:
        self._context = context
        self._names = names
        self._threads = threads
        self._rounds = 0
        self._has_offered = False

    async def respond(self, message: bytes) -> LoginStep:
        """Go on with the context; when it stands offer the layers, then see which one was chosen."""
        if len(message) > LONGEST_MESSAGE:
            raise LoginRefused("the GSSAPI message is too long")
        self._rounds += 1
        if self._rounds > MOST_ROUNDS:
            raise LoginRefused("the context of GSSAPI takes too many messages")
        return await self._threads.run(partial(self._respond, message), len(message))

    def _respond(self, message: bytes) -> LoginStep:
        gssapi = load_gssapi()
        try:
            if not self._context.complete:
                answer = self._context.step(message)
                if answer or not self._context.complete:
                    return LoginStep(answer or b"")
                message = b""
            if not self._has_offered:
                if message:
                    raise LoginRefused(
                        "the client sent a message when it was the broker's turn to offer its security layers"
                    )
                self._has_offered = True
                return LoginStep(self._context.wrap(OFFER, False).message)
            return self._finish(self._context.unwrap(message).message)
        except gssapi.exceptions.GSSError as error:
            raise LoginRefused(f"GSSAPI refuses it: {error}") from None

    def _finish(self, chosen: bytes) -> LoginStep:
        if len(chosen) < len(OFFER) or chosen[0] != NO_LAYER:
            raise LoginRefused("the client chose a security layer that was not offered")
        if self._context.mech != load_gssapi().MechType.kerberos:
            raise LoginRefused("the client did not use Kerberos")
        name = str(self._context.initiator_name)
        try:
            return LoginStep(b"", Identity(self._names.local(name)))
        except NoLocalName as error:
            raise LoginRefused(f"{name} has no local name: {error}") from None


def load_gssapi() -> Any:
    """The module gssapi; raises StartupError with words for what is missing."""
    try:
        import gssapi
        import gssapi.exceptions
    except ImportError:
        raise StartupError(
            "GSSAPI needs the package gssapi, which is not installed: run `pip install 'barnabas[kerberos]'` "
            "(it is built against the system's Kerberos: libkrb5-dev and gcc on Debian)"
        ) from None
    except OSError as error:
        raise StartupError(f"GSSAPI needs the system's Kerberos library, which cannot be loaded: {error}") from None
    return gssapi
