"""From a frame to an answer: the header is read, version and API are checked, the handler is found and called.

A raw handler (Produce, Fetch) is given the frame and answers in bytes. Every other handler is given the newest version
of the request and returns the newest version of the response; the codec does the rest. A handler that is a coroutine
function runs as a task, one that returns a future (a coordinator's) is answered when that is done; the connection waits
for either.

What only the controller can answer is handed on to it as it came, and its answer is handed back. What only brokers may
ask of each other ends a connection whose other end has not proved to be one.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from asyncio import isfuture
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.caller import Caller
from barnabas.broker.handlers import api_versions
from barnabas.broker.registry import BY_KEY, RAW
from barnabas.model.errors import ApiError, BarnabasError, ErrorCode, InvalidFrame, shortened
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol import codec, framing
from barnabas.protocol.apis import ApiKey

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from barnabas.broker.context import Broker
    from barnabas.broker.registry import Api
    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)

CLIENT_ID: Final = framing.HEADER.size - 2
"""Where the client id's length stands."""
API: Final = struct.Struct(">iih")
"""A request's header with API key and version as one number, correlation id, length of the client id."""
FORWARDED: Final = re.compile(r"broker-\d+-forwarded")
"""The client id of a broker that hands a request on."""
BROKER_RESOURCES: Final = frozenset({4, 8})
"""Kinds of configuration, of a broker and of its loggers, that the broker itself changes when it is named."""


class Route:
    """One version of an API, with its handler, which is loaded when the API is first asked for."""

    __slots__ = ("api", "flexible", "handler", "raw", "version")

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.flexible = version >= api.flexible_from
        self.raw = api.key in RAW
        self.handler = api.load()


class Dispatcher:
    """Serves the frames of all connections."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[int, Route] = {}
        """By API key and version as one number, as far as they were asked for."""
        self._tasks: set[asyncio.Task[None]] = set()

    def serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Answer one request, now or later; raises InvalidFrame for what is none."""
        number, correlation_id, length = API.unpack_from(frame)
        route = self._routes.get(number)
        if route is None:
            key, version, *_ = framing.HEADER.unpack_from(frame)
            api = BY_KEY.get(key)
            if api is None or not api.oldest <= version <= api.newest:
                return _unsupported(key, version, correlation_id)
            route = self._routes[number] = Route(api, version)
        known = connection.state
        if not isinstance(known, KnownClient) or frame[CLIENT_ID : known.body] != known.raw_client_id:
            known = connection.state = _meet(connection, frame, length)
        _, body, caller = known
        if route.flexible:
            body = body + 1 if body < len(frame) and frame[body] == 0 else framing.skip_tags(frame, body)
        if route.raw:
            answer: Answer | Parked = route.handler(self._broker, caller, route.version, correlation_id, frame, body)
            return answer  # what it raises ends the connection, in net/connection
        if route.api.internal and caller.broker_id is None and not route.api.unproved:
            raise InvalidFrame(f"{route.api.key.name} is for brokers of this cluster, and nobody proved to be one")
        return self._serve_message(route, caller, correlation_id, frame, body)

    def _serve_message(
        self, route: Route, caller: Caller, correlation_id: int, frame: memoryview, body: int
    ) -> Answer | Parked:
        """Have a handler answer that is given a message, and not the frame."""
        api, version = route.api, route.version
        request = codec.decode(api.key, version, api.newest, frame, body)
        if api.by_controller and not self._broker.controller.is_active and _is_for_controller(request):
            if caller.broker_id is not None and FORWARDED.fullmatch(caller.client_id or ""):
                return HANG_UP  # another broker takes this one for the controller: it is to look again
            return self._hand_on(route, correlation_id, bytes(frame[body:]), request, caller)
        try:
            if api.versioned:
                response = route.handler(self._broker, request, caller, version)
            else:
                response = route.handler(self._broker, request, caller)
            if iscoroutine(response):
                return self._later(api, version, correlation_id, response)
            if isfuture(response):
                return _when_done(api, version, correlation_id, response)
            return codec.encode(api.key, version, correlation_id, response)
        except Exception as error:
            return _failed(api, version, correlation_id, error)

    async def finish(self, grace: float) -> None:
        """Wait for the handlers that are under way; those that are not done after `grace` seconds are ended."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        if late:
            logger.warning("%d requests are not done and will not be: the broker stops", len(late))
            for task in late:
                task.cancel()
            await asyncio.wait(late)

    def _later(self, api: Api, version: int, correlation_id: int, coroutine: Coroutine[Any, Any, Any]) -> Parked:
        parked = Parked()
        task = self._spawn(_run(parked, api, version, correlation_id, coroutine))

        def end() -> None:
            task.cancel()

        if api.ends_with_connection:
            parked.on_abandon = end
        return parked

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _hand_on(self, route: Route, correlation_id: int, body: bytes, request: Any, caller: Caller) -> Parked:
        """Have the controller answer, or answer here if this broker comes to office meanwhile."""
        api, version, parked = route.api, route.version, Parked()

        async def hand_on() -> None:
            from barnabas.protocol.error_responses import error_response  # here: one broker alone never needs it

            try:
                answer = await self._broker.cluster.link.relay(api.key, version, body, flexible=route.flexible)
            except BarnabasError as error:
                logger.warning("%s could not be handed on to the controller: %s", api.key.name, error)
                code = ErrorCode.not_controller
                response = error_response(api.key, version, api.newest, request, code, str(error))
                parked.resolve(codec.encode(api.key, version, correlation_id, response))
            else:
                if answer is None:
                    await _run(parked, api, version, correlation_id, route.handler(self._broker, request, caller))
                else:
                    head = codec.HEADER_V0.pack(len(answer) + 4, correlation_id)
                    parked.resolve(b"".join((head, answer)))

        self._spawn(hand_on())
        return parked


class KnownClient(NamedTuple):
    """A connection's caller, the client id with its length as it stands in every header, and where that ends."""

    raw_client_id: bytes
    body: int
    caller: Caller


