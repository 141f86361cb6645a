"""Records of a topic as decoders get them, and an order in Avro's and in Protobuf's words."""

from __future__ import annotations

import datetime
import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2

from barnabas.pipelines.decode.avro import AvroDecoder
from barnabas.pipelines.decode.ddl import parse_ddl
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.decode.protobuf import ProtobufDecoder
from barnabas.pipelines.decode.text import Plain
from barnabas.pipelines.spark.read.rows import RECORD_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.pipelines.decode.contract import Decoder

ORDER_AVSC = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["SMALL", "LARGE"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]},
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "first", "type": ["null", "Line"]},
    ],
}


def batch(values: Sequence[bytes | None]) -> pa.RecordBatch:
    """Records with these values, from the offset 100 on."""
    size = len(values)
    columns = {
        "key": [b"k"] * size,
        "value": list(values),
        "topic": ["t"] * size,
        "partition": [3] * size,
        "offset": list(range(100, 100 + size)),
        "timestamp": [datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)] * size,
        "timestampType": [0] * size,
    }
    return pa.record_batch(columns, schema=RECORD_SCHEMA)


def avro_bytes(value: dict[str, Any]) -> bytes:
    """An order by the schema above."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER_AVSC), value)
    return out.getvalue()


def order_descriptors() -> bytes:
    """What protoc makes of `message Order { int64 id = 1; optional string note = 2; repeated Line lines = 3; ... }`."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("SMALL", "LARGE")):
        kind.value.add(name=name, number=number)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="note", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL, proto3_optional=True, oneof_index=0
    )
    order.field.add(name="lines", number=3, type=kinds.TYPE_MESSAGE, type_name=".shop.Line", label=kinds.LABEL_REPEATED)
    order.field.add(name="kind", number=4, type=kinds.TYPE_ENUM, type_name=".shop.Kind", label=kinds.LABEL_OPTIONAL)
    order.field.add(name="big", number=5, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="raw", number=6, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="TagsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    order.field.add(
        name="tags", number=7, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.TagsEntry", label=kinds.LABEL_REPEATED
    )
    order.oneof_decl.add(name="_note")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="left", number=1, type=kinds.TYPE_MESSAGE, type_name=".shop.Tree", label=kinds.LABEL_OPTIONAL)
    files = descriptor_pb2.FileDescriptorSet(file=[file])
    data: bytes = files.SerializeToString()
    return data


DECODERS: dict[str, Decoder] = {
    "bytes": Plain(pa.binary()),
    "string": Plain(pa.string()),
    "json": JsonDecoder(),
    "json by schema": JsonDecoder(parse_ddl("a BIGINT, b STRUCT<c: STRING>")),
    "avro": AvroDecoder(json.dumps(ORDER_AVSC)),
    "protobuf": ProtobufDecoder(order_descriptors(), "shop.Order"),
}
