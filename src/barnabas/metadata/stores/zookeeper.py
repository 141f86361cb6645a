"""The metadata tree in a real ZooKeeper, through kazoo: the only module that knows kazoo.

kazoo talks to ZooKeeper on threads of its own; results and watches are handed over to the event loop. Requests of one
store are sent in the order in which they were made, and ZooKeeper answers them in that order: a read that follows
`watch` sees every change that the watch does not report.

While the connection is lost, kazoo looks for another server and requests wait, at most for the session timeout; then
they raise StoreUnavailable, and whether a write took place is unknown. Once ZooKeeper says that the session has
expired, the store is over for good (kazoo would go on with a new session, without the ephemeral nodes of the old one).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from barnabas.metadata.stores.bulk_reads import ReadChildren, ReadMany, ReadNode, ReadNodes
from barnabas.metadata.stores.store import (
    ANY_VERSION,
    BadVersion,
    Check,
    Create,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    Operation,
    SessionExpired,
    Set,
    StoredNode,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    Watch,
    check_path,
)
from barnabas.model.errors import StartupError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

T = TypeVar("T")

_CONNECT_SECONDS = 15.0
_FIRST_RETRY = 0.1
_RETRY_SECONDS = 1.0
"""The longest pause between two attempts to connect. kazoo would double it without end: after an outage of a minute, a
broker could miss for another one that ZooKeeper is back, that its session is over, and that others lead."""
_AT_ONCE = 1000
"""Nodes that are read with one request: ZooKeeper takes at most 1 MB in one by default, and a path may be long."""


class Login(NamedTuple):
    """The credentials of a broker; with `sasl`, ZooKeeper itself checks them (DIGEST-MD5)."""

    scheme: str
    """digest or sasl."""
    username: str
    password: str

    def options(self) -> dict[str, Any]:
        """The arguments for kazoo's client."""
        if self.scheme == "digest":
            return {"auth_data": [("digest", f"{self.username}:{self.password}")]}
        mechanism = {"mechanism": "DIGEST-MD5", "service": "zookeeper", "principal": "zk-sasl-md5"}
        return {"sasl_options": {**mechanism, "username": self.username, "password": self.password}}


def _handler(tls: Callable[[], ssl.SSLContext] | None) -> Any:
    """What opens kazoo's connections; with TLS by contexts of ours, since kazoo's own takes fewer kinds of files."""
    from kazoo.handlers.threading import SequentialThreadingHandler  # type: ignore[import-untyped]  # likewise

    if tls is None:
        return SequentialThreadingHandler()
    next_context = tls

    class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # its class has no types
        """Opens connections with TLS."""

        def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **_: object) -> object:
            """A connection whose TLS handshake is done."""
            plain = socket.create_connection(address, timeout)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return next_context().wrap_socket(plain, server_hostname=hostname)
            except BaseException:
                plain.close()
                raise

    return TlsHandler()


def _has_no_data(record: logging.LogRecord) -> bool:
    """Whether kazoo's line is logged: those below INFO show what is written and read, and by which password."""
    return record.levelno >= logging.INFO


