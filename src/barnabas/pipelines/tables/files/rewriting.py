"""Many small files into few: read batch by batch and written anew, in bounded memory. Rows stay as they are."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from barnabas.pipelines.tables.files.schemas import fit_columns
from barnabas.pipelines.tables.files.writing import TableWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from barnabas.pipelines.tables.contract import DataFile
    from barnabas.pipelines.tables.files.destinations import Destination

BATCH_ROWS = 10_000


def small_files(files: Iterable[DataFile], target_bytes: int) -> list[DataFile]:
    """Files worth merging: smaller than that, and not alone in their partition."""
    small = sorted((file for file in files if file.size < target_bytes), key=_place)
    return [file for _, group in groupby(small, key=_place) if len(found := list(group)) > 1 for file in found]


def rewrite(
    files: Sequence[DataFile],
    destination: Destination,
    schema: pa.Schema,
    target_bytes: int,
    read: Callable[[DataFile], Iterable[pa.RecordBatch]] | None = None,
) -> list[DataFile]:
    """The rows of these files in new ones, each partition's together.

    Columns are told by their names, unless a format tells them otherwise, and has to `read` files itself.
    """
    read = partial(_rows, destination=destination, schema=schema) if read is None else read
    with TableWriter(destination, file_bytes=target_bytes) as writer:
        for file in files:
            for batch in read(file):
                writer.write(fit_columns(batch, schema))
        return writer.finish()


def _place(file: DataFile) -> str:
    return repr(file.partition)


def _rows(file: DataFile, destination: Destination, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with destination.open_file(file.path) as stream:
        for batch in pq.ParquetFile(stream).iter_batches(BATCH_ROWS):
            yield _with_values(batch, file, schema)


def _with_values(batch: pa.RecordBatch, file: DataFile, schema: pa.Schema) -> pa.RecordBatch:
    for name, value in file.partition:
        if name not in batch.schema.names:
            kind = schema.field(name).type
            column = pa.repeat(pa.scalar(value, pa.string()), batch.num_rows).cast(kind)
            batch = batch.append_column(name, column)
    return batch
