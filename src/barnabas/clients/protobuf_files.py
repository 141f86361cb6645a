"""Protobuf's messages by files: what protoc compiled (`.desc`), or the source (`.proto`) where protoc is installed."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from barnabas.clients.errors import InvalidClientConfig
from barnabas.clients.library import load


def split_name(schema: str) -> tuple[Path, str]:
    """`FILE:MESSAGE` as its parts. Raises InvalidClientConfig if it is of another form, or there is no such file."""
    file, _, message = schema.rpartition(":")
    if not file:
        raise InvalidClientConfig(f"{schema} is not of the form FILE:MESSAGE, as in orders.proto:shop.Order")
    if not Path(file).is_file():
        raise InvalidClientConfig(f"the schema {file} is not there")
    return Path(file), message


def read_descriptors(file: Path) -> bytes:
    """A file's descriptors, with all that it imports, in Protobuf's own form. Raises InvalidClientConfig."""
    return _compile(file) if file.suffix == ".proto" else file.read_bytes()


def message_class(descriptors: bytes, message: str) -> Any:
    """The class of a message that `read_descriptors` found. Raises InvalidClientConfig, LibraryMissing."""
    pool = load("google.protobuf.descriptor_pool", "protobuf").DescriptorPool()
    files = load("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet
    factory = load("google.protobuf.message_factory", "protobuf")
    broken = load("google.protobuf.message", "protobuf").DecodeError
    try:
        for found in files.FromString(descriptors).file:
            pool.Add(found)
    except (broken, TypeError) as error:
        raise InvalidClientConfig(f"these are no descriptors of protoc: {error}") from error
    try:
        return factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except KeyError:
        raise InvalidClientConfig(f"the file has no message {message}") from None


def _compile(proto: Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out.desc")
        words = ["protoc", f"-I{proto.parent}", "--include_imports", f"--descriptor_set_out={out}", str(proto)]
        try:
            done = subprocess.run(words, capture_output=True, text=True)
        except FileNotFoundError:
            raise InvalidClientConfig(
                f"reading {proto.name} takes the program protoc, which is not installed: `apt-get install "
                "protobuf-compiler` (Debian, Ubuntu), `brew install protobuf` (macOS). Or compile it elsewhere "
                "(protoc --include_imports --descriptor_set_out=FILE.desc ...) and give FILE.desc:MESSAGE"
            ) from None
        if done.returncode != 0:
            raise InvalidClientConfig(f"protoc does not take {proto}: {done.stderr.strip()}")
        return out.read_bytes()
