"""What a commit of an Iceberg table costs does not grow by all that ever was, as far as that is in our hands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.snapshots import Snapshot

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.iceberg import table as iceberg
from barnabas.pipelines.tables.iceberg.snapshots import droppable_snapshots
from barnabas.pipelines.tables.iceberg.table import IcebergTable
from barnabas.pipelines.tables.opening import open_table
from tests.support.tables import NO_TIME, add, numbers, one, rows, written

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table as Loaded

COMMITS = 20


def loaded(table: IcebergTable) -> Loaded:
    found = table._load()
    assert found is not None
    return found


def test_a_commit_copies_the_history_once_and_reads_it_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the catalog, which has to have it all; a transaction copies what it begins with some fifteen times."""
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for start in range(COMMITS):
            add(table, start, start + 1)
        batch = rows(COMMITS, COMMITS + 1)
        files = written(table, batch)
        copied: list[Snapshot] = []
        read: list[Any] = []
        copy, load = Snapshot.__deepcopy__, SqlCatalog.load_table

        def counted_copy(self: Snapshot, memo: Any = None) -> Snapshot:
            copied.append(self)
            return copy(self, memo)

        def counted_load(self: SqlCatalog, name: Any) -> Loaded:
            read.append(name)
            return load(self, name)

        monkeypatch.setattr(Snapshot, "__deepcopy__", counted_copy)
        monkeypatch.setattr(SqlCatalog, "load_table", counted_load)
        table.commit("p", one(COMMITS, COMMITS + 1), {"t": "topic-one"}, files, batch.schema)
        assert len(copied) < 3 * COMMITS
        assert len(read) == 2
        monkeypatch.undo()
        assert numbers(table) == list(range(COMMITS + 1))
        assert len(loaded(table).snapshots()) == COMMITS + 1


def test_all_snapshots_are_kept_unless_it_is_said(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for start in range(COMMITS):
            add(table, start, start + 1)
        assert len(loaded(table).snapshots()) == COMMITS


@pytest.mark.parametrize("kept", [2, 3])
def test_a_load_can_keep_so_many_snapshots_and_no_more(tmp_path: Path, kept: int) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for start in range(10):
            add(table, start, start + 1)
    with IcebergTable(str(tmp_path / "numbers"), keep_snapshots=kept) as table:
        for start in range(10, COMMITS):
            add(table, start, start + 1)
            assert len(loaded(table).snapshots()) == kept
            assert len(loaded(table).metadata.snapshot_log) <= kept
        position = table.position("p")
        assert position is not None
        assert (position.version, position.offsets) == (COMMITS, {("t", 0): COMMITS})
        assert numbers(table) == list(range(COMMITS))
        assert table.expire(NO_TIME) == kept - 1
        table.remove_orphans(NO_TIME)
        assert numbers(table) == list(range(COMMITS))


def test_snapshots_with_a_name_are_kept_beside(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "numbers"), keep_snapshots=2) as table:
        add(table, 0, 1)
        first = loaded(table).metadata.current_snapshot_id
        assert first is not None
        loaded(table).manage_snapshots().create_tag(first, "first").commit()
        for start in range(1, 6):
            add(table, start, start + 1)
        assert first in [each.snapshot_id for each in loaded(table).snapshots()]
        assert loaded(table).scan(snapshot_id=first).to_arrow().num_rows == 1


def test_what_others_forget_at_the_same_moment_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with IcebergTable(str(tmp_path / "numbers"), keep_snapshots=3) as table:
        for start in range(4):
            add(table, start, start + 1)
        real = droppable_snapshots

        def overtaken(found: Loaded) -> Any:
            monkeypatch.setattr(iceberg, "droppable_snapshots", real)
            old = real(found)
            with IcebergTable(str(tmp_path / "numbers")) as other:
                assert other.expire(NO_TIME) == 2
            return old

        monkeypatch.setattr(iceberg, "droppable_snapshots", overtaken)
        add(table, 4, 5)
        assert numbers(table) == list(range(5))
        assert len(loaded(table).snapshots()) == 2


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_other_formats_have_no_snapshots_to_keep(tmp_path: Path, kind: str) -> None:
    with pytest.raises(UnusableTarget, match=f"only an Iceberg table has .* this table is {kind}") as caught:
        open_table(str(tmp_path / "numbers"), kind, keep_snapshots=3)
    assert caught.value.remedy == Remedy(RemedyKind.EXPIRE_VERSIONS)


def test_the_snapshot_before_the_last_is_always_kept(tmp_path: Path) -> None:
    with pytest.raises(UnusableTarget, match="1 is too few"):
        open_table(str(tmp_path / "numbers"), "iceberg", keep_snapshots=1)
