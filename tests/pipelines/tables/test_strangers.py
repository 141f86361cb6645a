"""A load keeps away from places where somebody else has put something."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.pipelines.tables.detection import agreed_format, format_at
from barnabas.pipelines.tables.errors import ForeignTable, UnusableTarget
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.tables import add, numbers, rows, written

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(
    "name", ["mine.parquet", "day=2026-01-01/mine.parquet", "data/mine.parquet", "notes.txt", ".hidden/.mine"]
)
def test_a_folder_with_files_of_others_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    theirs = tmp_path / "lake" / "t" / name
    theirs.parent.mkdir(parents=True)
    pq.write_table(pa.table({"n": [1]}), theirs)
    with open_table(str(tmp_path / "lake" / "t"), kind) as table:
        with pytest.raises(ForeignTable, match="no pipeline has loaded"):
            table.claim()
        with pytest.raises(ForeignTable, match="no pipeline has loaded"):
            add(table, 0, 10)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("other", FORMATS)
def test_a_table_of_another_format_is_refused(tmp_path: Path, kind: str, other: str) -> None:
    place = str(tmp_path / "lake" / "t")
    with open_table(place, other) as table:
        add(table, 0, 10)
    if kind == other:
        with open_table(place, kind) as table:
            add(table, 10, 20)
    else:
        with pytest.raises(UnusableTarget, match=rf"is a .* table, not .*: leave the format out, or say {other}"):
            open_table(place, kind)
    with open_table(place) as table:
        assert table.format == other
        assert numbers(table) == list(range(20 if kind == other else 10))


@pytest.mark.parametrize("kind", FORMATS)
def test_the_format_of_a_table_is_told_by_what_is_there(tmp_path: Path, kind: str) -> None:
    assert format_at(str(tmp_path / "t")) is None
    with open_table(str(tmp_path / "t"), kind) as table:
        assert format_at(str(tmp_path / "t")) is None, "opening makes nothing"
        add(table, 0, 10)
    assert format_at(str(tmp_path / "t")) == kind


def test_a_name_with_dots_is_one_in_a_catalog_unless_there_is_such_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert format_at("shop.orders") == "iceberg"
    with open_table("shop.orders", "delta") as table:
        add(table, 0, 10)
    assert format_at("shop.orders") == "delta"
    assert agreed_format("shop.orders", "iceberg") == "iceberg", "the catalog's table of that name was asked for"


def test_an_address_is_asked_whether_it_has_a_delta_table(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, str]]] = []

    def is_deltatable(location: str, options: dict[str, str]) -> bool:
        asked.append((location, options))
        return True

    monkeypatch.setattr("deltalake.DeltaTable.is_deltatable", is_deltatable)
    assert format_at("s3://lake/orders", {"AWS_REGION": "x"}) == "delta"
    assert asked == [("s3://lake/orders", {"AWS_REGION": "x"})]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("around", ["parquet", "delta"])
def test_a_place_in_another_table_is_refused(tmp_path: Path, kind: str, around: str) -> None:
    """Its files would be rows to readers of the folder, and orphans to its upkeep."""
    with open_table(str(tmp_path / "lake"), around) as table:
        add(table, 0, 10)
    with (
        open_table(str(tmp_path / "lake" / "more" / "t"), kind) as table,
        pytest.raises(UnusableTarget, match="is inside the table"),
    ):
        table.claim()
    with open_table(str(tmp_path / "lake" / ".." / "t"), kind) as table:
        add(table, 0, 10)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_folder_that_cannot_be_made_is_told_before_tasks_write_to_it(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"file"), open_table(str(tmp_path / "file" / "t"), kind) as table:
        table.claim()


def test_a_catalog_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "iceberg.db").mkdir()
    with pytest.raises(UnusableTarget, match=r"iceberg\.db cannot be the catalog of .*: unable to open"):
        open_table(str(tmp_path / "t"), "iceberg")


@pytest.mark.parametrize("kind", FORMATS)
def test_what_a_load_left_before_its_first_commit_is_no_hindrance(tmp_path: Path, kind: str) -> None:
    place = str(tmp_path / "lake" / "t")
    with open_table(place, kind, partition_by=["kind"]) as table:
        written(table, rows(0, 10, kind="a/b"))
    with open_table(place, kind, partition_by=["kind"]) as table:
        add(table, 0, 10, kind="a/b")
        assert numbers(table) == list(range(10))


def test_a_crash_in_the_first_commit_of_plain_parquet_is_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    place = tmp_path / "lake" / "t"
    with monkeypatch.context() as patch, open_table(str(place), "parquet", partition_by=["kind"]) as table:
        patch.setattr(os, "link", crash)
        with pytest.raises(KeyboardInterrupt):
            add(table, 0, 10, kind="a")
    assert (place / "kind=a").is_dir(), "the folder was made before the manifest"
    with open_table(str(place), "parquet", partition_by=["kind"]) as table:
        add(table, 0, 10, kind="a")
        assert numbers(table) == list(range(10))
