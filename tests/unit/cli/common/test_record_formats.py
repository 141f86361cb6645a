from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click
import pytest
from google.protobuf import descriptor_pb2

from barnabas.cli.common.records.formats import PLAIN, choose, of_class, to_json

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("name", "data", "value", "line"),
    [
        ("string", b"gr\xc3\xbc\xc3\x9fe", "grüße", b"gr\xc3\xbc\xc3\x9fe"),
        ("string", b"\xff\x00", "\udcff\x00", b"\xff\x00"),
        ("json", b'{"a":[1,null]}', {"a": [1, None]}, b'{"a":[1,null]}'),
        ("hex", b"\x00\xff", "00ff", b"00ff"),
        ("short", b"\xff\xfe", -2, b"-2"),
        ("int", b"\x00\x00\x00\x07", 7, b"7"),
        ("long", b"\x00" * 7 + b"\x07", 7, b"7"),
        ("float", b"\x3f\x00\x00\x00", 0.5, b"0.5"),
        ("double", b"\x3f\xe0" + b"\x00" * 6, 0.5, b"0.5"),
        ("uuid", b"12345678-1234-5678-1234-567812345678",) + ("12345678-1234-5678-1234-567812345678",) * 1
        + (b"12345678-1234-5678-1234-567812345678",),
    ],
)  # fmt: skip
def test_bytes_survive_both_ways(name: str, data: bytes, value: Any, line: bytes) -> None:
    form = PLAIN[name]
    assert form.decode(data) == value
    assert form.encode(value) == data
    assert form.to_line(data) == line
    assert form.from_line(line.decode("utf-8", "surrogateescape")) == data


def test_json_of_many_lines_is_shown_on_one() -> None:
    assert PLAIN["json"].to_line(b'{\n "a": 1\n}') == b'{"a":1}'
    assert PLAIN["json"].from_line('{ "a": 1 }') == b'{ "a": 1 }'
    with pytest.raises(ValueError, match="Expecting"):
        PLAIN["json"].from_line("{")


def test_values_that_are_no_text_are_written_as_json() -> None:
    assert PLAIN["string"].encode({"a": 1}) == b'{"a":1}'


def test_text_that_is_no_utf8_is_escaped_in_json() -> None:
    written = to_json({"value": PLAIN["string"].decode(b"\xff")})
    assert written == b'{"value":"\\udcff"}'
    assert PLAIN["string"].encode(json.loads(written)["value"]) == b"\xff"
    assert to_json("grüße") == '"grüße"'.encode()


def test_avro_is_written_as_json(tmp_path: Path) -> None:
    schema = tmp_path / "order.avsc"
    schema.write_text('{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}')
    form = choose(None, str(schema))
    assert form.from_line('{"id": 7}') == b"\x0e"
    assert form.to_line(b"\x0e") == b'{"id":7}'


def test_protobuf_is_written_as_json(tmp_path: Path) -> None:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    message = file.message_type.add(name="Order")
    message.field.add(name="order_id", number=1, type=3, label=1)
    descriptor = tmp_path / "order.desc"
    descriptor.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    form = choose("protobuf", f"{descriptor}:shop.Order")
    assert form.from_line('{"order_id": "7"}') == b"\x08\x07"
    assert form.to_line(b"\x08\x07") == b'{"order_id":"7"}'
    with pytest.raises(click.UsageError, match=r"has no message shop\.Bill"):
        choose("protobuf", f"{descriptor}:shop.Bill")


def test_a_proto_file_is_compiled_by_protoc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for protoc here, which hands out what the true one would have made."""
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Order").field.add(name="id", number=1, type=3, label=1)
    (tmp_path / "made").write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    source = tmp_path / "order.proto"
    source.write_text("syntax = 'proto3';")
    schema = f"{source}:shop.Order"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(click.UsageError, match="apt-get install protobuf-compiler"):
        choose(None, schema)
    protoc = tmp_path / "protoc"
    protoc.write_text(
        f'#!/bin/sh\n[ "$1 $4" = "-I{tmp_path} {source}" ] || exit 1\n'
        f'/bin/cp {tmp_path}/made "${{3#--descriptor_set_out=}}"\n'
    )
    protoc.chmod(0o755)
    assert choose(None, schema).to_line(b"\x08\x07") == b'{"id":"7"}'
    protoc.write_text("#!/bin/sh\necho 'order.proto:1: what is this?' >&2; exit 1\n")
    with pytest.raises(click.UsageError, match=r"protoc does not take .*order\.proto:1: what is this"):
        choose(None, schema)


@pytest.mark.parametrize(
    ("name", "schema", "text"),
    [
        ("avro", None, "needs a schema"),
        ("json", "x.avsc", "has no schema"),
        ("avro", "nowhere.avsc", "There is no file nowhere.avsc"),
        (None, "nowhere.proto", "FILE:MESSAGE"),
    ],
)
def test_schemas_that_do_not_fit_are_refused(name: str | None, schema: str | None, text: str) -> None:
    with pytest.raises(click.UsageError, match=text):
        choose(name, schema)


def test_deserializers_of_java_are_formats_here() -> None:
    assert of_class("org.apache.kafka.common.serialization.LongDeserializer") == "long"
    assert of_class("org.apache.kafka.common.serialization.StringDeserializer") == "string"
    with pytest.raises(click.UsageError, match="a Java class that cannot be loaded here"):
        of_class("com.example.MyDeserializer")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("int", "99999999999", "'99999999999' is no int of 4 bytes"),
        ("short", "x", "'x' is no short of 2 bytes"),
        ("long", "1.5", "'1.5' is no long of 8 bytes"),
        ("float", "1e300", "'1e300' is no float of 4 bytes"),
        ("hex", "zz", "'zz' is not hexadecimal, two digits for each byte"),
        ("hex", "abc", "'abc' is not hexadecimal, two digits for each byte"),
    ],
)
def test_what_was_typed_in_vain_is_told(name: str, text: str, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$"):
        PLAIN[name].from_line(text)


def test_bytes_that_are_too_few_are_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^a long has 8 bytes, and not 1$"):
        PLAIN["long"].decode(b"7")
    schema = tmp_path / "text.avsc"
    schema.write_text('{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}')
    with pytest.raises(ValueError, match=r"^the bytes end before the schema does$"):
        choose(None, str(schema)).decode(b"")
