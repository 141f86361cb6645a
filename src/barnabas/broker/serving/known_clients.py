"""Who is at the other end of a connection, found out with its first request and remembered.

A session begins with the connection, or with its login, and ends with it. The client id stands in every header, and is
compared with the one before: only another one is read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.serving.caller import Caller, Session
from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire import framing

if TYPE_CHECKING:
    from barnabas.broker.serving.certificates import Certificates
    from barnabas.net.connection import Connection

CLIENT_ID: Final = framing.HEADER.size - 2
"""Where the client id's length stands in a header."""


class KnownClient(NamedTuple):
    """A connection's caller, the client id with its length as it stands in every header, and where that ends."""

    raw_client_id: bytes
    body: int
    caller: Caller


class ClientSessions:
    """Makes the sessions of connections; those with a certificate are known by it."""

    def __init__(self, certificates: Certificates | None) -> None:
        self._certificates = certificates

    def identify(self, connection: Connection, frame: memoryview, length: int) -> KnownClient:
        """The caller of a first request, or of one with another client id than the one before."""
        body = framing.client_id_end(frame, length)
        client_id = None if length < 0 else bytes(frame[framing.HEADER.size : body]).decode(errors="replace")
        known = connection.state
        session = known.caller.session if isinstance(known, KnownClient) else self._begin_session(connection)
        caller = Caller(listener=connection.listener, address=connection.address, client_id=client_id, session=session)
        return KnownClient(bytes(frame[CLIENT_ID:body]), body, caller)

    def _begin_session(self, connection: Connection) -> Session:
        """The session of a connection whose first request is served, which is told when the connection ends."""
        session, at_close = self._new_session(connection), connection.on_close

        def end() -> None:
            if at_close is not None:
                at_close()
            session.has_ended = True
            if session.on_end is not None:
                session.on_end()

        connection.on_close = end
        return session

    def _new_session(self, connection: Connection) -> Session:
        if isinstance(connection.state, Session):
            return connection.state  # a login has begun it, and says who it is, whatever certificate there is
        if connection.certificate is None or self._certificates is None:
            return Session()
        try:
            principal = self._certificates.principal(connection.listener, connection.certificate)
        except ValueError as error:
            raise InvalidFrame(f"its certificate names no principal: {error}") from error
        return Session() if principal is None else Session(principal)
