"""The tree's nodes in SQLite tables: plain functions of one connection, run by the store's thread.

One row per node. `zxid` counts the transactions that changed the tree; nodes take their creation and change ids from
it. `cversion` counts a node's children coming and going: watches compare it, and sequential names are made from it.
Everything below `/a` lies between `/a/` and `/a0`, because "0" follows "/": a subtree is one range of the primary key.

Every write runs inside `transaction`, which takes SQLite's write lock first (BEGIN IMMEDIATE): what a write checks
stays true until it is committed, whichever process it comes from.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import TYPE_CHECKING

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
    Set,
    StoredNode,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Signature = tuple[int, int, int] | None
"""What a watch compares: creation id, version and child version; None if the node is not there."""

_SCHEMA_VERSION = 1

_SCHEMA = (
    """CREATE TABLE node (
        path TEXT PRIMARY KEY, parent TEXT NOT NULL, data BLOB NOT NULL, version INTEGER NOT NULL,
        cversion INTEGER NOT NULL, czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, owner INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX node_parent ON node (parent)",
    "CREATE INDEX node_owner ON node (owner) WHERE owner != 0",
    "CREATE TABLE session (id INTEGER PRIMARY KEY)",
    "CREATE TABLE tree (zxid INTEGER NOT NULL)",
    "INSERT INTO tree VALUES (0)",
    "INSERT INTO node VALUES ('/', '', x'', 0, 0, 0, 0, 0)",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)

_NODE = "SELECT path, data, version, czxid, mzxid, owner FROM node"


