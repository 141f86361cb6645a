from __future__ import annotations

import functools
import json
import pickle
from datetime import date
from typing import Any

import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from barnabas.clients.consumer.consumer import Consumer
from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.producer.producer import Producer
from barnabas.clients.serializers import (
    BYTES,
    JSON,
    STRING,
    Avro,
    Json,
    Protobuf,
    Serde,
    String,
    from_bytes,
    refuse_pickle,
    to_bytes,
)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (BYTES, b"\x00\xff", b"\x00\xff"),
        (STRING, "grüße", "grüße".encode()),
        (String("utf-16-le"), "a", b"a\x00"),
        (JSON, {"name": "grüße", "n": [1, None]}, '{"name":"grüße","n":[1,null]}'.encode()),
        (Avro(ORDER), {"id": 7, "note": "x"}, b"\x0e\x02\x02x"),
        (Avro(json.dumps(ORDER)), {"id": 7, "note": None}, b"\x0e\x00"),
        (Avro("string"), "abc", b"\x06abc"),
        (Protobuf(Int64Value), Int64Value(value=5), b"\x08\x05"),
    ],
)
def test_values_survive_the_way_there_and_back(serde: Serde[Any], value: object, data: bytes) -> None:
    assert serde.serialize(value) == data
    assert serde.deserialize(data) == value


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_json_has_no_such_numbers(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        JSON.serialize({"a": number})


def test_json_can_be_taught_more() -> None:
    assert Json(default=str).serialize({"day": date(2026, 1, 2)}) == b'{"day":"2026-01-02"}'


def test_avro_reads_into_a_newer_schema(tmp_path: Any) -> None:
    newer = {**ORDER, "fields": [*ORDER["fields"], {"name": "paid", "type": "boolean", "default": False}]}
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(newer))
    assert Avro(ORDER, reader_schema=file).deserialize(b"\x0e\x00") == {"id": 7, "note": None, "paid": False}


def test_avro_does_not_ignore_bytes_that_are_left_over() -> None:
    with pytest.raises(ValueError, match="1 bytes are left over"):
        Avro(ORDER).deserialize(b"\x0e\x00\x00")


@pytest.mark.parametrize("schema", ["{", '{"type":"record"}', "nosuchtype"])
def test_what_is_no_avro_schema_is_refused(schema: str) -> None:
    with pytest.raises(InvalidClientConfig, match="not an Avro schema"):
        Avro(schema)


def test_the_name_of_a_file_is_not_taken_for_an_avro_schema() -> None:
    with pytest.raises(InvalidClientConfig, match=r"flight.avsc is the name of a file, not a schema: give Path\("):
        Avro("flight.avsc")


def test_protobuf_wants_its_own_class() -> None:
    with pytest.raises(TypeError, match="expected a Int64Value, not StringValue"):
        Protobuf[Any](Int64Value).serialize(StringValue(value="x"))
    with pytest.raises(InvalidClientConfig, match="no class of a Protobuf message"):
        Protobuf(str)  # type: ignore[type-var]  # wrong on purpose


class Vault(pickle.Pickler):
    """A pickler in disguise."""


@pytest.mark.parametrize(
    "given", [pickle.dumps, pickle.loads, pickle, functools.partial(pickle.dumps, protocol=5), pickle.Unpickler]
)
def test_pickle_is_refused_with_the_reason(given: Any) -> None:
    with pytest.raises(
        InvalidClientConfig, match="reading pickled data runs code chosen by whoever wrote to the topic"
    ):
        refuse_pickle(given)


def test_pickle_is_refused_by_producers_and_consumers() -> None:
    with pytest.raises(InvalidClientConfig, match="refused"):
        Producer("127.0.0.1:1", value_serializer=pickle.dumps)
    with pytest.raises(InvalidClientConfig, match="refused"):
        Consumer("127.0.0.1:1", key_deserializer=pickle.loads)


def test_functions_and_serdes_are_both_taken() -> None:
    assert to_bytes(json.dumps) is json.dumps
    assert from_bytes(json.loads) is json.loads
    assert to_bytes(None) is None
    assert to_bytes(BYTES) is None
    encode = to_bytes(JSON)
    assert encode is not None
    assert encode([1]) == b"[1]"
    with pytest.raises(InvalidClientConfig, match="'json' is no serializer"):
        to_bytes("json")  # type: ignore[arg-type]  # wrong on purpose
