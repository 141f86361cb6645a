"""What a handler gives, made into the answer of its request: at once, when a future is done, or by a task.

A handler that is a coroutine function runs as a task. One that returns a future, or a response that comes later (a
coordinator's), is answered when that is there. A long answer is encoded in a thread. A handler that raises is answered
with the error's code, or the connection ends.
"""

from __future__ import annotations

import logging
from asyncio import Future, isfuture
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

from barnabas.model.errors import ApiError, ErrorCode, shortened
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.wire import codec
from barnabas.protocol.wire.error_responses import top_level_error

Response = TypeVar("Response")

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

    HandlerResult: TypeAlias = "Response | Later[Response] | asyncio.Future[Response] | Coroutine[Any, Any, Response]"
    """What a handler gives."""

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.serving.caller import Caller
    from barnabas.broker.serving.routes import Route
    from barnabas.broker.tasks import TaskSet

logger = logging.getLogger(__name__)

LONG_ANSWER: Final = 500
"""Array elements of an answer from which on it is written in a thread: some milliseconds of work."""


class Later(Generic[Response]):
    """What a handler may give in the place of a response: like a future, but without a turn of the event loop.

    The response is handed on as soon as it comes. Only one takes it: by a function, or by a future.
    """

    __slots__ = ()

    def deliver_to(self, deliver: Callable[[Response], object]) -> None:
        """Hand the response on when it comes."""
        raise NotImplementedError

    def future(self) -> asyncio.Future[Response]:
        """A future of the response."""
        raise NotImplementedError


class Answers:
    """Has handlers answer; those that take their time run among `tasks`."""

    def __init__(self, broker: BrokerContext, tasks: TaskSet) -> None:
        self._broker = broker
        self._tasks = tasks

    def call(
        self,
        route: Route,
        caller: Caller,
        correlation_id: int,
        request: Any,
        complete: Callable[[Any], Any] | None,
        *,
        is_large: bool = False,
    ) -> Answer | Parked:
        """Have the handler answer; `complete` makes of its response what the caller is answered."""
        try:
            if route.api.takes_version:
                response = route.handler(self._broker, request, caller, route.version)
            else:
                response = route.handler(self._broker, request, caller)
            if type(response) is route.response and complete is None and not is_large:
                return route.encode(correlation_id, response)
            if isinstance(response, Later):
                if complete is None and not is_large:
                    return _answer_when_given(route, correlation_id, response)
                response = response.future()
            if complete is not None:
                if iscoroutine(response) or isfuture(response):
                    return self.run_as_task(route, correlation_id, self._completed(response, complete), response)
                response = complete(response)
            if iscoroutine(response):
                return self.run_as_task(route, correlation_id, response)
            if is_large:
                return self.run_as_task(route, correlation_id, wait_for(response), response)
            if isfuture(response):
                return _answer_when_done(route, correlation_id, response)
            return route.encode(correlation_id, response)
        except Exception as error:
            return answer_failure(route, correlation_id, error)

    async def _completed(self, response: Any, complete: Callable[[Any], Any]) -> Any:
        """What `complete` makes of a response that comes later; of a long one in a thread."""
        response = await response
        if not codec.is_longer(response, LONG_ANSWER):
            return complete(response)
        completing = self._broker.validation_pool.start(0, lambda: complete(response))
        assert completing is not None  # nothing of a request is held for it
        return await completing

    def run_as_task(
        self, route: Route, correlation_id: int, coroutine: Coroutine[Any, Any, Any], awaited: object = None
    ) -> Parked:
        """Have a coroutine answer; if it only waits for the future `awaited`, not longer than the client does.

        If `awaited` is a coroutine, the first one is around it.
        """
        parked = Parked()
        task = self._tasks.spawn(self._run(parked, route, correlation_id, coroutine))

        def end() -> None:
            task.cancel()

        if isfuture(awaited):
            parked.on_abandon = awaited.cancel
        elif route.api.cancelled_on_disconnect:
            parked.on_abandon = end
            for each in (coroutine, awaited):  # one that was ended before it began warns otherwise
                if iscoroutine(each):
                    task.add_done_callback(partial(_close, each))
        return parked

    async def _run(
        self, parked: Parked, route: Route, correlation_id: int, coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        """Resolve a parked answer with the response of a handler; a long one is encoded in a thread."""
        try:
            response = await (coroutine if route.meter is None else route.meter.watch(coroutine))
            if codec.is_longer(response, LONG_ANSWER):
                encoding = self._broker.validation_pool.start(0, lambda: route.encode(correlation_id, response))
                assert encoding is not None  # nothing of a request is held for it
                parked.resolve(await encoding)
            else:
                parked.resolve(route.encode(correlation_id, response))
        except Exception as error:
            parked.resolve(answer_failure(route, correlation_id, error))


def _answer_when_given(route: Route, correlation_id: int, later: Later[Any]) -> Parked:
    parked = Parked(on_abandon=_forget)

    def deliver(response: Any) -> None:
        try:
            answer: Answer = route.encode(correlation_id, response)
        except Exception as error:
            answer = answer_failure(route, correlation_id, error)
        parked.resolve(answer)

    later.deliver_to(deliver)
    return parked


def _forget() -> None:
    """Nobody waits for a response any more; it is dropped when it comes."""


def _answer_when_done(route: Route, correlation_id: int, future: asyncio.Future[Any]) -> Parked:
    parked = Parked(on_abandon=future.cancel)

    def answer(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        try:
            parked.resolve(route.encode(correlation_id, future.result()))
        except Exception as error:
            parked.resolve(answer_failure(route, correlation_id, error))

    future.add_done_callback(answer)
    return parked


def _close(coroutine: Coroutine[Any, Any, Any], _: object) -> None:
    coroutine.close()


async def wait_for(response: Response | Future[Response]) -> Response:
    """A handler's response, or that of its future."""
    return await response if isinstance(response, Future) else response


def answer_failure(route: Route, correlation_id: int, error: Exception) -> Answer:
    """The answer of a handler that raised: its response class with the error's code, or the end of the connection."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.unknown_server_error
    response = top_level_error(route.api.key, route.api.newest, code, shortened(str(error)))
    if not isinstance(error, ApiError):
        outcome = "the connection is closed" if response is None else "the client is answered with UNKNOWN_SERVER_ERROR"
        logger.error("%s failed; %s.", route, outcome, exc_info=error)
    if response is None:
        return HANG_UP
    return route.encode(correlation_id, response)
