"""A process that is killed at each step of a Parquet commit leaves a folder that is exact once a job has claimed it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pytest

from barnabas.pipelines.tables.contract import CommitOutcome
from barnabas.pipelines.tables.opening import open_table
from tests.support.tables import IDS, SCHEMA, add, numbers, one, rows, written

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = """
import os, signal, sys
from pathlib import Path
from barnabas.pipelines.tables.parquet.table import ParquetTable
from tests.support.tables import IDS, SCHEMA, one, rows, written

place, step = sys.argv[1:]
calls = 0

def dying(real, at, before):
    def call(*given, **named):
        global calls
        calls += 1
        if before and calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*given, **named)
        if not before and calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return call

table = ParquetTable(place)
table.claim()
files = written(table, rows(10, 20)) + written(table, rows(20, 30))
match step:
    case "before the manifest":
        os.link = dying(os.link, 1, True)
    case "after the manifest":
        os.link = dying(os.link, 1, False)
    case "between the renames":
        Path.rename = dying(Path.rename, 2, True)
    case "after the renames":
        Path.rename = dying(Path.rename, 2, False)
table.commit("p", one(10, 30), IDS, files, SCHEMA)
raise SystemExit("it was to be killed")
"""


@pytest.mark.parametrize(
    ("step", "committed", "visible"),
    [
        ("before the manifest", False, 10),
        ("after the manifest", True, 10),
        ("between the renames", True, 20),
        ("after the renames", True, 30),
    ],
)
def test_a_kill_at_each_step(tmp_path: Path, step: str, committed: bool, visible: int) -> None:
    place = str(tmp_path / "table")
    with open_table(place, "parquet") as table:
        add(table, 0, 10)
    killed = subprocess.run([sys.executable, "-c", COMMIT, place, step], capture_output=True, text=True, timeout=60)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert ds.dataset(place, format="parquet").count_rows() == visible
    with open_table(place, "parquet") as table:
        table.claim()
        assert numbers(table) == list(range(30 if committed else 10))
        again = table.commit("p", one(10, 30), IDS, written(table, rows(10, 30)), SCHEMA)
        assert again is (CommitOutcome.ALREADY if committed else CommitOutcome.COMMITTED)
        assert numbers(table) == list(range(30))
        add(table, 30, 40)
        assert numbers(table) == list(range(40))
