"""`barnabas pipeline` as a user has it: the example of `init` runs as it is, and a signal ends it between batches."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from barnabas.testing.broker import Broker
from tests.support.processes import Process
from tests.support.spark import SETTINGS, texts
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(400)  # on a busy machine Spark takes its time to start

BARNABAS = [sys.executable, "-m", "barnabas.cli.main"]


def barnabas(folder: Path, *words: str, given: str = "") -> str:
    done = subprocess.run([*BARNABAS, *words], cwd=folder, input=given, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def server() -> Iterator[tuple[str, str]]:
    """A broker of this test's own: the example's names are fixed."""
    with Broker() as broker:
        yield "--bootstrap-server", broker.bootstrap_servers


def test_the_example_runs_as_it_is_until_it_is_stopped(server: tuple[str, str], tmp_path: Path) -> None:
    barnabas(tmp_path, "pipeline", "init")
    barnabas(tmp_path, "topics", "--create", "--topic", "orders", *server)
    barnabas(tmp_path, "produce", "--topic", "orders", *server, given=(tmp_path / "orders.jsonl").read_text())
    settings = [f"--conf={name}={value}" for name, value in texts(SETTINGS).items()]
    file = str(tmp_path / "pipeline.toml")
    command = [*BARNABAS, "pipeline", "run", file, "--every", "200ms", "--master", "local[2,3]", *server, *settings]
    with Process("pipeline", command, tmp_path / "run.log") as process:
        tables = {name: tmp_path / "tables" / name for name in ("orders", "revenue", "bad_orders")}
        wait_until(
            lambda: not process.alive or all(map(DeltaTable.is_deltatable, map(str, tables.values()))), "tables", 240
        )
        process.wait_for_output(r"batch query=orders\.revenue batch=1 ", 120)
        wait_until(lambda: all(each["lag"] == 0 for each in status(tmp_path, file, *server)), "all to be read", 60)
        process.send(signal.SIGINT)
        assert process.wait(90) == 0
        assert "SIGINT received: queries stop after their current batch" in process.output()

    found = {name: DeltaTable(str(table)).to_pyarrow_table().to_pylist() for name, table in tables.items()}
    assert sorted(row["id"] for row in found["orders"]) == list(range(1, 9))
    assert [bytes(row["value"]) for row in found["bad_orders"]] == [b"this is no order"]
    assert {(row["hour"].hour, row["country"]): (row["orders"], row["revenue"]) for row in found["revenue"]} == {
        (8, "PT"): (2, 25.0),
        (8, "NL"): (2, 153.25),
        (9, "IN"): (1, 8.0),
        (9, "BR"): (1, 250.0),
        (9, None): (1, 61.0),
    }
    [revenue] = [each for each in status(tmp_path, file, *server) if each["query"] == "orders.revenue"]
    assert revenue["last"]["state_rows"] == 1, "the hour that is still open"


def status(folder: Path, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(barnabas(folder, "pipeline", "status", "--json", *words))
    return found
