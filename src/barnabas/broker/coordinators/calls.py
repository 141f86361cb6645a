"""Who waits for a coordinator's decision: a client's request, or messages to other brokers."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar

from barnabas.broker.serving.answers import Later
from barnabas.machines.outcome import Asker, Response
from barnabas.model.errors import ApiError
from barnabas.net.reply import HANG_UP, Parked

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.serving.caller import Caller
    from barnabas.net.reply import Answer

Request = TypeVar("Request")

logger = logging.getLogger(__name__)


class Call(Asker[Response], Later[Response], Generic[Response]):
    """One request to a coordinator, and where its response goes."""

    __slots__ = ("_deliver", "_failure", "_response", "client_host", "client_id", "may_see", "version")

    def __init__(self, client_id: str, client_host: str, version: int, failure: Callable[[ApiError], Response]) -> None:
        self.client_id = client_id
        self.client_host = client_host
        self.version = version
        self.may_see: Callable[[str], bool] | None = None
        self._failure = failure
        """Makes the response that carries an error."""
        self._response: Response | None = None
        self._deliver: Callable[[Response], object] | None = None

    def answer(self, response: object) -> None:
        """Give the response. An error is worded as the API words it.

        Many may be answered by one decision: that the response of one cannot be handed on concerns nobody else.
        """
        if isinstance(response, ApiError):
            response = self._failure(response)
        if self._deliver is None:
            self._response = response  # type: ignore[assignment]  # `Draft.reply` has checked that it is a Response
        else:
            try:
                self._deliver(response)  # type: ignore[arg-type]  # as above
            except Exception:
                logger.exception("The response to client %s at %s got lost.", self.client_id, self.client_host)

    def fail(self, error: ApiError) -> None:
        """Give an error instead of a response."""
        self.answer(error)

    def result(self) -> Response | asyncio.Future[Response]:
        """The response, or a future of it."""
        return self.future() if self._response is None else self._response

    def given(self) -> Response | Later[Response]:
        """The response, or this call, if it was not answered yet."""
        return self if self._response is None else self._response

    def deliver_to(self, deliver: Callable[[Response], object]) -> None:
        """Hand the response on when it comes."""
        self._deliver = deliver

    def future(self) -> asyncio.Future[Response]:
        """A future of the response."""
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

        def deliver(response: Response) -> None:
            if not future.done():
                future.set_result(response)

        self._deliver = deliver
        return future


class PackedCall(Asker[Any], Generic[Request]):
    """One request to a coordinator whose response is packed as soon as it comes: what its connection sends."""

    __slots__ = ("_answer", "_pack", "_parked", "client_host", "client_id", "correlation_id", "request", "version")

    def __init__(
        self,
        caller: Caller,
        version: int,
        correlation_id: int,
        request: Request,
        pack: Callable[[PackedCall[Request], Any], bytes],
    ) -> None:
        """`pack` makes the answer of a response, or of an error that comes in its place."""
        self.client_id = caller.client_id or ""
        self.client_host = caller.host
        self.version = version
        self.correlation_id = correlation_id
        self.request = request
        self._pack = pack
        self._answer: Answer = None
        self._parked: Parked | None = None

    def answer(self, response: object) -> None:
        """Give the response, or an error. One that cannot be packed or handed on concerns nobody else."""
        try:
            self._answer = self._pack(self, response)
        except Exception:
            logger.exception("Closed the connection of %s at %s: a response failed.", self.client_id, self.client_host)
            self._answer = HANG_UP
        if self._parked is not None:
            try:
                self._parked.resolve(self._answer)
            except Exception:
                logger.exception("The response to client %s at %s got lost.", self.client_id, self.client_host)

    def fail(self, error: ApiError) -> None:
        """Give an error instead of a response."""
        self.answer(error)

    def result(self) -> Answer | Parked:
        """The answer, or what it goes to when it comes; a client that leaves is not waited for."""
        if self._answer is not None:
            return self._answer
        self._parked = Parked(on_abandon=_forget)
        return self._parked


def _forget() -> None:
    """The request is decided all the same."""


class MessageSender(Asker[Never]):
    """Takes the place of an asker for the messages of a decision: they too leave when its records are committed."""

    __slots__ = ("_send",)

    def __init__(self, send: Callable[[object], None]) -> None:
        self._send = send

    def answer(self, response: object) -> None:
        """Send a message."""
        try:
            self._send(response)
        except Exception:
            logger.exception("A coordinator's message got lost.")

    def fail(self, error: ApiError) -> None:
        """The decision was not stored: send nothing."""
