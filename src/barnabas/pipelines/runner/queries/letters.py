"""Rows of a view that a table has no place for, as dead letters.

A row is no record any more, so its letter has the whole row as JSON for a value, and of the record's place and key what
the row still says under the names that sources give (`_topic` and so on).
"""

from __future__ import annotations

import base64
import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from barnabas.pipelines.decode.contract import DEAD_SCHEMA, METADATA, to_dead
from barnabas.pipelines.tables.files.schemas import fit_columns, plain_schema

if TYPE_CHECKING:
    from collections.abc import Mapping


def to_letters(rows: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.RecordBatch:
    """The rows at these indexes as dead letters."""
    order = sorted(reasons)
    taken = rows.take(pa.array(order, pa.int64()))
    plain = fit_columns(taken, plain_schema(taken.schema))
    records = {
        name.removeprefix("_"): plain.column(name)
        for name in METADATA.names
        if name in plain.schema.names and plain.schema.field(name).type == METADATA.field(name).type
    }
    values = pa.array([_row_as_json(plain, row) for row in range(len(order))], pa.binary())
    whole = fit_columns(pa.record_batch({**records, "value": values}), DEAD_SCHEMA)
    return to_dead(whole, dict(enumerate(reasons[index] for index in order)))


def _row_as_json(rows: pa.RecordBatch, row: int) -> bytes:
    values = {name: _json_value(rows.column(name)[row]) for name in rows.schema.names}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()


def _json_value(value: pa.Scalar) -> Any:
    """A value as JSON can have it: bytes as base64, times beyond the calendar as days or microseconds since 1970."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_struct(kind):
        return {name: _json_value(value[name]) for name in value}
    if pa.types.is_map(kind):
        return [[_json_value(entry["key"]), _json_value(entry["value"])] for entry in value.values]
    if pa.types.is_list(kind):
        return [_json_value(each) for each in value.values]
    if pa.types.is_temporal(kind):
        try:
            return str(value.as_py())
        except (ValueError, OverflowError):
            return value.value
    plain = value.as_py()
    if isinstance(plain, bytes):
        return base64.b64encode(plain).decode()
    if isinstance(plain, float) and not math.isfinite(plain):
        return str(plain)
    return plain if isinstance(plain, bool | int | float | str) else str(plain)
