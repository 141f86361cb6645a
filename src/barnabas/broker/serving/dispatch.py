"""From a frame to an answer: the header is read, version and API are checked, the handler is found and called.

A raw handler (Produce, Fetch) is given the frame and answers in bytes. Every other handler is given the newest version
of the request and returns the newest version of the response; the codec does the rest. A handler that is a coroutine
function runs as a task, one that returns a future (a coordinator's) is answered when that is done; the connection waits
for either.

Nothing that a client sends holds the event loop for long. The first request of an API and version waits while the
modules that serve it are imported in a thread. A large frame is decoded in a thread, and a long answer of a
coroutine is encoded in one: so a handler whose answer may be long is a coroutine function where it is, and makes it
with `broker/serving/long_answers`.

A request that only the controller can answer is forwarded to it in an envelope with the client's name, and its answer
is sent back. A request that only brokers may send closes a connection whose other end has not proved to be a broker.

Where the broker has an authorizer, what the API's line in the registry says it needs is asked for before the handler:
by whoever serves the request, so a forwarded one is judged by the controller. Raw handlers ask themselves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from asyncio import isfuture
from functools import partial
from inspect import iscoroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.handlers import api_versions
from barnabas.broker.permissions.needs import Admitted, Asked, Denied, on_cluster
from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.registry import BY_KEY, Callers
from barnabas.broker.tasks import TaskSet
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import (
    ApiError,
    BarnabasError,
    ErrorCode,
    InvalidFrame,
    InvalidRequest,
    NotController,
    shortened,
)
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.apis import ApiKey, ResourceType
from barnabas.protocol.wire import codec, framing
from barnabas.protocol.wire.error_responses import error_response, top_level_error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kio.schema.envelope.v0.request import EnvelopeRequest
    from kio.schema.envelope.v0.response import EnvelopeResponse

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.handlers.envelope import Forwarded
    from barnabas.broker.security.quotas import Meter
    from barnabas.broker.serving.registry import Api
    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)

LARGE_FRAME: Final = 8 * 1024
"""Bytes from which on a request is read in a thread: some hundred array elements, in the worst case eight thousand."""
LONG_ANSWER: Final = 500
"""Array elements of an answer from which on it is written in a thread: some milliseconds of work."""
CLIENT_ID: Final = framing.HEADER.size - 2
"""Where the client id's length stands."""
API: Final = struct.Struct(">iih")
"""A request's header with API key and version as one number, correlation id, length of the client id."""
ROUTE: Final = struct.Struct(">i")
"""The first of these."""
FORWARDED: Final = re.compile(r"broker-\d+-forwarded")
"""The client id of a broker that forwards a request."""
BROKER_RESOURCES: Final = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})
"""Kinds of configuration, of a broker and of its loggers, that the broker itself changes when it is named."""


BROKERS_NEED: Final = on_cluster(Operation.CLUSTER_ACTION).load()
"""What decides about requests of brokers that have proved to be some, whatever they ask for."""


class Route:
    """One version of an API: its handler and its codec, which are loaded when it is first asked for."""

    __slots__ = ("api", "brokers_only", "check", "decode", "encode", "flexible", "handler", "metered", "raw", "version")

    meter: Meter | None = None
    """Counts the request that is served against its client's quotas (`MeteredRoute`)."""

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.flexible = version >= api.format.flexible_from
        self.brokers_only = api.callers is Callers.BROKERS
        self.raw = api.raw
        self.handler = api.load()
        self.check = api.needs.load()
        if api.raw:
            self.metered = api.load_metered()
        else:
            self.decode = codec.decoder(api.key, version, api.newest)
            self.encode = codec.encoder(api.key, version)

    def __str__(self) -> str:
        return f"{self.api.key.name} v{self.version}"


class MeteredRoute(Route):
    """The same for one request of a client, while there are quotas: its time counts, and its response tells a wait."""

    __slots__ = ("_plain", "meter")

    def __init__(self, plain: Route, meter: Meter) -> None:
        self._plain = plain
        self.meter: Meter = meter
        self.api, self.version, self.flexible = plain.api, plain.version, plain.flexible
        self.brokers_only, self.raw = plain.brokers_only, plain.raw
        self.check = None if plain.check is None else meter.timed(plain.check)
        self.decode = meter.timed(plain.decode)
        self.handler = meter.timed(plain.handler)
        self.encode = meter.timed(self._encode)

    def _encode(self, correlation_id: int, response: Any) -> bytes:
        return self._plain.encode(correlation_id, self.meter.stamp(response))


