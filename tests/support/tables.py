"""Tables as readers see them that know nothing of us: Arrow on a folder, deltalake, pyiceberg."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq


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
