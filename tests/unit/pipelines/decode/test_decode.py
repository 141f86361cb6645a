"""Values become rows by their format and schema, and those that cannot become dead letters with a reason."""

from __future__ import annotations

import datetime
import decimal
import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from pyiceberg.catalog import Catalog

from barnabas.clients.protobuf_files import message_class
from barnabas.pipelines.decode.avro import AvroDecoder
from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.decode.contract import METADATA, SchemaRefused
from barnabas.pipelines.decode.ddl import parse_ddl, to_ddl
from barnabas.pipelines.decode.evolution import merge_schemas
from barnabas.pipelines.decode.framing import Framing
from barnabas.pipelines.decode.json import JsonDecoder
from barnabas.pipelines.decode.protobuf import ProtobufDecoder
from barnabas.pipelines.decode.text import Plain
from barnabas.pipelines.decode.tombstones import MarkedTombstones
from barnabas.pipelines.errors import InvalidOption
from tests.support.decoding import DECODERS, ORDER_AVSC, avro_bytes, batch, order_descriptors

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.decode.contract import Decoded


def columns(found: Decoded) -> list[dict[str, Any]]:
    """The rows without the records' places."""
    return [{name: row[name] for name in row if name not in METADATA.names} for row in found.rows.to_pylist()]


def reasons(found: Decoded) -> dict[int, str]:
    return {row["offset"]: row["reason"] for row in found.dead.to_pylist()}


def test_json_evolves_and_types_stay() -> None:
    decoder = JsonDecoder()
    found = decoder.decode(batch([b'{"a": 1}', b'{"a": 2, "b": {"c": "x"}}', b'{"a": "text"}', b"{", None]))
    assert columns(found) == [
        {"a": 1, "b": None},
        {"a": 2, "b": {"c": "x"}},
        {"a": None, "b": None},
    ]
    assert reasons(found)[102] == "a: expected BIGINT, found the text 'text'"
    assert reasons(found)[103].startswith("not JSON")
    assert decoder.decode(batch([b'{"b": {"d": 1.5}}'])).rows.column("b").to_pylist() == [{"c": None, "d": 1.5}]


def test_json_by_a_schema_leaves_out_what_it_does_not_name() -> None:
    decoder = choose_decoder("json", "a INT, day DATE")
    found = decoder.decode(batch([b'{"a": 1, "x": 2, "day": "2026-01-31"}', b'{"a": 4294967296}']))
    assert columns(found) == [{"a": 1, "day": datetime.date(2026, 1, 31)}]
    assert "expected INT" in reasons(found)[101]


def test_two_fields_that_come_to_one_column_make_a_dead_letter() -> None:
    decoder = JsonDecoder()
    found = decoder.decode(batch([b'{"_offset": 1, "_offset_value": 2}', b'{"_offset": 3}']))
    assert columns(found) == [{"_offset_value": 3}]
    assert "_offset_value cannot be added" in reasons(found)[100]


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (b'{"a.b": 1}', b'{"a": {"b": 2}}'),
        (b'{"a": {"b": 2}}', b'{"a.b": 1}'),
        (b'{"a": {"c": 2}, "a.b": 1}', b'{"a": {"b": 3}}'),
        (b'{"a": [1]}', b'{"a.element": 1}'),
        (b'{"x": {"y": 1}}', b'{"x": {"a.b": 1, "a": {"b": 2}}}'),
        (b'{"x": {"y": 1}}', b'{"z": {"a.b": 1, "a": {"b": 2}}}'),
    ],
)
def test_two_fields_that_come_to_one_name_with_dots_make_a_dead_letter(first: bytes, other: bytes) -> None:
    """Iceberg would refuse the table: one such record would stop a load for ever."""
    decoder = JsonDecoder()
    assert list(reasons(decoder.decode(batch([first, other])))) == [101]
    assert list(reasons(decoder.decode(batch([first, b'{"a.d": 1, "b": {"a": 2}}'])))) == []
    one, two = JsonDecoder(), JsonDecoder()
    one.decode(batch([first]))
    two.decode(batch([other]))
    agreed = merge_schemas(METADATA, [one.schema, two.schema]).schema
    assert list(reasons(JsonDecoder().bound(agreed).decode(batch([first, other])))) == [101]
    Catalog._convert_schema_if_needed(agreed)


def test_what_tasks_inferred_side_by_side_is_merged() -> None:
    one, other = JsonDecoder(), JsonDecoder()
    one.decode(batch([b'{"a": 1}']))
    other.decode(batch([b'{"a": "text", "b": 1}']))
    merged = merge_schemas(pa.schema(list(METADATA)), [one.schema, other.schema])
    assert merged.misfits == (1,)
    again = JsonDecoder().bound(merged.schema).decode(batch([b'{"a": "text", "b": 1}', b'{"a": 5, "b": 1}']))
    assert columns(again) == [{"a": 5, "b": 1}]
    assert list(reasons(again)) == [100]


