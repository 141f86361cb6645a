"""The login dialogue on a SASL listener: what a connection may send before its first request.

    ApiVersions         at most once, unless in a version that is not served
    SaslHandshake       v0–1: the mechanism; the answer lists those that the listener offers
    SaslAuthenticate    v0–2: the mechanism's messages; after SaslHandshake v0 they come without any header
    ...                 requests, in the name of the principal that logged in

Anything else closes the connection. So do a frame above sasl.server.max.receive.size, for which no memory is reserved,
and a login that is not done in connection.authentication.timeout.ms. Nobody who has not logged in takes memory from
those who have (`net/connection`).

However many want to log in, each turn of the event loop serves one message of a login, or a few while nobody else is
served (`security/login_turns`).

A login that fails is answered after connection.failed.authentication.delay.ms, then the connection is closed. Meanwhile
it costs a timer. The answer says that the credentials are invalid, and not what is wrong with them.

**Again** (KIP-368): with connections.max.reauth.ms, or a proof that expires, the answer to the last SaslAuthenticate
(v1+) says how long the session lasts. After that only a new login is served on the connection, as the same principal
and by the same mechanism; any other request closes it. It is so in every form of the login, as in Kafka: otherwise
whoever holds a token could choose the oldest form, which is not told of an end, and stay when the token is over. A
login that was begun again has the same time as the first.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.security.login_turns import LoginTurns
from barnabas.broker.serving.caller import Session
from barnabas.broker.tasks import TaskSet
from barnabas.machines.security.login_step import LoginRefused, LoginStep
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.net.reply import HANG_UP, Answer, Parked
from barnabas.protocol.apis import ApiKey
from barnabas.protocol.messages import sasl
from barnabas.protocol.wire import framing

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable

    from barnabas.broker.security.mechanisms import MechanismLogin, Mechanisms
    from barnabas.broker.settings import Changed, Settings
    from barnabas.machines.security.login_step import Identity
    from barnabas.model.clock import Clock
    from barnabas.net.connection import Connection
    from barnabas.net.server import Server

    Serve = Callable[[Connection, memoryview], "Answer | Parked"]

logger = logging.getLogger(__name__)

LARGEST_API_VERSIONS: Final = 8 * 1024
"""Bytes of an ApiVersions request before the login: more than names and versions of clients need."""
HANDSHAKE_VERSIONS: Final = range(2)
AUTHENTICATE_VERSIONS: Final = range(3)
LEAST_BETWEEN_LOGINS: Final = 1.0
"""Seconds between two logins on one connection."""
SASL_HANDSHAKE_KEY: Final = ApiKey.SASL_HANDSHAKE.to_bytes(2, "big")
API_VERSIONS_NEWEST: Final = 4


class State(Enum):
    """Where a login is."""

    BEGUN = auto()
    """ApiVersions or SaslHandshake may come."""
    ASKED = auto()
    """ApiVersions was answered: SaslHandshake must come."""
    AUTHENTICATING = auto()
    """The mechanism's messages come."""
    DONE = auto()
    FAILED = auto()


class RequestId(NamedTuple):
    """What a response needs to know of its request."""

    version: int
    correlation_id: int


class LoginCounts:
    """How many logins there were, by listener and mechanism."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        self.failed: Counter[tuple[str, str]] = Counter()


class LoginFrames:
    """Which frames a listener takes of clients that log in; looked up once until the settings change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: dict[tuple[str, int], framing.FrameLimits] = {}
        settings.subscribe(self._on_settings)

    def of(self, listener: str, smallest: int = framing.HEADER.size) -> framing.FrameLimits:
        """Those of a listener; they have a header, or less bytes than one where messages come without."""
        found = self._found.get((listener, smallest))
        if found is None:
            largest = self._settings.of_listener(listener).number("sasl.server.max.receive.size")
            found = framing.FrameLimits(largest, "sasl.server.max.receive.size", smallest)
            self._found[listener, smallest] = found
        return found

    def _on_settings(self, changed: Changed) -> None:
        self._found.clear()


