"""JSON objects as rows, parsed in bulk by Arrow.

All values of a batch are joined by newlines and parsed at once, with a schema in which nothing is left to be inferred.
If that fails, the batch is halved until the records that do not fit are alone; so a record's fate is decided by itself
and the schema, never by its neighbours, and one bad record costs a few small parses. A value must begin with `{` and
end with `}`: then none can reach into its neighbour, and as many rows as values means one row for each.

With a given schema, fields that it does not name are left out. Without one, the schema evolves: a record with a field
that is not known yet is looked at by Python, together with those after it, and the batch is parsed anew with what was
learnt (see `evolution`). Only a record that fits can teach: a dead letter adds no columns to a table.

`NaN` and `Infinity` are taken as DOUBLE, and a number that is too large for its column makes a dead letter, as does a
whole number that an inferred DOUBLE would round (see `numbers`). So does a field that is there twice, since readers
disagree on which one counts.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from barnabas.pipelines.decode.contract import (
    Decoded,
    SchemaRefused,
    column_name,
    row_schema,
    to_dead,
    to_rows,
    without,
)
from barnabas.pipelines.decode.ddl import type_name
from barnabas.pipelines.decode.evolution import (
    Unfit,
    extend,
    has_all,
    infer,
    join,
    misfit,
    pruned,
    settled,
    value_schema,
    widened,
)
from barnabas.pipelines.decode.framing import Framing, strip_prefixes
from barnabas.pipelines.decode.numbers import doubtful_rows, loads, rows_beyond_double

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from barnabas.pipelines.decode.contract import Decoder

SAMPLE: Final = 256
"""How many records are looked at when one of them has a new field."""

_OBJECT: Final = r"(?s)\A[ \t\r\n]*\{.*\}[ \t\r\n]*\z"


class _Unlike(Exception):
    """Values that cannot be parsed together."""


class JsonDecoder:
    """Decodes JSON, by a given schema of values or by one that evolves."""

    kind = "json"

    def __init__(self, schema: pa.Schema | None = None, framing: Framing = Framing.AUTO) -> None:
        self.evolves = schema is None
        self._made: frozenset[str] = frozenset()
        self._strips = framing is not Framing.NONE
        self._fields: pa.StructType = pa.struct(list(schema or ()))
        self._table = self._inferred = self._fields
        """What the table has, which stays; and all fields, by what all numbers tell of them."""
        for field in self._fields:
            _refuse_unreadable(field.type, field.name)
        self._prepare()

    def bound(self, table: pa.Schema, made: Collection[str] = ()) -> Decoder:
        """A decoder that knows a table's columns; with a given schema, this one."""
        if not self.evolves:
            return self
        other = JsonDecoder(None, Framing.AUTO if self._strips else Framing.NONE)
        other._made = frozenset(made)
        other._fields = other._table = other._inferred = pa.struct(list(value_schema(table, made)))
        other._prepare()
        return other

    @property
    def inferred(self) -> pa.Schema:
        """The rows' schema with what has no type yet, as it had to be for all numbers, also those of dead letters."""
        return row_schema(pa.schema(list(extend(self._table, self._inferred))), self._made)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """One row for each JSON object, dead letters for all else."""
        values = batch.column("value")
        if self._strips:
            values = strip_prefixes(values)
        while True:
            fields = self._fields
            reasons: dict[int, str] = {}
            tables = self._parts(values, 0, len(values), reasons)
            if fields == self._fields:
                break
        whole = pa.concat_tables([self._pruned.empty_table(), *tables])
        columns = [_in_one_piece(column) for column in whole.columns]
        return Decoded(to_rows(without(batch, reasons), columns, self.schema), to_dead(batch, reasons))

    def _prepare(self) -> None:
        """What follows from the fields: the schema to parse with, and that of the rows."""
        self._parsed = _parser_schema(self._fields)
        self._pruned = _without_void(settled(self._fields))
        self.schema: pa.Schema = row_schema(self._pruned, self._made)
        known = {field.name for field in self._table}
        self._new = [name for name in self._pruned.names if name not in known]

    def _parts(self, values: pa.Array, low: int, high: int, reasons: dict[int, str]) -> list[pa.Table]:
        """The rows of the values in a range; what is wrong with the others goes to `reasons`."""
        if low == high:
            return []
        try:
            return [self._parse(values[low:high], low, reasons)]
        except (_Unlike, pa.ArrowInvalid) as error:
            if high - low > 1:
                middle = (low + high) // 2
                left = self._parts(values, low, middle, reasons)
                return left + self._parts(values, middle, high, reasons)
            problem = error
        if self.evolves and self._learn(values[low : low + SAMPLE]):
            return self._parts(values, low, high, reasons)
        value = values[low].as_py()
        reasons[low] = self._reason(value, problem)
        self._note_numbers(value)
        return []

    def _parse(self, values: pa.Array, low: int, reasons: dict[int, str]) -> pa.Table:
        """The rows of values, the first of which has the index `low`, without those whose numbers were changed."""
        table = self._read(values, self._parsed).select(self._pruned.names).cast(self._pruned)
        columns = [_in_one_piece(column) for column in table.columns]
        lost: dict[int, str] = {}
        for row in sorted(set().union(*(doubtful_rows(column, exact=self.evolves) for column in columns))):
            value = values[row].as_py()
            reason = self._wrong(value)
            if reason is not None:
                lost[row] = reason
                self._note_numbers(value)
        for name in self._new:
            if _has(self._inferred.field(name).type, pa.int64()):
                for row in sorted(rows_beyond_double(columns[self._pruned.get_field_index(name)]))[:1]:
                    self._note_numbers(values[row].as_py())
        if not lost:
            return table
        reasons.update({low + row: reason for row, reason in lost.items()})
        return table.take(pa.array([row for row in range(len(values)) if row not in lost], pa.int64()))

    def _read(self, values: pa.Array, schema: pa.Schema) -> pa.Table:
        """A row for each value, as Arrow reads it. Raises _Unlike, ArrowInvalid."""
        texts = values.cast(pa.string())
        if texts.null_count:
            texts = texts.fill_null("{}")
        if not pc.all(pc.match_substring_regex(texts, _OBJECT)).as_py():
            raise _Unlike("not a JSON object")
        lines = pc.binary_join_element_wise(texts, "", "\n")
        data = pa.BufferReader(lines.buffers()[2])
        table = arrow_json.read_json(
            data,
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=data.size() + 1),
            parse_options=arrow_json.ParseOptions(
                explicit_schema=schema, unexpected_field_behavior="error" if self.evolves else "ignore"
            ),
        )
        if table.num_rows != len(values):
            raise _Unlike("more than one JSON object")
        return table

    def _note_numbers(self, value: bytes) -> None:
        """Take into account what the numbers of a value tell of the types of new columns, if it would fit then."""
        if self.evolves:
            with suppress(ValueError, RecursionError, Unfit):
                document = _loads(value)
                inferred = widened(self._inferred, infer(document))
                if misfit(document, settled(extend(self._table, inferred)), "", exact=True) is None:
                    self._inferred = inferred

    def _learn(self, values: pa.Array) -> bool:
        """Add the fields of these values that are new, if the first of them has one; whether the schema grew.

        A value teaches only if it fits: by what was learnt from it, and from those after it.
        """
        documents: dict[int, dict[str, Any]] = {}
        for index, value in enumerate(values):
            with suppress(ValueError, RecursionError):
                documents[index] = _loads(value.as_py() or b"{}")
        while 0 in documents:
            grown, teachers = self._taught(documents, values)
            misled = [index for index in teachers if misfit(documents[index], settled(grown), "", exact=True)]
            if not misled:
                break
            documents = {index: document for index, document in documents.items() if index not in misled}
        else:
            return False
        if 0 not in teachers:
            return False
        self._fields = grown
        self._inferred = widened(grown, self._inferred)
        self._prepare()
        return True

    def _taught(self, documents: Mapping[int, dict[str, Any]], values: pa.Array) -> tuple[pa.StructType, list[int]]:
        """The fields with those that documents add, and which ones did so."""
        new, grown = pa.struct([]), self._fields
        teachers: list[int] = []
        for index, document in documents.items():
            try:
                seen = infer(document)
            except (RecursionError, Unfit):
                continue
            wider = join(new, seen)
            fields = extend(self._fields, self._nameable(wider))
            if fields == grown or misfit(document, settled(fields), "", exact=True) or not has_all(fields, seen):
                continue
            try:
                self._read(values[index : index + 1], _parser_schema(fields))
            except (_Unlike, pa.ArrowInvalid):
                continue
            new, grown = wider, fields
            teachers.append(index)
        return grown, teachers

    def _nameable(self, seen: pa.StructType) -> pa.StructType:
        """The fields that are known, or whose columns have names that no other column has."""
        taken = {name.casefold() for name in (*self.schema.names, *self._made)}
        known = {field.name for field in self._fields}
        fields = []
        for field in seen:
            name = column_name(field.name, self._made).casefold()
            if field.name in known or name not in taken:
                taken.add(name)
                fields.append(field)
        return pa.struct(fields)

    def _reason(self, value: bytes, problem: Exception) -> str:
        """Why a value is dead, in words; what Arrow says where nothing else is found."""
        found = self._wrong(value)
        if found is None and self.evolves:
            document = _loads(value)
            try:
                infer(document)
            except Unfit as unfit:
                found = str(unfit)
            else:
                found = _twice(value) or _left_out(document, self._fields)
        return found or str(problem)

    def _wrong(self, value: bytes) -> str | None:
        """Why a value cannot be read, or does not fit; None if that is not seen here."""
        try:
            document = _loads(value)
        except UnicodeDecodeError as error:
            return f"not UTF-8: {error.reason} at byte {error.start}"
        except RecursionError:
            return "not JSON that can be read: nested too deep"
        except ValueError as error:
            return f"not JSON: {error}"
        return misfit(document, settled(self._fields), "", exact=self.evolves)


