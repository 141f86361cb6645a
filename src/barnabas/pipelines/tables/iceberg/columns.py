"""Which column of an Iceberg table a column of a file is: by its field id in the file, or by the table's name mapping.

An id is a column for good; a name is only what the column is called now. A load writes ids into its files, unless it
found a column in the records themselves that the table did not have yet: the names in such a file are looked up in the
name mapping whenever it is read, and its columns may have other names by then. So a name keeps its id in the mapping. A
new column that has a name which another column had before is left out of it (pyiceberg's own update would give it the
other one's values), and a file with that column needs ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, parquet_path_to_id_mapping, pyarrow_to_schema
from pyiceberg.table.name_mapping import NameMapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyiceberg.schema import Schema
    from pyiceberg.table import FileScanTask
    from pyiceberg.table import Table as Loaded
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.name_mapping import MappedField

FIELD_ID = b"PARQUET:field_id"


def extended_mapping(known: NameMapping | None, schema: Schema) -> NameMapping:
    """The name mapping of a table with the columns that it has now; what it says of a name stays."""
    return NameMapping(_extended([] if known is None else known.root, schema.name_mapping.root))


def _extended(known: Iterable[MappedField], now: Iterable[MappedField]) -> list[MappedField]:
    current = {field.field_id: field for field in now}
    taken = {name for field in known for name in field.names}
    fields = []
    for field in known:
        twin = current.pop(field.field_id, None)
        names = [*field.names, *(name for name in ([] if twin is None else twin.names) if name not in taken)]
        inner = field.fields if twin is None else _extended(field.fields, twin.fields)
        fields.append(field.model_copy(update={"names": names, "fields": inner}))
    return fields + [field for field in current.values() if taken.isdisjoint(field.names)]


def file_schema(footer: Any, metadata: TableMetadata) -> Schema:
    """The columns of a file by the ids that readers find, with the names that they have in the file."""
    return pyarrow_to_schema(footer.schema.to_arrow_schema(), metadata.name_mapping())


def is_read_as_written(footer: Any, metadata: TableMetadata) -> bool:
    """Whether readers find the columns of a file, which were named as the table names them now, under their ids."""
    written = footer.schema.to_arrow_schema()
    if all(FIELD_ID in (field.metadata or {}) for field in written):
        return True
    try:
        found = parquet_path_to_id_mapping(file_schema(footer, metadata))
    except ValueError:  # a name is not in the mapping
        return False
    ids = parquet_path_to_id_mapping(metadata.schema())
    return all(ids.get(path) == number for path, number in found.items())


def rows_of(table: Loaded, task: FileScanTask) -> Iterator[pa.RecordBatch]:
    """The rows of a file that has no deleted ones, as the table has them now, batch by batch."""
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    # `to_record_batches` would have all of a file in memory.
    return scan._record_batches_from_scan_tasks_and_deletes([task], {})