class LoginContext(NamedTuple):
    """What all logins of a broker share."""

    settings: Settings
    frames: LoginFrames
    mechanisms: Mechanisms
    clock: Clock
    serve: Serve
    """What serves requests after the login."""
    tasks: TaskSet
    loop: asyncio.AbstractEventLoop
    turns: LoginTurns
    counts: LoginCounts


class Logins:
    """The logins of all SASL listeners of a broker."""

    def __init__(self, settings: Settings, mechanisms: Mechanisms, clock: Clock, serve: Serve) -> None:
        self._settings = settings
        self._frames = LoginFrames(settings)
        self._mechanisms = mechanisms
        self._clock = clock
        self._serve = serve
        self._context: LoginContext | None = None
        self.counts = LoginCounts()

    def begin(self, connection: Connection) -> None:
        """Let nothing but a login through on a new connection."""
        if self._context is None:
            self._context = self._made_context(connection.server)
        ConnectionLogin(self._context, connection)

    def _made_context(self, server: Server) -> LoginContext:
        return LoginContext(
            self._settings,
            self._frames,
            self._mechanisms,
            self._clock,
            self._serve,
            TaskSet(),
            server.loop,
            LoginTurns(server.loop, server.is_answering),
            self.counts,
        )


class ConnectionLogin:
    """The login on one connection, and each one after that."""

    __slots__ = (
        "_connection",
        "_context",
        "_deadline",
        "_expires",
        "_headers",
        "_login",
        "_mechanism",
        "_must_be",
        "_refused_mechanism",
        "_session",
        "_started",
        "_state",
    )

    def __init__(self, context: LoginContext, connection: Connection) -> None:
        self._context = context
        self._connection = connection
        self._session = Session(is_logging_in=True)
        self._state = State.BEGUN
        self._mechanism = ""
        self._login: MechanismLogin | None = None
        self._headers = True
        """Whether the mechanism's messages come in requests."""
        self._must_be: str | None = None
        """The principal that logged in on this connection before."""
        self._refused_mechanism: str | None = None
        """Another mechanism than before, which the client wants to log in again by."""
        self._started = 0.0
        self._expires: float | None = None
        """When the session ends, on the event loop's clock."""
        self._deadline: asyncio.TimerHandle | None = None
        self._start_waiting()
        connection.state = self._session
        connection.on_close = self._on_close
        connection.restrict(self.serve, context.frames.of(connection.listener))

    # The dialogue

    def serve(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Answer what a client sends before it has logged in; raises InvalidFrame for anything else."""
        if self._state is State.DONE:  # it came together with the last message of the login
            return connection.serve(connection, frame)
        if self._state is State.FAILED:
            return HANG_UP
        turns = self._context.turns
        if turns.take(connection, len(frame)):
            return self._serve_message(connection, frame)
        parked, copied = Parked(), memoryview(bytes(frame))
        parked.on_abandon = turns.wait(connection, lambda: self._serve_later(parked, connection, copied), len(frame))
        return parked

    def _serve_later(self, parked: Parked, connection: Connection, frame: memoryview) -> None:
        """Answer a message that had to wait for its turn."""
        try:
            answer = self._serve_message(connection, frame)
        except InvalidFrame as error:
            connection.server.refusals.log_closed(connection, error)
            answer = HANG_UP
        except Exception:
            logger.exception("Closed the connection of %s:%d on %s: its login failed.", *self._address)
            answer = HANG_UP
        parked.follow(answer)

    def _serve_message(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        if not self._headers:
            return self._authenticate(None, bytes(frame))
        key, version, correlation_id, length = framing.HEADER.unpack_from(frame)
        if self._state is State.AUTHENTICATING:
            if key != ApiKey.SASL_AUTHENTICATE or version not in AUTHENTICATE_VERSIONS:
                raise InvalidFrame(f"API key {key} in version {version} came instead of SaslAuthenticate")
            return self._read_authenticate(frame, length, RequestId(version, correlation_id))
        if key == ApiKey.API_VERSIONS and self._state is State.BEGUN and len(frame) <= LARGEST_API_VERSIONS:
            if version <= API_VERSIONS_NEWEST:
                self._state = State.ASKED
            return self._context.serve(connection, frame)
        if key != ApiKey.SASL_HANDSHAKE or version not in HANDSHAKE_VERSIONS:
            raise InvalidFrame(f"API key {key} in version {version} came before the client has logged in")
        return self._handshake(frame, framing.client_id_end(frame, length), RequestId(version, correlation_id))

    def _handshake(self, frame: memoryview, body: int, header: RequestId) -> Answer | Parked:
        mechanism = sasl.read_mechanism(frame, body)
        listener, mechanisms = self._connection.listener, self._context.mechanisms
        enabled = mechanisms.enabled(listener)
        self._headers = header.version > 0
        offered = mechanism in enabled
        error = ErrorCode.none if offered else ErrorCode.unsupported_sasl_mechanism
        answer = sasl.pack_mechanisms(header.correlation_id, error.value, sorted(enabled))
        if not offered:
            return self._fail(answer, f"it asked for the mechanism {mechanism[:100]!r}, which is not offered")
        self._state = State.AUTHENTICATING
        if self._must_be is not None and mechanism != self._mechanism:
            self._refused_mechanism = mechanism
        else:
            self._mechanism, self._login = mechanism, mechanisms.begin(listener, mechanism)
        if not self._headers:
            self._connection.change_frames(self._context.frames.of(listener, smallest=0))
        return answer

    def _read_authenticate(self, frame: memoryview, length: int, header: RequestId) -> Answer | Parked:
        body = framing.client_id_end(frame, length)
        if header.version >= 2:
            body = framing.skip_tags(frame, body)
        return self._authenticate(header, sasl.read_message(frame, body, header.version))

    def _authenticate(self, header: RequestId | None, message: bytes) -> Answer | Parked:
        """Take the next step of the mechanism."""
        try:
            if self._refused_mechanism is not None or self._login is None:
                raise LoginRefused(
                    "it wants to log in again by another mechanism",
                    f"SASL mechanism '{self._refused_mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._mechanism}'",
                )
            step = self._login.respond(message)
            if isinstance(step, LoginStep):
                return self._go_on(header, step)
            return self._wait_for(header, step)
        except LoginRefused as error:
            return self._refuse(header, error)
        except Exception:
            return self._refuse_unexpectedly(header)

    def _wait_for(self, header: RequestId | None, step: Awaitable[LoginStep]) -> Parked:
        """Answer when the mechanism has come to its step."""
        parked = Parked()

        async def wait() -> None:
            try:
                answer: Answer | Parked = self._go_on(header, await step)
            except LoginRefused as error:
                answer = self._refuse(header, error)
            except Exception:
                answer = self._refuse_unexpectedly(header)
            parked.follow(answer)

        task = self._context.tasks.spawn(wait())
        parked.on_abandon = task.cancel
        return parked

    def _refuse_unexpectedly(self, header: RequestId | None) -> Answer | Parked:
        logger.exception(
            "The login of client %s:%d failed because of an unexpected error, and was refused.",
            *self._connection.address[:2],
        )
        return self._refuse(header, LoginRefused("an unexpected error of this broker, which its log has"))

    def _go_on(self, header: RequestId | None, step: LoginStep) -> Answer:
        """Send the mechanism's message; with the last one, let the client in."""
        lifetime_ms = 0
        if step.identity is not None:
            lifetime_ms = self._let_in(step.identity)
        if header is None:
            return framing.LENGTH.pack(len(step.message)) + step.message
        return _answer(header, step.message, lifetime_ms=lifetime_ms)

    # Its end

    def _let_in(self, identity: Identity) -> int:
        """Serve the client's requests from now on; gives the session's milliseconds, 0 for one without an end."""
        principal = identity.principal
        if self._must_be is not None and principal != self._must_be:
            raise LoginRefused(
                f"it logged in as {self._must_be} before, and now as {principal}",
                f"Cannot change principals during re-authentication from {self._must_be} to {principal}",
            )
        self._stop_waiting()
        self._state, self._login = State.DONE, None
        self._context.counts.done[self._connection.listener, self._mechanism] += 1
        self._session.principal, self._session.is_token = principal, identity.is_token
        self._session.is_logging_in = False
        lifetime_ms = self._lifetime_ms(identity)
        if lifetime_ms is None:
            self._expires = None
            self._connection.admit(self._context.serve)
        else:
            self._expires = self._context.loop.time() + lifetime_ms / 1000
            self._connection.admit(self._serve_session)
        logger.debug("%s:%d on %s logged in as %s.", *self._address, principal)
        return lifetime_ms or 0

    def _lifetime_ms(self, identity: Identity) -> int | None:
        """How long the session lasts; None for as long as the connection."""
        ends = []
        if identity.expires_ms is not None:
            ends.append(max(identity.expires_ms - self._context.clock.now_ms(), 0))
        if longest := self._context.mechanisms.max_reauth_ms(self._connection.listener, self._mechanism):
            ends.append(longest)
        return min(ends, default=None)

    def _refuse(self, header: RequestId | None, error: LoginRefused) -> Answer | Parked:
        manner = "authentication" if self._must_be is None else "re-authentication"
        message = error.message or (
            f"Authentication failed during {manner} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        return self._fail(None if header is None else _answer(header, error_message=message), error)

    def _fail(self, answer: bytes | None, reason: object) -> Parked:
        """Answer after a while, and close the connection then."""
        connection = self._connection
        logger.info("The login of %s:%d on %s failed: %s", *self._address, reason)
        self._state, self._login = State.FAILED, None
        self._context.counts.failed[connection.listener, self._mechanism] += 1
        self._stop_waiting()
        connection.serve = self.serve
        parked = Parked()
        values = self._context.settings.of_listener(connection.listener)

        def end() -> None:
            parked.resolve(HANG_UP if answer is None else answer)
            connection.hang_up()

        timer = self._context.loop.call_later(values.number("connection.failed.authentication.delay.ms") / 1000, end)
        parked.on_abandon = timer.cancel
        return parked

    def _on_close(self) -> None:
        """Let go of the connection: it lives long, and a cycle would be left to the collector (`broker/collector`)."""
        self._stop_waiting()
        self._connection.serve = _serve_nothing

    def _time_out(self) -> None:
        logger.info("Closed the connection of %s:%d on %s: it did not log in in time.", *self._address)
        self._connection.close()

    def _start_waiting(self) -> None:
        seconds = self._context.settings.number("connection.authentication.timeout.ms") / 1000
        self._deadline = self._context.loop.call_later(seconds, self._time_out)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    @property
    def _address(self) -> tuple[str, int, str]:
        host, port = self._connection.address[:2]
        return host, port, self._connection.listener

    # The session

    def _serve_session(self, connection: Connection, frame: memoryview) -> Answer | Parked:
        """Serve requests until the session ends, and a login at any time."""
        if self._state is not State.DONE:  # it came together with the handshake of another login
            return self.serve(connection, frame)
        now = self._context.loop.time()
        if frame[:2] == SASL_HANDSHAKE_KEY and now - self._started >= LEAST_BETWEEN_LOGINS:
            self._started = now
            self._must_be = self._session.principal
            self._refused_mechanism = None
            self._headers = True
            self._state = State.ASKED
            self._start_waiting()
            connection.serve = self.serve
            return self.serve(connection, frame)
        if self._expires is not None and now >= self._expires:
            raise InvalidFrame("its session is over, and the client has not logged in again")
        return self._context.serve(connection, frame)


def _serve_nothing(connection: Connection, frame: memoryview) -> Answer | Parked:
    return HANG_UP


def _answer(
    request: RequestId, message: bytes = b"", *, error_message: str | None = None, lifetime_ms: int = 0
) -> bytes:
    error = ErrorCode.none if error_message is None else ErrorCode.sasl_authentication_failed
    return sasl.pack_message(request.correlation_id, request.version, error.value, error_message, message, lifetime_ms)
