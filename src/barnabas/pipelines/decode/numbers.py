"""Numbers of JSON that a column may have taken otherwise than they were written. Arrow's parser says nothing of these.

A number that is too large for a floating column becomes infinite, and a whole number with more digits than it has is
rounded. Both show in the column: it is infinite, or so large that the type lacks some whole numbers of that size. Which
of those rows are wrong is seen in their text; in most batches there are none to look at.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

_WHOLE: Final = {pa.float16(): 2**11, pa.float32(): 2**24, pa.float64(): 2**53}
"""Up to which number a floating type has all whole ones."""


def loads(text: str) -> Any:
    """A value of JSON. A number that is too large for any floating one is a Decimal, and `Infinity` is not."""
    return json.loads(text, parse_float=_number)


def _number(text: str) -> float | Decimal:
    found = float(text)
    return found if abs(found) != float("inf") else Decimal(text)


def doubtful_rows(column: pa.Array, *, exact: bool) -> set[int]:
    """Rows of a column that may have an infinite number where there was none or, if `exact`, a rounded one."""

    def is_doubtful(values: pa.Array) -> pa.Array:
        return pc.greater_equal(pc.abs(values), _WHOLE[values.type]) if exact else pc.is_inf(values)

    return _rows(column, pa.types.is_floating, is_doubtful)


def rows_beyond_double(column: pa.Array) -> set[int]:
    """Rows of a column with whole numbers so large that DOUBLE has not all of them."""

    def is_beyond(values: pa.Array) -> pa.Array:
        least = _WHOLE[pa.float64()]
        return pc.or_(pc.greater(values, least), pc.less(values, -least))

    return _rows(column, lambda kind: kind == pa.int64(), is_beyond)


def _rows(column: pa.Array, wanted: Callable[[pa.DataType], bool], mark: Callable[[pa.Array], pa.Array]) -> set[int]:
    """The rows in which a number of a wanted type is marked, wherever it is in them."""
    if pa.types.is_struct(column.type):
        fields = (_rows(field, wanted, mark) for field in column.flatten())
        return set().union(*fields)
    if pa.types.is_list(column.type):
        found = _rows(column.flatten(), wanted, mark)
        parents = pc.list_parent_indices(column) if found else pa.array([], pa.int64())
        return set(parents.take(pa.array(sorted(found), pa.int64())).to_pylist())
    if not wanted(column.type):
        return set()
    return set(pc.indices_nonzero(pc.fill_null(mark(column), False)).to_pylist())
