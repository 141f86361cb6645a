"""What is particular to the embedded store: leases, files of sessions, damage."""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.stores.leases import Health, Lease, health
from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import NodeExists, StoreUnavailable

if TYPE_CHECKING:
    from pathlib import Path


def test_leases(tmp_path: Path) -> None:
    path = tmp_path / "lease"
    assert health(path) is Health.DEAD
    lease = Lease(path, timeout=60)
    assert health(path) is Health.ALIVE
    lease.close()
    assert health(path) is Health.DEAD
    path.write_bytes(b"")
    assert health(path) is Health.DEAD


def test_a_lease_goes_on_when_a_write_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full for a moment must not cost the session for good."""
    lease = Lease(tmp_path / "lease", timeout=0.06)
    failed, renewed = threading.Event(), threading.Event()
    write = os.pwrite

    def fail_once(*args: Any) -> int:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        renewed.set()
        return write(*args)

    monkeypatch.setattr(os, "pwrite", fail_once)
    assert failed.wait(30)
    assert renewed.wait(30)
    lease.close()


async def test_the_session_files_of_closed_stores_are_removed(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata.db")
    await store.start()
    assert store.session_id == 0
    await store.create("/e", ephemeral=True)
    assert len(list((tmp_path / "metadata.db.sessions").iterdir())) == 1
    await store.close()
    assert list((tmp_path / "metadata.db.sessions").iterdir()) == []


async def test_names_a_file_that_it_cannot_use(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"this is no database" * 100)
    newer = tmp_path / "newer.db"
    connection = sqlite3.connect(newer)
    connection.execute("PRAGMA user_version = 99")
    connection.close()

    for path, message in (
        (garbage, "garbage.db failed: file is not a database"),
        (newer, "newer.db has format 99"),
        (tmp_path, "failed: unable to open"),
    ):
        store = SqliteStore(path)
        with pytest.raises(StoreUnavailable, match=message):
            await store.start()
        await store.close()


async def test_a_failed_first_ephemeral_node_leaves_no_session(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "metadata.db")
    await store.start()
    await store.create("/a")
    with pytest.raises(NodeExists):
        await store.create("/a", ephemeral=True)
    assert store.session_id == 0
    assert list((tmp_path / "metadata.db.sessions").iterdir()) == []
    await store.create("/b", ephemeral=True)
    assert store.session_id != 0
    await store.close()
