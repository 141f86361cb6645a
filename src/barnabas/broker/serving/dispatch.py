"""From a frame to an answer: the header is read, version and API are checked, the handler is found and called.

A raw handler (Produce, Fetch) is given the frame and answers in bytes. Every other handler is given the newest version
of the request and returns the newest version of the response; the codec does the rest. `routes` has what serves one
version of an API, `known_clients` who asks, `answers` what becomes of what a handler gives.

Nothing that a client sends holds the event loop for long. The first request of an API and version waits while the
modules that serve it are imported in a thread. A large frame is decoded in a thread, and a long answer of a
coroutine is encoded in one: so a handler whose answer may be long is a coroutine function where it is, and makes it
with `broker/serving/long_answers`.

A request that only the controller can answer is forwarded to it in an envelope with the client's name, and its answer
is sent back. A request that only brokers may send closes a connection whose other end has not proved to be a broker.
One that acts for the cluster, but that clients know, is answered with CLUSTER_AUTHORIZATION_FAILED there, unless an
authorizer decides who may send it.

Where the broker has an authorizer, what the API's line in the registry says it needs is asked for before the handler:
by whoever serves the request, so a forwarded one is judged by the controller. Raw handlers ask themselves.
"""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.permissions.needs import Admitted, Asked, Denied, on_cluster
from barnabas.broker.serving.answers import Answers, answer_failure, wait_for
from barnabas.broker.serving.known_clients import CLIENT_ID, ClientSessions, KnownClient
from barnabas.broker.serving.registry import BY_KEY, Callers
from barnabas.broker.serving.routes import MeteredRoute, Route
from barnabas.broker.tasks import TaskSet
from barnabas.broker.thread_imports import IMPORTING
from barnabas.machines.security.acls import Operation
from barnabas.model.errors import (
    BarnabasError,
    ErrorCode,
    InvalidFrame,
    InvalidRequest,
    NotController,
)
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.apis import ApiKey, ResourceType
from barnabas.protocol.wire import codec, framing
from barnabas.protocol.wire.error_responses import error_response

if TYPE_CHECKING:
    from kio.schema.envelope.v0.request import EnvelopeRequest
    from kio.schema.envelope.v0.response import EnvelopeResponse

    from barnabas.broker.context import BrokerContext
    from barnabas.broker.handlers.envelope import Forwarded
    from barnabas.broker.serving.caller import Caller, Session
    from barnabas.broker.serving.registry import Api
    from barnabas.net.connection import Connection

logger = logging.getLogger(__name__)

LARGE_FRAME: Final = 8 * 1024
"""Bytes from which on a request is read in a thread: some hundred array elements, in the worst case eight thousand."""
API: Final = struct.Struct(">iih")
"""A request's header with API key and version as one number, correlation id, length of the client id."""
ROUTE: Final = struct.Struct(">i")
"""The first of these."""
FORWARDED: Final = re.compile(r"broker-\d+-forwarded")
"""The client id of a broker that forwards a request."""
BROKER_RESOURCES: Final = frozenset({ResourceType.BROKER, ResourceType.BROKER_LOGGER})
"""Kinds of configuration, of a broker and of its loggers, that the broker itself changes when it is named."""


CLUSTER_DENIED: Final = ErrorCode.cluster_authorization_failed
BROKERS_NEED: Final = on_cluster(Operation.CLUSTER_ACTION).load()
"""What decides about requests of brokers that have proved to be some, whatever they ask for."""


