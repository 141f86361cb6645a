"""Who waits for a coordinator's decision: a client's request, or messages to other brokers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Never

from barnabas.machines.outcome import Asker, Response
from barnabas.model.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable


class Call(Asker[Response], Generic[Response]):
    """One request to a coordinator, and where its response goes."""

    __slots__ = ("_failure", "_future", "_response", "client_host", "client_id", "may_see", "version")

    def __init__(self, client_id: str, client_host: str, version: int, failure: Callable[[ApiError], Response]) -> None:
        self.client_id = client_id
        self.client_host = client_host
        self.version = version
        self.may_see: Callable[[str], bool] | None = None
        self._failure = failure
        """Makes the response that carries an error."""
        self._response: Response | None = None
        self._future: asyncio.Future[Response] | None = None

    def answer(self, response: object) -> None:
        """Give the response. An error is worded as the API words it."""
        if isinstance(response, ApiError):
            response = self._failure(response)
        if self._future is None:
            self._response = response  # type: ignore[assignment]  # `Draft.reply` has checked that it is a Response
        elif not self._future.done():
            self._future.set_result(response)  # type: ignore[arg-type]  # as above

    def fail(self, error: ApiError) -> None:
        """Give an error instead of a response."""
        self.answer(error)

    def result(self) -> Response | asyncio.Future[Response]:
        """The response, or a future of it."""
        if self._response is not None:
            return self._response
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class MessageSender(Asker[Never]):
    """Takes the place of an asker for the messages of a decision: they too leave when its records are committed."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def answer(self, response: object) -> None:
        """Send a message."""
        self._send(response)

    def fail(self, error: ApiError) -> None:
        """The decision was not stored: send nothing."""
