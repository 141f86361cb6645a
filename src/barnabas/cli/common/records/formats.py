"""Keys and values as text: what a person types and reads for the bytes in a topic.

A format goes both ways, in two forms: as a line of text, and as a value of JSON (for `--json`, and for filters). Text
that is not UTF-8 survives both ways: as the bytes themselves in lines, as lone surrogates in JSON.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

import click


class Format(Protocol):
    """One way to write bytes."""

    def decode(self, data: bytes) -> Any:
        """The bytes as a value of JSON; raises an exception if they are none of this format."""
        ...

    def encode(self, value: Any) -> bytes:
        """The bytes of a value of JSON."""
        ...

    def to_line(self, data: bytes) -> bytes:
        """What is printed for the bytes."""
        ...

    def from_line(self, text: str) -> bytes:
        """The bytes of what was typed."""
        ...


class StringFormat:
    """Text in UTF-8."""

    def decode(self, data: bytes) -> str:
        """The text; bytes that are no UTF-8 become lone surrogates."""
        return data.decode("utf-8", "surrogateescape")

    def encode(self, value: Any) -> bytes:
        """The text; anything else than text as JSON."""
        return self.from_line(value) if isinstance(value, str) else to_json(value)

    def to_line(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data

    def from_line(self, text: str) -> bytes:
        """The text as bytes."""
        return text.encode("utf-8", "surrogateescape")


class JsonFormat:
    """JSON, on one line whatever it looked like."""

    def decode(self, data: bytes) -> Any:
        """The value."""
        return json.loads(data)

    def encode(self, value: Any) -> bytes:
        """The value, compact."""
        return to_json(value)

    def to_line(self, data: bytes) -> bytes:
        """The value, compact."""
        return to_json(json.loads(data))

    def from_line(self, text: str) -> bytes:
        """The text as it was typed, if it is JSON."""
        json.loads(text)
        return text.encode()


class HexFormat:
    """Two digits for each byte."""

    def decode(self, data: bytes) -> str:
        """The digits."""
        return data.hex()

    def encode(self, value: Any) -> bytes:
        """The bytes of the digits."""
        return self.from_line(value)

    def to_line(self, data: bytes) -> bytes:
        """The digits."""
        return data.hex().encode()

    def from_line(self, text: str) -> bytes:
        """The bytes of the digits; spaces between them are allowed."""
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise ValueError(f"{text!r} is not hexadecimal, two digits for each byte") from None


class NumberFormat:
    """A number as Java's serializers write it: so many bytes, the highest first."""

    def __init__(self, name: str, code: str, kind: type[int] | type[float]) -> None:
        self._name = name
        self._struct = struct.Struct(">" + code)
        self._kind = kind

    def decode(self, data: bytes) -> int | float:
        """The number."""
        if len(data) != self._struct.size:
            raise ValueError(f"a {self._name} has {self._struct.size} bytes, and not {len(data)}")
        (number,) = self._struct.unpack(data)
        return self._kind(number)

    def encode(self, value: Any) -> bytes:
        """The number's bytes."""
        try:
            return self._struct.pack(self._kind(value))
        except (ValueError, TypeError, OverflowError, struct.error):
            raise ValueError(f"{value!r} is no {self._name} of {self._struct.size} bytes") from None

    def to_line(self, data: bytes) -> bytes:
        """The number in digits."""
        return str(self.decode(data)).encode()

    def from_line(self, text: str) -> bytes:
        """The bytes of the number in digits."""
        return self.encode(text)


class Structured:
    """Avro or Protobuf, written as JSON."""

    def decode(self, data: bytes) -> Any:
        """The value; see the two formats."""
        raise NotImplementedError

    def encode(self, value: Any) -> bytes:
        """The bytes of a value; see the two formats."""
        raise NotImplementedError

    def to_line(self, data: bytes) -> bytes:
        """The value as JSON, compact."""
        return to_json(self.decode(data))

    def from_line(self, text: str) -> bytes:
        """The bytes of a value that was typed as JSON."""
        return self.encode(json.loads(text))


