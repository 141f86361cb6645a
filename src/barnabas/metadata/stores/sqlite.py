"""The metadata tree in one SQLite file, shared by any number of broker processes of one host.

One thread per store runs all SQL (`sqlite_tree.py`), job after job, so the event loop never waits for the disk. Writes
are durable (write-ahead log, synchronous=FULL). The file must lie on a local file system: SQLite's shared memory and
our locks ask for one.

Watches: after each of our own writes, and every 50 ms if `PRAGMA data_version` says that another process wrote, the
thread compares the watched nodes with what they were.

Sessions (`leases.py`): a session begins with the first ephemeral node, as a row in the tree and a locked file beside
it. The row is what counts: whoever finds the process dead or hung removes the row and the ephemeral nodes in one
transaction, and every write of a store first checks its own row. So a process that was stopped and goes on can write
nothing. A store that was itself stopped gives the others time to renew before it calls them hung.

Fork before a store is started, not after: a child would hold its parent's lock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from barnabas.metadata.stores.leases import Health, Lease, boot_time_ns, health, one_at_a_time
from barnabas.metadata.stores.store import (
    ANY_VERSION,
    Create,
    Operation,
    SessionExpired,
    StoredNode,
    StoreUnavailable,
    Watch,
    check_path,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

    from barnabas.metadata.stores.sqlite_tree import Signature

logger = logging.getLogger(__name__)

T = TypeVar("T")

_POLL_SECONDS = 0.05
_SWEEP_SECONDS = 0.2
_BUSY_SECONDS = 5.0
_SESSIONS = ".sessions"


def files_of(path: Path) -> list[Path]:
    """The files of a store that are there: its own, those of its write-ahead log, and the folder of its sessions."""
    names = (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}{_SESSIONS}")
    return [found for name in names if (found := path.with_name(name)).exists()]


class SqliteStore:
    """A MetadataStore in the file at `path`; `session_timeout` (seconds) is how long a process may hang."""

    def __init__(self, path: Path | str, *, session_timeout: float = 6.0) -> None:
        self._path = Path(path)
        self._worker = _Worker(self._path, session_timeout)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def start(self) -> None:
        """Open the file, making it if need be, and remove what dead processes left."""
        self._loop = asyncio.get_running_loop()
        self._worker.start()
        try:
            await self._run(self._worker.open)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session and close the file."""
        if self._loop is None:
            return
        with contextlib.suppress(StoreUnavailable):
            await self._run(self._worker.close)
        self._worker.stop()
        self._loop = None

    @property
    def session_id(self) -> int:
        """The owner of this store's ephemeral nodes; 0 as long as it has made none."""
        return self._worker.session

    def on_expiry(self, callback: Callable[[], None]) -> None:
        """Call `callback` when others have ended the session."""
        loop = asyncio.get_running_loop()
        self._worker.on_expiry.append(lambda: loop.call_soon_threadsafe(callback))

    async def get(self, path: str) -> StoredNode:
        """Read one node; raises NoNode."""
        return await self._run(lambda: self._worker.tree.get(self._worker.connection, path))

    async def find(self, path: str) -> StoredNode | None:
        """Read one node that may not be there."""
        return await self._run(lambda: self._worker.tree.find(self._worker.connection, path))

    async def sync(self) -> None:
        """Nothing to do: all stores read one file."""

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        """Read many nodes, all of one moment."""
        return await self._run(lambda: self._worker.tree.find_many(self._worker.connection, paths))

    async def children(self, path: str) -> list[str]:
        """Names of a node's children, sorted; raises NoNode."""
        return await self._run(lambda: self._worker.tree.children(self._worker.connection, path))

    async def subtree(self, path: str) -> list[StoredNode]:
        """Everything below `path`, in one read of one moment."""
        return await self._run(lambda: self._worker.tree.subtree(self._worker.connection, path))

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
        return await self._run(lambda: self._worker.create(path, data, ephemeral, sequential, parents))

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data and return its new version."""
        return await self._run(lambda: self._worker.set(path, data, version))

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node."""
        await self._run(lambda: self._worker.delete(path, version))

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Do all operations or none."""
        for operation in operations:
            if isinstance(operation, Create):
                check_path(operation.path)
        await self._run(lambda: self._worker.multi(operations))

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back after the node or its list of children changed. Reads begun after this call leave no gap."""
        watch = _Watch(path, callback, asyncio.get_running_loop(), self._worker)
        self._worker.put(lambda: self._worker.add_watch(watch))
        return watch

    async def _run(self, job: Callable[[], T]) -> T:
        """Run a job on the store's thread."""
        loop = self._loop
        if loop is None:
            raise StoreUnavailable(f"the metadata store {self._path} is closed")
        future: asyncio.Future[T] = loop.create_future()

        def deliver(result: T | None, error: BaseException | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]  # no error means that the job gave a T

        def run() -> None:
            try:
                result = self._worker.guarded(job)
            except BaseException as error:
                loop.call_soon_threadsafe(deliver, None, error)
            else:
                loop.call_soon_threadsafe(deliver, result, None)

        self._worker.put(run)
        return await future


class _Watch:
    def __init__(
        self, path: str, callback: Callable[[], None], loop: asyncio.AbstractEventLoop, worker: _Worker
    ) -> None:
        self.path = path
        self.signature: Signature = None
        self.cancelled = False
        self._callback = callback
        self._loop = loop
        self._worker = worker

    def cancel(self) -> None:
        self.cancelled = True
        self._worker.put(lambda: self._worker.remove_watch(self))

    def fire(self) -> None:
        self._loop.call_soon_threadsafe(self._call_back)

    def _call_back(self) -> None:
        if not self.cancelled:
            self._callback()


class _Worker:
    """What lives on the store's thread; only `put`, `start`, `stop` and the plain attributes are used from outside."""

    def __init__(self, path: Path, session_timeout: float) -> None:
        self._path = path
        self._sessions = path.with_name(f"{path.name}{_SESSIONS}")
        self._session_timeout = session_timeout
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="metadata-store", daemon=True)
        self._connection: sqlite3.Connection | None = None
        self._lease: Lease | None = None
        self._expired = False
        self._watches: list[_Watch] = []
        self._seen_version = -1
        self._others: list[int] = []
        self._next_sweep = 0
        self._awake_since = 0
        self._last_poll = 0
        self.session = 0
        self.on_expiry: list[Callable[[], object]] = []

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the jobs that are queued."""
        self._jobs.put(None)
        self._thread.join()

    def put(self, job: Callable[[], None]) -> None:
        """Queue a job that raises nothing."""
        self._jobs.put(job)

    def _work(self) -> None:
        next_poll = 0.0
        while True:
            polling = bool(self._watches or self._lease) and not self._expired
            if polling and time.monotonic() >= next_poll:
                self._poll()
                next_poll = time.monotonic() + _POLL_SECONDS
            try:
                job = self._jobs.get(timeout=max(0.0, next_poll - time.monotonic()) if polling else None)
            except queue.Empty:
                continue
            if job is None:
                return
            job()

    # Opening and closing

    @property
    def connection(self) -> sqlite3.Connection:
        """The open file, for a session that is not over."""
        if self._connection is None:
            raise StoreUnavailable(f"the metadata store {self._path} is closed")
        if self._expired:
            raise SessionExpired(self._over())
        return self._connection

    def open(self) -> None:
        """Open the file and sweep once, so that a restart does not meet what it left when it was killed."""
        from barnabas.metadata.stores import (
            sqlite_tree,  # sqlite3 takes milliseconds to import: only who opens a store pays
        )

        self.tree = sqlite_tree
        self._sessions.mkdir(parents=True, exist_ok=True)
        with one_at_a_time(self._sessions):  # SQLite does not wait while another process switches the log on
            self._connection = sqlite_tree.connect(self._path, _BUSY_SECONDS)
        self._awake_since = self._last_poll = boot_time_ns()
        self._look_around()
        self._sweep()

    def close(self) -> None:
        """End the session, if it is not over, and close the file."""
        if self._connection is None:
            return
        try:
            if self.session and not self._expired:
                with self.tree.transaction(self._connection):
                    self.tree.end_session(self._connection, self.session)
        finally:
            if self._lease is not None:
                self._lease.close()
                self._lease = None
            self._watches.clear()
            self._connection.close()
            self._connection = None

    def guarded(self, job: Callable[[], T]) -> T:
        """Run a job, and name what SQLite could not do."""
        import sqlite3

        try:
            return job()
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"the metadata store {self._path} failed: {error}") from error

    def _over(self) -> str:
        return f"session {self.session} of the metadata store {self._path} was ended by another process"

    # Writing

    @contextlib.contextmanager
    def _writing(self, *, ephemeral: bool = False) -> Iterator[tuple[sqlite3.Connection, int]]:
        """A transaction of a session that is not over, begun here for the first ephemeral node; gives the session."""
        session, lease = self.session, None
        with contextlib.ExitStack() as giving_up:
            with self.tree.transaction(self.connection):
                if session and not self.tree.has_session(self.connection, session):
                    self._expire()
                    raise SessionExpired(self._over())
                if ephemeral and not session:
                    session = self.tree.begin_session(self.connection)
                    lease = self._take_lease(session)
                    giving_up.callback(lease.close)
                try:
                    yield self.connection, session
                except BaseException:
                    giving_up.close()  # before the transaction is undone: the next one may give out the same number
                    raise
            giving_up.pop_all()
        if lease is not None:
            self.session, self._lease = session, lease
        self._check_watches()

    def _take_lease(self, session: int) -> Lease:
        return Lease(self._session_file(session), self._session_timeout)

    def create(self, path: str, data: bytes, ephemeral: bool, sequential: bool, parents: bool) -> str:
        """Make one node."""
        self._make_room([path] if ephemeral and not sequential else [])
        with self._writing(ephemeral=ephemeral) as (connection, session):
            zxid = self.tree.next_zxid(connection)
            if parents:
                self.tree.create_parents(connection, path, zxid)
            if sequential:
                path = f"{path}{self.tree.next_sequence(connection, path):010d}"
            self.tree.create(connection, path, data, session if ephemeral else 0, zxid)
        return path

    def set(self, path: str, data: bytes, version: int) -> int:
        """Replace one node's data."""
        with self._writing() as (connection, _):
            return self.tree.replace(connection, path, data, version, self.tree.next_zxid(connection))

    def delete(self, path: str, version: int) -> None:
        """Remove one node."""
        with self._writing() as (connection, _):
            self.tree.next_zxid(connection)
            self.tree.delete(connection, path, version)

    def multi(self, operations: Sequence[Operation]) -> None:
        """Do all operations or none."""
        ephemeral = [
            operation.path for operation in operations if isinstance(operation, Create) and operation.ephemeral
        ]
        self._make_room(ephemeral)
        with self._writing(ephemeral=bool(ephemeral)) as (connection, session):
            self.tree.multi(connection, operations, session)

    def _make_room(self, paths: Sequence[str]) -> None:
        """Where an ephemeral node is to be made, nothing of a dead process may be in the way."""
        for path in paths:
            node = self.tree.find(self.connection, path)
            if node is not None and node.owner not in (0, self.session) and self._health(node.owner) is Health.DEAD:
                self._end(node.owner, "died")

    # Watching

    def add_watch(self, watch: _Watch) -> None:
        """Remember how the node is now."""
        if self._connection is None or self._expired:
            return
        self._watches.append(watch)
        with self._logging_failures():
            if len(self._watches) == 1 and not self._lease:
                self._look_around()
            watch.signature = self.tree.signature(self._connection, watch.path)

    def remove_watch(self, watch: _Watch) -> None:
        """Forget a watch."""
        with contextlib.suppress(ValueError):
            self._watches.remove(watch)

    def _check_watches(self) -> None:
        for watch in self._watches:
            signature = self.tree.signature(self.connection, watch.path)
            if signature != watch.signature:
                watch.signature = signature
                watch.fire()

    # Other processes

    def _poll(self) -> None:
        with self._logging_failures():
            self._note_time()
            version = self.tree.data_version(self.connection)
            if version != self._seen_version:
                self._look_around()
                if self._expired:
                    return
                self._check_watches()
            if self._others and boot_time_ns() >= self._next_sweep:
                self._sweep()

    @contextlib.contextmanager
    def _logging_failures(self) -> Iterator[None]:
        """For what nobody waits for: it is tried again with the next poll."""
        import sqlite3

        try:
            yield
        except (sqlite3.Error, OSError) as error:
            logger.warning("Could not look for changes in the metadata store %s, trying again: %s", self._path, error)

    def _look_around(self) -> None:
        """Another process wrote: is our session still there, and who else is?"""
        self._seen_version = self.tree.data_version(self.connection)
        sessions = self.tree.sessions(self.connection)
        if self.session and self.session not in sessions and not self._expired:
            self._expire()
        self._others = [session for session in sessions if session != self.session]

    def _sweep(self) -> None:
        """End the sessions of dead and hung processes."""
        now = boot_time_ns()
        self._next_sweep = now + int(_SWEEP_SECONDS * 1e9)
        others_could_renew = now - self._awake_since > self._session_timeout * 1e9
        for session in list(self._others):
            match self._health(session):
                case Health.DEAD:
                    self._end(session, "died")
                case Health.HUNG if others_could_renew:
                    self._end(session, f"hung for more than {self._session_timeout:g} s")

    def _note_time(self) -> None:
        """After a pause of our own, others get a whole timeout to renew before they count as hung."""
        now = boot_time_ns()
        if now - self._last_poll > self._session_timeout * 1e9 / 2:
            self._awake_since = now
        self._last_poll = now

    def _end(self, session: int, how: str) -> None:
        with self.tree.transaction(self.connection):
            self.tree.end_session(self.connection, session)
        self._session_file(session).unlink(missing_ok=True)
        self._others = [other for other in self._others if other != session]
        logger.info("Ended session %d of the metadata store %s: its process %s", session, self._path, how)
        self._check_watches()

    def _expire(self) -> None:
        self._expired = True
        logger.warning("%s", self._over())
        for callback in self.on_expiry:
            callback()

    def _health(self, session: int) -> Health:
        return health(self._session_file(session))

    def _session_file(self, session: int) -> Path:
        return self._sessions / str(session)