class Dispatcher:
    """Serves the frames of all connections."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._permissions = broker.permissions
        self._quotas = broker.quotas
        self._routes: dict[int, Route] = {}
        """By API key and version as one number, as far as they were asked for."""
        self._tasks = TaskSet()
        self._answers = Answers(broker, self._tasks)
        self._sessions = ClientSessions(broker.certificates)

    def serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Answer one request, now or later; raises InvalidFrame for what is none."""
        number, correlation_id, length = API.unpack_from(frame)
        route = self._routes.get(number)
        if route is None:
            return self._serve_first(connection, frame)
        known = connection.state
        if not isinstance(known, KnownClient) or frame[CLIENT_ID : known.body] != known.raw_client_id:
            known = connection.state = self._sessions.identify(connection, frame, length)
        _, body, caller = known
        if route.flexible:
            try:
                has_tags = frame[body]  # almost always a zero: no tagged fields
            except IndexError:
                has_tags = True  # the frame ends here, which skip_tags refuses
            body = framing.skip_tags(frame, body) if has_tags else body + 1
        if self._quotas.is_on:
            return self._serve_metered(connection, route, caller, correlation_id, frame, body)
        if route.raw:
            answer: Answer | Parked = route.handler(self._broker, caller, route.version, correlation_id, frame, body)
            return answer  # what it raises ends the connection, in net/connection
        if route.usual is not None and self._permissions is None and len(frame) <= LARGE_FRAME:
            usual: Answer | Parked | None = route.usual(
                self._broker, caller, route.version, correlation_id, frame, body
            )
            if usual is not None:
                return usual
        return self._serve_decoded(connection, route, caller, correlation_id, frame, body)

    def _serve_metered(
        self, connection: Connection, route: Route, caller: Caller, correlation_id: int, frame: memoryview, body: int
    ) -> Answer | Parked:
        """Serve a request while there are quotas."""
        meter = None if _is_uncounted(route, caller.session) else self._quotas.begin(connection, caller)
        if route.raw:
            args = self._broker, caller, route.version, correlation_id, frame, body
            answer: Answer | Parked = (
                route.handler(*args) if meter is None else meter.timed(route.metered)(*args, meter)
            )
            return answer
        if meter is not None:
            meter.check_time()
            route = MeteredRoute(route, meter)
        return self._serve_decoded(connection, route, caller, correlation_id, frame, body)

    def _serve_decoded(
        self, connection: Connection, route: Route, caller: Caller, correlation_id: int, frame: memoryview, body: int
    ) -> Answer | Parked:
        """Serve a request whose handler gets a message, unless only brokers may send it."""
        if route.brokers_only and caller.broker_id is None:
            raise InvalidFrame(
                f"{route.api.key.name} is for brokers of this cluster; this client has not proved to be one"
            )
        if len(frame) > LARGE_FRAME:
            return self._serve_large(connection, route, caller, correlation_id, bytes(frame[body:]))
        request = route.decode(frame, body)
        if route.is_plain:
            return self._answers.call(route, caller, correlation_id, request, None)
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
        with IMPORTING:
            route = Route(api, version, has_authorizer=self._permissions is not None)
        if api.key is ApiKey.ENVELOPE:
            route.handler = self._serve_envelope
        return route

    def _serve_first(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Have the handler and the codec of an API and version loaded in a thread, and the request then served.

        Their modules take a tenth of a second to import. That may be once for each API and version that is served.
        """
        key, version, correlation_id, _ = framing.HEADER.unpack_from(frame)
        api = BY_KEY.get(key)
        if api is None or not api.oldest <= version <= api.newest or not api.is_served(self._broker.settings):
            return _unsupported(key, version, correlation_id)
        (number,) = ROUTE.unpack_from(frame)
        copied = memoryview(bytearray(frame))
        parked = Parked()
        loading = self._broker.validation_pool.start(len(copied), lambda: self._make_route(api, version))
        if loading is None:
            connection.server.refusals.log_closed(connection, "the requests that wait use up queued.max.request.bytes.")
            return HANG_UP

        async def serve() -> None:
            try:
                try:
                    route = await loading
                except OSError as error:  # as where no descriptor is left; the next request tries it again
                    logger.error(
                        "Closed the connection of %s:%d: what serves %s v%d could not be loaded: %s",
                        *connection.address[:2],
                        api.key.name,
                        version,
                        error,
                    )
                    parked.resolve(HANG_UP)
                    return
                self._routes.setdefault(number, route)
                if not (parked.abandoned and route.api.cancelled_on_disconnect):
                    parked.follow(self.serve(connection, copied))
            except InvalidFrame as error:
                connection.server.refusals.log_closed(connection, error)
                parked.resolve(HANG_UP)
            except Exception:
                logger.exception("%s v%d failed; closed the connection.", api.key.name, version)
                parked.resolve(HANG_UP)

        self._tasks.spawn(serve())
        return parked

    def _serve_large(
        self, connection: Connection, route: Route, caller: Caller, correlation_id: int, body: bytes
    ) -> Answer | Parked:
        """Have a large request decoded in a thread, and then served."""
        parked = Parked()
        decoding = self._broker.validation_pool.start(len(body), lambda: route.decode(memoryview(body), 0))
        if decoding is None:
            connection.server.refusals.log_closed(connection, "too many large requests wait to be decoded")
            return HANG_UP

        async def serve() -> None:
            try:
                request = await decoding
            except InvalidFrame as error:
                connection.server.refusals.log_closed(connection, error)
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
        if not route.is_judged:
            return self._answers.call(route, caller, correlation_id, request, None, is_large=is_large)
        if is_large:
            return self._handle_large(route, caller, correlation_id, request)
        try:
            verdict = self._check(route, caller, request)
        except Exception as error:
            return answer_failure(route, correlation_id, error)
        return self._go_on(route, caller, correlation_id, verdict)

    def _check(self, route: Route, caller: Caller, request: Any) -> Admitted | Denied:
        """Whether the caller may ask for this. May run in a thread."""
        api, broker = route.api, self._broker
        if self._permissions is None:
            if caller.broker_id is not None:
                return Admitted(request)
            why = f"{api.key.name} is for brokers of this cluster, where no authorizer says who else may ask for it."
            return Denied(error_response(api.key, route.version, api.newest, request, CLUSTER_DENIED, why))
        check = route.check if caller.broker_id is None else BROKERS_NEED
        assert check is not None
        access = self._permissions.of(caller, api.key.name)
        return check(Asked(access, api.key, route.version, api.newest, request, broker.metadata.image))

    def _go_on(
        self, route: Route, caller: Caller, correlation_id: int, verdict: Admitted | Denied, *, is_large: bool = False
    ) -> Answer | Parked:
        if isinstance(verdict, Admitted):
            return self._answers.call(
                route, caller, correlation_id, verdict.request, verdict.complete, is_large=is_large
            )
        if is_large:
            return self._answers.run_as_task(route, correlation_id, wait_for(verdict.response))
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
                parked.resolve(answer_failure(route, correlation_id, error))
            else:
                if not (parked.abandoned and route.api.cancelled_on_disconnect):
                    parked.follow(self._go_on(route, caller, correlation_id, verdict, is_large=True))

        self._tasks.spawn(judge())
        return parked

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
        try:
            request = route.decode(frame, framing.skip_tags(frame, body) if route.flexible else body)
        except InvalidFrame as error:
            raise InvalidRequest(f"The request in the envelope cannot be read: {error}") from error
        return self._handle(route, caller, correlation_id, request, is_large=len(frame) > LARGE_FRAME)

    async def finish(self, grace: float) -> None:
        """Wait for the handlers that are under way; those that are not done after `grace` seconds are ended."""
        late = await self._tasks.finish(grace)
        if late:
            logger.warning(
                "Cancelled %d requests that did not finish within %g s, because the broker stops.", late, grace
            )

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


async def _resolved(parked: Parked) -> Answer:
    """What a parked answer becomes."""
    if not parked.resolved:
        done = asyncio.get_running_loop().create_future()
        parked.notify = lambda: None if done.done() or not parked.resolved else done.set_result(None)
        await done
    assert not isinstance(parked.answer, Parked)
    return parked.answer


def _is_uncounted(route: Route, session: Session) -> bool:
    """Whether no quota may hold up a request.

    A client that has not logged in asks for ApiVersions in nobody's name: under a client id of its choice it could use
    up the quota of others. And a broker is about to prove that it is one, once on each connection.
    """
    if session.is_logging_in:
        return True
    if route.api.callers is not Callers.UNPROVED_BROKERS or session.uncounted == 0:
        return False
    session.uncounted -= 1
    return True


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
    from barnabas.broker.handlers.api_versions import unsupported_version  # here: few clients need it

    return codec.encode(ApiKey.API_VERSIONS, 0, correlation_id, unsupported_version())
