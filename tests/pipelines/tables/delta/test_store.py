"""Files of a Delta table at an address: a folder stands for it, opened by deltalake's store as an address would be."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from barnabas.pipelines.tables.contract import DataFile
from barnabas.pipelines.tables.delta.store import delta_store
from barnabas.pipelines.tables.delta.table import DeltaLakeTable
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.files import destinations
from barnabas.pipelines.tables.files.writing import read_footer, write_files
from tests.support.tables import IDS, add, content, numbers, one, rows

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["a/b", "50%", "x y", "ä:,+", "%2F", "#?&"])
def test_files_lie_where_the_log_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    place = tmp_path / "lake"
    place.mkdir()
    table = DeltaLakeTable(str(place), ["kind"])
    add(table, 0, 1, kind="first")
    with monkeypatch.context() as patched:
        patched.setattr(destinations, "is_remote", lambda _: True)
        destination = pickle.loads(pickle.dumps(replace(table.destination(), root=place.as_uri())))
        batch = rows(1, 10, kind=kind)
        [file] = write_files([batch], destination)
        bare = DataFile(file.path, file.rows, file.size, file.partition)
        assert read_footer(destination, bare).num_rows == 9
        assert destination.has(file.path)
        assert not destination.has(f"{file.path}x")
    table.commit("p", one(1, 10), IDS, [bare], batch.schema)
    assert numbers(table) == list(range(10))
    assert content("delta", table.location).column("kind").to_pylist().count(kind) == 9


def test_files_are_written_by_the_options_of_the_log(tmp_path: Path) -> None:
    options = {"timeout": "30s", "AWS_SECRET_ACCESS_KEY": "very secret"}
    destination = DeltaLakeTable(str(tmp_path / "lake"), options=options).destination()
    assert destination.storage_options == options
    assert "very secret" not in repr(destination)


def test_an_address_that_nobody_knows_is_told() -> None:
    with pytest.raises(UnusableTarget, match="there are no files at nowhere://lake/orders"):
        delta_store("nowhere://lake/orders", None)
