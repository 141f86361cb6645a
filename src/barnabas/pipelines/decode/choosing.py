"""Decoders by name, as people write them on a command line: the schema is read from its file here, on the driver."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from barnabas.clients.errors import InvalidClientConfig
from barnabas.pipelines.decode.contract import SchemaRefused
from barnabas.pipelines.decode.framing import Framing
from barnabas.pipelines.errors import InvalidOption

if TYPE_CHECKING:
    from barnabas.pipelines.decode.contract import Decoder

KINDS: Final = ("bytes", "string", "json", "avro", "protobuf")


def choose_decoder(kind: str, schema: str | None = None, framing: str = "auto") -> Decoder:
    """A decoder.

    `schema` is for json a file or a line such as `id BIGINT, name STRING` (without one, it is inferred and evolves),
    for avro an `.avsc` file, for protobuf `FILE.proto:MESSAGE` or `FILE.desc:MESSAGE`. Raises InvalidOption,
    SchemaRefused.
    """
    frame = Framing(_check_known(framing, [each.value for each in Framing], "framing"))
    kind = _check_known(kind, KINDS, "decoder")
    if kind in ("bytes", "string"):
        if schema is not None:
            raise InvalidOption(f"values that are read as {kind} have no schema")
        from barnabas.pipelines.decode.text import Plain

        return Plain(pa.binary() if kind == "bytes" else pa.string(), frame)
    if kind == "json":
        return _json(schema, frame)
    if schema is None:
        form = "an .avsc file" if kind == "avro" else "FILE.proto:MESSAGE or FILE.desc:MESSAGE"
        raise InvalidOption(f"values that are read as {kind} need a schema: give {form}")
    return _avro(schema, frame) if kind == "avro" else _protobuf(schema, frame)


def _json(schema: str | None, framing: Framing) -> Decoder:
    from barnabas.pipelines.decode.ddl import parse_ddl
    from barnabas.pipelines.decode.json import JsonDecoder

    if schema is None:
        return JsonDecoder(None, framing)
    is_line = " " in schema.strip()
    return JsonDecoder(parse_ddl(schema if is_line else _read(schema)), framing)


def _avro(schema: str, framing: Framing) -> Decoder:
    from barnabas.pipelines.decode.avro import AvroDecoder

    return AvroDecoder(_read(schema), framing)


def _protobuf(schema: str, framing: Framing) -> Decoder:
    from barnabas.clients.protobuf_files import read_descriptors, split_name
    from barnabas.pipelines.decode.protobuf import ProtobufDecoder

    try:
        file, message = split_name(schema)
        return ProtobufDecoder(read_descriptors(file), message, framing)
    except InvalidClientConfig as error:
        raise SchemaRefused(str(error)) from error


def _read(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaRefused(f"the schema {file} cannot be read: {error}") from error


def _check_known(name: str, names: list[str] | tuple[str, ...], what: str) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}"
    raise InvalidOption(f"there is no {what} {name}: {hint}")
