"""What a Parquet footer knows of a file's columns, as Delta's log has it: readers pass over files by it. Pure.

A bound may be lower or higher than the values, never the other way round. So a text is cut off behind `TEXT_LENGTH`
characters, and a maximum that was cut gets the highest character there is behind it; times are given in milliseconds,
rounded outwards. What a footer cannot promise is left out: the maximum of floating numbers, because NaN is not in it
and is the highest of all to Delta.
"""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

COLUMNS: Final = 32
"""Delta gives statistics of so many columns, the first ones."""
TEXT_LENGTH: Final = 32
HIGHEST: Final = "\U0010ffff"
_MILLISECOND: Final = dt.timedelta(milliseconds=1)
_LAST_MILLISECOND: Final = dt.datetime.max.replace(microsecond=999_000)
"""Of the year 9999; Python knows no moment after it to round up to."""


def delta_statistics(footer: Any) -> dict[str, Any]:
    """The statistics of a file, by its `pyarrow.parquet.FileMetaData`."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    columns = list(_columns(footer.schema.to_arrow_schema()))
    for index, path in [each for each in enumerate(columns) if each[1]][:COLUMNS]:
        found = [group.column(index).statistics for group in groups]
        if any(each is None for each in found):
            continue
        if all(each.has_null_count for each in found):
            _put(nulls, path, sum(each.null_count for each in found))
        bounds = _bounds(found)
        if bounds is not None:
            _put(least, path, _lower(bounds[0]))
            _put(most, path, _upper(bounds[1]))
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _columns(fields: Iterable[pa.Field], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every column of a file; an empty one for what is in lists and maps, of which Delta wants nothing."""
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _columns(field.type, (*above, field.name))
        elif pa.types.is_list(field.type):
            yield from (() for _ in _columns([field.type.value_field]))
        elif pa.types.is_map(field.type):
            yield from (() for _ in _columns([field.type.key_field, field.type.item_field]))
        else:
            yield (*above, field.name)


def _bounds(found: Iterable[Any]) -> tuple[Any, Any] | None:
    """The least and the highest value over row groups; None if one of them does not say. All nulls have no bounds."""
    least, most = [], []
    for each in found:
        if each.has_min_max:
            try:
                least.append(each.min)
                most.append(each.max)
            except (ValueError, OverflowError):  # a time that Python does not know
                return None
        elif each.num_values:
            return None
    return (min(least), max(most)) if least else None


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:TEXT_LENGTH]
    if isinstance(value, dt.datetime):
        return _moment(value - _past_millisecond(value))
    return _plain(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) <= TEXT_LENGTH:
            return value
        return None if HIGHEST in value else value[:TEXT_LENGTH] + HIGHEST
    if isinstance(value, dt.datetime):
        past = _past_millisecond(value)
        if not past:
            return _moment(value)
        return _moment(value + (_MILLISECOND - past)) if value.replace(tzinfo=None) <= _LAST_MILLISECOND else None
    return None if isinstance(value, float) else _plain(value)


def _plain(value: Any) -> Any:
    """A value as JSON has it; None for types of which Delta keeps no bounds."""
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value) if float(value) == value else None
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _past_millisecond(value: dt.datetime) -> dt.timedelta:
    return dt.timedelta(microseconds=value.microsecond % 1000)


def _moment(value: dt.datetime) -> str:
    """As `2026-01-31T10:00:00.000Z`; without Z where the column has no time zone."""
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else f"{text}Z"


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value