def test_avro_that_can_be_read_in_two_ways_is_not_guessed_at() -> None:
    """The zero of an id and the length of a text look like a registry's prefix, and the text like another value."""
    fields = [{"name": "id", "type": "long"}, {"name": "phone", "type": "string"}]
    schema = {"type": "record", "name": "Call", "fields": fields}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"id": 0, "phone": "0" * 29})
    value = out.getvalue()
    guessed = AvroDecoder(json.dumps(schema), Framing.AUTO).decode(batch([value]))
    assert "with and without" in reasons(guessed)[100]
    assert columns(AvroDecoder(json.dumps(schema), Framing.NONE).decode(batch([value]))) == [
        {"id": 0, "phone": "0" * 29}
    ]


def test_avro() -> None:
    value = {
        "id": 7,
        "note": None,
        "price": decimal.Decimal("12.50"),
        "at": datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC),
        "key": "6f8c5c2e-9f0a-4c5e-8d7b-1f2e3d4c5b6a",
        "kind": "LARGE",
        "lines": [{"sku": "x"}],
        "tags": {"n": 1},
        "first": {"sku": "y"},
    }
    data = avro_bytes(value)
    framed = b"\x00\x00\x00\x00\x05" + data
    found = DECODERS["avro"].decode(batch([data, framed, data[:-3], data + b"!"]))
    assert columns(found) == [{**value, "tags": [("n", 1)]}] * 2
    assert reasons(found)[102] == (
        "ValueError: it ends in the middle of a field: cut off, or written with another schema"
    )
    assert set(reasons(found)) == {102, 103}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x02\x80", "ValueError: it ends in the middle of a field: cut off, or written with another schema"),
        (b"\x80", "ValueError: it ends in the middle of a field: cut off, or written with another schema"),
        (b"\x02\x04\xff\xfe", "ValueError: a text is not UTF-8 (invalid start byte): written with another schema?"),
    ],
)
def test_what_avro_cannot_read_is_said_in_words(data: bytes, reason: str) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "c", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "short", "fields": fields})
    found = AvroDecoder(schema, Framing.NONE).decode(batch([data]))
    assert reasons(found) == {100: reason}


@pytest.mark.parametrize("kind", DECODERS)
def test_tombstones_can_be_told_from_empty_values(kind: str) -> None:
    empty = {"json": b"{}", "bytes": b"", "string": b""}.get(kind)
    values = [None, b"\xff\xfe broken", None] if empty is None else [None, b"\xff\xfe broken", empty, None]
    plain = DECODERS[kind].decode(batch(values))
    marked = MarkedTombstones(DECODERS[kind]).decode(batch(values))
    assert marked.dead == plain.dead
    assert marked.rows.drop_columns(["_tombstone"]) == plain.rows
    nulls = [index for index, value in enumerate(values) if value is None]
    told = {row["_offset"] - 100: row["_tombstone"] for row in marked.rows.to_pylist()}
    assert {index for index, is_one in told.items() if is_one} == set(nulls)
    assert None not in told.values()


def test_the_same_offset_of_another_partition_is_no_tombstone() -> None:
    both = batch([b'{"a": 1}', None])
    other = both.set_column(both.schema.get_field_index("partition"), "partition", pa.array([7, 7], pa.int32()))
    swapped = other.set_column(other.schema.get_field_index("value"), "value", pa.array([None, b"{}"], pa.binary()))
    rows = MarkedTombstones(JsonDecoder()).decode(pa.concat_batches([both, swapped])).rows
    assert rows.column("_tombstone").to_pylist() == [False, True, True, False]


def test_a_field_that_is_called_like_the_mark_of_tombstones_gets_another_name() -> None:
    table = pa.schema([*METADATA, pa.field("a", pa.int64()), pa.field("_tombstone", pa.bool_())])
    decoder = MarkedTombstones(JsonDecoder()).bound(table)
    found = decoder.decode(batch([b'{"a": 1, "_tombstone": 5}', None]))
    assert columns(found) == [
        {"a": 1, "_tombstone_value": 5, "_tombstone": False},
        {"a": None, "_tombstone_value": None, "_tombstone": True},
    ]
    assert decoder.schema == found.rows.schema and (decoder.kind, decoder.evolves) == ("json", True)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ('{"type": "nothing"}', "not an Avro schema"),
        ('["int", "string"]', "a column has one type"),
        ('{"type":"bytes","logicalType":"decimal","precision":50,"scale":2}', "a decimal of 50 digits .* up to 38"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":["null","A"]}]}', "contains itself"),
        ('{"type":"record","name":"A","fields":[{"name":"a","type":"int"},{"name":"A","type":"int"}]}', "capitals"),
        (
            '{"type":"record","name":"A","fields":[{"name":"e","type":{"type":"record","name":"B","fields":[]}}]}',
            "e: B is a record without fields",
        ),
    ],
)
def test_avro_schemas_that_no_table_can_hold(schema: str, why: str) -> None:
    with pytest.raises(SchemaRefused, match=why):
        AvroDecoder(schema)


