"""Columns of Iceberg tables that somebody renamed, dropped or made anew: values stay where they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import BucketTransform

from barnabas.pipelines.tables.contract import CommitOutcome, DataFile
from barnabas.pipelines.tables.errors import UnusableTarget
from barnabas.pipelines.tables.iceberg.table import IcebergTable
from tests.support.tables import IDS, one, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyiceberg.table import Table as Loaded

MB = 1 << 20


@pytest.fixture
def table(tmp_path: Path) -> Iterator[IcebergTable]:
    with IcebergTable(str(tmp_path / "places")) as found:
        yield found


def loaded(table: IcebergTable) -> Loaded:
    found = table._load()
    assert found is not None
    return found


def rename(table: IcebergTable, old: str, new: str) -> None:
    with loaded(table).update_schema() as update:
        update.rename_column(tuple(old.split(".")), new)


def put(table: IcebergTable, number: int, **columns: Any) -> None:
    """Load one record, as a load does whose schema is given."""
    batch = pa.record_batch({"n": [number], **{name: [value] for name, value in columns.items()}})
    table.evolve(batch.schema)
    commit(table, number, written(table, batch), batch.schema)


def put_unknown(table: IcebergTable, number: int, **columns: Any) -> None:
    """Load one record, as a load does that finds columns in it: the file is written before the table has them."""
    batch = pa.record_batch({"n": [number], **{name: [value] for name, value in columns.items()}})
    files = written(table, batch)
    table.evolve(batch.schema)
    commit(table, number, files, batch.schema)


def commit(table: IcebergTable, number: int, files: list[DataFile], schema: pa.Schema) -> None:
    assert table.commit("p", one(number, number + 1), IDS, files, schema) is CommitOutcome.COMMITTED


def column(table: IcebergTable, name: str) -> list[Any]:
    rows = table.read().sort_by("n")
    values: list[Any] = rows.column(name).to_pylist()
    return values


def test_compaction_keeps_the_values_of_a_renamed_column(table: IcebergTable) -> None:
    put(table, 0, city="Ulm", at={"lat": 1.0, "zone": "a"})
    put(table, 1, city="Bern", at={"lat": 2.0, "zone": "b"})
    rename(table, "city", "town")
    rename(table, "at.lat", "latitude")
    assert table.compact(MB).merged == 2
    assert column(table, "town") == ["Ulm", "Bern"]
    assert column(table, "at") == [{"latitude": 1.0, "zone": "a"}, {"latitude": 2.0, "zone": "b"}]


def test_compaction_keeps_columns_apart_that_changed_names(table: IcebergTable) -> None:
    put(table, 0, a="a0", b="b0")
    put(table, 1, a="a1", b="b1")
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        rename(table, old, new)
    assert column(table, "b") == ["a0", "a1"]
    table.compact(MB)
    assert (column(table, "a"), column(table, "b")) == (["b0", "b1"], ["a0", "a1"])


@pytest.mark.parametrize("load", [put, put_unknown])
def test_a_new_column_with_a_name_of_before_takes_no_values_over(table: IcebergTable, load: Any) -> None:
    load(table, 0, city="Ulm")
    load(table, 1, city="Bern")
    rename(table, "city", "town")
    load(table, 2, city="Rom")
    load(table, 3, city="Oslo", new=1)
    expected = ["Ulm", "Bern", None, None], [None, None, "Rom", "Oslo"]
    assert (column(table, "town"), column(table, "city")) == expected
    table.compact(MB)
    assert (column(table, "town"), column(table, "city")) == expected
    assert column(table, "new") == [None, None, None, 1]


@pytest.mark.parametrize("load", [put, put_unknown])
def test_a_field_with_a_name_of_before_takes_no_values_over(table: IcebergTable, load: Any) -> None:
    load(table, 0, at={"x": 1})
    rename(table, "at.x", "y")
    load(table, 1, at={"x": 2})
    assert column(table, "at") == [{"y": 1, "x": None}, {"y": None, "x": 2}]
    table.compact(MB)
    assert column(table, "at") == [{"y": 1, "x": None}, {"y": None, "x": 2}]


@pytest.mark.parametrize("load", [put, put_unknown])
def test_a_column_that_was_dropped_does_not_come_back_with_its_values(table: IcebergTable, load: Any) -> None:
    load(table, 0, city="Ulm")
    with loaded(table).update_schema() as update:
        update.delete_column("city")
    load(table, 1, city="Bern")
    assert column(table, "city") == [None, "Bern"]
    table.compact(MB)
    assert column(table, "city") == [None, "Bern"]


def test_a_column_may_be_renamed_while_a_batch_is_written(table: IcebergTable) -> None:
    """The rows are in the column that they were written for, and so are its bounds."""
    put(table, 0, city="Ulm")
    batch = pa.record_batch({"n": [1], "city": ["Bern"]})
    files = written(table, batch)
    rename(table, "city", "town")
    table.evolve(batch.schema)
    commit(table, 1, files, batch.schema)
    assert column(table, "town") == ["Ulm", "Bern"]
    assert loaded(table).scan("town == 'Bern'").to_arrow().num_rows == 1


def test_a_column_may_be_renamed_while_a_batch_with_a_new_column_is_written(table: IcebergTable) -> None:
    put(table, 0, city="Ulm")
    batch = pa.record_batch({"n": [1], "city": ["Bern"], "new": [1]})
    files = written(table, batch)
    rename(table, "city", "town")
    table.evolve(batch.schema)
    commit(table, 1, files, batch.schema)
    assert (column(table, "town"), column(table, "city")) == (["Ulm", None], [None, "Bern"])
    assert column(table, "new") == [None, 1]


def test_a_partition_column_may_be_renamed(tmp_path: Path) -> None:
    place = str(tmp_path / "places")
    with IcebergTable(place, ["country"]) as table:
        put(table, 0, country="DE")
        put(table, 1, country="DE")
        rename(table, "country", "land")
    with IcebergTable(place) as table:
        assert table.partition_by == ("land",)
        put(table, 2, land="CH")
        table.compact(MB)
        assert column(table, "land") == ["DE", "DE", "CH"]
        assert loaded(table).scan("land == 'CH'").to_arrow().num_rows == 1


def test_a_partitioning_that_a_load_does_not_write_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "places")
    with IcebergTable(place) as table:
        put(table, 0, city="Ulm")
        with loaded(table).update_spec() as update:
            update.add_field("n", BucketTransform(4))
    with pytest.raises(UnusableTarget, match=r"partitioned by bucket\[4\]\(n\)"):
        IcebergTable(place)
