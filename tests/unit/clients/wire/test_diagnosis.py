"""What keeps a client out, and how little a broker is asked to find that out."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Self

import pytest

from barnabas.clients.security import Security
from barnabas.clients.wire import diagnosis
from barnabas.clients.wire.connection import ConnectionClosed
from barnabas.model.errors import ErrorCode
from tests.unit.clients.scripted_broker import ScriptedBroker

API_VERSIONS, SASL_HANDSHAKE = 18, 17
TLS_HANDSHAKE = 0x16


class Listener:
    """Takes connections, notes the first byte of each, and hangs up."""

    def __init__(self) -> None:
        self.first_bytes: list[int] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    self.first_bytes += connection.recv(1)


def no_tls() -> ssl.SSLError:
    """What OpenSSL raises when a broker without TLS answers."""
    incoming = ssl.MemoryBIO()
    incoming.write(bytes(20))
    client = ssl.create_default_context().wrap_bio(incoming, ssl.MemoryBIO(), server_hostname="127.0.0.1")
    with pytest.raises(ssl.SSLError) as raised:
        client.do_handshake()
    return raised.value


@pytest.mark.parametrize(
    ("security", "error", "first"),
    [
        (Security(), ConnectionClosed("closed"), "plaintext"),
        (Security(tls=ssl.create_default_context()), ConnectionClosed("closed"), "TLS"),
        (Security(tls=ssl.create_default_context()), no_tls(), "plaintext"),
    ],
)
def test_a_listener_is_asked_first_what_it_probably_speaks(security: Security, error: Exception, first: str) -> None:
    """A client without TLS began a TLS handshake whenever a broker hung up, and the broker's log had a warning."""
    with Listener() as listener:
        assert diagnosis.explain(listener.address, "127.0.0.1", security, error) is None
    kinds = ["TLS" if byte == TLS_HANDSHAKE else "plaintext" for byte in listener.first_bytes]
    assert kinds[0] == first
    assert len(kinds) == 2


def test_a_listener_without_tls_is_asked_nothing_in_tls() -> None:
    refused = {"error_code": ErrorCode.unsupported_sasl_mechanism, "mechanisms": ["PLAIN"]}
    with ScriptedBroker({SASL_HANDSHAKE: (0, 1)}, {SASL_HANDSHAKE: lambda _: refused}) as broker:
        failure = diagnosis.explain(broker.bootstrap, "127.0.0.1", Security(), ConnectionClosed("closed"))
        assert "speaks SASL_PLAINTEXT, by PLAIN" in str(failure)
        assert [request.__api_key__ for request in broker.requests] == [API_VERSIONS, SASL_HANDSHAKE]
        assert len(broker._connections) == 1
