"""What a task of a load does: read its ranges, decode them, write files. No row goes through the JVM.

Errors that we raise on purpose come back as a result: Spark would try the task again, for nothing, and wrap the message
into pages of Java.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.decode.contract import Decoded, to_dead, told_by, without
from barnabas.pipelines.errors import DataLost, PipelineError
from barnabas.pipelines.loading.reports import Counted
from barnabas.pipelines.reading import read_range
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.unfit import unfit_rows
from barnabas.pipelines.tables.writing import DATE, TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.loading.plan import Piece
    from barnabas.pipelines.tables.contract import DataFile
    from barnabas.pipelines.tables.destinations import Destination

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class Work:
    """What all tasks of a round have in common; it travels to the executors."""

    client: Mapping[str, object]
    decoder: Decoder
    rows: Destination
    dead: Destination
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class Done:
    """What became of a piece."""

    piece: Piece
    schema: pa.Schema
    """Of the rows, as the decoder knows it now."""
    told: pa.Schema
    """The same by what all records tell, where a decoder knows more than its rows show."""
    files: Sequence[DataFile] = ()
    dead_files: Sequence[DataFile] = ()
    records: int = 0
    size: int = 0
    """Of keys and values, in bytes."""
    error: str | None = None
    has_place: bool = True
    """Whether the rows have all that the table is partitioned by. If not, none were written: other tasks may have seen
    it, and this one has to run again with the schema that they agree on."""


def table_columns(rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """The columns of a table for rows of this schema: the writer makes the day of a record."""
    if DATE not in partition_by or DATE in rows.names:
        return rows
    return rows.append(pa.field(DATE, pa.date32()))


def run_task(piece: Piece, work: Work, on_progress: Callable[[Counted], None] = lambda _: None) -> Done:
    """Read, decode and write a piece.

    A decoder that learns is the task's own: the tasks of one worker share what they are sent, and what one of them made
    of its records must not depend on which others ran before it.
    """
    decoder = deepcopy(work.decoder) if work.decoder.evolves else work.decoder
    records = size = 0
    has_place = True
    try:
        with TableWriter(work.rows) as rows, TableWriter(work.dead) as dead:
            for passed, batch in _read(piece, work):
                records += batch.num_rows
                size += _size(batch)
                on_progress(Counted(records, size, passed))
                decoder, decoded = _decoded(decoder, batch, work.rows)
                if decoded.rows.num_rows and has_place:
                    has_place = not decoder.evolves or _has_place(decoder.schema, work.rows)
                if not has_place:
                    continue
                if decoded.rows.num_rows:
                    rows.write(decoded.rows)
                if decoded.dead.num_rows:
                    dead.write(decoded.dead)
            if not has_place:
                return Done(piece, decoder.schema, told_by(decoder), records=records, size=size, has_place=False)
            return Done(piece, decoder.schema, told_by(decoder), rows.finish(), dead.finish(), records, size)
    except BarnabasError as error:
        return Done(piece, decoder.schema, decoder.schema, error=str(error) or type(error).__name__)


def _read(piece: Piece, work: Work) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of records, each with the number of offsets that are passed with it."""
    before = 0
    for wanted in piece:
        try:
            for batch in read_range(wanted, work.client, columns=COLUMNS, fail_on_data_loss=work.fail_on_data_loss):
                yield before + batch.column("offset")[-1].as_py() + 1 - wanted.start, batch
        except BarnabasError as error:
            raise PipelineError(f"{wanted} could not be loaded: {_words(error)}") from error
        before += wanted.size


def _words(error: BarnabasError) -> str:
    """What happened; the way out is that of a load, where the reader names the one of Spark's source."""
    text = str(error) or type(error).__name__
    return (
        text.replace("set failOnDataLoss to false", "give --allow-data-loss") if isinstance(error, DataLost) else text
    )


def _has_place(rows: pa.Schema, table: Destination) -> bool:
    try:
        table.check_partition_columns(table_columns(rows, table.partition_by))
    except SchemaConflict:
        return False
    return True


def _decoded(decoder: Decoder, batch: pa.RecordBatch, table: Destination) -> tuple[Decoder, Decoded]:
    """What was decoded, with those rows among the dead letters that the table has no place for; and who goes on.

    What a decoder learnt from such rows it has to forget: it decodes the others again, as it was before.
    """
    before = decoder.schema
    decoded = decoder.decode(batch)
    unfit: dict[int, str] = {}
    while reasons := unfit_rows(decoded.rows, table):
        offsets = decoded.rows.column("_offset")
        index_of = {offset: index for index, offset in enumerate(batch.column("offset").to_pylist())}
        unfit |= {index_of[offsets[row].as_py()]: reason for row, reason in reasons.items()}
        if decoder.schema.equals(before):
            decoded = Decoded(without(decoded.rows, reasons), decoded.dead)
            break
        decoder = decoder.bound(before, (DATE,) if DATE in table.partition_by else ())
        decoded = decoder.decode(without(batch, unfit))
    if not unfit:
        return decoder, decoded
    return decoder, Decoded(decoded.rows, pa.concat_batches([decoded.dead, to_dead(batch, unfit)]))


def _size(batch: pa.RecordBatch) -> int:
    return sum(_data(batch.column(name)) for name in ("key", "value"))


def _data(column: Any) -> int:
    data = column.buffers()[2]
    return 0 if data is None else int(data.size)
