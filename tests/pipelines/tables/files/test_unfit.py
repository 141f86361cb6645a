"""Rows that a table has no place for: a load makes dead letters of them."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.decode.contract import DEAD_SCHEMA
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.loading.tasks import task
from barnabas.pipelines.loading.tasks.task import TaskSettings, run_task
from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.contract import CommitOutcome, DataFile
from barnabas.pipelines.tables.errors import TableError
from barnabas.pipelines.tables.files.unfit import unfit_rows
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import ranges_by
from tests.support.tables import IDS, SCHEMA, add, content, numbers, one, rows, written

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IN_FOLDERS = ("parquet", "delta")


def records(*values: bytes, milliseconds: int = 0) -> pa.RecordBatch:
    """Records of partition 0, from offset 100 on."""
    count = len(values)
    columns = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "topic": pa.array(["t"] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(100, 100 + count), pa.int64()),
        "timestamp": pa.array([milliseconds * 1000] * count, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
    }
    return pa.record_batch(columns)


@pytest.mark.parametrize("kind", IN_FOLDERS)
def test_a_load_makes_a_dead_letter_of_it(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, broken = b'{"text": "a"}', b'{"text": "%s"}' % (b"x" * 300), b"{"

    def read(*_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        yield records(broken, bad, good)

    monkeypatch.setattr(task, "read_ranges", ranges_by(read))
    with (
        open_table(str(tmp_path / "t"), kind, partition_by=["text"]) as table,
        open_table(str(tmp_path / "t_dead"), kind) as dead,
    ):
        done = run_task(
            (OffsetRange("t", 0, 100, 103),), TaskSettings({}, JsonDecoder(), table.destination(), dead.destination())
        )
        assert done.failure is None
        ranges = one(100, 103)
        assert table.commit("p", ranges, IDS, done.files, done.schema) is CommitOutcome.COMMITTED
        dead.commit("p", ranges, IDS, done.dead_files, DEAD_SCHEMA)
        assert content(kind, table.location, table.schema()).column("_offset").to_pylist() == [102]
        letters = sorted(content(kind, dead.location).to_pylist(), key=lambda row: row["offset"])
    assert [(row["offset"], row["value"]) for row in letters] == [(100, broken), (101, bad)]
    assert "305 bytes long, and 255 are possible" in letters[1]["reason"]


@pytest.mark.parametrize("kind", FORMATS)
def test_the_longest_name_that_fits_is_written_and_a_longer_one_is_told(tmp_path: Path, kind: str) -> None:
    longest, longer = "ä" * 125, "ä" * 126
    with open_table(str(tmp_path / "numbers"), kind, partition_by=["name"]) as table:
        unfit = unfit_rows(rows(0, 2, name=longer), table.destination())
        assert sorted(unfit) == ([0, 1] if kind in IN_FOLDERS else [])
        assert not unfit_rows(rows(0, 2, name=longest), table.destination())
        add(table, 0, 10, name=longest if kind in IN_FOLDERS else longer)
        assert numbers(table) == list(range(10))


def test_a_folder_that_cannot_be_made_leaves_the_table_as_it_was(tmp_path: Path) -> None:
    place = str(tmp_path / "numbers")
    with open_table(place, "parquet", partition_by=["name"]) as table:
        add(table, 0, 10, name="a")
        [file] = written(table, rows(10, 20, name="b"))
        too_long = DataFile(file.path, file.rows, file.size, (("name", "x" * 300),), file.footer)
        with pytest.raises(TableError, match="cannot be made"):
            table.commit("p", one(10, 20), IDS, [too_long], SCHEMA.append(pa.field("name", pa.string())))
    with open_table(place, "parquet") as table:
        table.claim()
        add(table, 10, 20, name="b")
        assert numbers(table) == list(range(20))


def test_short_values_and_numbers_fit(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "t"), "parquet", partition_by=["n", "text", "other"]) as table:
        assert unfit_rows(rows(0, 3), table.destination()) == {}


FAR = 1_700_000_000_000_000
"""Microseconds where milliseconds were meant: the year 55840."""


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("by", [(), ("record_date",)])
def test_times_beyond_the_calendar_are_rows_as_all_others(
    tmp_path: Path, kind: str, by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: Any, **__: Any) -> Iterator[pa.RecordBatch]:
        yield records(b"far", milliseconds=FAR)
        yield records(b"near", milliseconds=86_400_000)

    monkeypatch.setattr(task, "read_ranges", ranges_by(read))
    with (
        open_table(str(tmp_path / "t"), kind, partition_by=by) as table,
        open_table(str(tmp_path / "t_dead"), kind) as dead,
    ):
        decoder = choose_decoder("string")
        done = run_task(
            (OffsetRange("t", 0, 100, 102),), TaskSettings({}, decoder, table.destination(), dead.destination())
        )
        assert (done.failure, done.dead_files) == (None, [])
        schema = decoder.schema.append(pa.field("record_date", pa.date32())) if by else decoder.schema
        table.commit("p", one(100, 102), IDS, done.files, schema)
        found = content(kind, table.location, table.schema()).sort_by("_timestamp")
    assert found.column("value").to_pylist() == ["near", "far"]
    assert found.column("_timestamp").cast(pa.int64()).to_pylist() == [86_400_000_000, FAR * 1000]
    if by:
        assert found.column("record_date").to_pylist() == [date(1970, 1, 2), None]


def test_a_date_beyond_the_calendar_has_no_partition(tmp_path: Path) -> None:
    days = pa.array([0, 2_932_896, 2_932_897, None, -719_162, -719_163], pa.int32()).cast(pa.date32())
    with open_table(str(tmp_path / "t"), "iceberg", partition_by=["day"]) as table:
        unfit = unfit_rows(pa.record_batch({"day": days}), table.destination())
    assert unfit == dict.fromkeys([2, 5], "day is beyond the years 1 to 9999")


@pytest.mark.parametrize("kind", FORMATS)
def test_an_empty_text_shares_the_partition_of_null_where_folders_are_named(tmp_path: Path, kind: str) -> None:
    batch = pa.record_batch({"n": [0, 1, 2], "kind": ["", None, "a"]})
    with open_table(str(tmp_path / "t"), kind, partition_by=["kind"]) as table:
        table.commit("p", one(0, 3), IDS, written(table, batch), batch.schema)
        found = content(kind, table.location, table.schema()).sort_by("n").column("kind").to_pylist()
        assert found == [None if kind in IN_FOLDERS else "", None, "a"]
        assert table.size().files == (2 if kind in IN_FOLDERS else 3)