def _meet(connection: Connection, frame: memoryview, length: int) -> KnownClient:
    body = framing.client_id_end(frame, length)
    client_id = None if length < 0 else bytes(frame[framing.HEADER.size : body]).decode(errors="replace")
    caller = Caller(listener=connection.listener, address=connection.address, client_id=client_id)
    return KnownClient(bytes(frame[CLIENT_ID:body]), body, caller)


def _when_done(api: Api, version: int, correlation_id: int, future: asyncio.Future[Any]) -> Parked:
    parked = Parked(on_abandon=future.cancel)

    def done(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        try:
            parked.resolve(codec.encode(api.key, version, correlation_id, future.result()))
        except Exception as error:
            parked.resolve(_failed(api, version, correlation_id, error))

    future.add_done_callback(done)
    return parked


async def _run(
    parked: Parked, api: Api, version: int, correlation_id: int, coroutine: Coroutine[Any, Any, Any]
) -> None:
    try:
        parked.resolve(codec.encode(api.key, version, correlation_id, await coroutine))
    except Exception as error:
        parked.resolve(_failed(api, version, correlation_id, error))


def _is_for_controller(request: Any) -> bool:
    return not any(
        resource.resource_name and resource.resource_type in BROKER_RESOURCES
        for resource in getattr(request, "resources", ())
    )


def _unsupported(key: int, version: int, correlation_id: int) -> Answer:
    """Kafka's answers to what it does not speak: ApiVersions says what it does, anything else is hung up on."""
    if key != ApiKey.API_VERSIONS:
        raise InvalidFrame(f"API key {key} in version {version} is not served; ask ApiVersions for what is")
    return codec.encode(ApiKey.API_VERSIONS, 0, correlation_id, api_versions.unsupported_version())


def _failed(api: Api, version: int, correlation_id: int, error: Exception) -> Answer:
    """The answer of a handler that raised: its response class with the error's code, or the end of the connection."""
    if isinstance(error, ApiError):
        code = error.code
    else:
        code = ErrorCode.unknown_server_error
        logger.error("%s v%d failed", api.key.name, version, exc_info=error)
    response = codec.error_response(api.key, api.newest, code, shortened(str(error)))
    if response is None:
        return HANG_UP
    return codec.encode(api.key, version, correlation_id, response)
