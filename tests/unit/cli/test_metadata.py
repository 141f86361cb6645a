from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from barnabas.metadata.stores.sqlite import SqliteStore
from barnabas.metadata.stores.store import Create

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
    assert f"To replace the store, move it away: {store}, {store}.sessions" in refused.stderr


def test_a_store_that_is_not_there_is_not_made_by_an_export(run: Run, tmp_path: Path) -> None:
    missing = run("metadata", "export", "-", "--data", tmp_path / "data")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr.startswith(f"Error: There is no metadata store at {tmp_path / 'data.metadata'}")
    assert list(tmp_path.iterdir()) == []


def test_only_one_place_can_be_named(run: Run, tmp_path: Path) -> None:
    result = run("metadata", "export", "-", "--data", tmp_path, "--zookeeper", "localhost:2181")
    assert result.exit_code == 2
    assert "Give one of --data, --store and --zookeeper." in result.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "does not hold an exported tree"),
        ("{}", "not an exported metadata tree of version 1"),
    ],
)
def test_a_file_that_is_no_tree_is_named(run: Run, tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "tree.json"
    file.write_text(text)
    result = run("metadata", "import", file, "--store", tmp_path / "new")
    assert result.exit_code == 1
    assert complaint in result.stderr


@pytest.mark.parametrize(
    ("partition", "unknown"), [("orders-0", False), ("orders-1", True), ("later-0", True), ("later-0.0f-delete", False)]
)
def test_a_tree_that_is_older_than_the_data_is_told_of(
    run: Run, store: Path, tmp_path: Path, partition: str, unknown: bool
) -> None:
    data, file = tmp_path / "data", tmp_path / "tree.json"
    run("metadata", "export", file, "--store", store)
    tree = json.loads(file.read_text())
    tree["nodes"]["/brokers/topics/orders"] = '{"topic_id": "om2_OlAOSjy1zpOO6eubKA"}'
    file.write_text(json.dumps(tree))
    (data / partition).mkdir(parents=True)
    topic_id = "another" if partition == "orders-1" else "om2_OlAOSjy1zpOO6eubKA"
    (data / partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    store.rename(tmp_path / "old")
    imported = run("metadata", "import", file, "--data", data)
    assert imported.exit_code == unknown
    if unknown:
        assert imported.stderr.startswith(
            f"Error: {file} does not know {partition[:-2]}, of which there are partitions"
        )
        assert run("metadata", "import", file, "--store", store).exit_code == 0
    exported = run("metadata", "export", "-", "--data", data)
    assert exported.exit_code == unknown
    if unknown:
        assert f"does not know {partition[:-2]}, of which" in exported.stderr
        assert run("metadata", "export", "-", "--store", store).exit_code == 0
