"""The conformance suite over SQLite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.stores import sqlite_tree
from barnabas.metadata.stores.sqlite import SqliteStore
from tests.support.store_conformance import StoreConformance

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.metadata.stores.store import MetadataStore


class SqliteTree:
    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self) -> SqliteStore:
        return SqliteStore(self.path)

    async def expire(self, store: MetadataStore) -> None:
        connection = sqlite_tree.connect(self.path, 5.0)
        with sqlite_tree.transaction(connection):
            sqlite_tree.end_session(connection, store.session_id)
        connection.close()


@pytest.fixture
def tree(tmp_path: Path) -> SqliteTree:
    return SqliteTree(tmp_path / "metadata.db")


class TestSqlite(StoreConformance):
    pass
