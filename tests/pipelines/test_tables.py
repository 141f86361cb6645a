"""What every table format promises: rows and offsets move together, once, for one pipeline."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from barnabas.model.ids import TopicPartition
from barnabas.pipelines.tables.contract import CommitOutcome, TableOutbox
from barnabas.pipelines.tables.errors import (
    Fenced,
    ForeignTable,
    SchemaConflict,
    TableError,
    TopicReplaced,
    UnusableTarget,
)
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from barnabas.pipelines.tables.table import CommitConflict, Table
from tests.support.tables import IDS, NO_TIME, SCHEMA, add, content, numbers, one, rows, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    Opener = Callable[..., Table]

ROOT: Final = Path(__file__).resolve().parents[2]


@pytest.fixture(params=FORMATS)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the table of a test, as often as it likes."""

    def again(**given: Any) -> Table:
        return open_table(str(tmp_path / "lake" / "numbers"), request.param, **given)

    return again


def test_rows_and_position_come_together(opened: Opener) -> None:
    with opened() as table:
        assert table.position("p") is None
        assert table.schema() is None
        assert add(table, 0, 100) is CommitOutcome.COMMITTED
        assert add(table, 100, 150) is CommitOutcome.COMMITTED
    with opened() as table:
        position = table.position("p")
        assert position is not None
        assert position.offsets == {TopicPartition("t", 0): 150}
        assert position.topic_ids == IDS
        assert position.version == 2
        assert numbers(table) == list(range(150))
        assert content(table.format, table.location, table.schema()).column("text").to_pylist().count("é7") == 1
        assert table.size().rows == 150
        assert table.size().files == 2


def test_ranges_that_are_in_the_table_are_not_added_again(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 10)
        assert add(table, 0, 10) is CommitOutcome.ALREADY
        assert add(table, 5, 10) is CommitOutcome.ALREADY
        assert numbers(table) == list(range(10))


@pytest.mark.parametrize(("start", "end"), [(5, 15), (12, 20)])
def test_overlaps_and_gaps_are_fenced(opened: Opener, start: int, end: int) -> None:
    with opened() as table:
        add(table, 0, 10)
        with pytest.raises(Fenced, match="is at offset 10 of t-0"):
            add(table, start, end)
        assert numbers(table) == list(range(10))


def test_a_new_partition_joins(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 10)
        ranges = [*one(10, 12), *one(3, 5, partition=1)]
        table.commit("p", ranges, IDS, written(table, rows(10, 12), rows(100, 102)), SCHEMA)
        position = table.position("p")
        assert position is not None
        assert position.offsets == {TopicPartition("t", 0): 12, TopicPartition("t", 1): 5}
        assert numbers(table) == [*range(12), 100, 101]


def test_a_topic_made_anew_is_refused(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 10)
        with pytest.raises(TopicReplaced, match="deleted and created again"):
            add(table, 10, 20, ids={"t": "topic-two"})
        assert numbers(table) == list(range(10))


def test_the_table_of_another_pipeline_is_refused(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 10)
        with pytest.raises(ForeignTable, match='belongs to the pipeline "p"'):
            table.position("q")
        with pytest.raises(ForeignTable, match='belongs to the pipeline "p"'):
            add(table, 10, 20, pipeline="q")
        assert numbers(table) == list(range(10))


def test_a_table_that_nobody_loaded_is_refused(opened: Opener, tmp_path: Path) -> None:
    place = tmp_path / "lake" / "numbers"
    data = pa.table({"n": [1, 2], "text": ["a", "b"]})
    with opened() as table:
        kind = table.format
    if kind == "parquet":
        place.mkdir(parents=True)
        pq.write_table(data, place / "some.parquet")
    elif kind == "delta":
        from deltalake import write_deltalake

        write_deltalake(place, data)
    else:
        from pyiceberg.catalog import load_catalog

        catalog = load_catalog(
            "barnabas", type="sql", uri=f"sqlite:///{place.parent / 'iceberg.db'}", warehouse=str(tmp_path)
        )
        catalog.create_namespace_if_not_exists("default")
        catalog.create_table("default.numbers", data.schema).append(data)
        catalog.close()
    with opened() as table:
        with pytest.raises(ForeignTable, match="no pipeline has loaded"):
            table.position("p")
        with pytest.raises(ForeignTable):
            table.commit("p", one(0, 1), IDS, [], SCHEMA)


def test_of_two_jobs_one_is_fenced(opened: Opener) -> None:
    with opened() as first:
        add(first, 0, 10)
        with opened() as second:
            if first.format == "parquet":
                with pytest.raises(Fenced, match="lock is held"):
                    add(second, 10, 20)
            else:
                add(second, 10, 20)
                with pytest.raises(Fenced):
                    add(first, 10, 25)
                first = second
            add(first, 20, 30) if first is second else add(first, 10, 30)
            assert numbers(first) == list(range(30))


