"""Upkeep of Iceberg tables: what others did to them stays as it is, and what nobody needs any more goes."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table as Loaded
from pyiceberg.typedef import Record

from barnabas.pipelines.tables.errors import ForeignTable, TableError, UnusableTarget
from barnabas.pipelines.tables.files.rewriting import rewrite
from barnabas.pipelines.tables.iceberg import table as iceberg
from barnabas.pipelines.tables.iceberg.metadata import METADATA_LIMITS
from barnabas.pipelines.tables.iceberg.snapshots import drop_snapshots
from barnabas.pipelines.tables.iceberg.table import IcebergTable
from barnabas.pipelines.tables.notes import Note, upkeep_note
from tests.support.tables import NO_TIME, add, numbers

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec


MB = 1 << 20
FILE_PATH = 2147483546
"""The id that Iceberg's specification gives to the column which names a file."""


class Deletes(ManifestWriterV2):
    """A manifest of delete files, which pyiceberg reads and never writes."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def delete_first_row(table: IcebergTable, path: str) -> None:
    """Delete the first row of a file as an engine does that merges on read."""
    loaded = table._load()
    assert loaded is not None
    deletes = f"{loaded.location()}/data/deletes.parquet"
    pq.write_table(pa.table({"file_path": [path], "pos": [0]}), deletes)
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=deletes,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=1,
        spec_id=0,
        lower_bounds={FILE_PATH: path.encode()},
        upper_bounds={FILE_PATH: path.encode()},
    )
    with loaded.transaction() as transaction, transaction.update_snapshot().fast_append() as update:

        def writer(spec: PartitionSpec) -> Deletes:
            return Deletes(spec, update.schema(), update.new_manifest_output(), update.snapshot_id, "deflate")

        update.new_manifest_writer = writer  # type: ignore[method-assign]
        update.append_data_file(file)


def files(table: IcebergTable) -> list[str]:
    loaded = table._load()
    assert loaded is not None
    return sorted(task.file.file_path for task in loaded.scan().plan_files())


def test_deleted_rows_stay_deleted(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        [first] = files(table)
        add(table, 10, 20)
        add(table, 20, 30)
        delete_first_row(table, first)
        assert numbers(table) == list(range(1, 30))
        assert table.compact(MB).merged == 2
        assert first in files(table)
        assert numbers(table) == list(range(1, 30))


def test_rows_that_are_deleted_meanwhile_stay_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        [first] = files(table)
        add(table, 10, 20)
        real = rewrite

        def slow(*given: Any) -> Any:
            delete_first_row(table, first)
            return real(*given)

        monkeypatch.setattr(iceberg, "rewrite", slow)
        with pytest.raises(TableError, match="another job has replaced files"):
            table.compact(MB)
        assert numbers(table) == list(range(1, 20))


def test_a_load_may_commit_just_before_the_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written anew for that, and the note is that of the load."""
    with IcebergTable(str(tmp_path / "numbers")) as table, IcebergTable(str(tmp_path / "numbers")) as load:
        add(table, 0, 10)
        add(table, 10, 20)
        real = upkeep_note

        def overtaken(note: Note) -> Note:
            monkeypatch.setattr(iceberg, "upkeep_note", real)
            add(load, 20, 30, other=1.5)
            return real(note)

        monkeypatch.setattr(iceberg, "upkeep_note", overtaken)
        done = table.compact(MB)
        assert (done.merged, done.into) == (2, 1)
        assert len(list((tmp_path / "numbers" / "data").glob("*.parquet"))) == 4
        assert numbers(table) == list(range(30))
        position = table.position("p")
        assert position is not None
        assert position.version == 3
        add(load, 30, 40)
        assert numbers(table) == list(range(40))


def test_of_two_compactions_one_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        add(table, 10, 20)
        real = rewrite

        def overtaken(*given: Any) -> Any:
            monkeypatch.setattr(iceberg, "rewrite", real)
            table.compact(MB)
            return real(*given)

        monkeypatch.setattr(iceberg, "rewrite", overtaken)
        with pytest.raises(TableError, match="another job has replaced files"):
            table.compact(MB)
        assert numbers(table) == list(range(20))


