"""Dead letters as a table promises them, and as they are found where they belong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from barnabas.pipelines.decode.contract import DEAD_SCHEMA
from barnabas.pipelines.tables.contract import TableOutbox
from barnabas.pipelines.tables.files.writing import write_files
from tests.support.tables import IDS, SCHEMA, content, one, rows, written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.pipelines.tables.table import Table


def letters(offset: int) -> pa.RecordBatch:
    values = {"topic": "t", "partition": 0, "offset": offset, "timestamp": None, "reason": "r", "key": None}
    return pa.RecordBatch.from_pylist([{**values, "value": b"v"}], DEAD_SCHEMA)


def promise(table: Table, dead: Table, offset: int, ids: Mapping[str, str] = IDS) -> None:
    """Commit one row and one dead letter, which is only promised."""
    ranges = one(offset, offset + 1)
    outbox = TableOutbox(ranges, write_files([letters(offset)], dead.destination()))
    table.commit("p", ranges, ids, written(table, rows(offset, offset + 1)), SCHEMA, outbox=outbox)


def delivered(dead: Table) -> list[int]:
    return sorted(content(dead.format, dead.location).column("offset").to_pylist())