@pytest.mark.parametrize("tries", [1, 5])
def test_a_commit_whose_outcome_is_unknown_is_looked_up(
    opened: Opener, tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.pipelines.tables.table.TRIES", tries)
    with opened() as table:
        add(table, 0, 10)
        real = type(table)._append

        def deaf(self: Table, *given: Any) -> None:
            real(self, *given)
            raise CommitConflict("nobody answered")

        monkeypatch.setattr(type(table), "_append", deaf)
        assert add(table, 10, 20) is CommitOutcome.COMMITTED
        assert numbers(table) == list(range(20))


def test_concurrent_commits_from_handles_of_the_same_moment(opened: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job commits between our look and our commit: the rows are not added twice."""
    with opened() as table:
        add(table, 0, 10)
        real = type(table)._append
        files = written(table, rows(10, 20))

        def overtaken(self: Table, *given: Any) -> None:
            monkeypatch.setattr(type(table), "_append", real)
            assert table.commit("p", one(10, 20), IDS, written(table, rows(10, 20)), SCHEMA) is CommitOutcome.COMMITTED
            real(self, *given)

        monkeypatch.setattr(type(table), "_append", overtaken)
        outcome = table.commit("p", one(10, 20), IDS, files, SCHEMA)
        assert outcome is CommitOutcome.ALREADY
        assert numbers(table) == list(range(20))


def test_columns_are_added_and_types_stay(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 10)
        add(table, 10, 20, more=1.5)
        add(table, 20, 30)
        assert table.schema() is not None
        assert (
            sorted(
                value
                for value in content(table.format, table.location, table.schema()).column("more").to_pylist()
                if value
            )
            == [1.5] * 10
        )
        with pytest.raises(SchemaConflict, match='"more" is double'):
            add(table, 30, 40, more="text")
        assert numbers(table) == list(range(30))


def test_fields_are_added_inside_of_structs(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 2, place={"city": "Ulm"})
        add(table, 2, 4, place={"city": "Bern", "zip": 3000})
        found = sorted(content(table.format, table.location, table.schema()).to_pylist(), key=lambda row: row["n"])
        assert [row["place"]["city"] for row in found] == ["Ulm", "Ulm", "Bern", "Bern"]
        assert found[3]["place"]["zip"] == 3000


@pytest.mark.parametrize("by", [("day",), ("day", "kind")])
def test_partitions_hold_what_they_say(opened: Opener, by: Sequence[str]) -> None:
    days = [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1), None]
    kinds = ["a/b", "c=d e%", None]
    with opened(partition_by=by) as table:
        values: dict[str, list[Any]] = {
            "n": list(range(9)),
            "day": days * 3,
            "kind": [kind for kind in kinds for _ in range(3)],
        }
        batch = pa.record_batch(
            values, schema=pa.schema([("n", pa.int64()), ("day", pa.date32()), ("kind", pa.string())])
        )
        table.evolve(batch.schema)
        table.commit("p", one(0, 9), IDS, written(table, batch), batch.schema)
        assert table.size().files == 3 ** len(by)
        found = sorted(content(table.format, table.location, table.schema()).to_pylist(), key=lambda row: row["n"])
        assert [(row["day"], row["kind"]) for row in found] == list(zip(values["day"], values["kind"], strict=True))
    with opened() as table:
        assert table.partition_by == tuple(by)
        table.compact(1 << 20)
        assert numbers(table) == list(range(9))
    with pytest.raises(SchemaConflict, match="is partitioned by"):
        opened(partition_by=["n"])


def test_spark_finds_what_a_folder_was_named_by(tmp_path: Path, spark: SparkSession) -> None:
    texts = ["Köln", "日本 %C3", "a/b=c:d*[e]{f}^\"'\\?#\x01\x7f", "é", "", None]
    batch = pa.record_batch({"n": list(range(len(texts))), "Größe": texts})
    with open_table(str(tmp_path / "t"), "parquet", partition_by=["Größe"]) as table:
        table.commit("p", one(0, len(texts)), IDS, written(table, batch), batch.schema)
        expected = [*texts[:-2], None, None]
        found = content("parquet", table.location, table.schema()).sort_by("n")
    assert found.column("Größe").to_pylist() == expected
    rows = spark.read.parquet(str(tmp_path / "t")).orderBy("n").collect()
    assert [row["Größe"] for row in rows] == expected


def test_a_column_to_partition_by_has_to_be_there(opened: Opener) -> None:
    with opened(partition_by=["nowhere"]) as table:
        with pytest.raises(SchemaConflict, match='no column "nowhere"'):
            add(table, 0, 1)
        assert table.last_note() is None


def test_promises_stay_until_the_next_commit(opened: Opener) -> None:
    with opened() as table:
        promise = TableOutbox(one(0, 10), written(table, rows(0, 3)))
        table.commit("p", one(0, 10), IDS, [], SCHEMA, outbox=promise)
        found = table.outbox("p")
        assert found is not None
        assert (list(found.ranges), list(found.files)) == (list(promise.ranges), promise.files)
        add(table, 10, 12)
        assert table.outbox("p") is None


def test_small_files_are_merged_and_the_position_stays(opened: Opener) -> None:
    with opened() as table:
        for start in range(0, 50, 10):
            add(table, start, start + 10)
        promise = TableOutbox(one(50, 60), [])
        table.commit("p", one(50, 60), IDS, written(table, rows(50, 60)), SCHEMA, outbox=promise)
        before = table.position("p")
        merged = table.compact(1 << 20)
        assert (merged.merged, merged.into) == (6, 1)
        assert table.position("p") == before
        assert table.outbox("p") == promise
        assert numbers(table) == list(range(60))
        assert table.size().files == 1
        table.expire(NO_TIME)
        assert table.position("p") == before
        assert add(table, 60, 70) is CommitOutcome.COMMITTED
        table.expire(NO_TIME)
        assert numbers(table) == list(range(70))


def test_orphans_go_by_age_only(opened: Opener) -> None:
    with opened() as table:
        add(table, 0, 10)
        written(table, rows(10, 20))
        assert table.remove_orphans(datetime.timedelta(hours=1)) == 0
        assert table.remove_orphans(NO_TIME) == 1
        assert numbers(table) == list(range(10))


def test_a_table_that_is_not_there_has_no_upkeep(opened: Opener) -> None:
    with opened() as table:
        for change in (lambda: table.compact(1), lambda: table.expire(NO_TIME)):
            with pytest.raises(TableError, match="there is no table"):
                change()


def test_a_wrong_format_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UnusableTarget, match="did you mean parquet"):
        open_table("x", "parkuet")


def test_plain_parquet_has_no_partitions_that_readers_pass_over(tmp_path: Path) -> None:
    with pytest.raises(SchemaConflict, match="folders that begin with _"):
        open_table(str(tmp_path / "table"), "parquet", partition_by=["_topic"])


@pytest.mark.parametrize(("kind", "line"), [("parquet", "polars.concat("), ("delta", "polars.read_delta(")])
def test_polars_reads_a_table_with_fields_that_have_grown_as_the_guide_says(
    tmp_path: Path, kind: str, line: str
) -> None:
    place = tmp_path / "lake" / "sales"
    with open_table(str(place), kind, partition_by=["country"]) as table:
        for start, fields in ((0, ("id",)), (4, ("id", "price"))):
            numbers = range(start, start + 4)
            batch = pa.record_batch(
                {
                    "n": pa.array(numbers, pa.int64()),
                    "country": ["NL", "DE"] * 2,
                    "item": [dict.fromkeys(fields, n) for n in numbers],
                }
            )
            table.evolve(batch.schema)
            table.commit("p", one(start, start + 4), IDS, written(table, batch), batch.schema)
    guide = (ROOT / "docs" / "load.md").read_text()
    (code,) = re.findall(r"```python\n([^`]*import polars\n[^`]*)```", guide)
    lines = code.splitlines()
    if not lines[-1].startswith(line):
        (lines[-1],) = re.findall(r"`(polars\.read_delta\(.*?\))`", guide)
    assert lines[-1].startswith(line)
    assert "lake/sales" in code
    names: dict[str, Any] = {}
    exec("\n".join((*lines[:-1], f"found = {lines[-1]}")).replace("lake/sales", str(place)), names)
    found = sorted((row["n"], row["country"], row["item"]) for row in names["found"].to_dicts())
    assert [each[:2] for each in found] == [(n, ("NL", "DE")[n % 2]) for n in range(8)]
    assert found[3][2] == {"id": 3, "price": None}
    assert found[4][2] == {"id": 4, "price": 4}


def test_plain_parquet_needs_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableTarget, match="is a file"):
        open_table(str(tmp_path / "file"), "parquet")
    with pytest.raises(UnusableTarget, match="Use the format delta or iceberg"):
        open_table("s3://bucket/table", "parquet")


def test_a_table_of_a_catalog_that_is_configured(tmp_path: Path) -> None:
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}", "warehouse": str(tmp_path / "warehouse")}
    with open_table("shop.numbers", "iceberg", catalog="main", options=options) as table:
        add(table, 0, 10)
    with open_table("shop.numbers", "iceberg", catalog="main", options=options) as table:
        assert add(table, 0, 10) is CommitOutcome.ALREADY
        assert table.size().rows == 10
    assert list((tmp_path / "warehouse" / "shop" / "numbers" / "data").glob("*.parquet"))
    with pytest.raises(UnusableTarget, match="there is no Iceberg catalog nowhere"):
        open_table("shop.numbers", "iceberg", catalog="nowhere")
    with pytest.raises(UnusableTarget, match=r"name it as namespace\.table"):
        open_table("s3://bucket/table", "iceberg")


def test_readers_of_delta_pass_over_files_by_their_statistics(tmp_path: Path) -> None:
    with open_table(str(tmp_path / "numbers"), "delta") as table:
        for start in (0, 100):
            add(table, start, start + 100)
    dataset = DeltaTable(str(tmp_path / "numbers")).to_pyarrow_dataset()
    [low] = [file for file in (tmp_path / "numbers").glob("*.parquet") if pq.read_table(file)["n"][0].as_py() == 0]
    low.unlink()
    assert dataset.to_table(filter=ds.field("n") >= 150).num_rows == 50, "the file that is gone was not wanted"
    with pytest.raises(FileNotFoundError):
        dataset.to_table()