def connect(path: Path, busy_timeout: float) -> sqlite3.Connection:
    """Open the file, and make its tables if it is new.

    A new one is for its owner only: the cluster's secret is in it. What it becomes later is for the owner to say.
    """
    with contextlib.suppress(OSError):  # it is there, or SQLite says what is wrong
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))  # the others beside it are made like it
    connection = sqlite3.connect(path, timeout=busy_timeout, isolation_level=None)
    try:
        _prepare(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise StoreUnavailable(
            f"the metadata store {path} cannot use a write-ahead log there; put it on a local file system"
        )
    connection.execute("PRAGMA synchronous = FULL")
    if _schema_version(connection) == 0:
        with transaction(connection):
            if _schema_version(connection) == 0:
                for statement in _SCHEMA:
                    connection.execute(statement)
    if (found := _schema_version(connection)) != _SCHEMA_VERSION:
        raise StoreUnavailable(
            f"the metadata store {path} has format {found}, and this version of Barnabas reads {_SCHEMA_VERSION}: "
            "start the version that wrote it"
        )


def _schema_version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing, and nobody else writes meanwhile."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def data_version(connection: sqlite3.Connection) -> int:
    """A number that differs from its last value if another connection has written since."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


def find(connection: sqlite3.Connection, path: str) -> StoredNode | None:
    """One node, if it is there."""
    row = connection.execute(f"{_NODE} WHERE path = ?", (path,)).fetchone()
    return None if row is None else StoredNode._make(row)


def find_many(connection: sqlite3.Connection, paths: Sequence[str]) -> list[StoredNode | None]:
    """Many nodes, as they were together."""
    connection.execute("BEGIN")
    try:
        return [find(connection, path) for path in paths]
    finally:
        connection.execute("COMMIT")


def get(connection: sqlite3.Connection, path: str) -> StoredNode:
    """One node; raises NoNode."""
    node = find(connection, path)
    if node is None:
        raise NoNode(path)
    return node


def children(connection: sqlite3.Connection, path: str) -> list[str]:
    """Names of a node's children, sorted."""
    get(connection, path)
    skip = 1 if path == "/" else len(path) + 1
    rows = connection.execute("SELECT path FROM node WHERE parent = ? ORDER BY path", (path,))
    return [child[skip:] for (child,) in rows]


def subtree(connection: sqlite3.Connection, path: str) -> list[StoredNode]:
    """Everything below a node, sorted by path."""
    below = path.rstrip("/")
    rows = connection.execute(f"{_NODE} WHERE path > ? AND path < ? ORDER BY path", (f"{below}/", f"{below}0"))
    return list(map(StoredNode._make, rows))


def signature(connection: sqlite3.Connection, path: str) -> Signature:
    """What changes when the node or its list of children does."""
    row: Signature = connection.execute("SELECT czxid, version, cversion FROM node WHERE path = ?", (path,)).fetchone()
    return row


def next_zxid(connection: sqlite3.Connection) -> int:
    """Count a transaction that changes the tree."""
    zxid: int = connection.execute("UPDATE tree SET zxid = zxid + 1 RETURNING zxid").fetchone()[0]
    return zxid


def create(connection: sqlite3.Connection, path: str, data: bytes, owner: int, zxid: int) -> None:
    """Make a node below an existing parent."""
    parent = path.rpartition("/")[0] or "/"
    row = connection.execute("SELECT owner FROM node WHERE path = ?", (parent,)).fetchone()
    if row is None:
        raise NoNode(parent)
    if row[0]:
        raise NoChildrenForEphemerals(parent)
    try:
        connection.execute("INSERT INTO node VALUES (?, ?, ?, 0, 0, ?, ?, ?)", (path, parent, data, zxid, zxid, owner))
    except sqlite3.IntegrityError:
        raise NodeExists(path) from None
    connection.execute("UPDATE node SET cversion = cversion + 1 WHERE path = ?", (parent,))


def next_sequence(connection: sqlite3.Connection, path: str) -> int:
    """The number for the next sequential child beside `path`."""
    parent = path.rpartition("/")[0] or "/"
    row = connection.execute("SELECT cversion FROM node WHERE path = ?", (parent,)).fetchone()
    if row is None:
        raise NoNode(parent)
    number: int = row[0]
    return number


def create_parents(connection: sqlite3.Connection, path: str, zxid: int) -> None:
    """Make what is missing above `path`."""
    at = path.find("/", 1)
    while at > 0:
        with contextlib.suppress(NodeExists):
            create(connection, path[:at], b"", 0, zxid)
        at = path.find("/", at + 1)


def replace(connection: sqlite3.Connection, path: str, data: bytes, version: int, zxid: int) -> int:
    """Give a node new data; returns its new version."""
    _check(connection, path, version)
    new: int = connection.execute(
        "UPDATE node SET data = ?, version = version + 1, mzxid = ? WHERE path = ? RETURNING version",
        (data, zxid, path),
    ).fetchone()[0]
    return new


def delete(connection: sqlite3.Connection, path: str, version: int) -> None:
    """Remove a node without children."""
    _check(connection, path, version)
    if connection.execute("SELECT 1 FROM node WHERE parent = ? LIMIT 1", (path,)).fetchone():
        raise NotEmpty(path)
    connection.execute("DELETE FROM node WHERE path = ?", (path,))
    parent = path.rpartition("/")[0] or "/"
    connection.execute("UPDATE node SET cversion = cversion + 1 WHERE path = ?", (parent,))


def _check(connection: sqlite3.Connection, path: str, version: int) -> None:
    row = connection.execute("SELECT version FROM node WHERE path = ?", (path,)).fetchone()
    if row is None:
        raise NoNode(path)
    if version not in (ANY_VERSION, row[0]):
        raise BadVersion(path)


def multi(connection: sqlite3.Connection, operations: Sequence[Operation], owner: int) -> None:
    """Do operations in order; `owner` is given to ephemeral nodes."""
    zxid = next_zxid(connection)
    for operation in operations:
        match operation:
            case Check(path, version):
                _check(connection, path, version)
            case Create(path, data, ephemeral):
                create(connection, path, data, owner if ephemeral else 0, zxid)
            case Set(path, data, version):
                replace(connection, path, data, version, zxid)
            case Delete(path, version):
                delete(connection, path, version)


def sessions(connection: sqlite3.Connection) -> list[int]:
    """Ids of all sessions that were begun and not ended."""
    return [row[0] for row in connection.execute("SELECT id FROM session")]


def has_session(connection: sqlite3.Connection, session: int) -> bool:
    """Whether a session has not been ended, by itself or by others."""
    return connection.execute("SELECT 1 FROM session WHERE id = ?", (session,)).fetchone() is not None


def begin_session(connection: sqlite3.Connection) -> int:
    """Count a new session; ids are never used again."""
    session = next_zxid(connection)
    connection.execute("INSERT INTO session VALUES (?)", (session,))
    return session


def end_session(connection: sqlite3.Connection, session: int) -> None:
    """Remove a session and its ephemeral nodes."""
    next_zxid(connection)
    for (path,) in connection.execute("SELECT path FROM node WHERE owner = ?", (session,)).fetchall():
        delete(connection, path, ANY_VERSION)
    connection.execute("DELETE FROM session WHERE id = ?", (session,))
