"""A disk that is full is told in one line, and once there is room the table goes on where it was."""

from __future__ import annotations

import errno
import sqlite3
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.exc import OperationalError

from barnabas.pipelines.runner.failures import classify_failure
from barnabas.pipelines.tables.errors import TableUnreachable
from barnabas.pipelines.tables.opening import open_table
from barnabas.pipelines.tables.parquet.table import ParquetTable
from tests.support.tables import add, numbers

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FULL = OSError(errno.ENOSPC, "No space left on device")
OF_DELTA = OSError(
    "Generic LocalFileSystem error\n  \x1b[31m↳\x1b[0m Unable to copy\n    \x1b[31m↳\x1b[0m No space left on device"
)
OF_SQLITE = OperationalError("UPDATE ...", {}, sqlite3.OperationalError("database or disk is full"))
PLACES = [
    ("parquet", ParquetTable, "_write", FULL, "No space left on device"),
    ("delta", DeltaTable, "create_write_transaction", OF_DELTA, "Unable to copy: No space left on device"),
    ("iceberg", SqlCatalog, "commit_table", FULL, "No space left on device"),
    ("iceberg", SqlCatalog, "commit_table", OF_SQLITE, "database or disk is full"),
]


def failing(error: Exception, *_: Any, **__: Any) -> None:
    raise error


@pytest.mark.parametrize(("kind", "owner", "name", "error", "told"), PLACES)
def test_a_full_disk_is_told_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    owner: type,
    name: str,
    error: Exception,
    told: str,
) -> None:
    changes: list[Callable[[], object]] = []
    with open_table(str(tmp_path / "numbers"), kind) as table:
        add(table, 0, 10)
        add(table, 10, 20)
        changes.append(partial(add, table, 20, 30))
        if kind == "iceberg":
            changes.append(partial(table.compact, 1 << 20))
            changes.append(partial(add, table, 20, 30, new=1.5))
        for change in changes:
            with monkeypatch.context() as patched:
                patched.setattr(owner, name, partial(failing, error))
                with pytest.raises(TableUnreachable) as caught:
                    change()
            text = str(caught.value)
            assert told in text and "Start again once that is mended" in text
            assert "\n" not in text and "\x1b" not in text
            assert classify_failure(caught.value).passes, "a pipeline tries again"
        assert numbers(table) == list(range(20))
        add(table, 20, 30)
        assert numbers(table) == list(range(30))
