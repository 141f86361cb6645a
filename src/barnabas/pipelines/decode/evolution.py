"""How the schema of JSON is found and grows, so that it is the same wherever a record is decoded.

A type is inferred from values: whole numbers are BIGINT, other numbers DOUBLE, then STRING, BOOLEAN, ARRAY and STRUCT.
Text stays text: nothing is taken for a time. Three rules keep a schema stable:

- What a table says holds. A column never changes its type; a value that does not fit is a dead letter.
- Between values that are seen together BIGINT and DOUBLE become DOUBLE, unless that would round a whole number: then
  they are BIGINT, and fractions do not fit. Any other disagreement is decided by the first.
- A null, an empty list and an empty object tell no type (VOID): their column is added when a value tells one.

Iceberg names what is inside of others by dots. So of a field `a.b` and a field `b` in `a` only the first one is added.

Tasks that ran side by side may have inferred different types for a new column: `merge_schemas` says what the table
shall have, and which tasks have to decode their records again by that. A task also tells of numbers that did not fit:
which of them comes first, in which batch and in which task, decides nothing.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from barnabas.pipelines.decode.contract import METADATA, column_name
from barnabas.pipelines.decode.ddl import type_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

VOID: Final = pa.null()
EXACT: Final = pa.uint64()
"""BIGINT while it is inferred, with a number that DOUBLE would round. No table has this type."""
MOST_COLUMNS: Final = 2000
MOST_LEVELS: Final = 32
_FORBIDDEN: Final = frozenset(" ,;{}()\n\t=")
_BIGINT: Final = range(-(2**63), 2**63)


class Unfit(Exception):
    """A value from which no type can be inferred."""


class Merged(NamedTuple):
    """One schema out of many, and the indexes of those that do not fit it."""

    schema: pa.Schema
    misfits: tuple[int, ...]


def infer(value: Any, where: str = "", level: int = 0) -> pa.DataType:
    """The type of a value of JSON; raises Unfit for numbers, names and depths that tables do not hold."""
    match value:
        case None:
            return VOID
        case bool():
            return pa.bool_()
        case int():
            if value not in _BIGINT:
                raise Unfit(f"{where}: {value} is beyond BIGINT; give a schema that has DECIMAL(38,0) or DOUBLE for it")
            return pa.int64() if float(value) == value else EXACT
        case float():
            return pa.float64()
        case Decimal():
            raise Unfit(f"{where}: {value} is beyond DOUBLE; give a schema that has STRING for it")
        case str():
            return pa.string()
    if level == MOST_LEVELS:
        raise Unfit(f"{where}: nested deeper than {MOST_LEVELS} levels")
    if isinstance(value, list):
        element = VOID
        for item in value:
            element = join(element, infer(item, f"{where}[]", level + 1))
        return pa.list_(element)
    _check_names(value, where)
    fields = [pa.field(key, infer(item, _path(where, key), level + 1)) for key, item in value.items()]
    return pa.struct(_merged_fields((), fields, fixed=False))


def _check_names(keys: Iterable[str], where: str) -> None:
    """Raise Unfit unless all keys of an object can name columns of any table."""
    seen: dict[str, str] = {}
    for key in keys:
        if not key or not _FORBIDDEN.isdisjoint(key) or not key.isprintable():
            raise Unfit(f"{_path(where, key)!r} cannot name a column; give a schema that leaves it out")
        twin = seen.setdefault(key.casefold(), key)
        if twin != key:
            raise Unfit(f"{_path(where, key)} and {twin} differ only by capitals, which tables do not tell apart")


def join(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type of values that were seen together; where they disagree, the first one's."""
    return _merged(one, other, fixed=False)


def extend(known: pa.DataType, seen: pa.DataType) -> pa.DataType:
    """A type that a table has, with the fields that were newly seen; nothing that it has changes."""
    return _merged(known, seen, fixed=True)


