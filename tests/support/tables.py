"""Tables filled with numbers, and as readers see them that know nothing of us: Arrow, deltalake, pyiceberg."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from barnabas.pipelines.spark.read.offsets import OffsetRange
from barnabas.pipelines.tables.files.writing import write_files

if TYPE_CHECKING:
    from barnabas.pipelines.tables.contract import CommitOutcome, DataFile
    from barnabas.pipelines.tables.table import Table

IDS = {"t": "topic-one"}
SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
NO_TIME = datetime.timedelta(0)


def rows(start: int, end: int, **more: Any) -> pa.RecordBatch:
    columns: dict[str, Any] = {"n": list(range(start, end)), "text": [f"é{n}" for n in range(start, end)]}
    return pa.record_batch({**columns, **{name: [value] * (end - start) for name, value in more.items()}})


def one(start: int, end: int, partition: int = 0) -> list[OffsetRange]:
    return [OffsetRange("t", partition, start, end)]


def written(table: Table, *batches: pa.RecordBatch) -> list[DataFile]:
    return write_files(batches, table.destination())


def add(
    table: Table, start: int, end: int, *, ids: dict[str, str] = IDS, pipeline: str = "p", **more: Any
) -> CommitOutcome:
    batch = rows(start, end, **more)
    table.evolve(batch.schema)
    return table.commit(pipeline, one(start, end), ids, written(table, batch), batch.schema)


def numbers(table: Table) -> list[int]:
    return sorted(content(table.format, table.location, table.schema()).column("n").to_pylist())


def content(kind: str, location: str | Path, schema: pa.Schema | None = None) -> pa.Table:
    """All rows of a table. A folder may be read with a schema, since names of folders tell no types."""
    if kind == "parquet":
        return _folder(Path(location), schema)
    if kind == "delta":
        from deltalake import DeltaTable

        return pa.table(DeltaTable(location).to_pyarrow_table())
    from pyiceberg.catalog import load_catalog

    place = Path(location)
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{place.parent / 'iceberg.db'}")
    found = catalog.load_table(("default", place.name)).scan().to_arrow()
    catalog.close()
    return found


def _folder(place: Path, schema: pa.Schema | None) -> pa.Table:
    if schema is None:
        files = [file for file in place.rglob("*.parquet") if "_barnabas" not in file.parts]
        in_folders = ds.dataset(place, format="parquet", partitioning="hive").schema
        schema = pa.unify_schemas([*(pq.read_schema(file) for file in files), in_folders])
    return ds.dataset(place, format="parquet", partitioning="hive", schema=schema).to_table()
