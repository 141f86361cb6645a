"""Protobuf with its schema: fields by their names, as Protobuf's own JSON has them.

A schema comes from a registry, as descriptors where that gives them and else as source, or from a file. Source is
compiled by protoc, where that is installed, in a folder of its own.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from barnabas.clients.library import load
from barnabas.console.messages.raw_protobuf import NotProtobuf, read_varint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COMPILE_SECONDS: Final = 10.0
MOST_INDEXES: Final = 32
"""How deep the message of a record may lie in those of its schema."""


class UnusableSchema(ValueError):
    """A schema that no message can be read with."""


class ProtobufReader:
    """Reads messages of one schema."""

    def __init__(self, descriptors: bytes, file: str | None = None) -> None:
        """`descriptors` is protoc's set of files; `file` names the one that has the messages, else it is the last.

        Raises UnusableSchema, LibraryMissing.
        """
        pool = load("google.protobuf.descriptor_pool", "protobuf").DescriptorPool()
        self._factory = load("google.protobuf.message_factory", "protobuf")
        self._json = load("google.protobuf.json_format", "protobuf")
        self._broken = load("google.protobuf.message", "protobuf").DecodeError
        files = load("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet
        try:
            found = files.FromString(descriptors).file
            for each in found:
                pool.Add(each)
            name = file or found[-1].name
            self._messages = list(pool.FindFileByName(name).message_types_by_name.values())
        except (self._broken, TypeError, KeyError, IndexError) as error:
            raise UnusableSchema(f"it has no messages that can be used: {error}") from error

    def decode_framed(self, data: bytes) -> Any:
        """A message behind the indexes that a registry's serializers write. Raises NotProtobuf."""
        indexes, position = read_indexes(data)
        return self._decode(data[position:], indexes)

    def decode(self, data: bytes) -> Any:
        """A message of the first kind in the schema. Raises NotProtobuf."""
        return self._decode(data, (0,))

    def _decode(self, data: bytes, indexes: Sequence[int]) -> Any:
        kinds, kind = self._messages, None
        for index in indexes:
            if index >= len(kinds):
                raise NotProtobuf("the schema has no such message")
            kind = kinds[index]
            kinds = list(kind.nested_types)
        message = self._factory.GetMessageClass(kind)()
        try:
            message.ParseFromString(data)
            return self._json.MessageToDict(message, preserving_proto_field_name=True)
        except (self._broken, self._json.Error, ValueError, RecursionError, TypeError) as error:
            raise NotProtobuf(f"it is not of the message {kind.full_name if kind else ''}: {error}") from error


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """Which message of a schema a record is, and where it begins; a lone zero is the first. Raises NotProtobuf."""
    count, position = _zigzag(data, 0)
    if count == 0:
        return (0,), position
    if not 0 < count <= MOST_INDEXES:
        raise NotProtobuf("no message lies that deep")
    indexes = []
    for _ in range(count):
        index, position = _zigzag(data, position)
        if index < 0:
            raise NotProtobuf("a message has a negative index")
        indexes.append(index)
    return tuple(indexes), position


def _zigzag(data: bytes, position: int) -> tuple[int, int]:
    value, position = read_varint(data, position)
    return (value >> 1) ^ -(value & 1), position


def from_registry(text: str, references: Mapping[str, str]) -> ProtobufReader:
    """The decoder of a registry's schema: source, or a descriptor in base64. Raises UnusableSchema, LibraryMissing.

    `references` are the sources or descriptors that it imports, by their names.
    """
    parts = {**references, "barnabas-console.proto": text}
    descriptor = load("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorProto
    found = load("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet()
    broken = load("google.protobuf.message", "protobuf").DecodeError
    try:
        for name, part in parts.items():
            found.file.append(descriptor.FromString(base64.b64decode(part, validate=True)))
            found.file[-1].name = name
        return ProtobufReader(found.SerializeToString())
    except (ValueError, broken):
        return ProtobufReader(compile_sources(parts, "barnabas-console.proto"), "barnabas-console.proto")


def compile_sources(sources: Mapping[str, str], main: str) -> bytes:
    """The descriptors of sources, by protoc. Raises UnusableSchema."""
    with tempfile.TemporaryDirectory(prefix="barnabas-schemas-") as made:
        folder = Path(made, "in")
        for name, text in sources.items():
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name or len(name) > 200 or not path.name:
                raise UnusableSchema(f"it imports a file of the name {name[:100]!r}")
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        out = Path(made, "out")
        words = ["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}", str(folder / main)]
        try:
            done = subprocess.run(words, capture_output=True, timeout=COMPILE_SECONDS)
        except FileNotFoundError:
            raise UnusableSchema("reading it takes the program protoc, which is not installed") from None
        except subprocess.TimeoutExpired:
            raise UnusableSchema("protoc did not come to an end with it") from None
        if done.returncode != 0:
            raise UnusableSchema(f"protoc does not take it: {done.stderr.decode(errors='replace').strip()[:300]}")
        return out.read_bytes()
