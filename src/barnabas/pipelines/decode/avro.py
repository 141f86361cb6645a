"""Avro's binary form by a schema in a file. A record's fields are columns; any other schema is one column, `value`.

A union with null is a column that may be null; `[int, long]` and `[float, double]` are the wider one. Other unions,
types that contain themselves, and records without fields in others are no columns, and are refused when the schema is
read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import pyarrow as pa

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.serializers import Avro as Serde
from barnabas.pipelines.decode.by_record import ByRecord
from barnabas.pipelines.decode.contract import TIMESTAMP, SchemaRefused
from barnabas.pipelines.decode.framing import Framing

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIMPLE: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL: Final = {
    "date": pa.date32(),
    "timestamp-millis": TIMESTAMP,
    "timestamp-micros": TIMESTAMP,
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "time-millis": pa.time64("us"),
    "time-micros": pa.time64("us"),
    "uuid": pa.string(),
}
_WIDER: Final = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}


class AvroDecoder(ByRecord):
    """Decodes Avro; the schema's text travels, and is parsed where it is needed."""

    kind = "avro"

    def __init__(self, schema: str, framing: Framing = Framing.AUTO) -> None:
        """Take the schema as JSON. Raises SchemaRefused."""
        self._text = schema
        self._serde: Serde | None = None
        try:
            parsed = Serde(schema).parsed
        except InvalidClientConfig as error:
            raise SchemaRefused(str(error)) from error
        whole = _arrow(parsed, "", {}, ())
        self._is_record = pa.types.is_struct(whole)
        super().__init__(pa.schema(list(whole) if self._is_record else [pa.field("value", whole)]), framing)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_serde": None}

    def _read(self, data: bytes) -> Sequence[Any]:
        if self._serde is None:
            self._serde = Serde(self._text)
        try:
            value = self._serde.deserialize(data)
        except (EOFError, IndexError):  # fastavro says no more, and not even that of a number that is cut off
            raise ValueError("it ends in the middle of a field: cut off, or written with another schema") from None
        except UnicodeDecodeError as error:
            raise ValueError(f"a text is not UTF-8 ({error.reason}): written with another schema?") from None
        if not self._is_record:
            return (_plain(value),)
        return [_plain(value[field.name]) for field in self._value]


def _plain(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _arrow(schema: Any, where: str, named: dict[str, Any], above: tuple[str, ...]) -> pa.DataType:
    """The type of a column; `named` are the types that were defined before, `above` those that this one is in."""
    if isinstance(schema, list):
        return _union(schema, where, named, above)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return _SIMPLE[schema]
        if schema in above:
            raise SchemaRefused(f"{where or 'the schema'}: {schema} contains itself, which no table can hold")
        if schema not in named:
            raise SchemaRefused(f"{where or 'the schema'}: the type {schema} is not defined")
        return _arrow(named[schema], where, named, above)
    kind = schema["type"]
    if "name" in schema:
        named[schema["name"]] = schema
    logical = schema.get("logicalType")
    if logical == "decimal":
        return _decimal(schema["precision"], schema.get("scale", 0), where)
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if kind == "array":
        return pa.list_(_arrow(schema["items"], f"{where}[]", named, above))
    if kind == "map":
        return pa.map_(pa.string(), _arrow(schema["values"], f"{where}{{}}", named, above))
    if kind in ("record", "error"):
        if above and not schema["fields"]:
            raise SchemaRefused(f"{where}: {schema['name']} is a record without fields, which no table can hold")
        inside = (*above, schema["name"])
        return pa.struct(
            [
                pa.field(field["name"], _arrow(field["type"], f"{where}.{field['name']}".lstrip("."), named, inside))
                for field in schema["fields"]
            ]
        )
    return _arrow(kind, where, named, above)


def _decimal(precision: int, scale: int, where: str) -> pa.DataType:
    if not (1 <= precision <= 38 and 0 <= scale <= precision):
        raise SchemaRefused(
            f"{where or 'the schema'}: a decimal of {precision} digits with {scale} after the point is not possible: a "
            "table holds up to 38, and no more after the point"
        )
    return pa.decimal128(precision, scale)


def _union(branches: Sequence[Any], where: str, named: dict[str, Any], above: tuple[str, ...]) -> pa.DataType:
    others = [branch for branch in branches if branch != "null"]
    simple = frozenset(branch for branch in others if isinstance(branch, str))
    if len(others) == 2 and simple in _WIDER:
        others = [_WIDER[simple]]
    if len(others) != 1:
        kinds = ", ".join(branch if isinstance(branch, str) else str(branch.get("type")) for branch in others)
        raise SchemaRefused(f"{where or 'the schema'} is one of {kinds or 'nothing'}: a column has one type")
    return _arrow(others[0], where, named, above)
