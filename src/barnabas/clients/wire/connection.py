"""Kafka's protocol spoken directly, one request at a time: for the questions that librdkafka cannot ask.

librdkafka has no call for deleting committed offsets, for the epochs and states of the new group protocol, for log
directories, features or the configs of groups. Tools that need those ask a handful of questions and end, so this is no
client for records: requests wait for each other, and a connection is opened when a broker is first asked something.

A request is given in the newest version that its caller knows; it is sent in the newest that the broker knows too, and
the response comes back in the caller's version (`protocol/wire/conversion.py`).
"""

from __future__ import annotations

import contextlib
import struct
import time
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest
from kio.schema.sasl_handshake.v1.request import SaslHandshakeRequest
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError
from kio.static.primitive import i16, i32

from barnabas import __version__
from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, LoginFailed, RequestRefused
from barnabas.clients.security import from_properties
from barnabas.clients.wire.addresses import connect, split_address
from barnabas.model.errors import ErrorCode, InvalidFrame
from barnabas.protocol.wire import bounds
from barnabas.protocol.wire.conversion import convert

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kio.static.protocol import RequestPayload

    from barnabas.clients.security import Security
    from barnabas.model.permissions import Action

T = TypeVar("T")

CLIENT_ID: Final = "barnabas"
CONNECT_SECONDS: Final = 3.0
RETRY_SECONDS: Final = 0.1
MAX_RESPONSE: Final = 256 << 20
TLS_ALERT: Final = 0x15
"""The first byte of what a listener with TLS says to a client without it, if it says anything."""
DESCRIBE_TRANSACTIONS: Final = 65
ANOTHER_COORDINATOR: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)
"""Answers after which a coordinator is looked for again."""
GROUPS: Final = 0
TRANSACTIONS: Final = 1
"""What coordinators are there for, with the numbers that FindCoordinator has for it."""


class Node(NamedTuple):
    """A broker and where it is."""

    id: int
    host: str
    port: int

    @property
    def address(self) -> str:
        """`host:port`, as it stands in bootstrap.servers."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Deadline:
    """Until when something is worth waiting for."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; never quite zero, which would mean something else to a socket."""
        return max(self._at - time.monotonic(), 0.001)

    @property
    def passed(self) -> bool:
        """Whether time is up."""
        return time.monotonic() >= self._at


class ConnectionClosed(ConnectionError):
    """The broker hung up: it may not have liked how it was spoken to."""


class BrokerConnection:
    """One connection to one broker, past TLS and SASL, with the versions that the broker speaks."""

    def __init__(self, plain: socket.socket, host: str, security: Security, deadline: Deadline) -> None:
        plain.settimeout(deadline.left())
        self._socket = security.wrap(plain, host)
        self._correlation_id = 0
        try:
            self._open(security, deadline)
        except BaseException:
            self._socket.close()
            raise

    def _open(self, security: Security, deadline: Deadline) -> None:
        versions = self._exchange(
            ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version=__version__), deadline
        )
        self.versions = {api.api_key: (api.min_version, api.max_version) for api in versions.api_keys}
        if security.mechanism is not None:
            _check(self._exchange(SaslHandshakeRequest(mechanism=security.mechanism), deadline))
            security.authenticate(
                lambda sent: bytes(
                    _check(self._exchange(SaslAuthenticateRequest(auth_bytes=sent), deadline)).auth_bytes
                )
            )

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def mechanisms(self, deadline: Deadline) -> tuple[str, ...]:
        """By which the listener takes logins; none if it asks for no login."""
        answer = self._exchange(SaslHandshakeRequest(mechanism="?"), deadline)
        return tuple(answer.mechanisms) if answer.error_code is ErrorCode.unsupported_sasl_mechanism else ()

    def check_is_served(self, deadline: Deadline) -> None:
        """Ask for something that needs a login, where one is asked for; raises OSError if there is no answer."""
        from kio.schema.metadata.v4.request import MetadataRequest

        self._exchange(MetadataRequest(topics=(), allow_auto_topic_creation=False), deadline)

    def ask(self, request: RequestPayload, deadline: Deadline, *, at_least: int = 0) -> Any:
        """The response, in the version of `request`; a broker that does not speak `at_least` is an error."""
        newest = type(request)
        lowest, highest = self.versions.get(newest.__api_key__, (1, 0))
        version = min(newest.__version__, highest)
        if version < max(lowest, at_least):
            raise RequestRefused(
                ErrorCode.unsupported_version,
                f"the broker does not serve {newest.__name__} in a version that is known here",
            )
        sent = convert(request, load_request_schema(newest.__api_key__, version))
        response = self._exchange(sent, deadline)
        return convert(response, _response_schema(newest.__api_key__, newest.__version__))

    def _exchange(self, request: Any, deadline: Deadline) -> Any:
        self._correlation_id += 1
        header = request.__header_schema__(
            request_api_key=request.__api_key__,
            request_api_version=i16(request.__version__),
            correlation_id=i32(self._correlation_id),
            client_id=CLIENT_ID,
        )
        body = BytesIO()
        entity_writer(type(header))(body, header)
        entity_writer(type(request))(body, request)
        self._socket.settimeout(deadline.left())
        self._socket.sendall(struct.pack(">i", body.tell()) + body.getvalue())
        (size,) = struct.unpack(">i", self._receive(4, deadline))
        if size >> 24 == TLS_ALERT:
            raise ConnectionClosed("the broker answered with an alert of TLS")
        if not 0 <= size <= MAX_RESPONSE:
            raise ConnectionError(f"a response of {size} bytes: that is not a Kafka broker")
        return self._read(request, self._receive(size, deadline))

    def _read(self, request: Any, frame: bytes) -> Any:
        schema: Any = _response_schema(request.__api_key__, request.__version__)
        try:
            header, header_size = entity_reader(schema.__header_schema__)(frame, 0)
            if header.correlation_id != self._correlation_id:
                raise ConnectionError("a response to something that was not asked: that is not a Kafka broker")
            return bounds.read(schema, frame, header_size, bounds.MAX_INTERNAL_ELEMENTS)
        except (
            SerialError,
            InvalidFrame,
            KeyError,
            ValueError,
        ) as error:  # of the header, too, which kio reads as it is
            raise ConnectionError(f"a response that cannot be read: {error}") from error

    def _receive(self, size: int, deadline: Deadline) -> bytes:
        received = bytearray()
        while len(received) < size:
            self._socket.settimeout(deadline.left())
            chunk = self._socket.recv(min(size - len(received), 1 << 20))
            if not chunk:
                raise ConnectionClosed("the broker closed the connection")
            received += chunk
        return bytes(received)


