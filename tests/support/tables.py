"""Tables as readers see them that know nothing of us: Arrow on a folder, deltalake, pyiceberg."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq


def content(kind: str, location: str | Path) -> pa.Table:
    """All rows of a table."""
    if kind == "parquet":
        return _folder(Path(location))
    if kind == "delta":
        from deltalake import DeltaTable

        return pa.table(DeltaTable(location).to_pyarrow_table())
    from pyiceberg.catalog import load_catalog

    place = Path(location)
    catalog = load_catalog("barnabas", type="sql", uri=f"sqlite:///{place.parent / 'iceberg.db'}")
    found = catalog.load_table(("default", place.name)).scan().to_arrow()
    catalog.close()
    return found


def _folder(place: Path) -> pa.Table:
    files = [file for file in place.rglob("*.parquet") if "_barnabas" not in file.parts]
    schema = pa.unify_schemas([pq.read_schema(file) for file in files])
    hive = ds.partitioning(flavor="hive") if any("=" in file.parent.name for file in files) else None
    if hive is not None:
        schema = pa.unify_schemas([schema, ds.dataset(place, format="parquet", partitioning=hive).schema])
    return ds.dataset(place, format="parquet", partitioning=hive, schema=schema).to_table()
