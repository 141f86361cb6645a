"""Small answers over HTTP and HTTPS, from the address that was asked and nowhere else: redirects are not followed.

What is sent may be a secret, and what comes back may be believed, so another server must not take an answer's place.
An answer has as long in all as a connection has to come about: the time limit that Python's clients take is one of each
read, and a server that sends a byte now and then holds their thread for good.
"""

from __future__ import annotations

import io
import ssl
import time
import urllib.request
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path


def fetch(
    url: str,
    *,
    seconds: float,
    most_bytes: int,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
    authority: Path | None = None,
) -> bytes:
    """What is found at an address, or what it answers to a body. Raises OSError (its HTTPError), ValueError.

    `seconds` is the limit of a connection, and then of the whole answer. `authority` has certificates in PEM that are
    trusted in place of the system's.
    """
    opener = urllib.request.build_opener(_NoRedirects, _PlainHandler, _TlsHandler(authority))
    request = urllib.request.Request(url, data=body, headers=dict(headers or {}))
    try:
        with opener.open(request, timeout=seconds) as answer:
            data: bytes = answer.read(most_bytes)
    except HTTPError as error:
        error.close()  # it holds the connection, which would be left to whoever drops it
        raise
    except HTTPException as error:  # which is no OSError
        raise OSError(f"the answer is not HTTP: {error!r}") from error
    return data


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Let the redirect be the error that it is here."""
        return


class _TimedReader(io.RawIOBase):
    """What a socket receives, for as long as its time limit is now."""

    def __init__(self, connection: socket.socket, received: io.RawIOBase) -> None:
        self._connection = connection
        self._received = received
        limit = connection.gettimeout()
        assert limit is not None  # `fetch` gives one
        self._until = time.monotonic() + limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer did not come in time")
        self._connection.settimeout(left)
        return self._received.readinto(buffer)

    def close(self) -> None:
        self._received.close()
        super().close()


class _TimedResponse(HTTPResponse):
    """An answer with a time limit, from its first byte to its last."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp = io.BufferedReader(_TimedReader(sock, self.fp.detach()))


class _PlainConnection(HTTPConnection):
    response_class = _TimedResponse


class _TlsConnection(HTTPSConnection):
    response_class = _TimedResponse


class _PlainHandler(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_PlainConnection, req)


class _TlsHandler(urllib.request.HTTPSHandler):
    def __init__(self, authority: Path | None) -> None:
        super().__init__()
        self._authority = authority

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(_TlsConnection, req, context=ssl.create_default_context(cafile=self._authority))
