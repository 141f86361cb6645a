"""Rows to Parquet files: what a task does with the batches it has decoded, in bounded memory.

Batches are collected until they make a row group; a file is closed when it is large enough, or when a column appears
that it does not have. Nothing that is written here is visible in the table: the driver names the files in its commit.

Rows that the table has no place for (`unfit`) are not to come here: whoever brings rows makes dead letters of those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from barnabas.pipelines.tables.contract import DataFile, PartitionValues
from barnabas.pipelines.tables.files.destinations import Destination
from barnabas.pipelines.tables.files.schemas import fit_columns, merge_columns, plain_schema, without
from barnabas.pipelines.tables.files.unfit import beyond_calendar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["DATE", "Destination", "TableWriter", "write_files"]

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
FILE_BYTES: Final = 256 * 1024 * 1024
MAX_OPEN_FILES: Final = 200
"""With more partitions at once files are closed before they are large: more files, not more memory."""
DATE: Final = "record_date"
"""A column that is made when a table is partitioned by it and rows lack it: the day of a record's timestamp, in UTC,
and null if that is beyond the years 1 to 9999.

It does not begin with `_`, as the other columns of our own do: readers of plain folders pass over such names."""


def write_files(batches: Iterable[pa.RecordBatch], destination: Destination) -> list[DataFile]:
    """Write batches as files for a table. Raises SchemaConflict."""
    with TableWriter(destination) as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


class TableWriter:
    """Writes rows of one task. If the block ends before `finish`, its files are closed, and are orphans."""

    def __init__(self, destination: Destination, *, file_bytes: int = FILE_BYTES) -> None:
        self._destination = destination
        self._file_bytes = file_bytes
        self._schema: pa.Schema | None = None
        self._raw_schema: pa.Schema | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._open: dict[PartitionValues, _File] = {}
        """In the order in which they got rows."""
        self._turn = 0
        self._done: list[DataFile] = []

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.abandon()

    @property
    def schema(self) -> pa.Schema | None:
        """The columns of all rows so far, as the table will have them; None before the first batch."""
        return self._schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch."""
        batch = self._with_date(batch)
        if self._raw_schema is None or not batch.schema.equals(self._raw_schema):
            self._raw_schema = batch.schema
            self._widen(plain_schema(batch.schema))
        if not batch.num_rows:
            return
        self._waiting.append(fit_columns(batch, self._schema))
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= ROW_GROUP_BYTES:
            self._write_waiting()

    def finish(self) -> list[DataFile]:
        """Close all files; what was written."""
        self._write_waiting()
        for values in list(self._open):
            self._close(values)
        return self._done

    def _with_date(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if DATE not in self._destination.partition_by or DATE in batch.schema.names:
            return batch
        days = batch.column("_timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
        return batch.append_column(DATE, pc.if_else(beyond_calendar(days), pa.scalar(None, pa.date32()), days))

    def _widen(self, schema: pa.Schema) -> None:
        wider = merge_columns(self._schema, schema, "earlier rows")
        if self._schema is not None and not wider.equals(self._schema):
            self._write_waiting()
            for values in list(self._open):
                self._close(values)
        self._destination.check_partition_columns(wider)
        self._schema = wider

    def _write_waiting(self) -> None:
        if not self._waiting:
            return
        self._turn += 1
        table = pa.Table.from_batches(self._waiting)
        self._waiting, self._waiting_bytes = [], 0
        if self._destination.empty_is_null:
            table = _without_empty_texts(table, self._destination.partition_by)
        for values, rows in _by_partition(table, self._destination.partition_by):
            self._file(values).write(rows)
            if self._open[values].size >= self._file_bytes:
                self._close(values)

    def _file(self, values: PartitionValues) -> _File:
        file = self._open.pop(values, None)
        if file is None:
            if len(self._open) >= MAX_OPEN_FILES:
                self._close(self._least_wanted())
            file = _File(self._destination, values, self._schema)
        file.turn = self._turn
        self._open[values] = file
        return file

    def _least_wanted(self) -> PartitionValues:
        """The partition whose file is closed to make room for another.

        The one that got rows longest ago, if it got none with the last row group. If all did, each row group has rows
        for more partitions than can be open: to close the oldest would then be to close all of them, one after the
        other, and begin them anew with each row group. So the last one makes room.
        """
        oldest = next(iter(self._open))
        return oldest if self._open[oldest].turn < self._turn - 1 else next(reversed(self._open))

    def _close(self, values: PartitionValues) -> None:
        self._done.append(self._open.pop(values).close())


class _File:
    """A file that is being written."""

    def __init__(self, destination: Destination, values: PartitionValues, schema: pa.Schema) -> None:
        self._destination = destination
        self._values = values
        if destination.drops_partition_columns:
            schema = without(schema, destination.partition_by)
        self._schema = _with_ids(schema, destination.field_ids)
        self._name = destination.new_name(values)
        self._stream = destination.open(self._name)
        self._writer = pq.ParquetWriter(
            self._stream, self._schema, compression="snappy", use_dictionary=_worth_a_dictionary(schema)
        )
        self._rows = 0
        self.turn = 0
        """When it last got rows."""

    @property
    def size(self) -> int:
        """How many bytes the file has by now."""
        return int(self._stream.tell())

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        columns = [rows.column(name) for name in self._schema.names]
        self._writer.write_table(pa.table(columns, schema=self._schema), row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def close(self) -> DataFile:
        """Finish the file."""
        self._writer.close()
        size = self.size
        self._destination.finish(self._stream)
        path = self._destination.address(self._name) if self._destination.whole_paths else self._name
        return DataFile(path, self._rows, size, self._values, self._writer.writer.metadata)

    def abandon(self) -> None:
        """Close the file as it is: nobody will read it."""
        self._stream.close()


def _worth_a_dictionary(schema: pa.Schema) -> list[str]:
    """Columns whose values repeat, for all we know. Raw bytes and offsets never do."""
    return [
        each.name for each in schema if not pa.types.is_binary(each.type) and each.name not in ("_offset", "offset")
    ]


def _without_empty_texts(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows with nulls where columns of these names are empty texts."""
    for name in names:
        column = table.column(name)
        if pa.types.is_string(column.type):
            nulls = pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)
            table = table.set_column(table.schema.get_field_index(name), name, nulls)
    return table


def _by_partition(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[PartitionValues, pa.Table]]:
    if not names:
        yield (), table
        return
    for values in table.select(list(names)).group_by(list(names)).aggregate([]).to_pylist():
        mask: Any = None
        for name, value in values.items():
            column = table.column(name)
            same = (
                column.is_null()
                if value is None
                else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)
            )
            mask = same if mask is None else pc.and_(mask, same)
        yield tuple((name, values[name]) for name in names), table.filter(mask)


def _with_ids(schema: pa.Schema, known: pa.Schema | None) -> pa.Schema:
    """The schema with the ids of the table's columns, if all are known: a file has ids for all columns or for none."""
    if known is None:
        return schema
    fields = [_field_with_id(field, known) for field in schema]
    return schema if any(each is None for each in fields) else pa.schema(fields)


def _field_with_id(field: pa.Field, known: Iterable[pa.Field]) -> pa.Field | None:
    twin = next((each for each in known if each.name == field.name), None)
    if twin is None:
        return None
    kind = _type_with_ids(field.type, twin.type)
    return None if kind is None else pa.field(field.name, kind, metadata=twin.metadata)


def _type_with_ids(kind: pa.DataType, known: pa.DataType) -> pa.DataType | None:
    if pa.types.is_struct(kind):
        fields = [_field_with_id(each, list(known)) for each in kind]
        return None if any(each is None for each in fields) else pa.struct(fields)
    if pa.types.is_list(kind):
        element = _type_with_ids(kind.value_type, known.value_type)
        return None if element is None else pa.list_(known.value_field.with_type(element).with_nullable(True))
    if pa.types.is_map(kind):
        item = _type_with_ids(kind.item_type, known.item_type)
        return (
            None
            if item is None
            else pa.map_(known.key_field.with_type(kind.key_type), known.item_field.with_type(item))
        )
    return kind


def read_footer(destination: Destination, file: DataFile) -> Any:
    """A file's footer: as it came with the file, or from the file."""
    if file.footer is not None:
        return file.footer
    with destination.open_file(file.path) as stream:
        return pq.read_metadata(stream)
