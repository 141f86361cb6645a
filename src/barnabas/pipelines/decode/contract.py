"""What a decoder is: record batches in, rows and dead letters out, both in Arrow.

Every record of a batch becomes exactly one row or exactly one dead letter: bad records stop nothing and never vanish.
A row has the record's place beside the columns of its value:

    _topic _partition _offset _timestamp _key   and then the columns of the value

A column of the value with one of these names gets `_value` appended: `_offset` becomes `_offset_value`. So does an
inferred one with the name of a column that the table makes itself.

A record without a value (a tombstone) is a row whose value columns are all null.

A dead letter has the record's place, the reason, and the bytes as they were, so that it can be decoded again.

Decoders run in Spark's tasks: they are pickled with all they need (the text of a schema, never the name of a file).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pyarrow as pa

from barnabas.pipelines.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
METADATA: Final = pa.schema(
    [
        pa.field("_topic", pa.string()),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", TIMESTAMP),
        pa.field("_key", pa.binary()),
    ]
)
Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""
FEW_LETTERS: Final = 5
"""Dead letters of one task of which it is told where they are."""
REPORTED_LETTERS: Final = 20
"""Those of one commit."""
DEAD_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", TIMESTAMP),
        pa.field("reason", pa.string()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)


class SchemaRefused(PipelineError):
    """A schema file is not there, cannot be read, or says what no table can hold."""


class Decoded(NamedTuple):
    """What became of a batch: each record is in one of the two."""

    rows: pa.RecordBatch
    dead: pa.RecordBatch


class Decoder(Protocol):
    """One way to make rows of records. It can be pickled."""

    @property
    def kind(self) -> str:
        """The decoder's name, such as `json`: a table keeps to the decoder that made it."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The rows' schema as far as it is known; `decode` may add columns to it if the decoder evolves."""
        ...

    @property
    def evolves(self) -> bool:
        """Whether `decode` may add columns."""
        ...

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """Rows and dead letters of records (`rows.RECORD_SCHEMA`); the rows have `schema` as it is afterwards."""
        ...

    def bound(self, table: pa.Schema, made: Collection[str] = ()) -> Decoder:
        """A decoder whose rows fit a table: what the table says of a column holds, and is not inferred anew.

        Columns that are `made` from a record's place are not in `table`, and no field may take their names.
        """
        ...


def inferred_by(decoder: Decoder) -> pa.Schema:
    """The rows' schema as all records tell it: more than rows show, if a decoder has a property `inferred`."""
    inferred: pa.Schema = getattr(decoder, "inferred", decoder.schema)
    return inferred


def column_name(key: str, made: Collection[str] = ()) -> str:
    """What the column of a value's field is called, in a table that makes columns of these names itself."""
    return f"{key}_value" if key in METADATA.names or key in made else key


def row_schema(value: pa.Schema, made: Collection[str] = ()) -> pa.Schema:
    """The schema of rows whose values have this one, under the names that `column_name` gives."""
    fields = [field.with_name(column_name(field.name, made)) for field in value]
    seen: dict[str, str] = {}
    for field in (*METADATA, *fields):
        twin = seen.get(field.name.casefold())
        if twin is not None:
            raise SchemaRefused(
                f"the columns {twin} and {field.name} have the same name but for capitals, which tables do not tell "
                "apart: rename one of them in the schema"
            )
        seen[field.name.casefold()] = field.name
    return pa.schema([*METADATA, *fields])


def to_rows(batch: pa.RecordBatch, columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Records with the columns of their values, as rows of this schema."""
    place = [batch.column(field.name.removeprefix("_")) for field in METADATA]
    return pa.record_batch([*place, *columns], schema=schema)


def places_of(dead: pa.RecordBatch, most: int) -> list[Place]:
    """Where the records of the first dead letters are, of those that tell."""
    few = dead.slice(0, most)
    columns = (few.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return [place for place in zip(*columns, strict=True) if None not in place]


def to_dead(batch: pa.RecordBatch, reasons: Mapping[int, str]) -> pa.RecordBatch:
    """The records at these indexes as dead letters."""
    if not reasons:
        return _NONE_DEAD
    order = sorted(reasons)
    taken = batch.take(pa.array(order, pa.int64()))
    texts = pa.array([reasons[index] for index in order], pa.string())
    columns = [texts if field.name == "reason" else taken.column(field.name) for field in DEAD_SCHEMA]
    return pa.record_batch(columns, schema=DEAD_SCHEMA)


def without(batch: pa.RecordBatch, dropped: Mapping[int, str]) -> pa.RecordBatch:
    """The batch without the records at these indexes."""
    if not dropped:
        return batch
    return batch.take(pa.array([index for index in range(batch.num_rows) if index not in dropped], pa.int64()))


_NONE_DEAD: Final = pa.record_batch([pa.nulls(0, field.type) for field in DEAD_SCHEMA], schema=DEAD_SCHEMA)
"""Made without `pa.array`, which loads pandas: 25 MB in each worker, though no letter may ever come."""
