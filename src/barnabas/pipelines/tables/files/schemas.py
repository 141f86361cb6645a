"""Schemas of rows that come batch by batch: made plain, merged, and batches fitted to them.

Plain means what Parquet, Delta and Iceberg all have: everything may be null, whole numbers have 32 or 64 bits, times
are microseconds. A column that has been null in every row so far has no type yet, and so is no column yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from barnabas.pipelines.tables.errors import SchemaConflict

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDENED: Final = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
    pa.uint8(): pa.int32(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that columns of this one get in a table."""
    if kind in _WIDENED:
        return _WIDENED[kind]
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if pa.types.is_time(kind):
        return pa.time64("us")
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(pa.field("element", plain_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, plain_type(each.type)) for each in kind])
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that rows of this one get in a table."""
    return pa.schema([pa.field(each.name, plain_type(each.type)) for each in schema if not pa.types.is_null(each.type)])


def merge_columns(known: pa.Schema | None, new: pa.Schema, where: str) -> pa.Schema:
    """The columns of both, the known ones first. Raises SchemaConflict if a column has two types."""
    if known is None:
        return new
    merged_fields = [pa.field(each.name, each.type) for each in known]
    places = {each.name: index for index, each in enumerate(merged_fields)}
    for each in new:
        place = places.get(each.name)
        if place is None:
            places[each.name] = len(merged_fields)
            merged_fields.append(each)
        else:
            both = _merged_type(merged_fields[place].type, each.type, each.name, where)
            merged_fields[place] = pa.field(each.name, both)
    return pa.schema(merged_fields)


def _merged_type(known: pa.DataType, new: pa.DataType, name: str, where: str) -> pa.DataType:
    if known == new:
        return known
    if pa.types.is_struct(known) and pa.types.is_struct(new):
        return pa.struct(list(merge_columns(pa.schema(list(known)), pa.schema(list(new)), f"{name} in {where}")))
    if pa.types.is_list(known) and pa.types.is_list(new):
        return pa.list_(pa.field("element", _merged_type(known.value_type, new.value_type, name, where)))
    raise SchemaConflict(
        f'the column "{name}" is {known} in {where}, and the rows have it as {new}. Give a schema that fits both, or '
        "load into another table."
    )


def fit_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly these columns: missing ones are null, the others are cast where their type differs."""
    if batch.schema.equals(schema):
        return batch
    return pa.record_batch([_column(batch, field) for field in schema], schema=schema)


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(index)
    return column if column.type == field.type else column.cast(field.type)


def without(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """The schema without these columns."""
    return pa.schema([field for field in schema if field.name not in names])
