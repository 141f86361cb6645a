from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.sqlite import SqliteStore
from barnabas.metadata.store import Create

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The store of the broker with its data in `tmp_path / "data"`: one topic, and an ephemeral node."""
    path = tmp_path / "data.metadata"

    async def fill() -> None:
        filled = SqliteStore(path)
        await filled.start()
        await filled.multi(
            [
                Create("/brokers"),
                Create("/brokers/topics"),
                Create("/brokers/topics/orders", b"{}"),
                Create("/brokers/topics/orders/partitions"),
                Create("/controller", b"me", ephemeral=True),
            ]
        )
        await filled.close()

    asyncio.run(fill())
    return path


def test_a_tree_goes_to_a_file_and_into_a_new_store(run: Run, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    exported = run("metadata", "export", file, "--data", tmp_path / "data")
    assert (exported.exit_code, exported.stdout) == (0, "")
    nodes = json.loads(file.read_text())["nodes"]
    assert exported.stderr == f"Exported {len(nodes)} nodes, 1 topics to {file}.\n"
    assert nodes["/brokers/topics/orders"] == "{}"
    assert "/controller" not in nodes

    imported = run("metadata", "import", file, "--store", tmp_path / "new")
    assert imported.stderr == f"Imported {len(nodes)} nodes, 1 topics.\n"
    again = run("metadata", "export", "-", "--store", tmp_path / "new")
    assert json.loads(again.stdout)["nodes"] == nodes


def test_a_store_in_use_is_refused(run: Run, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "tree.json"
    run("metadata", "export", file, "--store", store)
    refused = run("metadata", "import", file, "--store", store)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: the target is in use")


def test_a_store_that_is_not_there_is_not_made_by_an_export(run: Run, tmp_path: Path) -> None:
    missing = run("metadata", "export", "-", "--data", tmp_path / "data")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr.startswith(f"Error: there is no metadata store at {tmp_path / 'data.metadata'}")
    assert list(tmp_path.iterdir()) == []


def test_only_one_place_can_be_named(run: Run, tmp_path: Path) -> None:
    result = run("metadata", "export", "-", "--data", tmp_path, "--zookeeper", "localhost:2181")
    assert result.exit_code == 2
    assert "Give one of --data, --store and --zookeeper." in result.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "is not JSON"), ("[]", "does not hold an exported tree"), ("{}", "no exported tree of version 1")],
)
def test_a_file_that_is_no_tree_is_named(run: Run, tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "tree.json"
    file.write_text(text)
    result = run("metadata", "import", file, "--store", tmp_path / "new")
    assert result.exit_code == 1
    assert complaint in result.stderr
