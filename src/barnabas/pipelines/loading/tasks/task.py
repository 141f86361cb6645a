"""What a task of a load does: read its ranges, decode them, write files. No row goes through the JVM.

Errors that we raise on purpose come back as a result: Spark would try the task again, for nothing, and wrap the message
into pages of Java.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from barnabas.model.base_error import BarnabasError
from barnabas.pipelines.decode.contract import FEW_LETTERS, Decoded, Place, inferred_by, places_of, to_dead, without
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.loading.tasks.reports import TaskCounts
from barnabas.pipelines.spark.read.reading import read_ranges
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.files.unfit import unfit_rows
from barnabas.pipelines.tables.files.writing import DATE, TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from barnabas.model.remedies import Remedy
    from barnabas.pipelines.decode.contract import Decoder
    from barnabas.pipelines.spark.read.offsets import Piece
    from barnabas.pipelines.tables.contract import DataFile
    from barnabas.pipelines.tables.files.destinations import Destination

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What all tasks of a round have in common; it travels to the executors."""

    client: Mapping[str, object]
    decoder: Decoder
    rows: Destination
    dead: Destination
    fail_on_data_loss: bool = True


class TaskFailure(NamedTuple):
    """Why a task gave up."""

    text: str
    remedy: Remedy | None


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task made of its piece."""

    piece: Piece
    schema: pa.Schema
    """Of the rows, as the decoder knows it now."""
    inferred: pa.Schema
    """The same by what all records tell, where a decoder knows more than its rows show."""
    files: Sequence[DataFile] = ()
    dead_files: Sequence[DataFile] = ()
    records: int = 0
    size: int = 0
    """Of keys and values, in bytes."""
    failure: TaskFailure | None = None
    letters: Sequence[Place] = ()
    """Topic, partition and offset of the first records that became dead letters."""
    has_place: bool = True
    """Whether the rows have all that the table is partitioned by. If not, none were written: other tasks may have seen
    it, and this one has to run again with the schema that they agree on."""


def table_columns(rows: pa.Schema, partition_by: Sequence[str]) -> pa.Schema:
    """The columns of a table for rows of this schema: the writer makes the day of a record."""
    if DATE not in partition_by or DATE in rows.names:
        return rows
    return rows.append(pa.field(DATE, pa.date32()))


def run_task(
    piece: Piece, settings: TaskSettings, on_progress: Callable[[TaskCounts], None] = lambda _: None
) -> TaskResult:
    """Read, decode and write a piece.

    A decoder that learns is the task's own: the tasks of one worker share what they are sent, and what one of them made
    of its records must not depend on which others ran before it.
    """
    decoder = deepcopy(settings.decoder) if settings.decoder.evolves else settings.decoder
    records = size = 0
    letters: list[Place] = []
    has_place = True
    try:
        with TableWriter(settings.rows) as rows, TableWriter(settings.dead) as dead:
            for passed, batch in _read(piece, settings):
                records += batch.num_rows
                size += _size(batch)
                on_progress(TaskCounts(records, size, passed))
                decoder, decoded = _decode(decoder, batch, settings.rows)
                if decoded.rows.num_rows and has_place:
                    has_place = not decoder.evolves or _has_place(decoder.schema, settings.rows)
                if not has_place:
                    continue
                if decoded.rows.num_rows:
                    rows.write(decoded.rows)
                if decoded.dead.num_rows:
                    dead.write(decoded.dead)
                    letters += places_of(decoded.dead, FEW_LETTERS - len(letters))
            if not has_place:
                return TaskResult(
                    piece, decoder.schema, inferred_by(decoder), records=records, size=size, has_place=False
                )
            files, dead_files = rows.finish(), dead.finish()
            return TaskResult(
                piece, decoder.schema, inferred_by(decoder), files, dead_files, records, size, letters=letters
            )
    except BarnabasError as error:
        return TaskResult(
            piece, decoder.schema, decoder.schema, failure=TaskFailure(str(error) or type(error).__name__, error.remedy)
        )


def _read(piece: Piece, settings: TaskSettings) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches of records, each with the number of offsets that are passed with it."""
    before = 0
    found = read_ranges(piece, settings.client, columns=COLUMNS, fail_on_data_loss=settings.fail_on_data_loss)
    for wanted, batches in found:
        try:
            for batch in batches:
                yield before + batch.column("offset")[-1].as_py() + 1 - wanted.start, batch
        except BarnabasError as error:
            what = str(error) or type(error).__name__
            raise PipelineError(f"{wanted} could not be loaded: {what}").with_remedy(error.remedy) from error
        before += wanted.size


def _has_place(rows: pa.Schema, table: Destination) -> bool:
    try:
        table.check_partition_columns(table_columns(rows, table.partition_by))
    except SchemaConflict:
        return False
    return True


def _decode(decoder: Decoder, batch: pa.RecordBatch, table: Destination) -> tuple[Decoder, Decoded]:
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
