"""Who waits for what a coordinator decides: a client's question, or messages that are to leave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable


class Call:
    """One question to a coordinator, and where its answer goes. It is what machines know as the asker."""

    __slots__ = ("_failure", "_future", "_response", "client_host", "client_id", "version")

    def __init__(self, client_id: str, client_host: str, version: int, failure: Callable[[ApiError], Any]) -> None:
        self.client_id = client_id
        self.client_host = client_host
        self.version = version
        self._failure = failure
        """Makes the response that says an error."""
        self._response: Any = None
        self._future: asyncio.Future[Any] | None = None

    def answer(self, response: Any) -> None:
        """Give the answer; an error is told as the API tells it."""
        if isinstance(response, ApiError):
            response = self._failure(response)
        if self._future is None:
            self._response = response
        elif not self._future.done():
            self._future.set_result(response)

    def fail(self, error: ApiError) -> None:
        """Give an error for an answer."""
        self.answer(error)

    def result(self) -> Any:
        """The response, or a future of it."""
        if self._response is not None:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class Outgoing:
    """Stands among those who wait for an answer for the messages of a decision: they too leave when it is safe."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[Any], None]) -> None:
        self._send = send

    def answer(self, message: Any) -> None:
        """Let a message out."""
        self._send(message)

    def fail(self, error: ApiError) -> None:
        """The decision did not come true: there is nothing to send."""
