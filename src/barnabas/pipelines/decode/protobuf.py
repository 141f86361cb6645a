"""Protobuf's messages by a descriptor in a file: fields are columns, messages inside are STRUCT, enums are text.

A field that was not set is null where Protobuf can tell, and its default where it cannot. Timestamps and wrappers of
`google.protobuf` are times and plain values. A message without fields tells only that it was set: it is BOOLEAN, and
true. One that contains itself is refused when the schema is read.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.protobuf_files import message_class
from barnabas.pipelines.decode.by_record import ByRecord
from barnabas.pipelines.decode.contract import TIMESTAMP, SchemaRefused
from barnabas.pipelines.decode.framing import Framing, after_message_path

if TYPE_CHECKING:
    from collections.abc import Sequence

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
)
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class ProtobufDecoder(ByRecord):
    """Decodes messages; the descriptors travel, and the class is made where it is needed."""

    kind = "protobuf"

    def __init__(self, descriptors: bytes, message: str, framing: Framing = Framing.AUTO) -> None:
        """Take what `protobuf_files.read_descriptors` gives. Raises SchemaRefused."""
        self._descriptors = descriptors
        self._name = message
        self._message: Any = None
        try:
            found = message_class(descriptors, message).DESCRIPTOR
        except InvalidClientConfig as error:
            raise SchemaRefused(str(error)) from error
        super().__init__(pa.schema(_fields(found, ())), framing)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_message": None}

    def _unframed(self, value: bytes) -> bytes:
        return after_message_path(value)

    def _read(self, data: bytes) -> Sequence[Any]:
        if self._message is None:
            self._message = message_class(self._descriptors, self._name)
        message = self._message.FromString(data)
        return [_field_value(message, field) for field in message.DESCRIPTOR.fields]


def _fields(descriptor: Any, above: tuple[str, ...]) -> list[pa.Field]:
    if descriptor.full_name in above:
        raise SchemaRefused(f"the message {descriptor.full_name} contains itself, which no table can hold")
    inside = (*above, descriptor.full_name)
    return [pa.field(field.name, _field_type(field, inside)) for field in descriptor.fields]


def _field_type(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if not field.is_repeated:
        return _single_type(field, above)
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(_single_type(entry["key"], above), _single_type(entry["value"], above))
    return pa.list_(_single_type(field, above))


def _single_type(field: Any, above: tuple[str, ...]) -> pa.DataType:
    if field.message_type is None:
        return _scalars()[field.cpp_type] if field.type != field.TYPE_BYTES else pa.binary()
    if field.message_type.full_name == _TIMESTAMP:
        return TIMESTAMP
    if field.message_type.full_name in _WRAPPERS:
        return _single_type(field.message_type.fields_by_name["value"], above)
    if not field.message_type.fields:
        return pa.bool_()
    return pa.struct(_fields(field.message_type, above))


def _scalars() -> dict[int, pa.DataType]:
    from google.protobuf.descriptor import FieldDescriptor as Kind

    return {
        Kind.CPPTYPE_BOOL: pa.bool_(),
        Kind.CPPTYPE_INT32: pa.int32(),
        Kind.CPPTYPE_INT64: pa.int64(),
        Kind.CPPTYPE_UINT32: pa.int64(),
        Kind.CPPTYPE_UINT64: pa.decimal128(20, 0),
        Kind.CPPTYPE_FLOAT: pa.float32(),
        Kind.CPPTYPE_DOUBLE: pa.float64(),
        Kind.CPPTYPE_ENUM: pa.string(),
        Kind.CPPTYPE_STRING: pa.string(),
    }


def _field_value(message: Any, field: Any) -> Any:
    if field.is_repeated:
        found = getattr(message, field.name)
        if _is_map(field):
            inner = field.message_type.fields_by_name["value"]
            return [(key, _single_value(found[key], inner)) for key in found]
        return [_single_value(each, field) for each in found]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _single_value(getattr(message, field.name), field)


def _single_value(value: Any, field: Any) -> Any:
    if field.message_type is None:
        if field.enum_type is None:
            return value
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.message_type.full_name == _TIMESTAMP:
        return _EPOCH + datetime.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    if field.message_type.full_name in _WRAPPERS:
        return value.value
    if not field.message_type.fields:
        return True
    return {each.name: _field_value(value, each) for each in field.message_type.fields}


def _is_map(field: Any) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry
