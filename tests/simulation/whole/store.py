"""The metadata tree in memory, for all brokers of a world: a ZooKeeper whose answers come late or not at all.

Every call travels to the tree and back. While the link of its machine is cut the call waits, and fails with
`StoreUnavailable` when that takes too long; what it wrote may have been written or not. A session lives as long as its
process is heard of; one that was silent for the session timeout is over, and its ephemeral nodes are gone. Its process
learns of that when it is heard of again.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, Final

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
    StoreUnavailable,
    check_path,
)
from tests.simulation.whole.loop import PROCESS, Process

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from tests.simulation.whole.network import Network

SESSION_SECONDS: Final = 6.0
GIVE_UP_SECONDS: Final = 4.0
"""After which a call that does not reach the tree fails."""
LOOK_SECONDS: Final = 0.5
TREE: Final = "zk"
"""The machine that the tree is on."""


class Session:
    """What a process has with the tree."""

    def __init__(self, number: int, process: Process, now: float) -> None:
        self.number = number
        self.process = process
        self.heard = now
        self.over = False
        self.told = False
        self.callbacks: list[tuple[Callable[[], None], Context]] = []


class TreeWatch:
    """A callback after each change of a node."""

    def __init__(self, tree: MemoryTree, path: str, callback: Callable[[], None], process: Process) -> None:
        self.tree = tree
        self.path = path
        self.process = process
        self.due = False
        self._callback: Callable[[], None] | None = callback
        self._context = copy_context()

    def cancel(self) -> None:
        """See Watch."""
        self._callback = None
        self.tree.watches = [each for each in self.tree.watches if each is not self]

    def changed(self) -> None:
        """Tell it soon; once is enough for several changes."""
        if not self.due:
            self.due = True
            self.tree.network.loop.in_world(self.tree.network.delay(), self._tell)

    def _tell(self) -> None:
        if not self.tree.network.is_open(TREE, self.process.machine):
            if self.process.alive:
                self.tree.network.loop.in_world(LOOK_SECONDS, self._tell)
            return
        self.due = False
        if self._callback is not None:
            self.tree.network.loop.call_soon(self._call, context=self._context)

    def _call(self) -> None:
        if self._callback is not None:
            self._callback()


class MemoryTree:
    """The nodes, sessions and watches."""

    def __init__(self, network: Network, chance: random.Random) -> None:
        self.network = network
        self.chance = chance
        self.nodes: dict[str, StoredNode] = {"": StoredNode("", b"", 0, 0, 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.watches: list[TreeWatch] = []
        self.observers: dict[str, Callable[[bytes | None, bytes], object]] = {}
        """Called with the data of a node before and after each change; for the judge."""
        self.lost_answers = 0.0
        """How often the answer to a write is lost."""
        self._zxid = 0
        self._sequences: dict[str, int] = {}
        self._next_session = 1000
        network.loop.in_world(LOOK_SECONDS, self._look_for_the_silent)

    # Sessions

    def begin_session(self, process: Process) -> Session:
        """A process has connected."""
        self._next_session += 1
        session = Session(self._next_session, process, self.network.loop.time())
        self.sessions[session.number] = session
        return session

    def expire(self, session: Session) -> None:
        """End a session: its ephemeral nodes go."""
        if not session.over:
            session.over = True
            for path in [path for path, node in self.nodes.items() if node.owner == session.number]:
                self._zxid += 1
                del self.nodes[path]
                self._notify(path)

    def _look_for_the_silent(self) -> None:
        now = self.network.loop.time()
        for session in list(self.sessions.values()):
            process = session.process
            if process.alive and not process.stopped and self.network.is_open(process.machine, TREE):
                session.heard = now
                if session.over and not session.told:
                    session.told = True
                    del self.sessions[session.number]
                    for callback, context in session.callbacks:
                        self.network.loop.call_soon(callback, context=context)
            elif now - session.heard > SESSION_SECONDS:
                self.expire(session)
        self.network.loop.in_world(LOOK_SECONDS, self._look_for_the_silent)

    # Reading

    def find(self, path: str) -> StoredNode | None:
        """A node, if it is there."""
        return self.nodes.get("" if path == "/" else path)

    def get(self, path: str) -> StoredNode:
        """A node; raises NoNode."""
        found = self.find(path)
        if found is None:
            raise NoNode(path)
        return found

    def children(self, path: str) -> list[str]:
        """Names of children, sorted."""
        self.get(path)
        prefix = "/" if path == "/" else f"{path}/"
        size = len(prefix)
        return sorted(each[size:] for each in self.nodes if each.startswith(prefix) and "/" not in each[size:])

    def subtree(self, path: str) -> list[StoredNode]:
        """Everything below a path."""
        prefix = "/" if path == "/" else f"{path}/"
        return [self.nodes[each] for each in sorted(self.nodes) if each.startswith(prefix)]

    # Writing

    def write(self, operations: Sequence[Operation], session: int) -> list[Any]:
        """All operations or none, with one number."""
        before, watched = dict(self.nodes), list(operations)
        self._zxid += 1
        try:
            results = [self._do(operation, session) for operation in watched]
        except BaseException:
            self.nodes = before
            raise
        for operation in watched:
            observer = self.observers.get(operation.path)
            if observer is not None and isinstance(operation, Set):
                old = before.get(operation.path)
                observer(None if old is None else old.data, operation.data)
            if not isinstance(operation, Check):
                self._notify(operation.path)
        return results

    def _do(self, operation: Operation, session: int) -> Any:
        path = operation.path
        match operation:
            case Check(_, version):
                self._expect(path, version)
            case Create(_, data, ephemeral):
                self._create(path, data, session if ephemeral else 0)
            case Set(_, data, version):
                node = self._expect(path, version)
                self.nodes[path] = node._replace(data=bytes(data), version=node.version + 1, mzxid=self._zxid)
                return node.version + 1
            case Delete(_, version):
                self._expect(path, version)
                if any(each.startswith(f"{path}/") for each in self.nodes):
                    raise NotEmpty(path)
                del self.nodes[path]
        return None

    def _create(self, path: str, data: bytes, owner: int) -> None:
        check_path(path)
        if path in self.nodes:
            raise NodeExists(path)
        parent = self.nodes.get(path.rpartition("/")[0])
        if parent is None:
            raise NoNode(path)
        if parent.owner:
            raise NoChildrenForEphemerals(parent.path)
        self.nodes[path] = StoredNode(path, bytes(data), 0, self._zxid, self._zxid, owner)

    def _expect(self, path: str, version: int) -> StoredNode:
        node = self.get(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersion(path)
        return node

    def next_sequence(self, path: str) -> int:
        """The next number below a parent."""
        parent = path.rpartition("/")[0]
        self._sequences[parent] = self._sequences.get(parent, -1) + 1
        return self._sequences[parent]

    def _notify(self, path: str) -> None:
        parent = path.rpartition("/")[0] or "/"
        for watch in self.watches:
            if watch.path in (path, parent):
                watch.changed()


class MemoryStore:
    """One process's MetadataStore."""

    def __init__(self, tree: MemoryTree) -> None:
        process = PROCESS.get()
        assert process is not None
        self._tree = tree
        self._process = process
        self._session: Session | None = None
        self._watches: list[TreeWatch] = []

    async def start(self) -> None:
        """See MetadataStore."""
        await self._travel()
        self._session = self._tree.begin_session(self._process)

    async def close(self) -> None:
        """See MetadataStore."""
        session, self._session = self._session, None
        for watch in self._watches:
            watch.cancel()
        if session is not None:
            if not session.over:
                try:
                    await self._travel()
                except StoreUnavailable:
                    return
                self._tree.expire(session)
            self._tree.sessions.pop(session.number, None)

    @property
    def session_id(self) -> int:
        """See MetadataStore."""
        return 0 if self._session is None else self._session.number

    def on_expiry(self, callback: Callable[[], None]) -> None:
        """See MetadataStore."""
        assert self._session is not None
        self._session.callbacks.append((callback, copy_context()))

    async def _travel(self) -> None:
        """Get to the tree, or back from it."""
        network = self._tree.network
        await asyncio.sleep(network.delay())
        waited = 0.0
        while not network.is_open(self._process.machine, TREE):
            await asyncio.sleep(LOOK_SECONDS)
            waited += LOOK_SECONDS
            if waited >= GIVE_UP_SECONDS:
                raise StoreUnavailable("the metadata store cannot be reached")

    def _check(self) -> Session:
        if self._session is None:
            raise StoreUnavailable("the metadata store is closed")
        if self._session.over:
            raise SessionExpired(f"session {self._session.number} of the metadata store is over")
        return self._session

    async def _read(self, job: Callable[[], Any]) -> Any:
        self._check()
        await self._travel()
        self._check()
        result = job()
        await self._travel()
        return result

    async def _write(self, job: Callable[[Session], Any]) -> Any:
        self._check()
        await self._travel()
        result = job(self._check())
        if self._tree.chance.random() < self._tree.lost_answers:
            await asyncio.sleep(self._tree.chance.random() * GIVE_UP_SECONDS)
            raise StoreUnavailable("the connection to the metadata store broke: the answer is lost")
        await self._travel()
        return result

    async def sync(self) -> None:
        """See MetadataStore."""
        await self._read(lambda: None)

    async def get(self, path: str) -> StoredNode:
        """See MetadataStore."""
        node: StoredNode = await self._read(lambda: self._tree.get(path))
        return node

    async def find(self, path: str) -> StoredNode | None:
        """See MetadataStore."""
        node: StoredNode | None = await self._read(lambda: self._tree.find(path))
        return node

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        """See MetadataStore."""
        nodes: list[StoredNode | None] = await self._read(lambda: [self._tree.find(path) for path in paths])
        return nodes

    async def children(self, path: str) -> list[str]:
        """See MetadataStore."""
        names: list[str] = await self._read(lambda: self._tree.children(path))
        return names

    async def subtree(self, path: str) -> list[StoredNode]:
        """See MetadataStore."""
        nodes: list[StoredNode] = await self._read(lambda: self._tree.subtree(path))
        return nodes

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """See MetadataStore."""
        check_path(path)

        def job(session: Session) -> str:
            made = f"{path}{self._tree.next_sequence(path):010d}" if sequential else path
            above = path.split("/")[1:-1] if parents else []
            missing = ["/" + "/".join(above[: count + 1]) for count in range(len(above))]
            operations: list[Operation] = [Create(each) for each in missing if self._tree.find(each) is None]
            self._tree.write([*operations, Create(made, data, ephemeral)], session.number)
            return made

        made: str = await self._write(job)
        return made

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """See MetadataStore."""
        versions: list[int] = await self._write(
            lambda session: self._tree.write([Set(path, data, version)], session.number)
        )
        return versions[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """See MetadataStore."""
        await self._write(lambda session: self._tree.write([Delete(path, version)], session.number))

    async def multi(self, operations: Sequence[Operation]) -> None:
        """See MetadataStore."""
        await self._write(lambda session: self._tree.write(operations, session.number))

    def watch(self, path: str, callback: Callable[[], None]) -> TreeWatch:
        """See MetadataStore."""
        watch = TreeWatch(self._tree, path, callback, self._process)
        self._tree.watches.append(watch)
        self._watches.append(watch)
        return watch
