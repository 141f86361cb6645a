"""How a broker logs in to another one, where the listener for brokers uses SASL: like a client, by any mechanism.

What it logs in with is in the settings (`model/config/sasl`), as they are at that moment: user name and
password for PLAIN and SCRAM, a keytab for GSSAPI, tokens of an issuer for OAUTHBEARER. A session with an end is not
renewed: shortly before it, the channel opens another connection (`net/channel`).
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_writer

from barnabas.machines.security.scram import BY_TITLE, NONCE_BYTES, ScramClient
from barnabas.model.base_error import BarnabasError
from barnabas.model.config import sasl
from barnabas.model.config.sasl import PasswordLogin, TicketLogin, TokenLogin, UnsignedLogin, broker_login
from barnabas.model.errors import ConfigError, InvalidFrame
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from barnabas.broker.security.broker_tokens import BrokerTokens
    from barnabas.broker.security.kerberos_client import KerberosClient
    from barnabas.broker.settings import Settings
    from barnabas.model.clock import Clock
    from barnabas.model.config.sasl import BrokerLogin
    from barnabas.net.channel import Ask

MOST_ELEMENTS: Final = 100
"""In an answer: more than there are mechanisms."""
SHARE_OF_SESSION: Final = 0.85
"""Of a session, after which the next connection takes its place; Kafka's clients log in again at about that time."""


class BrokerLogins:
    """Logs this broker in to others."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._tokens: tuple[TokenLogin, BrokerTokens] | None = None
        self._kerberos: tuple[TicketLogin, KerberosClient] | None = None

    async def log_in(self, ask: Ask, host: str) -> float | None:
        """Log in over a new connection to a broker at this host; gives the seconds after which it must be replaced.

        Raises ChannelBroken.
        """
        values = self._settings.of_listener(self._settings.static.inter_broker_listener)
        try:
            login = broker_login(values)
        except ConfigError as error:
            raise ChannelBroken(f"this broker cannot log in to others: {error}") from error
        if login is None:
            raise ChannelBroken(
                f"this broker has nothing to log in with on listener {values.listener}: set "
                f"sasl.mechanism.inter.broker.protocol and {sasl.jaas_key(values, 'MECHANISM')}"
            )
        await _send(ask, SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse)
        try:
            last = await self._authenticate(Dialogue(ask), login, host)
        except (BarnabasError, UnicodeError) as error:
            if isinstance(error, ChannelBroken):
                raise
            raise ChannelBroken(f"this broker cannot log in by {login.mechanism}: {error}") from error
        seconds: float = last.session_lifetime.total_seconds()
        return seconds * SHARE_OF_SESSION if seconds > 0 else None

    async def _authenticate(self, dialogue: Dialogue, login: BrokerLogin, host: str) -> SaslAuthenticateResponse:
        """Exchange the mechanism's messages; gives the last answer."""
        match login:
            case PasswordLogin():
                await _prove_password(dialogue, login)
            case TicketLogin():
                await self._kerberos_client(login).log_in(host, dialogue.exchange)
            case TokenLogin():
                await _show_token(dialogue, await self._broker_tokens(login).get())
            case UnsignedLogin():
                from barnabas.broker.security.broker_tokens import unsigned

                await _show_token(dialogue, unsigned(login, self._clock.now_ms()))
        assert dialogue.last is not None  # every mechanism has a message
        return dialogue.last

    def _kerberos_client(self, login: TicketLogin) -> KerberosClient:
        from barnabas.broker.security.kerberos_client import KerberosClient  # here: it loads a library of the system

        if self._kerberos is None or self._kerberos[0] != login:
            self._kerberos = login, KerberosClient(login)
        return self._kerberos[1]

    def _broker_tokens(self, login: TokenLogin) -> BrokerTokens:
        from barnabas.broker.security.broker_tokens import BrokerTokens

        if self._tokens is None or self._tokens[0] != login:
            share = partial(self._settings.ratio, "sasl.login.refresh.window.factor")
            self._tokens = login, BrokerTokens(login, self._clock, share)
        return self._tokens[1]


class Dialogue:
    """The messages of one login."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.last: SaslAuthenticateResponse | None = None
        """The other broker's last answer."""

    async def exchange(self, message: bytes) -> bytes:
        """Send a mechanism's message; gives the other broker's. Raises ChannelBroken."""
        self.last = await _send(self._ask, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse)
        return self.last.auth_bytes


async def _prove_password(dialogue: Dialogue, login: PasswordLogin) -> None:
    if login.mechanism == sasl.PLAIN:
        await dialogue.exchange(f"\0{login.username}\0{login.password}".encode())
        return
    mechanism, nonce = BY_TITLE[login.mechanism], secrets.token_urlsafe(NONCE_BYTES)
    client = ScramClient(mechanism, login.username, login.password, nonce)
    challenge = await dialogue.exchange(client.opening)
    client.check(await dialogue.exchange(await asyncio.to_thread(client.prove, challenge)))


async def _show_token(dialogue: Dialogue, token: str) -> None:
    from barnabas.broker.security.broker_tokens import message_of

    if refusal := await dialogue.exchange(message_of(token)):
        raise ChannelBroken(f"the other broker refused the token of this one: {refusal[:200]!r}")


async def _send(ask: Ask, request: Any, response_class: type) -> Any:
    body = BytesIO()
    entity_writer(type(request))(body, request)
    flexible = request.__flexible__
    data = await ask(request.__api_key__, request.__version__, body.getvalue(), flexible=flexible)
    try:
        response = bounds.read(response_class, data, 1 if flexible else 0, MOST_ELEMENTS)
    except InvalidFrame as error:
        raise ChannelBroken(f"the other broker's answer to the login cannot be read: {error}") from error
    if response.error_code is not ErrorCode.none:
        reason = getattr(response, "error_message", None) or response.error_code.name
        raise ChannelBroken(f"the other broker refused the login of this one: {reason}")
    return response