def _loads(value: bytes) -> dict[str, Any]:
    document = loads(value.decode())
    if not isinstance(document, dict):
        raise ValueError(f"an object was expected, as in {{...}}, not {value[:40]!r}")
    return document


def _twice(value: bytes) -> str | None:
    """Which field of an object is there twice."""
    twice: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in pairs]
        twice.extend(name for name in names if names.count(name) > 1)

    json.loads(value, object_pairs_hook=look)
    return f"{twice[0]} is there twice" if twice else None


def _left_out(document: dict[str, Any], fields: pa.StructType) -> str | None:
    """Which field the schema could not take in, and why."""
    known = {field.name for field in fields}
    lowered = {name.casefold(): name for name in known}
    for key in document:
        if key not in known:
            if (twin := lowered.get(column_name(key).casefold())) is not None:
                return f"{key} and {twin} differ only by capitals, which tables do not tell apart"
            return f"{key} cannot be added to a table of {len(known)} columns, or another column has its name"
    return None


def _parser_schema(fields: pa.StructType) -> pa.Schema:
    """The schema that Arrow's parser is given for values with these fields."""
    return pa.schema([pa.field(field.name, _as_parsed(field.type)) for field in settled(fields)])


def _without_void(fields: pa.StructType) -> pa.Schema:
    kept = [(field.name, pruned(field.type)) for field in fields]
    return pa.schema([pa.field(name, kind) for name, kind in kept if kind is not None])


def _has(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a type is or has another one."""
    if pa.types.is_struct(kind):
        return any(_has(field.type, wanted) for field in kind)
    return _has(kind.value_type, wanted) if pa.types.is_list(kind) else bool(kind == wanted)


def _as_parsed(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's parser is given; dates are parsed as text and cast."""
    if kind == pa.date32():
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _as_parsed(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_as_parsed(kind.value_type))
    return kind


def _refuse_unreadable(kind: pa.DataType, where: str) -> None:
    if pa.types.is_binary(kind) or pa.types.is_map(kind):
        name = type_name(kind)
        raise SchemaRefused(f"{where} is {name}, which is not read from JSON: use STRING, ARRAY or STRUCT")
    if pa.types.is_list(kind):
        _refuse_unreadable(kind.value_type, where)
    if pa.types.is_struct(kind):
        for field in kind:
            _refuse_unreadable(field.type, f"{where}.{field.name}")


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
