"""Schemas of records: from a registry by their number, or from files, by the names that a registry would use.

In a folder, `TOPIC-value.avsc` is Avro, `TOPIC-value.desc` what protoc compiled, and `TOPIC-value.proto` its source; of
Protobuf, records are of the first message.
"""

from __future__ import annotations

import logging
import struct
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.clients.protobuf_files import read_descriptors
from barnabas.clients.serializers import Avro
from barnabas.console.messages.protobuf_schemas import ProtobufReader, UnusableSchema, from_registry
from barnabas.console.messages.registry import Registry, RegistryFailed

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

FORGET_SECONDS: Final = 30.0
"""How long a schema that could not be had is not asked for again."""
MOST_KEPT: Final = 1_000
MOST_REFERENCES: Final = 64
FRAME: Final = struct.Struct(">bI")
"""What serializers of a registry write before a value: zero, and the schema's number."""
SUFFIXES: Final = (".avsc", ".desc", ".proto")


class KnownSchema(NamedTuple):
    """A schema of a registry: its kind, and what reads it. JSON needs nothing, Protobuf can be read without."""

    kind: str
    decoder: Avro | ProtobufReader | None


class Schemas:
    """Where schemas come from."""

    def __init__(self, registry: Registry | None, folder: Path | None) -> None:
        self.registry = registry
        self._folder = folder
        self._by_id: dict[int, KnownSchema] = {}
        self._missing: dict[int, float] = {}
        self._of_files: dict[str, tuple[float, Avro | ProtobufReader | None]] = {}

    def framed(self, data: bytes) -> tuple[int, bytes] | None:
        """The number of a schema and the bytes behind it, if there is a registry and they look like that."""
        if self.registry is None or len(data) < FRAME.size or data[0] != 0:
            return None
        return FRAME.unpack_from(data)[1], data[FRAME.size :]

    def by_id(self, number: int) -> KnownSchema | None:
        """A schema by its number; None if the registry does not tell."""
        if number in self._by_id or self.registry is None:
            return self._by_id.get(number)
        if time.monotonic() - self._missing.get(number, float("-inf")) < FORGET_SECONDS:
            return None
        try:
            found = self._fetch(self.registry, number)
        except Exception as error:  # of sockets, JSON and schemas: the record is then shown without one
            if len(self._missing) >= MOST_KEPT:  # anybody can write numbers into records
                self._missing.clear()
            self._missing[number] = time.monotonic()
            log.warning(
                "Could not use schema %d of %s. Records are shown without it: %s", number, self.registry.address, error
            )
            return None
        if len(self._by_id) >= MOST_KEPT:
            self._by_id.clear()
        self._by_id[number] = found
        return found

    def _fetch(self, registry: Registry, number: int) -> KnownSchema:
        told = registry.object("schemas", "ids", str(number))
        kind = told.get("schemaType", "AVRO")
        if kind == "AVRO":
            return KnownSchema(kind, Avro(told["schema"]))
        if kind != "PROTOBUF":
            return KnownSchema(str(kind), None)
        try:  # compiled, if the registry does that
            whole = registry.object("schemas", "ids", str(number), query="?format=serialized")
            return KnownSchema(kind, from_registry(whole["schema"], self._references(registry, whole, "serialized")))
        except (RegistryFailed, UnusableSchema, TypeError, KeyError):
            pass
        try:
            return KnownSchema(kind, from_registry(told["schema"], self._references(registry, told)))
        except UnusableSchema as error:
            log.warning("Schema %d cannot be used, so records have the numbers of its fields: %s", number, error)
            return KnownSchema(kind, None)

    def _references(self, registry: Registry, told: dict[str, Any], format: str | None = None) -> dict[str, str]:
        """What a schema imports, by name, and what that imports, the innermost first. Raises RegistryFailed."""
        found: dict[str, str] = {}
        query = "" if format is None else f"?format={format}"

        def add(references: Any) -> None:
            for each in references if isinstance(references, list) else ():
                name = str(each["name"])
                if name in found:
                    continue
                if len(found) >= MOST_REFERENCES:
                    raise RegistryFailed(f"a schema imports more than {MOST_REFERENCES} others")
                found[name] = ""  # so that a circle ends
                part = registry.object("subjects", str(each["subject"]), "versions", str(each["version"]), query=query)
                add(part.get("references"))
                del found[name]
                found[name] = str(part["schema"])

        add(told.get("references"))
        return found

    def of_file(self, topic: str, part: str) -> Avro | ProtobufReader | None:
        """The schema of a topic's keys or values in the folder, read anew when the file changes."""
        if self._folder is None:
            return None
        for suffix in SUFFIXES:
            file = self._folder / f"{topic}-{part}{suffix}"
            try:
                changed = file.stat().st_mtime
            except OSError:
                continue
            known = self._of_files.get(file.name)
            if known is None or known[0] != changed:
                known = self._of_files[file.name] = (changed, _read(file))
            return known[1]
        return None


def _read(file: Path) -> Avro | ProtobufReader | None:
    try:
        return Avro(file) if file.suffix == ".avsc" else ProtobufReader(read_descriptors(file))
    except Exception as error:  # a schema that is none; values are shown without it
        log.warning("The schema in %s cannot be used: %s", file, error)
        return None


def plain(value: Any) -> Any:
    """A value of Avro as JSON has it."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
