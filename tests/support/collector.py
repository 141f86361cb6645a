"""An OTLP receiver that keeps what it gets."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class Collector:
    """An OTLP receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[Any] = []
        self.refuse = (b"", 200)
        """What is refused, and with what code."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.headers.append(self.headers)
                outer.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                refused, code = outer.refuse
                self.send_response(code if outer.bodies[-1] == refused else 200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                return

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/metrics"


@contextmanager
def running_collector() -> Iterator[Collector]:
    """A receiver for as long as the block lasts."""
    found = Collector()
    thread = threading.Thread(target=found.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()
