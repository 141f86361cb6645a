"""What a client that was closed has in place of librdkafka's."""

from __future__ import annotations

from typing import Any

from barnabas.clients.errors import ClientClosed


class Closed:
    """Whatever is asked of it raises ClientClosed."""

    def __init__(self, what: str, why: str = "is closed") -> None:
        """`what` and `why` are the words of the error: "the consumer" "is closed"."""
        self._words = f"{what} {why}"

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        raise ClientClosed(self._words)
