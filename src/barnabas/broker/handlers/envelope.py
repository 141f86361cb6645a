"""Envelope v0 (KIP-590): a client's request that another broker forwards, judged in the client's name.

- Only brokers of this cluster that have proved it may send one, and with an authorizer they need ClusterAction. What is
  inside is served as if the client had sent it here: with its principal, its address and its client id.
- Inside may be any API whose line in the registry says that it is forwarded; others are an INVALID_REQUEST. A broker
  that is not the controller answers NOT_CONTROLLER, and the sender looks for the controller again.
- The principal is Kafka's DefaultPrincipalData, after its version. One that cannot be read is a
  PRINCIPAL_DESERIALIZATION_FAILURE.
"""

from __future__ import annotations

import struct
from io import BytesIO
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.default_principal_data.v0.data import DefaultPrincipalData
from kio.schema.envelope.v0.request import EnvelopeRequest
from kio.schema.envelope.v0.response import EnvelopeResponse
from kio.serial import entity_writer

from barnabas.broker.serving.caller import Caller, Session
from barnabas.model.errors import ErrorCode, InvalidFrame, InvalidRequest, PrincipalDeserializationFailure
from barnabas.protocol.wire import bounds, framing

if TYPE_CHECKING:
    from barnabas.broker.context import BrokerContext
    from barnabas.net.reply import Answer

_VERSION: Final = struct.Struct(">h")
_NO_ADDRESS: Final = bytes(4)


class Forwarded(NamedTuple):
    """A request out of an envelope."""

    key: int
    version: int
    correlation_id: int
    caller: Caller
    frame: memoryview
    body: int
    """Where the header ends, but for tagged fields."""


def wrap(
    caller: Caller, key: int, version: int, correlation_id: int, body: bytes, *, flexible: bool
) -> EnvelopeRequest:
    """A client's request, to be forwarded; `body` comes after the header."""
    client_id = None if caller.client_id is None else caller.client_id.encode()
    header = framing.HEADER.pack(key, version, correlation_id, -1 if client_id is None else len(client_id))
    parts = (header, client_id or b"", b"\0" if flexible else b"", body)
    kind, _, name = caller.principal.partition(":")
    principal = BytesIO()
    principal.write(_VERSION.pack(0))
    entity_writer(DefaultPrincipalData)(
        principal, DefaultPrincipalData(type_=kind, name=name, token_authenticated=caller.session.is_token)
    )
    return EnvelopeRequest(
        request_data=b"".join(parts),
        request_principal=principal.getvalue(),
        client_host_address=_packed(caller.address[0]),
    )


def _packed(host: str) -> bytes:
    try:
        return ip_address(host.partition("%")[0]).packed
    except ValueError:
        return _NO_ADDRESS


def unwrap(request: EnvelopeRequest, sender: Caller) -> Forwarded:
    """The request inside, and who it comes from. Raises InvalidRequest, PrincipalDeserializationFailure."""
    frame = memoryview(request.request_data)
    try:
        header = framing.read_header(frame, flexible=False)
        host = str(ip_address(request.client_host_address))
    except (InvalidFrame, struct.error, ValueError) as error:
        raise InvalidRequest(f"The envelope of {sender.principal} cannot be opened: {error}") from error
    client_id = None if header.client_id is None else header.client_id.decode(errors="replace")
    principal, is_token = _principal(request.request_principal)
    session = Session(principal=principal, is_token=is_token)
    caller = Caller(listener=sender.listener, address=(host, 0), client_id=client_id, session=session)
    return Forwarded(header.api_key, header.version, header.correlation_id, caller, frame, header.body)


def _principal(data: bytes | None) -> tuple[str, bool]:
    """Who sent the request, and whether by a delegation token."""
    try:
        if data is None or _VERSION.unpack_from(data)[0] != 0:
            raise PrincipalDeserializationFailure("The envelope's principal is missing, or of an unknown version.")
        found = bounds.read(DefaultPrincipalData, memoryview(data), _VERSION.size, bounds.MAX_ELEMENTS)
    except (InvalidFrame, struct.error) as error:
        raise PrincipalDeserializationFailure(f"The envelope's principal cannot be read: {error}") from error
    if not found.type_ or not found.name:
        raise PrincipalDeserializationFailure("The envelope's principal has no type, or no name.")
    return f"{found.type_}:{found.name}", found.token_authenticated


def seal(answer: Answer) -> EnvelopeResponse:
    """The response to a request out of an envelope; its four bytes of length stay here."""
    if not isinstance(answer, bytes):
        raise InvalidRequest("The request in the envelope cannot be answered.")
    return EnvelopeResponse(response_data=answer[framing.LENGTH.size :], error_code=ErrorCode.none)


def envelope(broker: BrokerContext, request: EnvelopeRequest, caller: Caller) -> EnvelopeResponse:
    """Served by the dispatcher, which has to find the handler of what is inside."""
    raise AssertionError("broker/serving/dispatch opens envelopes")