def _check(response: Any) -> Any:
    """A response whose error code is none; RequestRefused otherwise."""
    if response.error_code != ErrorCode.none:
        raise RequestRefused(response.error_code, getattr(response, "error_message", None) or meaning(response))
    return response


def meaning(response: Any) -> str:
    """The error code's name, for APIs that send no message."""
    name: str = response.error_code.name
    return f"the broker answered {name.upper()}"


def _response_schema(api: int, version: int) -> type:
    """The class of a response: kio's, but for one that it does not read."""
    if api == DESCRIBE_TRANSACTIONS:
        from barnabas.protocol.messages.described_transactions import DescribeTransactionsResponse

        return DescribeTransactionsResponse
    found: type = load_response_schema(api, version)
    return found


class WireClient:
    """Asks the brokers of a cluster in Kafka's protocol. Use it as a context manager; calls have `timeout` seconds."""

    def __init__(
        self, bootstrap_servers: str, *, properties: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> None:
        """Connect; `properties` are librdkafka's, of which those about security are read.

        Raises InvalidClientConfig for properties that cannot be used, and BrokerUnreachable when no address takes a
        connection.
        """
        self._bootstrap_servers = bootstrap_servers
        self._security = from_properties(properties or {})
        self._timeout = timeout
        self._connections: dict[Node | None, BrokerConnection] = {}
        with self._translating_errors(None):
            self._connection(None, self.deadline())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def deadline(self) -> Deadline:
        """When a call that begins now has to end."""
        return Deadline(self._timeout)

    def ask(self, request: RequestPayload, *, at: Node | None = None, at_least: int = 0) -> Any:
        """The response of one broker: the named one, or any."""
        deadline = self.deadline()
        with self._translating_errors(at):
            return self._connection(at, deadline).ask(request, deadline, at_least=at_least)

    def remember(self, nodes: Iterable[Node]) -> None:
        """Look for the cluster at these brokers, too, if it has to be found anew: those named first may be down."""
        addresses = [*self._bootstrap_servers.split(","), *(node.address for node in nodes)]
        self._bootstrap_servers = ",".join(dict.fromkeys(addresses))

    def highest_version(self, api: int) -> int:
        """The highest version of an API that the broker speaks which was asked first; -1 if it does not know it."""
        with self._translating_errors(None):  # the connection may have ended since
            highest: int = self._connection(None, self.deadline()).versions.get(api, (0, -1))[1]
        return highest

    def nodes(self) -> list[Node]:
        """The brokers that are up, by id."""
        from kio.schema.metadata.v13.request import MetadataRequest

        metadata = self.ask(
            MetadataRequest(topics=(), allow_auto_topic_creation=False, include_topic_authorized_operations=False)
        )
        return sorted(Node(broker.node_id, broker.host, broker.port) for broker in metadata.brokers)

    def coordinators(
        self, keys: Iterable[str], deadline: Deadline, of: int = GROUPS, action: Callable[[str], Action] | None = None
    ) -> dict[Node, list[str]]:
        """Groups or transactional ids by the broker that coordinates them; waits for brokers that are about to.

        `action` is what is wanted of each, in case a permission for it is missing.
        """
        from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
        from kio.static.primitive import i8

        found: dict[Node, list[str]] = {}
        missing = tuple(keys)
        while missing:
            answer = self.ask(FindCoordinatorRequest(key_type=i8(of), coordinator_keys=missing), at_least=4)
            refused = [one for one in answer.coordinators if one.error_code != ErrorCode.none]
            for one in answer.coordinators:
                if one.error_code == ErrorCode.none:
                    found.setdefault(Node(one.node_id, one.host, one.port), []).append(one.key)
            for one in refused:
                if one.error_code not in ANOTHER_COORDINATOR or deadline.passed:
                    wanted = None if action is None else action(one.key)
                    raise RequestRefused(one.error_code, one.error_message or meaning(one), wanted)
            missing = tuple(one.key for one in refused)
            if missing:
                time.sleep(RETRY_SECONDS)
        return found

    def ask_coordinators(
        self,
        keys: Iterable[str],
        request: Callable[[Sequence[str]], RequestPayload],
        parts: Callable[[Any], Iterable[tuple[str, ErrorCode, T]]],
        *,
        at_least: int = 0,
        of: int = GROUPS,
        retried: frozenset[ErrorCode] = frozenset(),
        action: Callable[[str], Action] | None = None,
    ) -> dict[str, tuple[Node, ErrorCode, T]]:
        """Ask the coordinators of groups, each once for all its groups, until every group has a real answer.

        `request` makes the request for some groups; `parts` takes the response apart into group, error and whatever
        the caller wants of it. `retried` are errors that pass. Likewise for transactional ids, when it is `of` those.
        `action` is as in `coordinators`; errors in `parts` are the caller's.
        """
        deadline = self.deadline()
        answers: dict[str, tuple[Node, ErrorCode, T]] = {}
        missing = list(dict.fromkeys(keys))
        while missing:
            again: list[str] = []
            for node, groups in self.coordinators(missing, deadline, of, action).items():
                for group, code, part in parts(self.ask(request(groups), at=node, at_least=at_least)):
                    if code in ANOTHER_COORDINATOR | retried and not deadline.passed:
                        again.append(group)
                    else:
                        answers[group] = (node, code, part)
            missing = again
            if missing:
                time.sleep(RETRY_SECONDS)
        return answers

    @contextlib.contextmanager
    def _translating_errors(self, node: Node | None) -> Iterator[None]:
        """Turn what a socket raises into what happened at which broker, and forget the connection."""
        where = self._bootstrap_servers if node is None else node.address
        try:
            yield
        except TimeoutError as error:
            self._forget(node)
            if failure := self._explain(where, error):
                raise failure from error
            raise BrokerSilent(f"{where} takes connections but gave no answer within {self._timeout:g} s") from error
        except OSError as error:
            self._forget(node)
            if failure := self._explain(where, error):
                raise failure from error
            raise BrokerSilent(f"{where} takes connections, but: {error.strerror or error}") from error

    def _explain(self, where: str, error: Exception) -> LoginFailed | None:
        """What TLS or a login has to do with it, if that is so."""
        from barnabas.clients.wire import diagnosis

        return diagnosis.explain(where, split_address(where.split(",")[0].strip())[0], self._security, error)

    def _connection(self, node: Node | None, deadline: Deadline) -> BrokerConnection:
        key = self._key(node)
        if key not in self._connections:
            address = self._bootstrap_servers if key is None else key.address
            self._connections[key] = self._open(address, deadline)
        return self._connections[key]

    def _open(self, addresses: str, deadline: Deadline) -> BrokerConnection:
        """A connection to the first broker that answers; of several, one that hangs is not waited for until the end."""
        failure: OSError | None = None
        while True:
            try:
                found = connect(addresses, min(deadline.left(), CONNECT_SECONDS))
            except BrokerUnreachable:
                if failure is not None:
                    raise failure from None
                raise
            limit = Deadline(min(deadline.left(), CONNECT_SECONDS)) if found.others else deadline
            try:
                return BrokerConnection(found.socket, found.host, self._security, limit)
            except BaseException as error:
                found.socket.close()
                if isinstance(error, RequestRefused) and (explained := self._explain(addresses, error)):
                    raise explained from error
                if not isinstance(error, OSError):
                    raise
                failure = failure or error
                if not found.others:
                    raise failure from None
            addresses = found.others

    def _key(self, node: Node | None) -> Node | None:
        """Of whom the connection is: the broker that was given alone is reached over the first one."""
        return None if node is not None and node.address == self._bootstrap_servers else node

    def _forget(self, node: Node | None) -> None:
        with contextlib.suppress(KeyError):
            self._connections.pop(self._key(node)).close()