class ZooKeeperStore:
    """A MetadataStore below `hosts`, a connect string like Kafka's: "host:port,host:port/chroot".

    With `private`, only this login reads or writes the nodes that it creates. `tls` is called in a thread and gives the
    TLS context of the next connection: one that is kept would show a certificate long after it expired.
    """

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout: float = 18.0,
        connect_timeout: float = _CONNECT_SECONDS,
        login: Login | None = None,
        private: bool = False,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        try:
            import kazoo.client  # type: ignore[import-untyped]  # kazoo has no types
            import kazoo.exceptions  # type: ignore[import-untyped]  # likewise
            import kazoo.security  # type: ignore[import-untyped]  # likewise
        except ImportError as error:
            raise StartupError(
                "zookeeper.connect is set, but the ZooKeeper client is not installed: run `pip install 'kazoo[sasl]'`"
            ) from error
        logging.getLogger("kazoo.client").addFilter(_has_no_data)
        self._errors: Any = kazoo.exceptions
        self._client: Any = kazoo.client.KazooClient(
            hosts,
            timeout=session_timeout,
            default_acl=kazoo.security.CREATOR_ALL_ACL if private else None,
            connection_retry={"max_tries": -1, "delay": _FIRST_RETRY, "max_delay": _RETRY_SECONDS},
            handler=_handler(tls),
            **(login.options() if login is not None else {}),
        )
        self._hosts = hosts
        self._session_timeout = session_timeout
        self._connect_timeout = connect_timeout
        self._loop: asyncio.AbstractEventLoop | None = None
        self._expired = False
        self._on_expiry: list[Callable[[], None]] = []
        self._watches: set[_Watch] = set()

    async def start(self) -> None:
        """Connect, begin a session, and make the chroot if it is not there."""
        self._loop = asyncio.get_running_loop()
        connected = self._client.start_async()
        if not await asyncio.to_thread(connected.wait, self._connect_timeout):
            await self.close()
            raise StoreUnavailable(
                f"no ZooKeeper answers at {self._hosts} within {self._connect_timeout:g} s: "
                "is it running, and is zookeeper.connect right?"
            )
        self._client.add_listener(self._state_changed)
        await self._make_chroot()

    async def _make_chroot(self) -> None:
        """kazoo puts the chroot before every path, so it must look away while the chroot itself is made."""
        chroot, self._client.chroot = self._client.chroot, ""
        try:
            if chroot:
                await self._call(chroot, self._client.ensure_path_async, chroot)
        finally:
            self._client.chroot = chroot

    async def close(self) -> None:
        """End the session; ZooKeeper removes its ephemeral nodes before this returns."""
        if self._loop is None:
            return
        self._loop = None
        for watch in self._watches:
            watch.cancelled = True
        self._client.remove_listener(self._state_changed)
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    @property
    def session_id(self) -> int:
        """ZooKeeper's session id."""
        session: int = self._client.client_id[0] if self._client.client_id else 0
        return session

    def on_expiry(self, callback: Callable[[], None]) -> None:
        """Call `callback` when ZooKeeper has given up the session."""
        self._on_expiry.append(callback)

    def _state_changed(self, state: str) -> None:
        """Called by kazoo, on its thread, before it does anything in a new session."""
        if state != "LOST" or self._expired:
            return
        self._expired = True
        if (loop := self._loop) is not None:
            for callback in self._on_expiry:
                _hand_over(loop, callback)

    async def sync(self) -> None:
        """Have the server that is asked here learn all that ZooKeeper's leader has decided."""
        await self._call("/", self._client.sync_async, "/")

    async def get(self, path: str) -> StoredNode:
        """Read one node; raises NoNode."""
        data, stat = await self._call(path, self._client.get_async, path)
        return _node(path, data, stat)

    async def find(self, path: str) -> StoredNode | None:
        """Read one node that may not be there."""
        try:
            return await self.get(path)
        except NoNode:
            return None

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        """Read many nodes, with many in each request."""
        found = await self._read_many(ReadNodes, paths)
        return [None if read is None else _found(path, read) for path, read in zip(paths, found, strict=True)]

    async def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; raises NoNode."""
        return sorted(await self._call(path, self._client.get_children_async, path))

    async def subtree(self, path: str) -> list[StoredNode]:
        """Everything below `path`, level by level."""
        nodes: list[StoredNode] = []
        parents = [path.rstrip("/")]
        while parents:
            names = await self._read_many(ReadChildren, [parent or "/" for parent in parents])
            paths = [f"{parent}/{name}" for parent, found in zip(parents, names, strict=True) for name in found or ()]
            nodes_read = await self._read_many(ReadNodes, paths)
            level = [(child, read) for child, read in zip(paths, nodes_read, strict=True) if read is not None]
            nodes += [_found(child, read) for child, read in level]
            parents = [child for child, read in level if read.child_count]
        return sorted(nodes)

    async def _read_many(self, request: type[ReadMany[T]], paths: Sequence[str]) -> list[T | None]:
        """What was read of many nodes, None for those that are not there."""
        found: list[T | None] = []
        for at in range(0, len(paths), _AT_ONCE):
            some = paths[at : at + _AT_ONCE]
            whole = [(self._client.chroot + path).rstrip("/") or "/" for path in some]
            answers = await self._call(some[0], self._send, request(whole))
            found += [self._read_if_any(path, answer) for path, answer in zip(some, answers, strict=True)]
        return found

    def _send(self, request: object) -> Any:
        """Have kazoo send what it has no method for."""
        result = self._client.handler.async_result()
        self._client._call(request, result)
        return result

    def _read_if_any(self, path: str, answer: T | int) -> T | None:
        if not isinstance(answer, int):
            return answer
        error = self._errors.EXCEPTIONS[answer]()
        if isinstance(error, self._errors.NoNodeError):
            return None
        raise self._translate(path, error, creating=False)

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """Make a node and return its path."""
        check_path(path)
        made: str = await self._call(
            path, self._client.create_async, path, data, None, ephemeral, sequential, parents, creating=True
        )
        return made

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data and return its new version."""
        stat = await self._call(path, self._client.set_async, path, data, version)
        new: int = stat.version
        return new

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node."""
        await self._call(path, self._client.delete_async, path, version)

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Do all operations or none."""
        if not operations:
            return
        transaction = self._client.transaction()
        for operation in operations:
            match operation:
                case Check(path, version):
                    transaction.check(path, version)
                case Create(path, data, ephemeral):
                    check_path(path)
                    transaction.create(path, data, None, ephemeral)
                case Set(path, data, version):
                    transaction.set_data(path, data, version)
                case Delete(path, version):
                    transaction.delete(path, version)
        results = await self._call(operations[0].path, transaction.commit_async)
        for operation, result in zip(operations, results, strict=True):
            if isinstance(result, Exception) and not isinstance(
                result, self._errors.RolledBackError | self._errors.RuntimeInconsistency
            ):
                raise self._translate(operation.path, result, creating=isinstance(operation, Create)) from result

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back after the node or its list of children changed. Reads begun after this call leave no gap."""
        watch = _Watch(path, callback, asyncio.get_running_loop(), self)
        self._watches.add(watch)
        watch.arm()
        return watch

    def forget(self, watch: _Watch) -> None:
        """A watch was cancelled."""
        self._watches.discard(watch)

    def set_watches(self, path: str, on_event: Callable[[object], None]) -> None:
        """Have ZooKeeper call `on_event` once, with the next change of the node or of its list of children."""
        loop = self._loop
        if loop is None or self._expired:
            return

        def check(result: Any) -> None:
            """A request that got lost with its connection watches nothing: it is made again, with a hint."""
            if not result.successful() and not isinstance(result.exception, self._errors.NoNodeError):
                _hand_over(loop, loop.call_later, _RETRY_SECONDS, on_event, None)

        self._client.exists_async(path, on_event).rawlink(check)
        self._client.get_children_async(path, on_event).rawlink(check)

    async def _call(self, path: str, send: Callable[..., Any], *arguments: object, creating: bool = False) -> Any:
        """Send a request through kazoo and wait for its answer without blocking the loop."""
        loop = self._connected()
        future: asyncio.Future[Any] = loop.create_future()
        send(*arguments).rawlink(lambda result: _hand_over(loop, _deliver, future, result))
        try:
            return await self._answer(future)
        except self._errors.KazooException as error:
            raise self._translate(path, error, creating=creating) from error

    def _connected(self) -> asyncio.AbstractEventLoop:
        """The loop to answer on, if requests can be made at all."""
        if self._loop is None:
            raise StoreUnavailable(f"the ZooKeeper at {self._hosts} is not connected: the store is closed")
        if self._expired:
            raise SessionExpired(f"the session with the ZooKeeper at {self._hosts} has expired")
        return self._loop

    async def _answer(self, future: asyncio.Future[T]) -> T:
        try:
            async with asyncio.timeout(self._session_timeout):
                return await future
        except TimeoutError as error:
            raise StoreUnavailable(
                f"the ZooKeeper at {self._hosts} did not answer within {self._session_timeout:g} s"
            ) from error

    def _translate(self, path: str, error: Exception, *, creating: bool) -> StoreError:
        """kazoo's error in our words; for a new node, what is missing or ephemeral is its parent."""
        errors = self._errors
        parent = path.rpartition("/")[0] or "/"
        match error:
            case errors.NoNodeError():
                return NoNode(parent if creating else path)
            case errors.NodeExistsError():
                return NodeExists(path)
            case errors.BadVersionError():
                return BadVersion(path)
            case errors.NotEmptyError():
                return NotEmpty(path)
            case errors.NoChildrenForEphemeralsError():
                return NoChildrenForEphemerals(parent)
            case errors.SessionExpiredError():
                return SessionExpired(f"the session with the ZooKeeper at {self._hosts} has expired")
            case errors.UnimplementedError():
                return StoreRefused(f"the ZooKeeper at {self._hosts} is older than 3.6: use a newer one")
            case errors.NoAuthError() | errors.AuthFailedError():
                return StoreRefused(
                    f"the ZooKeeper at {self._hosts} does not let this broker use {path}: "
                    "are zookeeper.auth.username and zookeeper.auth.password those that made it?"
                )
        return StoreUnavailable(f"the ZooKeeper at {self._hosts} failed at {path}: {error!r}")


class _Watch:
    """Both kinds of ZooKeeper's watches on one node, set again each time that one of them fires."""

    def __init__(
        self, path: str, callback: Callable[[], None], loop: asyncio.AbstractEventLoop, store: ZooKeeperStore
    ) -> None:
        self.cancelled = False
        self._path = path
        self._callback = callback
        self._loop = loop
        self._store = store

    def cancel(self) -> None:
        """Stop; events that ZooKeeper still sends are not passed on."""
        self.cancelled = True
        self._store.forget(self)

    def arm(self) -> None:
        """Set the watches for the next change."""
        self._store.set_watches(self._path, self._on_event)

    def _on_event(self, _: object) -> None:
        _hand_over(self._loop, self._call_back)

    def _call_back(self) -> None:
        if not self.cancelled:
            self.arm()
            self._callback()


def _hand_over(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *arguments: object) -> None:
    """From kazoo's threads to the loop, unless that was closed without closing the store."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *arguments)


def _deliver(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _node(path: str, data: bytes | None, stat: Any) -> StoredNode:
    return StoredNode(path, data or b"", stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def _found(path: str, read: ReadNode) -> StoredNode:
    return StoredNode(path, read.data, read.version, read.czxid, read.mzxid, read.owner)
