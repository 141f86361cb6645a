"""Values as text or as bytes: one column, `value`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas.pipelines.decode.contract import Decoded, row_schema, to_dead, to_rows, without
from barnabas.pipelines.decode.framing import PREFIX, Framing, is_framed

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.pipelines.decode.contract import Decoder


class Plain:
    """Values as they are, or as UTF-8. Only a framing that was asked for is taken off: any byte may begin a value."""

    evolves = False

    def __init__(self, kind: pa.DataType, framing: Framing = Framing.NONE) -> None:
        self.kind = "string" if pa.types.is_string(kind) else "bytes"
        self._type = kind
        self._framed = framing is Framing.CONFLUENT
        self.schema: pa.Schema = row_schema(pa.schema([pa.field("value", kind)]))

    def bound(self, table: pa.Schema, made: Collection[str] = ()) -> Decoder:
        """This decoder: its column has one type."""
        return self

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each value; what is not UTF-8, or lacks its prefix, is dead."""
        values = batch.column("value")
        reasons: dict[int, str] = {}
        if self._framed:
            values, reasons = _unframed(values)
        try:
            column = values.cast(self._type)
        except pa.ArrowInvalid:
            column, others = _text(values)
            reasons = others | reasons
        if not reasons:
            return Decoded(to_rows(batch, [column], self.schema), to_dead(batch, reasons))
        kept = pa.array([index for index in range(len(column)) if index not in reasons], pa.int64())
        rows = to_rows(without(batch, reasons), [column.take(kept)], self.schema)
        return Decoded(rows, to_dead(batch, reasons))


def _unframed(values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    bare: list[bytes | None] = []
    reasons = {}
    for index, value in enumerate(values.to_pylist()):
        if value is not None and not is_framed(value):
            reasons[index] = "it does not begin with a schema's id (a zero byte and four more)"
        bare.append(None if value is None else value[PREFIX:])
    return pa.array(bare, pa.binary()), reasons


def _text(values: pa.Array) -> tuple[pa.Array, dict[int, str]]:
    texts: list[str | None] = []
    reasons = {}
    for index, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError as error:
            reasons[index] = f"not UTF-8: {error.reason} at byte {error.start}"
            texts.append(None)
    return pa.array(texts, pa.string()), reasons
