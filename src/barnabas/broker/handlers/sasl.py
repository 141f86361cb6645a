"""SaslHandshake v0–1, SaslAuthenticate v0–2, where no login is due: both are answered with ILLEGAL_SASL_STATE.

A client logs in before its first request, on a SASL listener, and again before its session ends: that is the login
dialogue (`broker/serving/login`), which comes before the handlers. What reaches these came on a listener without SASL,
or from a client that has logged in and need not do so again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.sasl_authenticate.v2.response import SaslAuthenticateResponse
from kio.schema.sasl_handshake.v1.response import SaslHandshakeResponse

from barnabas.model.errors import ErrorCode

if TYPE_CHECKING:
    from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
    from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller


def handshake(broker: BrokerContext, request: SaslHandshakeRequest, caller: Caller) -> SaslHandshakeResponse:
    """Refuse."""
    return SaslHandshakeResponse(error_code=ErrorCode.illegal_sasl_state, mechanisms=())


def authenticate(broker: BrokerContext, request: SaslAuthenticateRequest, caller: Caller) -> SaslAuthenticateResponse:
    """Refuse."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.illegal_sasl_state,
        error_message="SaslAuthenticate request received after successful authentication",
        auth_bytes=b"",
    )
