"""The metadata tree: a few small nodes that hold everything a cluster must agree on.

A `MetadataStore` is a tree of versioned nodes, as ZooKeeper has it. Two implementations pass one conformance suite:
`sqlite.py` (the default: one file, one host) and `zookeeper.py`.

What both promise:

- Every node has data, a version that each `set` raises by one, and a creation id (`czxid`) that grows with every
  change of the tree: a node made again never has the creation id that it had before.
- Writes are durable when they return, and all stores of one tree see them in one order.
- `multi` does all of its operations or none; `Check` makes it depend on a node that it does not change.
- An ephemeral node lives as long as the session of the store that made it. A session ends with `close`, when its
  process dies, or when its process hangs for longer than the session timeout. After that every call raises
  `SessionExpired`; the owner makes a new store.
- A watch is a hint: "look again". It says neither what changed nor how often, it stays until it is cancelled, and it
  never misses the last change. Callbacks run on the event loop that the store was started on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from barnabas.model.errors import BarnabasError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ANY_VERSION = -1
"""As an expected version: whatever version the node has."""


class StoreError(BarnabasError):
    """The store could not do what was asked; nothing was changed."""


class NodeError(StoreError):
    """The state of one node forbids the operation."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path


class NoNode(NodeError):
    """The node, or for a new node its parent, is not there."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no such node")


class NodeExists(NodeError):
    """A node of this path is there already."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node exists")


class BadVersion(NodeError):
    """The node changed since it was read."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "version is not the expected one: the node was changed by someone else")


class NotEmpty(NodeError):
    """The node has children, so it stays."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "node has children")


class NoChildrenForEphemerals(NodeError):
    """An ephemeral node cannot be a parent."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "an ephemeral node cannot have children")


class SessionExpired(StoreError):
    """This store's session is over and its ephemeral nodes are gone; only a new store can go on."""


class StoreUnavailable(StoreError):
    """The store cannot be reached at the moment. Whether a write that was under way took place is unknown."""


class StoreRefused(StoreError):
    """The store does not let this broker read or write a node; that will not change by itself."""


class StoredNode(NamedTuple):
    """A node as it was when it was read."""

    path: str
    data: bytes
    version: int
    """Raised by one with every `set`; 0 when made."""
    czxid: int
    """Creation id: unique in the life of the tree, and growing."""
    mzxid: int
    """Like `czxid`, of the last change of the data."""
    owner: int
    """Session id of an ephemeral node's owner; 0 for other nodes."""


@dataclass(frozen=True, slots=True)
class Check:
    """In a multi: the node is there and has this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Create:
    """In a multi: make a node; its parent must be there (an earlier operation may make it)."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """In a multi: replace a node's data."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """In a multi: remove a node without children."""

    path: str
    version: int = ANY_VERSION


Operation = Check | Create | Set | Delete


class Watch(Protocol):
    """A request to be called back after every change, until it is cancelled."""

    def cancel(self) -> None:
        """Stop; no callback comes after this."""
        ...


def check_path(path: str) -> None:
    """Refuse what is no path of a new node: a mistake in our code, so it is a ValueError."""
    parts = path.split("/")
    if len(parts) < 2 or parts[0] or "\0" in path or any(part in ("", ".", "..") for part in parts[1:]):
        raise ValueError(f"{path!r} is no path of a metadata node")


class MetadataStore(Protocol):
    """The tree; the module says what every implementation promises. Paths are absolute, without a slash at the end."""

    async def start(self) -> None:
        """Open the store and begin a session; raises StoreUnavailable."""
        ...

    async def close(self) -> None:
        """End the session, and with it this store's ephemeral nodes. Closing twice is allowed."""
        ...

    @property
    def session_id(self) -> int:
        """The id that this store's ephemeral nodes carry as `owner`."""
        ...

    def on_expiry(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on the event loop, when the session turns out to be over."""
        ...

    async def sync(self) -> None:
        """Let the reads that come see everything that was written, by whomever, before this was called."""
        ...

    async def get(self, path: str) -> StoredNode:
        """Read one node; raises NoNode."""
        ...

    async def find(self, path: str) -> StoredNode | None:
        """Read one node that may not be there."""
        ...

    async def find_many(self, paths: Sequence[str]) -> list[StoredNode | None]:
        """Read many nodes, each of which may not be there; much faster than one by one.

        Nodes that change meanwhile may be seen in different moments, unless the store reads all at once.
        """
        ...

    async def children(self, path: str) -> list[str]:
        """Names (not paths) of a node's children, sorted; raises NoNode."""
        ...

    async def subtree(self, path: str) -> list[StoredNode]:
        """Read everything below `path` (without `path` itself), sorted by path; empty if there is nothing.

        As with `find_many`, different moments may be seen.
        """
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        """Make a node and return its path, which ends in ten digits if `sequential`.

        Raises NodeExists, and NoNode if the parent is missing, unless `parents` asks to make those too.
        """
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data and return its new version; raises NoNode, BadVersion."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Remove a node; raises NoNode, BadVersion, NotEmpty."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> None:
        """Do all operations, in order, or none; raises the error of the first that fails."""
        ...

    def watch(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back after the node came, went, got new data, or a child came or went. The node need not be there."""
        ...