class AvroFormat(Structured):
    """Avro's binary form, by a schema in a file."""

    def __init__(self, schema: Path) -> None:
        from barnabas.clients.serializers import Avro as Serde

        self._serde = Serde(schema)

    def decode(self, data: bytes) -> Any:
        """The value."""
        try:
            return self._serde.deserialize(data)
        except EOFError:
            raise ValueError("the bytes end before the schema does") from None

    def encode(self, value: Any) -> bytes:
        """The value in Avro's binary form."""
        return self._serde.serialize(value)


class ProtobufFormat(Structured):
    """Messages by a descriptor: `FILE.desc:package.Message`, or `FILE.proto:package.Message` where protoc is there."""

    def __init__(self, schema: str) -> None:
        from barnabas.clients.errors import InvalidClientConfig
        from barnabas.clients.library import load
        from barnabas.clients.protobuf_files import message_class, read_descriptors, split_name

        self._json = load("google.protobuf.json_format", "protobuf")
        try:
            file, message = split_name(schema)
            self._message = message_class(read_descriptors(file), message)
        except InvalidClientConfig as error:
            raise click.UsageError(f"{error}.") from error

    def decode(self, data: bytes) -> Any:
        """The message, in Protobuf's own mapping to JSON."""
        return self._json.MessageToDict(self._message.FromString(data), preserving_proto_field_name=True)

    def encode(self, value: Any) -> bytes:
        """The message's bytes."""
        data: bytes = self._json.ParseDict(value, self._message()).SerializeToString()
        return data


class UuidFormat:
    """Java's UUIDSerializer: an id as text."""

    def decode(self, data: bytes) -> str:
        """The id, checked."""
        return str(UUID(data.decode()))

    def encode(self, value: Any) -> bytes:
        """The id, checked."""
        return str(UUID(value)).encode()

    def to_line(self, data: bytes) -> bytes:
        """The id, checked."""
        return self.decode(data).encode()

    def from_line(self, text: str) -> bytes:
        """The id, checked."""
        return self.encode(text)


STRING: Final = StringFormat()
PLAIN: Final[dict[str, Format]] = {
    "string": STRING,
    "json": JsonFormat(),
    "hex": HexFormat(),
    "short": NumberFormat("short", "h", int),
    "int": NumberFormat("int", "i", int),
    "long": NumberFormat("long", "q", int),
    "float": NumberFormat("float", "f", float),
    "double": NumberFormat("double", "d", float),
    "uuid": UuidFormat(),
}
NAMES: Final = (*PLAIN, "avro", "protobuf")
_CLASSES: Final = {
    "String": "string",
    "ByteArray": "string",
    "Bytes": "string",
    "ByteBuffer": "string",
    "Short": "short",
    "Integer": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "UUID": "uuid",
}


def choose(name: str | None, schema: str | None) -> Format:
    """The format of this name; with a schema and no name, the file's ending says which it is."""
    if name is None and schema is not None:
        name = "avro" if schema.endswith((".avsc", ".json")) else "protobuf"
    if name == "avro" or name == "protobuf":
        if schema is None:
            raise click.UsageError(f"The format {name} needs a schema.")
        if name == "protobuf":
            return ProtobufFormat(schema)
        if not Path(schema).is_file():
            raise click.UsageError(f"There is no file {schema}.")
        return AvroFormat(Path(schema))
    if schema is not None:
        raise click.UsageError(f"The format {name} has no schema.")
    return PLAIN[name or "string"]


def of_class(name: str) -> str:
    """The format that does what a deserializer of Java does, by the name of its class."""
    simple = name.rpartition(".")[2].removesuffix("Deserializer")
    if simple not in _CLASSES:
        raise click.UsageError(
            f"{name} is a Java class that cannot be loaded here. The formats are {', '.join(NAMES)} (--value-format)."
        )
    return _CLASSES[simple]


def to_json(value: Any) -> bytes:
    """A value as JSON, compact; text with lone surrogates is escaped, which JSON allows."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_other)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=_other).encode()


def _other(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)
