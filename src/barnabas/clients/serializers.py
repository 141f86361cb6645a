"""Keys and values as bytes and back: bytes, text, JSON, Avro and Protobuf.

A serde does both directions, so that a producer and a consumer are given the same one. Any function does too:
`value_serializer=my_dumps`, `value_deserializer=my_loads`. None never reaches either: it is Kafka's null, which
deletes a key in a compacted topic.

Without a serializer a producer takes bytes and str (as UTF-8), and a consumer gives bytes.

pickle is refused: reading it runs code, and everyone who may write to the topic chooses which.
"""

from __future__ import annotations

import functools
import json
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.library import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["BYTES", "JSON", "STRING", "Avro", "Deserializer", "Json", "Protobuf", "Serde", "Serializer", "String"]

T = TypeVar("T")
M = TypeVar("M", bound="ProtobufMessage")

_PICKLES: Final = frozenset({"pickle", "_pickle", "cloudpickle", "dill", "joblib", "jsonpickle", "marshal", "shelve"})


class Serde(Protocol[T]):
    """Both directions of one format."""

    def serialize(self, value: T) -> bytes:
        """The value as bytes."""
        ...

    def deserialize(self, data: bytes) -> T:
        """The value that these bytes are."""
        ...


Serializer: TypeAlias = "Serde[T] | Callable[[T], bytes | str]"
Deserializer: TypeAlias = "Serde[T] | Callable[[bytes], T]"


class Bytes:
    """Bytes as they are."""

    def serialize(self, value: bytes) -> bytes:
        """The value itself."""
        return value

    def deserialize(self, data: bytes) -> bytes:
        """The data itself."""
        return data


class String:
    """Text in an encoding, UTF-8 unless told otherwise."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def serialize(self, value: str) -> bytes:
        """The text, encoded."""
        return value.encode(self._encoding)

    def deserialize(self, data: bytes) -> str:
        """The text that was encoded."""
        return data.decode(self._encoding)


class Json:
    """JSON, compact and in UTF-8. `default` makes what JSON does not know into something it knows, as in `json`.

    NaN and infinities are refused: JSON has no such numbers, and most readers take them for an error.
    """

    def __init__(self, *, default: Callable[[Any], Any] | None = None) -> None:
        encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=default, allow_nan=False)
        self._encode = encoder.encode

    def serialize(self, value: Any) -> bytes:
        """The value as JSON."""
        return self._encode(value).encode()

    def deserialize(self, data: bytes) -> Any:
        """The value that this JSON says."""
        return json.loads(data)


class Avro:
    """Avro's binary form of one schema, without a header: both sides have to know the schema.

    `reader_schema` is what a consumer wants to see, if that is newer or older than what was written.
    """

    def __init__(
        self, schema: str | Mapping[str, Any] | Path, *, reader_schema: str | Mapping[str, Any] | Path | None = None
    ) -> None:
        """Take a schema as JSON text, as what that JSON says, or as a file; raises LibraryMissing without fastavro."""
        self._avro = load("fastavro", "avro")
        self.parsed = self._parse_schema(schema)
        """The schema as fastavro has it: all names are whole."""
        self._reader = None if reader_schema is None else self._parse_schema(reader_schema)

    def serialize(self, value: Any) -> bytes:
        """The value in Avro's binary form."""
        out = BytesIO()
        self._avro.schemaless_writer(out, self.parsed, value, strict=False)
        return out.getvalue()

    def deserialize(self, data: bytes) -> Any:
        """The value that was written with the schema; bytes that are left over are an error."""
        source = BytesIO(data)
        value = self._avro.schemaless_reader(source, self.parsed, self._reader)
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes are left over: written with another schema?")
        return value

    def _parse_schema(self, schema: str | Mapping[str, Any] | Path) -> Any:
        try:
            text = schema.read_text(encoding="utf-8") if hasattr(schema, "read_text") else schema
            if isinstance(text, str) and _names_a_file(text):
                raise InvalidClientConfig(f'{text} is the name of a file, not a schema: give Path("{text}")')
            return self._avro.parse_schema(_json_or_name(text) if isinstance(text, str) else text)
        except (ValueError, KeyError, self._avro.schema.SchemaParseException) as error:
            raise InvalidClientConfig(f"not an Avro schema: {error}") from error


def _names_a_file(text: str) -> bool:
    """Whether a text that is to be a schema looks like the name of a file with one."""
    return "\n" not in text and "{" not in text and text.strip().endswith((".avsc", ".avro", ".json"))


def _json_or_name(text: str) -> Any:
    """JSON, or the bare name of a simple type, which Avro allows as a schema: `string`."""
    return text.strip() if text.strip().isidentifier() else json.loads(text)


class ProtobufMessage(Protocol):
    """What every class that protoc generates has."""

    def SerializeToString(self) -> bytes:  # noqa: N802  (protobuf's own name)
        """The message as bytes."""
        ...

    def ParseFromString(self, serialized: bytes) -> Any:  # noqa: N802  (protobuf's own name)
        """Read bytes into this message."""
        ...


class Protobuf(Generic[M]):
    """Messages of a class that protoc generated."""

    def __init__(self, message: type[M]) -> None:
        if not hasattr(message, "ParseFromString"):
            raise InvalidClientConfig(f"{message!r} is no class of a Protobuf message: give one that protoc generated")
        self._message = message

    def serialize(self, value: M) -> bytes:
        """The message in Protobuf's binary form."""
        if not isinstance(value, self._message):
            raise TypeError(f"expected a {self._message.__name__}, not {type(value).__name__}")
        return value.SerializeToString()

    def deserialize(self, data: bytes) -> M:
        """The message that these bytes are."""
        message = self._message()
        message.ParseFromString(data)
        return message


BYTES: Final = Bytes()
STRING: Final = String()
JSON: Final = Json()


def to_bytes(serializer: Serializer[Any] | None) -> Callable[[Any], bytes | str] | None:
    """The function that serializes; None stays None. Raises InvalidClientConfig for pickle."""
    return _function(serializer, "serialize")


def from_bytes(deserializer: Deserializer[Any] | None) -> Callable[[bytes], Any] | None:
    """The function that deserializes; None stays None. Raises InvalidClientConfig for pickle."""
    return _function(deserializer, "deserialize")


def _function(given: Any, method: str) -> Callable[[Any], Any] | None:
    if given is None or isinstance(given, Bytes):
        return None
    refuse_pickle(given)
    found = getattr(given, method, given)
    if not callable(found):
        raise InvalidClientConfig(
            f"{given!r} is no {method}r: give a function, or one of STRING, JSON, Avro(...), Protobuf(...) "
            "of barnabas.clients.serializers"
        )
    function: Callable[[Any], Any] = found
    return function


def refuse_pickle(given: object) -> None:
    """Raise InvalidClientConfig for functions, classes and modules of pickle and its kin."""
    inner = given
    while isinstance(inner, functools.partial):
        inner = inner.func
    owner = getattr(inner, "__self__", inner)
    names = (
        getattr(inner, "__module__", None),
        getattr(type(owner), "__module__", None),
        getattr(owner, "__name__", None),
    )
    for name in names:
        if isinstance(name, str) and name.partition(".")[0] in _PICKLES:
            raise InvalidClientConfig(
                f"{name} is refused as a serializer: reading pickled data runs code chosen by whoever wrote to the "
                "topic, and no other language can read it. Use JSON, Avro or Protobuf"
            )
