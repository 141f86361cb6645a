"""An Iceberg table in a folder whose catalog, the file beside it, was lost: it goes on, or says why not."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from barnabas.pipelines.tables.errors import ForeignTable, UnusableTarget
from barnabas.pipelines.tables.iceberg.metadata import METADATA_LIMITS
from barnabas.pipelines.tables.iceberg.table import IcebergTable
from tests.support.tables import IDS, NO_TIME, SCHEMA, add, numbers, one, rows, written

if TYPE_CHECKING:
    from pathlib import Path


def lose_catalog(lake: Path) -> None:
    (lake / "iceberg.db").unlink()


def test_it_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first of its metadata are long gone."""
    monkeypatch.setitem(METADATA_LIMITS, "write.metadata.previous-versions-max", "3")
    place = str(tmp_path / "numbers")
    with IcebergTable(place, ["kind"]) as table:
        for start in range(0, 60, 10):
            add(table, start, start + 10, kind="a")
        before = table.position("p")
    lose_catalog(tmp_path)
    with IcebergTable(place) as table:
        assert table.partition_by == ("kind",)
        assert table.position("p") == before
        assert before is not None and before.version == 6
        add(table, 60, 70, kind="a")
        assert numbers(table) == list(range(70))


def test_a_commit_that_the_catalog_was_never_told_of_counts_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the first one, which leaves the catalog as it was, without the table."""
    write = SqlCatalog._write_metadata

    def write_and_crash(**given: Any) -> None:
        write(**given)
        raise KeyboardInterrupt

    place = str(tmp_path / "numbers")
    for start in (0, 10):
        with IcebergTable(place) as table, monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "_write_metadata", staticmethod(write_and_crash))
            with pytest.raises(KeyboardInterrupt):
                add(table, start, start + 10)
        if start:
            lose_catalog(tmp_path)
        with IcebergTable(place) as table:
            position = table.position("p")
            assert position is not None
            assert list(position.offsets.values()) == [start + 10]
            assert numbers(table) == list(range(start + 10))
    (tmp_path / "numbers" / "metadata" / "00007-half.metadata.json").write_text("{")
    lose_catalog(tmp_path)
    with IcebergTable(place) as table:
        add(table, 20, 30)
        assert numbers(table) == list(range(30))


def test_which_metadata_is_the_last_is_not_guessed(tmp_path: Path) -> None:
    place = tmp_path / "numbers"
    with IcebergTable(str(place)) as table:
        add(table, 0, 10)
        add(table, 10, 20)
    lose_catalog(tmp_path)
    [last] = (place / "metadata").glob("00001-*.metadata.json")
    twin = last.with_name("00001-01234567-89ab-cdef-0123-456789abcdef.metadata.json")
    shutil.copy(last, twin)
    with pytest.raises(UnusableTarget, match=rf"{twin.name}.* could be its last metadata.*register_table"):
        IcebergTable(str(place))
    twin.unlink()
    with IcebergTable(str(place)) as table:
        assert numbers(table) == list(range(20))


def test_of_two_tables_each_has_a_last_metadata(tmp_path: Path) -> None:
    """Another one was made in the same folder when the catalog was lost."""
    lasts: list[Path] = []
    for lake, commits in (("lake", 3), ("other", 1)):
        with IcebergTable(str(tmp_path / lake / "numbers")) as table:
            for number in range(commits):
                add(table, 10 * number, 10 * number + 10)
        lasts += (tmp_path / lake / "numbers" / "metadata").glob(f"{commits - 1:05}-*.metadata.json")
    shutil.copy(lasts[1], lasts[0].parent)
    lose_catalog(tmp_path / "lake")
    names = ", ".join(sorted(path.name for path in lasts))
    with pytest.raises(UnusableTarget, match=rf"and {names} could be its last metadata"):
        IcebergTable(str(tmp_path / "lake" / "numbers"))


def test_a_table_that_is_found_by_another_way_keeps_what_it_needs(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "lake" / "numbers")) as table:
        add(table, 0, 10)
    lose_catalog(tmp_path / "lake")
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    for way, last in (("link", 20), ("lake", 30)):
        with IcebergTable(str(tmp_path / way / "numbers")) as table:
            assert table.remove_orphans(NO_TIME) == 0
            add(table, last - 10, last)
            assert table.remove_orphans(NO_TIME) == 0
            assert numbers(table) == list(range(last))


def test_files_that_a_table_names_by_another_way_are_its_own(tmp_path: Path) -> None:
    """Letters may be written before the table that they are promised to is made, by another way to the same folder."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    with IcebergTable(str(tmp_path / "link" / "numbers")) as table:
        files = written(table, rows(0, 10))
    with IcebergTable(str(tmp_path / "lake" / "numbers")) as table:
        table.commit("p", one(0, 10), IDS, files, SCHEMA)
        assert table.remove_orphans(NO_TIME) == 0
        assert numbers(table) == list(range(10))


def test_a_folder_that_was_moved_is_told(tmp_path: Path) -> None:
    with IcebergTable(str(tmp_path / "numbers")) as table:
        add(table, 0, 10)
    (tmp_path / "numbers").rename(tmp_path / "moved")
    with pytest.raises(UnusableTarget, match=r"was at .*/numbers, and its metadata names files there"):
        IcebergTable(str(tmp_path / "moved"))


def test_metadata_of_others_is_no_table_of_ours(tmp_path: Path) -> None:
    theirs = tmp_path / "numbers" / "metadata" / "v1.metadata.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    with IcebergTable(str(tmp_path / "numbers")) as table, pytest.raises(ForeignTable, match="no pipeline has loaded"):
        table.claim()


def test_a_catalog_of_somebody_else_is_not_told_of_tables(tmp_path: Path) -> None:
    def opened() -> IcebergTable:
        uri = f"sqlite:///{tmp_path / 'catalog.db'}"
        options = {"type": "sql", "uri": uri, "warehouse": str(tmp_path / "warehouse")}
        return IcebergTable("shop.numbers", (), "main", options)

    with opened() as table:
        add(table, 0, 10)
        add(table, 10, 20)
    (tmp_path / "catalog.db").unlink()
    with (
        opened() as table,
        pytest.raises(UnusableTarget, match=r"no shop\.numbers, but its files are at .*register_table"),
    ):
        table.claim()


def test_options_that_would_set_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableTarget, match="warehouse has no effect"):
        IcebergTable(str(tmp_path / "numbers"), (), "default", {"warehouse": str(tmp_path / "elsewhere")})
    assert not (tmp_path / "iceberg.db").exists()
