"""Rows that a table cannot hold because of what it is partitioned by, found before anything of them is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.pipelines.tables.files.destinations import partition_folder

if TYPE_CHECKING:
    from barnabas.pipelines.tables.files.destinations import Destination

NAME_BYTES: Final = 255
"""No file system that we know of has longer names."""
_QUOTED_BYTES: Final = 3
"""What becomes of a byte in a folder's name, at most."""
LAST_DAY: Final = 2932896
"""The last day of the year 9999, counted from 1970 on, and the first of the year 1: Python knows no others."""
FIRST_DAY: Final = -719162


def unfit_rows(rows: pa.RecordBatch, destination: Destination) -> dict[int, str]:
    """Which rows have no place in the table, and why."""
    reasons: dict[int, str] = {}
    for name in destination.partition_by:
        if name not in rows.schema.names:
            continue
        column = rows.column(name)
        if pa.types.is_date(column.type):
            reasons |= dict.fromkeys(_where(beyond_calendar(column)), f"{name} is beyond the years 1 to 9999")
        elif pa.types.is_string(column.type) and destination.drops_partition_columns:
            for index in _where(pc.greater(pc.binary_length(column), _always_fits(name))):
                reason = unfit_value(name, column[index].as_py())
                if reason is not None:
                    reasons[index] = reason
    return reasons


def unfit_value(name: str, value: Any) -> str | None:
    """Why a folder cannot be named by a value, if it cannot."""
    length = len(partition_folder(((name, value),)).encode())
    if length <= NAME_BYTES:
        return None
    return f"{name} would make the name of a folder {length} bytes long, and {NAME_BYTES} are possible"


def beyond_calendar(dates: pa.Array) -> pa.Array:
    """Which dates are not in the calendar that Python, and so most readers of tables, know."""
    days = dates.cast(pa.date32()).cast(pa.int32())
    return pc.or_(pc.greater(days, LAST_DAY), pc.less(days, FIRST_DAY))


def _always_fits(name: str) -> int:
    return (NAME_BYTES - len(partition_folder(((name, ""),)).encode())) // _QUOTED_BYTES


def _where(mask: pa.Array) -> list[int]:
    found: list[int] = pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist()
    return found
