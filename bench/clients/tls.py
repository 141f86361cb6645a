"""Connections over TLS, opened by several clients at once, each used once and then left alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Self

from bench.clients import wire

if TYPE_CHECKING:
    import socket
    import ssl

CLIENTS: Final = 8
"""How many are opened at the same time."""


class IdleConnections:
    """Connections that have asked one thing, with a context over TLS, without one in the clear; a context manager."""

    def __init__(self, port: int, count: int, context: ssl.SSLContext | None = None) -> None:
        self._port = port
        self._context = context
        started = time.perf_counter()
        with ThreadPoolExecutor(CLIENTS) as pool:
            self._sockets = list(pool.map(lambda _: self._open(), range(count)))
        self.seconds = time.perf_counter() - started
        """How long it took until all were open and answered."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._sockets:
            connection.close()

    def _open(self) -> socket.socket:
        connection = wire.connect(self._port)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_hostname="127.0.0.1")
        if not wire.metadata(connection).brokers:
            raise RuntimeError("the broker does not know itself")
        return connection