def widened(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The fields of the first one, with types for numbers of both."""
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        types = {field.name: field.type for field in other}
        return pa.struct([pa.field(each.name, widened(each.type, types.get(each.name, VOID))) for each in one])
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(widened(one.value_type, other.value_type))
    return _of_numbers(one, other) or one


def settled(kind: pa.DataType) -> pa.DataType:
    """The type that a table gets for one that was inferred."""
    if kind == EXACT:
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, settled(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(settled(kind.value_type))
    return kind


def has_all(kind: pa.DataType, seen: pa.DataType) -> bool:
    """Whether a type has all fields of another one."""
    if pa.types.is_struct(kind) and pa.types.is_struct(seen):
        types = {field.name: field.type for field in kind}
        return all(field.name in types and has_all(types[field.name], field.type) for field in seen)
    if pa.types.is_list(kind) and pa.types.is_list(seen):
        return has_all(kind.value_type, seen.value_type)
    return True


def _merged(one: pa.DataType, other: pa.DataType, *, fixed: bool) -> pa.DataType:
    if one == VOID:
        return other
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        return pa.struct(_merged_fields(one, other, fixed=fixed))
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_merged(one.value_type, other.value_type, fixed=fixed))
    return one if fixed else _of_numbers(one, other) or one


def _of_numbers(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type for numbers of both types; None if they are not numbers that were inferred."""
    both = {one, other}
    if not both <= {pa.int64(), pa.float64(), EXACT}:
        return None
    return next(kind for kind in (EXACT, pa.float64(), pa.int64()) if kind in both)


def _merged_fields(one: Iterable[pa.Field], other: Iterable[pa.Field], *, fixed: bool) -> list[pa.Field]:
    fields = {field.name: field.type for field in one}
    lowered = {name.casefold() for name in fields}
    for field in other:
        name = field.name
        if name in fields:
            wider = _merged(fields[name], field.type, fixed=fixed)
            if wider == fields[name] or not _is_ambiguous(name, wider, fields):
                fields[name] = wider
        elif (
            name.casefold() not in lowered
            and len(fields) < MOST_COLUMNS
            and not _is_ambiguous(name, field.type, fields)
        ):
            fields[name] = field.type
            lowered.add(name.casefold())
    return [pa.field(name, kind) for name, kind in fields.items()]


def _is_ambiguous(name: str, kind: pa.DataType, siblings: Mapping[str, pa.DataType]) -> bool:
    """Whether a field, or one in it, would have the whole name of another: `a.b` is also what is `b` in `a`."""
    near = [above for at, letter in enumerate(name) if letter == "." and (above := name[:at]) in siblings]
    if pa.types.is_nested(kind):
        near += [other for other in siblings if other.startswith(f"{name}.")]
    own = set(_whole_names(name, kind)) if near else set()
    return any(not own.isdisjoint(_whole_names(other, siblings[other])) for other in near)


def _whole_names(name: str, kind: pa.DataType) -> Iterator[str]:
    """What Iceberg calls a field and those in it."""
    yield name
    if pa.types.is_struct(kind):
        for field in kind:
            yield from _whole_names(f"{name}.{field.name}", field.type)
    elif pa.types.is_list(kind):
        yield from _whole_names(f"{name}.element", kind.value_type)


def pruned(kind: pa.DataType) -> pa.DataType | None:
    """The type without what is VOID in it, None if nothing is left."""
    if kind == VOID:
        return None
    if pa.types.is_struct(kind):
        fields = [pa.field(field.name, inner) for field in kind if (inner := pruned(field.type)) is not None]
        return pa.struct(fields) if fields else None
    if pa.types.is_list(kind):
        inner = pruned(kind.value_type)
        return None if inner is None else pa.list_(inner)
    return kind


def canonical(kind: pa.DataType) -> pa.DataType:
    """A table library's own variant of a type (large or view types, other names of elements) as the usual one."""
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=None if kind.tz is None else "UTC")
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(canonical(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, canonical(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(canonical(kind.key_type), canonical(kind.item_type))
    return kind


def value_schema(table: pa.Schema, made: Collection[str] = ()) -> pa.Schema:
    """The fields of values in a table's schema, by the names that they have in records."""
    originals = {column_name(name, made): name for name in (*METADATA.names, *made)}
    return pa.schema(
        [
            pa.field(originals.get(field.name, field.name), canonical(field.type))
            for field in table
            if field.name not in METADATA.names
        ]
    )


def merge_schemas(table: pa.Schema, seen: Sequence[pa.Schema], inferred: Sequence[pa.Schema] | None = None) -> Merged:
    """What a table shall have after tasks decoded their records with these schemas, and which tasks misfit it.

    `inferred` has what the records of each task tell of new columns, where that is more than their rows have. The order
    decides, so give it by partition and offset: then it does not depend on who finished first.
    """
    inferred = seen if inferred is None else inferred
    known = pa.struct([pa.field(field.name, canonical(field.type)) for field in table])
    new = pa.struct([])
    for schema in inferred:
        kinds = [(field.name, pruned(canonical(field.type))) for field in schema]
        new = join(new, pa.struct([pa.field(name, kind) for name, kind in kinds if kind is not None]))
    merged = settled(extend(known, new))
    types = {field.name: field.type for field in merged}
    misfits = tuple(
        index
        for index, (rows, whole) in enumerate(zip(seen, inferred, strict=True))
        if any(types.get(field.name) != canonical(field.type) for field in rows)
        or any(_clashes(canonical(field.type), types.get(field.name, VOID)) for field in whole)
    )
    original = {field.name: field for field in table}
    fields = [
        original[name] if name in original and canonical(original[name].type) == kind else pa.field(name, kind)
        for name, kind in types.items()
    ]
    return Merged(pa.schema(fields), misfits)


def _clashes(inferred: pa.DataType, kind: pa.DataType) -> bool:
    """Whether what is empty, and so has no type of its own, cannot be of a type: a list is no number."""
    if VOID in (inferred, kind):
        return False
    if pa.types.is_struct(inferred) and pa.types.is_struct(kind):
        types = {field.name: field.type for field in kind}
        return any(_clashes(field.type, types.get(field.name, VOID)) for field in inferred)
    if pa.types.is_list(inferred) and pa.types.is_list(kind):
        return _clashes(inferred.value_type, kind.value_type)
    return pa.types.is_nested(inferred) and not pa.types.is_map(inferred)


def misfit(value: Any, kind: pa.DataType, where: str, *, exact: bool) -> str | None:
    """Why a value of JSON does not fit a type, None if that is not seen here.

    What is too large for a type never fits. A whole number that the type would round does not if it has to be `exact`,
    as where nobody has chosen the type.
    """
    if value is None or kind == VOID:
        return None
    if pa.types.is_struct(kind) and isinstance(value, dict):
        found = (
            misfit(value[field.name], field.type, _path(where, field.name), exact=exact)
            for field in kind
            if field.name in value
        )
        return next((reason for reason in found if reason is not None), None)
    if pa.types.is_list(kind) and isinstance(value, list):
        found = (misfit(item, kind.value_type, f"{where}[{index}]", exact=exact) for index, item in enumerate(value))
        return next((reason for reason in found if reason is not None), None)
    if _fits(value, kind):
        if exact and pa.types.is_floating(kind) and isinstance(value, int) and value != _rounded(value, kind):
            return f"{where}: {type_name(kind)} would round the number {value}; give a schema that has BIGINT for it"
        return None
    return f"{where}: expected {type_name(kind)}, found {_words(value)}"


def _fits(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if pa.types.is_integer(kind):
        return isinstance(value, int) and value in range(-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return isinstance(value, int | float) and _rounded(value, kind) is not None
    if pa.types.is_decimal(kind):
        return isinstance(value, int | float | Decimal | str)
    return isinstance(value, str) and not pa.types.is_nested(kind)


def _rounded(value: float, kind: pa.DataType) -> float | None:
    """A number as a floating one of this type; None if it is too large."""
    form = "<f" if kind == pa.float32() else "<d"
    try:
        [found] = struct.unpack(form, struct.pack(form, float(value)))
    except OverflowError:
        return None
    return float(found)


def _words(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return f"the number {value}"
        case str():
            return f"the text {value[:40]!r}"
        case list():
            return "a list"
    return "an object"


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
