"""Records of a topic as rows: the columns of their values, and the place of each, by the decoders of loads.

A record becomes a row of the one view or of the other: bad records stop nothing and never vanish.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from barnabas.pipelines.decode.contract import DEAD_SCHEMA, METADATA, Decoded, Decoder, to_dead, without
from barnabas.pipelines.decode.tombstones import MarkedTombstones
from barnabas.pipelines.loading.tasks.task import COLUMNS
from barnabas.pipelines.spark.read.rows import record_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column, DataFrame

NO_VALUE: Final = "there is no value"


class Views(NamedTuple):
    """What a source makes of its records."""

    rows: DataFrame
    """The fields of values, and the place of each record."""
    bad: DataFrame
    """The other records, as they came, with the reason."""


def decode_views(records: DataFrame, decoder: Decoder) -> Views:
    """What a decoder makes of records, as in a load. Each of the two views decodes all of them, and keeps its part."""
    taken = records.select(*COLUMNS)
    rows = taken.mapInArrow(partial(_rows, decoder), from_arrow_schema(decoder.schema, prefer_timestamp_ntz=True))
    dead = taken.mapInArrow(partial(_dead, decoder), from_arrow_schema(DEAD_SCHEMA))
    fields = [_quote(name) for name in decoder.schema.names if name not in METADATA.names]
    return Views(rows.select(*fields, *METADATA.names), dead.select("value", "reason", *_place()))


def _quote(name: str) -> str:
    """A column whose name may have dots."""
    return "`" + name.replace("`", "``") + "`"


def _place() -> list[Column]:
    """What a record has beside its value, under the names that rows have for it."""
    return [fn.col(name.removeprefix("_")).alias(name) for name in METADATA.names]


def _rows(decoder: Decoder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (_decode(decoder, batch).rows for batch in batches)


def _dead(decoder: Decoder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return (_decode(decoder, batch).dead for batch in batches)


def _decode(decoder: Decoder, batch: pa.RecordBatch) -> Decoded:
    """Rows and dead letters; a record without a value is a row only if it is marked."""
    plain = batch.cast(record_schema(columns=COLUMNS))
    if isinstance(decoder, MarkedTombstones):
        return decoder.decode(plain)
    empty = {index: NO_VALUE for index, null in enumerate(plain.column("value").is_null().to_pylist()) if null}
    found = decoder.decode(without(plain, empty))
    dead = pa.concat_batches([found.dead, to_dead(plain, empty)]) if empty else found.dead
    return Decoded(found.rows, dead)
