"""A broker that answers what a test tells it to: one thread, one socket, kio's messages."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from io import BytesIO
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tests.support.wire import build

Answer = Callable[[Any], Any]
"""From a request of whatever version to the values of its response."""


class ScriptedBroker:
    """Serves one connection after the other; `answers` has a function per API key, `requests` what was asked."""

    def __init__(self, versions: dict[int, tuple[int, int]], answers: dict[int, Answer]) -> None:
        self.versions = versions
        self.answers = answers
        self.requests: list[Any] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._accepting.join()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def node(self) -> dict[str, Any]:
        """Where this broker says that it is, as coordinators and Metadata have it."""
        return {"node_id": 1, "host": "127.0.0.1", "port": self.port}

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._connections.append(connection)
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while (head := connection.recv(4, socket.MSG_WAITALL)) != b"":
                (size,) = struct.unpack(">i", head)
                connection.sendall(self._answer(connection.recv(size, socket.MSG_WAITALL)))

    def _answer(self, frame: bytes) -> bytes:
        key, version, correlation_id = struct.unpack_from(">hhi", frame)
        request_schema: Any = load_request_schema(key, version)
        _, at = entity_reader(request_schema.__header_schema__)(frame, 0)
        request, _ = entity_reader(request_schema)(frame, at)
        self.requests.append(request)
        schema: Any = load_response_schema(key, version)
        values = self._versions() if key == 18 else self.answers[key](request)
        if isinstance(values, bytes):
            return values
        body = BytesIO()
        entity_writer(schema.__header_schema__)(
            body, build(schema.__header_schema__, {"correlation_id": correlation_id})
        )
        entity_writer(schema)(body, build(schema, values))
        return struct.pack(">i", body.tell()) + body.getvalue()

    def _versions(self) -> dict[str, Any]:
        served = {18: (0, 4), **self.versions}
        return {
            "api_keys": [
                {"api_key": key, "min_version": lowest, "max_version": highest}
                for key, (lowest, highest) in served.items()
            ]
        }
