"""Opens tables by format and place.

parquet   a folder
delta     a folder, or an address that deltalake knows (s3://, abfss://, gs://, hdfs://)
iceberg   `namespace.table` of a catalog that pyiceberg is set up for, or a folder: then a catalog in SQLite lies
          beside it
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from barnabas.pipelines.tables.detection import agreed_format
from barnabas.pipelines.tables.errors import SchemaConflict, UnusableTarget
from barnabas.pipelines.tables.files.destinations import is_remote, local_path
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.targets import DEFAULT_CATALOG, check_kept_snapshots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.pipelines.tables.table import Table

_DEAD: Final = "_dead"


def open_table(
    location: str,
    format: str | None = None,
    *,
    partition_by: Sequence[str] = (),
    catalog: str = DEFAULT_CATALOG,
    options: Mapping[str, str] | None = None,
    keep_snapshots: int | None = None,
) -> Table:
    """The table at a place, which need not be there yet. Without a format it is what it is; a new one is plain Parquet.

    `catalog` is the name of an Iceberg catalog in pyiceberg's configuration; `options` are deltalake's storage options
    or pyiceberg's properties. `keep_snapshots` says how many snapshots of an Iceberg table its commits keep. Raises
    UnusableTarget, SchemaConflict.
    """
    if not location:
        raise UnusableTarget("no place is given for the table: name a folder, an address or namespace.table")
    if isinstance(partition_by, str):
        raise SchemaConflict(f"partition_by is a list of columns: [{partition_by!r}]")
    if twice := sorted({column for column in partition_by if partition_by.count(column) > 1}):
        raise SchemaConflict(f"a table cannot be partitioned twice by {', '.join(twice)}")
    if format is not None:
        check_format(format)
    format = agreed_format(location, format, options)
    if keep_snapshots is not None:
        check_kept_snapshots(format, keep_snapshots)
    if format == "parquet":
        from barnabas.pipelines.tables.parquet.table import ParquetTable

        return ParquetTable(location, partition_by)
    if format == "delta":
        from barnabas.pipelines.tables.delta.table import DeltaLakeTable

        return DeltaLakeTable(location, partition_by, options)
    from barnabas.pipelines.tables.iceberg.table import IcebergTable

    return IcebergTable(location, partition_by, catalog, options, keep_snapshots)


def check_format(format: str) -> None:
    """Raise UnusableTarget unless there are tables of this format."""
    if format not in FORMATS:
        near = difflib.get_close_matches(format, FORMATS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FORMATS)}"
        raise UnusableTarget(f"there is no table format {format}: {hint}")


def dead_letters_location(location: str) -> str:
    """Where records go that could not be decoded: a table of the same format beside the table."""
    location = location.rstrip("/")
    if location.rpartition("/")[2] in (".", "..") and not is_remote(location):  # else it would be in the table
        location = str(local_path(location).resolve())
    return f"{location}{_DEAD}"


def table_of_dead_letters(location: str) -> str | None:
    """The table whose dead letters are at a location, if its name says so."""
    location = location.rstrip("/")
    return location.removesuffix(_DEAD) if location.endswith(_DEAD) else None