def test_protobuf() -> None:
    order = message_class(order_descriptors(), "shop.Order")
    message = order(id=7, lines=[{"sku": "x"}], kind=1, big=2**64 - 1, raw=b"\xff", tags={"n": 1})
    data = message.SerializeToString()
    framed, nested = b"\x00\x00\x00\x00\x05\x00" + data, b"\x00\x00\x00\x00\x05\x02\x00" + data
    found = DECODERS["protobuf"].decode(batch([data, framed, nested, b"\xff\xff"]))
    expected = {
        "id": 7,
        "note": None,
        "lines": [{"sku": "x"}],
        "kind": "LARGE",
        "big": decimal.Decimal(2**64 - 1),
        "raw": b"\xff",
        "tags": [("n", 1)],
    }
    assert columns(found) == [expected] * 3
    assert set(reasons(found)) == {103}
    with pytest.raises(SchemaRefused, match="contains itself"):
        ProtobufDecoder(order_descriptors(), "shop.Tree")
    with pytest.raises(SchemaRefused, match=r"no message shop\.Nothing"):
        ProtobufDecoder(order_descriptors(), "shop.Nothing")


def test_a_message_without_fields_is_a_column() -> None:
    """As in a `oneof`, where it says which one it is; Parquet has no STRUCT of nothing."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="door.proto", package="door", syntax="proto3")
    file.message_type.add(name="Nothing")
    event = file.message_type.add(name="Event")
    for number, name, label in ((1, "opened", kinds.LABEL_OPTIONAL), (2, "knocks", kinds.LABEL_REPEATED)):
        event.field.add(name=name, number=number, type=kinds.TYPE_MESSAGE, type_name=".door.Nothing", label=label)
    descriptors = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    events = message_class(descriptors, "door.Event")
    values = [events(opened={}).SerializeToString(), events(knocks=[{}, {}]).SerializeToString()]
    found = ProtobufDecoder(descriptors, "door.Event").decode(batch(values))
    assert columns(found) == [{"opened": True, "knocks": []}, {"opened": None, "knocks": [True, True]}]


def test_framing_that_was_asked_for_has_to_be_there() -> None:
    for decoder in (Plain(pa.string(), Framing.CONFLUENT), AvroDecoder('"string"', Framing.CONFLUENT)):
        found = decoder.decode(batch([b"\x00\x00\x00\x00\x01\x02a", b"plain"]))
        assert found.rows.num_rows == 1
        assert "schema's id" in reasons(found)[101]


def test_values_with_names_of_places_get_another() -> None:
    found = JsonDecoder().decode(batch([b'{"_offset": 5, "a": 1}']))
    assert columns(found) == [{"_offset_value": 5, "a": 1}]


def test_schemas_in_sparks_words_read_back() -> None:
    text = "id BIGINT, `a b` STRING, items ARRAY<STRUCT<sku: STRING, count: INT>>, price DECIMAL(10,2)"
    assert to_ddl(parse_ddl(text)) == text
    with pytest.raises(SchemaRefused, match=r"line 2 of the schema: there is no type BIGNT: did you mean BIGINT"):
        parse_ddl("id INT,\nn BIGNT")


def test_decoders_are_chosen_by_name(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER_AVSC))
    assert "price" in choose_decoder("avro", str(file)).schema.names
    descriptors = tmp_path / "shop.desc"
    descriptors.write_bytes(order_descriptors())
    assert "lines" in choose_decoder("protobuf", f"{descriptors}:shop.Order").schema.names
    with pytest.raises(InvalidOption, match="did you mean json"):
        choose_decoder("jsn")
    with pytest.raises(InvalidOption, match="need a schema"):
        choose_decoder("avro")
    with pytest.raises(InvalidOption, match="have no schema"):
        choose_decoder("bytes", "a INT")
    with pytest.raises(SchemaRefused, match="cannot be read"):
        choose_decoder("avro", str(tmp_path / "none.avsc"))
    with pytest.raises(SchemaRefused, match="nothing is not there"):
        choose_decoder("protobuf", "nothing:shop.Order")
    with pytest.raises(SchemaRefused, match="form FILE:MESSAGE"):
        choose_decoder("protobuf", "nothing")
