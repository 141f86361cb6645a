"""Marks records without a value, which would be rows of nulls like those of an empty JSON object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.decode.contract import Decoded, inferred_by

if TYPE_CHECKING:
    from collections.abc import Collection

    from barnabas.pipelines.decode.contract import Decoder

TOMBSTONE: Final = "_tombstone"


class MarkedTombstones:
    """A decoder whose rows say, in a last column `_tombstone`, whether their record has no value."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @property
    def kind(self) -> str:
        """That of the decoder: a table may have the mark from any moment on."""
        return self._decoder.kind

    @property
    def evolves(self) -> bool:
        """Whether the decoder does."""
        return self._decoder.evolves

    @property
    def schema(self) -> pa.Schema:
        """The decoder's, and the mark."""
        return self._decoder.schema.append(pa.field(TOMBSTONE, pa.bool_()))

    @property
    def inferred(self) -> pa.Schema:
        """The schema that the decoder inferred, and the mark."""
        return inferred_by(self._decoder).append(pa.field(TOMBSTONE, pa.bool_()))

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """The decoder's rows, with the mark; no record without a value is a dead letter."""
        rows, dead = self._decoder.decode(batch)
        marks = _are_among(rows, batch.filter(batch.column("value").is_null()))
        return Decoded(pa.record_batch([*rows.columns, marks], schema=rows.schema.append(self.schema.field(-1))), dead)

    def bound(self, table: pa.Schema, made: Collection[str] = ()) -> Decoder:
        """The decoder for a table, whose mark is not the value's."""
        values = pa.schema([field for field in table if field.name != TOMBSTONE])
        return MarkedTombstones(self._decoder.bound(values, (*made, TOMBSTONE)))


def _are_among(rows: pa.RecordBatch, records: pa.RecordBatch) -> pa.Array:
    """Which rows are of these records, which may be of several partitions."""
    found = pa.repeat(pa.scalar(False), rows.num_rows)
    places = zip(records.column("topic").to_pylist(), records.column("partition").to_pylist(), strict=True)
    for topic, partition in dict.fromkeys(places):
        there = pc.and_(pc.equal(records.column("topic"), topic), pc.equal(records.column("partition"), partition))
        here = pc.and_(pc.equal(rows.column("_topic"), topic), pc.equal(rows.column("_partition"), partition))
        same = pc.is_in(rows.column("_offset"), value_set=records.column("offset").filter(there))
        found = pc.or_(found, pc.and_(here, same))
    return found