class Dispatcher:
    """Serves the frames of all connections."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._permissions = broker.permissions
        self._quotas = broker.quotas
        self._routes: dict[int, Route] = {}
        """By API key and version as one number, as far as they were asked for."""
        self._tasks = TaskSet()

    def serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Answer one request, now or later; raises InvalidFrame for what is none."""
        number, correlation_id, length = API.unpack_from(frame)
        route = self._routes.get(number)
        if route is None:
            return self._serve_first(connection, frame)
        known = connection.state
        if not isinstance(known, KnownClient) or frame[CLIENT_ID : known.body] != known.raw_client_id:
            known = connection.state = self._identify(connection, frame, length)
        _, body, caller = known
        if route.flexible:
            body = body + 1 if body < len(frame) and frame[body] == 0 else framing.skip_tags(frame, body)
        if self._quotas.is_on:
            return self._serve_metered(connection, route, caller, correlation_id, frame, body)
        if route.raw:
            answer: Answer | Parked = route.handler(self._broker, caller, route.version, correlation_id, frame, body)
            return answer  # what it raises ends the connection, in net/connection
        return self._serve_decoded(route, caller, correlation_id, frame, body)

    def _serve_metered(
        self, connection: Connection, route: Route, caller: Caller, correlation_id: int, frame: memoryview, body: int
    ) -> Answer | Parked:
        """Serve a request while there are quotas."""
        meter = self._quotas.begin(connection, caller)
        if route.raw:
            args = self._broker, caller, route.version, correlation_id, frame, body
            answer: Answer | Parked = (
                route.handler(*args) if meter is None else meter.timed(route.metered)(*args, meter)
            )
            return answer
        if meter is not None:
            meter.check_time()
            route = MeteredRoute(route, meter)
        return self._serve_decoded(route, caller, correlation_id, frame, body)

    def _serve_decoded(
        self, route: Route, caller: Caller, correlation_id: int, frame: memoryview, body: int
    ) -> Answer | Parked:
        """Serve a request whose handler gets a message, unless only brokers may send it."""
        if route.brokers_only and caller.broker_id is None:
            raise InvalidFrame(
                f"{route.api.key.name} is for brokers of this cluster; this client has not proved to be one"
            )
        if len(frame) > LARGE_FRAME:
            return self._serve_large(route, caller, correlation_id, bytes(frame[body:]))
        request = route.decode(frame, body)
        return self._serve_message(route, caller, correlation_id, request, frame, body)

    async def _load_route(self, key: int, version: int) -> Route | None:
        """How a version of an API is served, loaded in a thread if it was never asked for; None if it is not served."""
        number = key << 16 | version & 0xFFFF
        route = self._routes.get(number)
        api = BY_KEY.get(key)
        if route is not None or api is None or not api.oldest <= version <= api.newest:
            return route
        loading = self._broker.validation_pool.start(0, lambda: self._make_route(api, version))
        assert loading is not None  # nothing of a request is held for it
        return self._routes.setdefault(number, await loading)

    def _make_route(self, api: Api, version: int) -> Route:
        route = Route(api, version)
        if api.key is ApiKey.ENVELOPE:
            route.handler = self._serve_envelope
        return route

    def _identify(self, connection: Connection, frame: memoryview, length: int) -> KnownClient:
        """The caller of a first request, or of one with another client id than the one before."""
        body = framing.client_id_end(frame, length)
        client_id = None if length < 0 else bytes(frame[framing.HEADER.size : body]).decode(errors="replace")
        known = connection.state
        session = known.caller.session if isinstance(known, KnownClient) else self._begin_session(connection)
        caller = Caller(listener=connection.listener, address=connection.address, client_id=client_id, session=session)
        return KnownClient(bytes(frame[CLIENT_ID:body]), body, caller)

    def _begin_session(self, connection: Connection) -> Session:
        """The session of a connection whose first request is served, which is told when the connection ends."""
        session, at_close = self._new_session(connection), connection.on_close

        def end() -> None:
            if at_close is not None:
                at_close()
            session.has_ended = True
            if session.on_end is not None:
                session.on_end()

        connection.on_close = end
        return session

    def _new_session(self, connection: Connection) -> Session:
        if isinstance(connection.state, Session):
            return connection.state  # a login has begun it, and says who it is, whatever certificate there is
        if connection.certificate is None:
            return Session()
        try:
            principal = self._broker.certificates.principal(connection.listener, connection.certificate)
        except ValueError as error:
            raise InvalidFrame(f"its certificate names no principal: {error}") from error
        return Session() if principal is None else Session(principal)

    def _serve_first(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Have the handler and the codec of an API and version loaded in a thread, and the request then served.

        Their modules take a tenth of a second to import. That may be once for each API and version that is served.
        """
        key, version, correlation_id, _ = framing.HEADER.unpack_from(frame)
        api = BY_KEY.get(key)
        if api is None or not api.oldest <= version <= api.newest:
            return _unsupported(key, version, correlation_id)
        (number,) = ROUTE.unpack_from(frame)
        copied = memoryview(bytearray(frame))
        parked = Parked()
        loading = self._broker.validation_pool.start(len(copied), lambda: self._make_route(api, version))
        if loading is None:
            logger.warning("Closed the connection of %s:%d: too many requests wait.", *connection.address[:2])
            return HANG_UP

        async def serve() -> None:
            try:
                route = await loading
                self._routes.setdefault(number, route)
                if not (parked.abandoned and route.api.cancelled_on_disconnect):
                    parked.follow(self.serve(connection, copied))
            except InvalidFrame as error:
                logger.warning(
                    "Closed the connection of %s:%d on %s: %s", *connection.address[:2], connection.listener, error
                )
                parked.resolve(HANG_UP)
            except Exception:
                logger.exception("%s v%d failed; closed the connection.", api.key.name, version)
                parked.resolve(HANG_UP)

        self._tasks.spawn(serve())
        return parked

    def _serve_large(self, route: Route, caller: Caller, correlation_id: int, body: bytes) -> Answer | Parked:
        """Have a large request decoded in a thread, and then served."""
        parked = Parked()
        decoding = self._broker.validation_pool.start(len(body), lambda: route.decode(memoryview(body), 0))
        if decoding is None:
            _log_closed(caller, "too many large requests wait to be decoded")
            return HANG_UP

        async def serve() -> None:
            try:
                request = await decoding
            except InvalidFrame as error:
                _log_closed(caller, error)
                parked.resolve(HANG_UP)
            except Exception:
                logger.exception("%s could not be decoded; closed the connection.", route)
                parked.resolve(HANG_UP)
            else:
                if not (parked.abandoned and route.api.cancelled_on_disconnect):
                    parked.follow(
                        self._serve_message(route, caller, correlation_id, request, memoryview(body), 0, is_large=True)
                    )

        self._tasks.spawn(serve())
        return parked

    def _serve_message(
        self,
        route: Route,
        caller: Caller,
        correlation_id: int,
        request: Any,
        frame: memoryview,
        body: int,
        *,
        is_large: bool = False,
    ) -> Answer | Parked:
        """Have the controller, or a handler here, answer a message."""
        api = route.api
        if api.forwarded and not self._broker.controller.is_active and _is_for_controller(request):
            if caller.broker_id is not None and FORWARDED.fullmatch(caller.client_id or ""):
                return HANG_UP  # another broker takes this one for the controller: it is to look again
            return self._forward(route, correlation_id, bytes(frame[body:]), request, caller)
        return self._handle(route, caller, correlation_id, request, is_large=is_large)

    def _handle(
        self, route: Route, caller: Caller, correlation_id: int, request: Any, *, is_large: bool = False
    ) -> Answer | Parked:
        """Have the handler answer here, as the controller or not, as far as the caller may ask for it."""
        if self._permissions is None or route.check is None:
            return self._call(route, caller, correlation_id, request, None, is_large=is_large)
        if is_large:
            return self._handle_large(route, caller, correlation_id, request)
        try:
            verdict = self._check(route, caller, request)
        except Exception as error:
            return _answer_failure(route, correlation_id, error)
        return self._go_on(route, caller, correlation_id, verdict)

    def _check(self, route: Route, caller: Caller, request: Any) -> Admitted | Denied:
        """Whether the caller may ask for this. May run in a thread."""
        api, broker = route.api, self._broker
        assert self._permissions is not None
        check = route.check if caller.broker_id is None else BROKERS_NEED
        assert check is not None
        access = self._permissions.of(caller, api.key.name)
        return check(Asked(access, api.key, route.version, api.newest, request, broker.metadata.image))

    def _go_on(
        self, route: Route, caller: Caller, correlation_id: int, verdict: Admitted | Denied, *, is_large: bool = False
    ) -> Answer | Parked:
        if isinstance(verdict, Admitted):
            return self._call(route, caller, correlation_id, verdict.request, verdict.complete, is_large=is_large)
        if is_large:
            return self._run_as_task(route, correlation_id, _wait_for(verdict.response))
        return route.encode(correlation_id, verdict.response)

    def _handle_large(self, route: Route, caller: Caller, correlation_id: int, request: Any) -> Parked:
        """Have a large request judged in a thread, and then handled: it may name a hundred thousand topics."""
        parked, metadata = Parked(), self._broker.metadata

        async def judge() -> None:
            try:
                image = None
                while image is not metadata.image:  # an id that was unknown may be that of a topic now
                    image = metadata.image
                    judging = self._broker.validation_pool.start(0, lambda: self._check(route, caller, request))
                    assert judging is not None  # nothing of a request is held for it
                    verdict = await judging
            except Exception as error:
                parked.resolve(_answer_failure(route, correlation_id, error))
            else:
                if not (parked.abandoned and route.api.cancelled_on_disconnect):
                    parked.follow(self._go_on(route, caller, correlation_id, verdict, is_large=True))

        self._tasks.spawn(judge())
        return parked

    def _call(
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
            if complete is not None:
                if iscoroutine(response) or isfuture(response):
                    return self._run_as_task(route, correlation_id, self._completed(response, complete), response)
                response = complete(response)
            if iscoroutine(response):
                return self._run_as_task(route, correlation_id, response)
            if is_large:
                return self._run_as_task(route, correlation_id, _wait_for(response), response)
            if isfuture(response):
                return _answer_when_done(route, correlation_id, response)
            return route.encode(correlation_id, response)
        except Exception as error:
            return _answer_failure(route, correlation_id, error)

    async def _completed(self, response: Any, complete: Callable[[Any], Any]) -> Any:
        """What `complete` makes of a response that comes later; of a long one in a thread."""
        response = await response
        if not codec.is_longer(response, LONG_ANSWER):
            return complete(response)
        completing = self._broker.validation_pool.start(0, lambda: complete(response))
        assert completing is not None  # nothing of a request is held for it
        return await completing

    async def _serve_envelope(
        self, broker: BrokerContext, request: EnvelopeRequest, caller: Caller
    ) -> EnvelopeResponse:
        """Serve a client's request that another broker has forwarded, in the client's name."""
        from barnabas.broker.handlers import envelope  # here: a broker that is alone starts without it

        if not broker.controller.is_active:
            raise NotController("This broker is not the controller.")
        answer = await self._serve_forwarded(envelope.unwrap(request, caller))
        return envelope.seal(await _resolved(answer) if isinstance(answer, Parked) else answer)

    async def _serve_forwarded(self, forwarded: Forwarded) -> Answer | Parked:
        key, version, correlation_id, caller, frame, body = forwarded
        route = await self._load_route(key, version)
        if route is None or not route.api.forwarded:
            raise InvalidRequest(f"API key {key} in version {version} is not forwarded in envelopes.")
        if route.flexible:
            body = framing.skip_tags(frame, body)
        request = route.decode(frame, body)
        return self._handle(route, caller, correlation_id, request, is_large=len(frame) > LARGE_FRAME)

    async def finish(self, grace: float) -> None:
        """Wait for the handlers that are under way; those that are not done after `grace` seconds are ended."""
        late = await self._tasks.finish(grace)
        if late:
            logger.warning(
                "Cancelled %d requests that did not finish within %g s, because the broker stops.", late, grace
            )

    def _run_as_task(
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
            parked.resolve(_answer_failure(route, correlation_id, error))

    def _forward(self, route: Route, correlation_id: int, body: bytes, request: Any, caller: Caller) -> Parked:
        """Have the controller answer, or answer here if this broker becomes the controller meanwhile."""
        from barnabas.broker.handlers import envelope  # here: a broker that is alone starts without it

        api, version, parked = route.api, route.version, Parked()
        wrapped = envelope.wrap(caller, api.key, version, correlation_id, body, flexible=route.flexible)

        async def forward() -> None:
            try:
                answer = await self._broker.controller_link.forward(wrapped)
            except BarnabasError as error:
                logger.warning("%s could not be forwarded to the controller: %s", route, error)
                code = ErrorCode.not_controller
                response = error_response(api.key, version, api.newest, request, code, str(error))
                parked.resolve(route.encode(correlation_id, response))
            else:
                if answer is None:
                    parked.follow(self._handle(route, caller, correlation_id, request))
                else:
                    if route.meter is not None:
                        route.meter.throttle(_throttle_ms(route, answer))
                    parked.resolve(b"".join((framing.LENGTH.pack(len(answer)), answer)))

        self._tasks.spawn(forward())
        return parked


class KnownClient(NamedTuple):
    """A connection's caller, the client id with its length as it stands in every header, and where that ends."""

    raw_client_id: bytes
    body: int
    caller: Caller


def _answer_when_done(route: Route, correlation_id: int, future: asyncio.Future[Any]) -> Parked:
    parked = Parked(on_abandon=future.cancel)

    def answer(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            return
        try:
            parked.resolve(route.encode(correlation_id, future.result()))
        except Exception as error:
            parked.resolve(_answer_failure(route, correlation_id, error))

    future.add_done_callback(answer)
    return parked


def _close(coroutine: Coroutine[Any, Any, Any], _: object) -> None:
    coroutine.close()


async def _resolved(parked: Parked) -> Answer:
    """What a parked answer becomes."""
    if not parked.resolved:
        done = asyncio.get_running_loop().create_future()
        parked.notify = lambda: None if done.done() or not parked.resolved else done.set_result(None)
        await done
    assert not isinstance(parked.answer, Parked)
    return parked.answer


async def _wait_for(response: Any) -> Any:
    """A handler's response, or that of its future."""
    return await response if isfuture(response) else response


def _log_closed(caller: Caller, reason: object) -> None:
    logger.warning("Closed the connection of %s:%d on %s: %s", *caller.address[:2], caller.listener, reason)


def _is_for_controller(request: Any) -> bool:
    return not any(
        resource.resource_name and resource.resource_type in BROKER_RESOURCES
        for resource in getattr(request, "resources", ())
    )


def _throttle_ms(route: Route, answer: bytes) -> int:
    """For how long the controller wants a client to wait: in all forwarded APIs that stands first."""
    milliseconds: int = framing.LENGTH.unpack_from(answer, 5 if route.flexible else 4)[0]
    return milliseconds


def _unsupported(key: int, version: int, correlation_id: int) -> Answer:
    """Kafka's answer to an unknown API or version: ApiVersions lists what is served, anything else is disconnected."""
    if key != ApiKey.API_VERSIONS:
        raise InvalidFrame(f"API key {key} in version {version} is not served; ApiVersions lists what is")
    return codec.encode(ApiKey.API_VERSIONS, 0, correlation_id, api_versions.unsupported_version())


def _answer_failure(route: Route, correlation_id: int, error: Exception) -> Answer:
    """The answer of a handler that raised: its response class with the error's code, or the end of the connection."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.unknown_server_error
    response = top_level_error(route.api.key, route.api.newest, code, shortened(str(error)))
    if not isinstance(error, ApiError):
        outcome = "the connection is closed" if response is None else "the client is answered with UNKNOWN_SERVER_ERROR"
        logger.error("%s failed; %s.", route, outcome, exc_info=error)
    if response is None:
        return HANG_UP
    return route.encode(correlation_id, response)