@pytest.mark.parametrize("tries", [1, 5])
def test_a_compaction_whose_outcome_is_unknown_is_looked_up(
    tmp_path: Path, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.pipelines.tables.table.TRIES", tries)
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        add(table, 10, 20)
        real = Loaded._do_commit

        def deaf(self: Loaded, *given: Any, **named: Any) -> None:
            monkeypatch.setattr(Loaded, "_do_commit", real)
            real(self, *given, **named)
            raise CommitStateUnknownException("nobody answered")

        monkeypatch.setattr(Loaded, "_do_commit", deaf)
        done = table.compact(MB)
        assert (done.merged, done.into) == (2, 1)
        assert numbers(table) == list(range(20))


def metadata(table: IcebergTable) -> dict[str, int]:
    """How many files of each sort the table's metadata is made of."""
    folder = Path(table.location) / "metadata"
    return {
        "versions": len(list(folder.glob("*.metadata.json"))),
        "lists": len(list(folder.glob("snap-*.avro"))),
        "manifests": len([path for path in folder.glob("*.avro") if not path.name.startswith("snap-")]),
    }


def test_the_metadata_of_forgotten_snapshots_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert METADATA_LIMITS["write.metadata.previous-versions-max"] == "20"
    monkeypatch.setitem(METADATA_LIMITS, "write.metadata.previous-versions-max", "3")
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for start in range(0, 60, 10):
            add(table, start, start + 10)
        assert metadata(table) == {"versions": 4, "lists": 6, "manifests": 6}, "old versions go by themselves"
        unfinished = tmp_path / "numbers" / "metadata" / "00005-unfinished.metadata.json"
        unfinished.write_text("{")
        table.compact(MB)
        assert table.expire(NO_TIME) == 6
        assert table.remove_orphans(timedelta(hours=1)) == 0, "these go by age only, too"
        assert table.remove_orphans(NO_TIME) > 15
        # What is left of manifests: one of the file that all rows are in, one that tells which files it replaced.
        assert metadata(table) == {"versions": 4, "lists": 1, "manifests": 2}
        assert numbers(table) == list(range(60))
        add(table, 60, 70)
        assert numbers(table) == list(range(70))


def test_what_somebody_set_for_metadata_is_kept(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        loaded = table._load()
        assert loaded is not None
        name = "write.metadata.previous-versions-max"
        with loaded.transaction() as transaction:
            transaction.set_properties({name: "3"})
        add(table, 10, 20)
        loaded = table._load()
        assert loaded is not None
        assert loaded.properties[name] == "3"


def test_snapshots_with_a_name_are_not_forgotten(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        loaded = table._load()
        assert loaded is not None
        named = loaded.metadata.current_snapshot_id
        assert named is not None
        loaded.manage_snapshots().create_tag(named, "first").commit()
        add(table, 10, 20)
        add(table, 20, 30)
        assert table.expire(NO_TIME) == 1
        table.remove_orphans(NO_TIME)
        loaded = table._load()
        assert loaded is not None
        assert loaded.scan(snapshot_id=named).to_arrow().num_rows == 10


def test_a_table_that_nobody_loaded_is_left_alone(tmp_path: Path) -> None:
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{tmp_path / 'iceberg.db'}", warehouse=str(tmp_path))
    catalog.create_namespace("default")
    data = pa.table({"n": [1]})
    theirs = catalog.create_table("default.numbers", data.schema)
    for _ in range(3):
        theirs.append(data)
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for change in (
            partial(table.compact, MB),
            partial(table.expire, NO_TIME),
            partial(table.remove_orphans, NO_TIME),
        ):
            with pytest.raises(ForeignTable, match="no pipeline has loaded"):
                change()
    assert len(catalog.load_table("default.numbers").snapshots()) == 3
    catalog.close()


def test_where_files_cannot_be_listed_no_snapshot_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
        add(table, 10, 20)
        with monkeypatch.context() as patched:
            patched.setattr(iceberg, "is_remote", lambda _: True)
            with pytest.raises(UnusableTarget, match="use your engine's procedures"):
                table.expire(NO_TIME)
        loaded = table._load()
        assert loaded is not None
        assert len(loaded.snapshots()) == 2


def test_rows_that_another_engine_deleted_do_not_make_a_load_forget_where_it_was(tmp_path: Path) -> None:
    """The snapshot of ours before the other's tells how far the table is, so it is not forgotten."""
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for start in (0, 10, 20):
            add(table, start, start + 10)
        for number in (3, 4):
            loaded = table._load()
            assert loaded is not None
            loaded.delete(f"n == {number}")
        assert table.expire(NO_TIME) == 2
        position = table.position("p")
        assert position is not None
        assert position.offsets == {("t", 0): 30}
        add(table, 30, 40)
        assert numbers(table) == [number for number in range(40) if number not in (3, 4)]


def test_a_snapshot_that_somebody_goes_back_to_meanwhile_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        for start in (0, 10, 20):
            add(table, start, start + 10)
        real = drop_snapshots

        def overtaken(loaded: Loaded, old: Any) -> None:
            monkeypatch.setattr(iceberg, "drop_snapshots", real)
            first = loaded.metadata.snapshots[0].snapshot_id
            loaded.catalog.load_table(loaded.name()).manage_snapshots().rollback_to_snapshot(first).commit()
            real(loaded, old)

        monkeypatch.setattr(iceberg, "drop_snapshots", overtaken)
        assert table.expire(NO_TIME) == 2
        assert numbers(table) == list(range(10))
        position = table.position("p")
        assert position is not None
        assert position.offsets == {("t", 0): 10}
