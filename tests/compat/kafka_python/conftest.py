"""kafka-python 3.0.12 leaves a socket open that was still connecting when its client was closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kafka.net.inet import KafkaNetSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _no_socket_outlives_its_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    opened: list[socket.socket] = []
    open_one = KafkaNetSocket.socket

    def remember(self: Any, *args: Any, **kwargs: Any) -> socket.socket:
        opened.append(open_one(self, *args, **kwargs))
        return opened[-1]

    monkeypatch.setattr(KafkaNetSocket, "socket", remember)
    yield
    for connection in opened:
        connection.close()
