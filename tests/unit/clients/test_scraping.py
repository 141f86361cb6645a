"""Reading brokers' metrics: a token goes where it was meant to go."""

from __future__ import annotations

import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.error import HTTPError

import pytest

from barnabas.clients.scraping import MetricsAccess

if TYPE_CHECKING:
    from collections.abc import Iterator


class Listener(BaseHTTPRequestHandler):
    """Notes the tokens that it is sent, and sends some on to itself."""

    tokens: ClassVar[list[str | None]] = []
    over: ClassVar[threading.Event]

    def do_GET(self) -> None:
        if self.path.startswith("/drip"):
            self.drip(b"HTTP/1.0 200 OK\r\n\r\nfigures" if self.path == "/drip/body" else b"HTTP/1.0 200")
            return
        self.tokens.append(self.headers.get("authorization"))
        if self.path == "/garbage":
            self.wfile.write(b"what is this\r\n\r\n")
            return
        self.send_response(302 if self.path == "/elsewhere" else 200)
        self.send_header("Location", "/metrics")
        self.end_headers()
        self.wfile.write(b"figures")

    def drip(self, begin: bytes) -> None:
        """Send so much, and then a byte now and then, until nobody listens; in the end it would be done."""
        with suppress(OSError):
            self.wfile.write(begin)
            for _ in range(DROPS):
                if self.over.wait(0.05):
                    return
                self.wfile.write(b" ")
            self.wfile.write(b"\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


DROPS: Final = 200


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Listener)
    Listener.tokens.clear()
    Listener.over = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    Listener.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_token_is_sent(address: str) -> None:
    assert MetricsAccess("secret").get(f"{address}/metrics", 5) == b"figures"
    assert MetricsAccess().get(f"{address}/metrics", 5) == b"figures"
    assert Listener.tokens == ["Bearer secret", None]


def test_a_redirect_takes_no_token_elsewhere(address: str) -> None:
    with pytest.raises(HTTPError):
        MetricsAccess("secret").get(f"{address}/elsewhere", 5)
    assert Listener.tokens == ["Bearer secret"]


def test_an_answer_that_is_not_http_is_an_error_of_the_network(address: str) -> None:
    with pytest.raises(OSError, match="not HTTP"):
        MetricsAccess().get(f"{address}/garbage", 5)


@pytest.mark.parametrize("what", ["headers", "body"])
def test_an_answer_that_drips_has_so_long_in_all(address: str, what: str) -> None:
    """The limit was one of each read: a thread of the console stayed with such a page, and one more at each look."""
    with pytest.raises(TimeoutError):
        MetricsAccess().get(f"{address}/drip/{what}", 0.3)
