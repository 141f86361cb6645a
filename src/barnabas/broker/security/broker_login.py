"""How a broker logs in to another one, where the listener for brokers uses SASL: by PLAIN or SCRAM, like a client.

User name and password are those of the listener's login module (`model/config/sasl`), as they are at that moment. A
session with an end is not renewed: shortly before it, the channel opens another connection (`net/channel`).
"""

from __future__ import annotations

import asyncio
import secrets
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse
from kio.serial import entity_writer

from barnabas.machines.security.scram import BY_TITLE, NONCE_BYTES, ScramClient, ScramClientError
from barnabas.model.config import sasl
from barnabas.model.errors import ConfigError, InvalidFrame
from barnabas.net.channel import ChannelBroken
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from barnabas.broker.settings import Settings
    from barnabas.net.channel import Ask

MOST_ELEMENTS: Final = 100
"""In an answer: more than there are mechanisms."""
SHARE_OF_SESSION: Final = 0.85
"""Of a session, after which the next connection takes its place; Kafka's clients log in again at about that time."""


class BrokerLogins:
    """Logs this broker in to others."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def log_in(self, ask: Ask) -> float | None:
        """Log in over a new connection; gives the seconds after which it must be replaced. Raises ChannelBroken."""
        values = self._settings.of_listener(self._settings.static.inter_broker_listener)
        try:
            login = sasl.broker_login(values)
        except ConfigError as error:
            raise ChannelBroken(f"this broker cannot log in to others: {error}") from error
        if login is None:
            raise ChannelBroken(
                f"this broker has no user name and password to log in with on listener {values.listener}: set "
                f"sasl.mechanism.inter.broker.protocol and {sasl.jaas_key(values, 'MECHANISM')}"
            )
        await _send(ask, SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse)
        try:
            last = await _authenticate(ask, login)
        except ScramClientError as error:
            raise ChannelBroken(f"this broker cannot log in as {login.username}: {error}") from error
        seconds: float = last.session_lifetime.total_seconds()
        return seconds * SHARE_OF_SESSION if seconds > 0 else None


async def _authenticate(ask: Ask, login: sasl.BrokerLogin) -> SaslAuthenticateResponse:
    """Exchange the mechanism's messages; gives the last answer."""
    if login.mechanism == sasl.PLAIN:
        return await _exchange(ask, f"\0{login.username}\0{login.password}".encode())
    mechanism, nonce = BY_TITLE[login.mechanism], secrets.token_urlsafe(NONCE_BYTES)
    client = ScramClient(mechanism, login.username, login.password, nonce)
    challenge = await _exchange(ask, client.opening)
    proof = await asyncio.to_thread(client.prove, challenge.auth_bytes)
    last = await _exchange(ask, proof)
    client.check(last.auth_bytes)
    return last


async def _exchange(ask: Ask, message: bytes) -> SaslAuthenticateResponse:
    response: SaslAuthenticateResponse = await _send(
        ask, SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse
    )
    return response


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
