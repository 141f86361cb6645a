"""Upkeep of tables takes what is nobody's, and leaves all else: what a load just wrote, what older versions need."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.pipelines.tables.delta.table import DeltaLakeTable
from barnabas.pipelines.tables.errors import Overtaken
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from barnabas.pipelines.tables.parquet.manifest import ManifestLog
from barnabas.pipelines.tables.table import CommitConflict, Table
from tests.support.tables import IDS, NO_TIME, SCHEMA, add, numbers, one, rows, written

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("minutes", [30, 90])
def test_files_that_a_load_is_about_to_commit_stay(tmp_path: Path, kind: str, minutes: int) -> None:
    place = tmp_path / "numbers"
    with open_table(str(place), kind) as table:
        add(table, 0, 10)
        fresh = written(table, rows(10, 20))
        path = place / fresh[0].path
        written_at = time.time() - 60 * (minutes - 5)
        os.utime(path, (written_at, written_at))
        assert table.remove_orphans(timedelta(minutes=minutes)) == 0
        table.commit("p", one(10, 20), IDS, fresh, SCHEMA)
        assert numbers(table) == list(range(20))
        assert table.remove_orphans(timedelta(minutes=minutes - 10)) == 0, "it is no orphan any more"
        assert numbers(table) == list(range(20))


def test_versions_of_delta_stay_as_long_as_they_were_asked_to(tmp_path: Path) -> None:
    place = str(tmp_path / "numbers")
    with open_table(place, "delta", partition_by=["kind"]) as table:
        add(table, 0, 10, kind="a/ä 5%")
        add(table, 10, 20, kind="a/ä 5%")
        before = DeltaTable(place).version()
        assert table.compact(1 << 20).merged == 2
        written(table, rows(20, 30, kind="a/ä 5%"))
        assert table.expire(timedelta(days=30)) == 0
        assert table.remove_orphans(NO_TIME) == 1, "that which nobody committed"
        assert DeltaTable(place, version=before).to_pyarrow_table().num_rows == 20
        assert DeltaTable(place).metadata().configuration["delta.deletedFileRetentionDuration"] == "interval 365 days"
        assert table.expire(NO_TIME) == 2
        assert numbers(table) == list(range(20))


def test_the_log_of_plain_parquet_is_listed_once_by_who_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = []
    real = ManifestLog.newest

    def newest(self: ManifestLog) -> object:
        listed.append(self)
        return real(self)

    with open_table(str(tmp_path / "numbers"), "parquet") as table:
        add(table, 0, 10)
        monkeypatch.setattr(ManifestLog, "newest", newest)
        for start in (10, 20, 30):
            add(table, start, start + 10)
            assert table.size().rows == start + 10
        assert not listed
    with open_table(str(tmp_path / "numbers"), "parquet") as table:
        assert table.size().rows == 40
        assert listed


def test_a_column_may_come_while_files_of_delta_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deltalake takes an append beside it, and no other columns."""
    with DeltaLakeTable(str(tmp_path / "numbers")) as table, DeltaLakeTable(str(tmp_path / "numbers")) as load:
        add(table, 0, 10)
        add(table, 10, 20)
        real = table._existing

        def overtaken() -> DeltaTable:
            monkeypatch.setattr(table, "_existing", real)
            found = real()
            add(load, 20, 30, other=1.5)
            return found

        monkeypatch.setattr(table, "_existing", overtaken)
        assert table.compact(1 << 20).merged == 3
        assert numbers(table) == list(range(30))
        position = table.position("p")
        assert position is not None
        assert position.version == 3


@pytest.mark.parametrize(
    ("kind", "method", "change", "told"),
    [
        ("delta", "_compact", "compact", "its files were merged: try again"),
        ("delta", "_renew_note", "expire", "its old versions were to go: try again"),
        ("delta", "_look_once", "last_note", "it was looked at: try again"),
        ("iceberg", "_replace", "compact", "its files were merged: try again"),
        ("iceberg", "_expire", "expire", "its old snapshots were to go: try again"),
    ],
)
def test_upkeep_that_others_always_overtake_is_to_be_tried_again(
    tmp_path: Path, kind: str, method: str, change: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes to the table is a load, most likely, and not to be stopped."""

    def overtaken(*_: object) -> None:
        raise CommitConflict("another one came first")

    with open_table(str(tmp_path / "numbers"), kind) as table:
        add(table, 0, 10)
        add(table, 10, 20)
        monkeypatch.setattr(table, method, overtaken)
        given: dict[str, list[object]] = {"compact": [1 << 20], "expire": [NO_TIME], "last_note": []}
        with pytest.raises(Overtaken, match=f"was changed by other jobs 5 times while {told}"):
            getattr(table, change)(*given[change])


@pytest.mark.parametrize(("kind", "look"), [("delta", "_open"), ("iceberg", "_load")])
@pytest.mark.parametrize("change", ["expire", "evolve", "compact"])
def test_a_load_may_commit_meanwhile(
    tmp_path: Path, kind: str, look: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the table and the change that is made of it, a load commits, and adds a column."""
    with open_table(str(tmp_path / "numbers"), kind) as table, open_table(str(tmp_path / "numbers"), kind) as load:
        add(table, 0, 10)
        add(table, 10, 20)
        real = getattr(type(table), look)

        def overtaken(self: Table) -> object:
            found = real(self)
            monkeypatch.setattr(type(table), look, real)
            add(load, 20, 30, other=1.5)
            return found

        monkeypatch.setattr(type(table), look, overtaken)
        if change == "expire":
            table.expire(NO_TIME)
        elif change == "compact":
            assert table.compact(1 << 20).merged >= 2
        else:
            table.evolve(SCHEMA.append(pa.field("more", pa.string())))
            assert "more" in (table.schema() or SCHEMA).names
        assert numbers(table) == list(range(30))
        position = table.position("p")
        assert position is not None
        assert position.version == 3
