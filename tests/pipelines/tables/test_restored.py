"""A table that somebody restored to an older version has the offsets of that version, too."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from barnabas.pipelines.tables.delta.table import DeltaLakeTable
from barnabas.pipelines.tables.errors import Fenced, TableError, UnusableTarget
from barnabas.pipelines.tables.iceberg.metadata import NOTE_SNAPSHOT
from barnabas.pipelines.tables.iceberg.table import IcebergTable
from barnabas.pipelines.tables.opening import open_table
from tests.support.tables import IDS, NO_TIME, SCHEMA, add, numbers, one, rows, written

if TYPE_CHECKING:
    from barnabas.pipelines.tables.table import Table

VERSIONED = ("delta", "iceberg")
MB = 1 << 20


def filled(place: Path, format: str) -> Table:
    """A table of the numbers up to 30, by commits of ten."""
    table = open_table(str(place), format)
    for start in (0, 10, 20):
        add(table, start, start + 10)
    return table


def restore(table: Table, commit: int) -> None:
    """Put a table back to one of its first versions, as another engine would do it."""
    if isinstance(table, IcebergTable):
        loaded = table._load()
        assert loaded is not None
        loaded.manage_snapshots().set_current_snapshot(loaded.snapshots()[commit].snapshot_id).commit()
    else:
        DeltaTable(table.location).restore(commit)


def offset(table: Table) -> int:
    position = table.position("p")
    assert position is not None
    [found] = position.offsets.values()
    return found


@pytest.mark.parametrize("format", VERSIONED)
def test_a_load_goes_on_from_the_version_that_was_restored(tmp_path: Path, format: str) -> None:
    with filled(tmp_path / "t", format) as table:
        restore(table, 0)
        assert (offset(table), numbers(table)) == (10, list(range(10)))
        with pytest.raises(Fenced, match=r"is at offset 10 of t-0.* or the table was restored"):
            add(table, 30, 40)
        add(table, 10, 40)
        assert (offset(table), numbers(table)) == (40, list(range(40)))
        restore(table, 1)
        assert offset(table) == 20
        restore(table, 2)
        assert offset(table) == 30
        add(table, 30, 35)
        assert (offset(table), numbers(table)) == (35, list(range(35)))


@pytest.mark.parametrize("format", VERSIONED)
def test_numbers_of_commits_are_not_used_twice(tmp_path: Path, format: str) -> None:
    with filled(tmp_path / "t", format) as table:
        restore(table, 0)
        batch = rows(10, 20)
        table.commit("p", one(10, 20), IDS, written(table, batch), SCHEMA, after=3)
        position = table.position("p")
        assert position is not None
        assert position.version == 4


@pytest.mark.parametrize("format", VERSIONED)
def test_upkeep_of_a_restored_table_keeps_its_position(tmp_path: Path, format: str) -> None:
    with filled(tmp_path / "t", format) as table:
        restore(table, 1)
        assert table.compact(MB).merged == 2
        assert offset(table) == 20
        table.expire(NO_TIME)
        assert offset(table) == 20
        add(table, 20, 30)
        assert numbers(table) == list(range(30))


def test_delta_a_moment_is_found_by_the_files_of_its_version(tmp_path: Path) -> None:
    with filled(tmp_path / "t", "delta") as table:
        version = DeltaTable(table.location).history()[1]["version"]
        written = (Path(table.location) / "_delta_log" / f"{version:020}.json").stat().st_mtime
        DeltaTable(table.location).restore(datetime.fromtimestamp(written, UTC))
        assert (offset(table), numbers(table)) == (20, list(range(20)))


def test_delta_a_moment_that_may_be_of_two_versions_is_refused(tmp_path: Path) -> None:
    """As two versions with the same rows, after records that made none."""
    with filled(tmp_path / "t", "delta") as table:
        table.commit("p", one(30, 40), IDS, [], SCHEMA)
        moment = DeltaTable(table.location).history()[0]["timestamp"]
        add(table, 40, 50)
        DeltaTable(table.location).restore(datetime.fromtimestamp(moment / 1000, UTC))
        with pytest.raises(
            TableError, match=r"restored by its version 5, and its log does not say.*number of a version"
        ):
            table.position("p")
        DeltaTable(table.location).restore(3)
        assert offset(table) == 40


def test_iceberg_commits_of_others_change_no_position(tmp_path: Path) -> None:
    with filled(tmp_path / "t", "iceberg") as table:
        assert isinstance(table, IcebergTable)
        table._existing().delete("n == 5")
        assert offset(table) == 30
        restore(table, 1)
        table._existing().delete("n == 6")
        assert offset(table) == 20
        add(table, 20, 30)
        assert numbers(table) == [n for n in range(30) if n != 6]


def test_iceberg_what_was_expired_by_others_may_hide_a_rollback(tmp_path: Path) -> None:
    with filled(tmp_path / "t", "iceberg") as table:
        assert isinstance(table, IcebergTable)
        for number in (5, 6):
            table._existing().delete(f"n == {number}")
        loaded = table._existing()
        old = [each.snapshot_id for each in loaded.snapshots()[:-1]]
        loaded.maintenance.expire_snapshots().by_ids(old).commit()
        with pytest.raises(
            TableError, match=f"If it has all that was ever loaded, set the table property {NOTE_SNAPSHOT} to"
        ):
            table.position("p")
        with table._existing().transaction() as transaction:
            transaction.set_properties({NOTE_SNAPSHOT: str(loaded.metadata.current_snapshot_id)})
        assert offset(table) == 30
        add(table, 30, 40)
        assert offset(table) == 40


def test_delta_a_table_with_column_mapping_is_not_written_to(tmp_path: Path) -> None:
    with DeltaLakeTable(str(tmp_path / "t")) as table:
        add(table, 0, 10)
        log = tmp_path / "t" / "_delta_log"
        first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
        [metadata] = [each["metaData"] for each in first if "metaData" in each]
        schema = json.loads(metadata["schemaString"])
        for number, field in enumerate(schema["fields"], 1):
            name = f"col-{number}"
            field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": name}
        metadata["schemaString"] = json.dumps(schema)
        metadata["configuration"]["delta.columnMapping.mode"] = "name"
        changes = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}]
        (log / f"{1:020}.json").write_text("\n".join(map(json.dumps, changes)))
        batch = rows(10, 20)
        for change in (
            lambda: table.evolve(pa.schema([("new", pa.int64())])),
            lambda: table.commit("p", one(10, 20), IDS, written(table, batch), batch.schema),
            lambda: table.compact(MB),
        ):
            with pytest.raises(UnusableTarget, match=r"delta\.columnMapping\.mode = name"):
                change()
