"""Kafka's protocol spoken directly: a socket, frames, and requests of any version made from plain values.

For what no client would send: every version of every API, and bytes that are wrong on purpose. Nothing of Barnabas is
used, so what is wrong in its codec is not wrong here too; the messages are kio's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import functools
import socket
import struct
import types
import typing
from io import BytesIO
from typing import Any, Self

import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer


class Connection:
    """A connection to a broker; requests are answered in their order."""

    def __init__(self, bootstrap: str, seconds: float = 60, source: str = "", client_id: str = "wire") -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=seconds, source_address=(source, 0))
        self._correlation_id = 0
        self._client_id = client_id

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send_frame(self, body: bytes) -> None:
        """Send one frame with an honest length."""
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def finish(self) -> None:
        """Say that nothing more will be sent; the broker may have closed the connection already."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def receive_frame(self) -> bytes | None:
        """The next frame, or None when the broker closed the connection."""
        try:
            size = self._receive(4)
            return None if size is None else self._receive(struct.unpack(">i", size)[0])
        except ConnectionError:
            return None

    def ask(self, key: int, version: int, values: dict[str, Any]) -> Any:
        """Send a request of this API and version and return kio's response object."""
        self._correlation_id += 1
        self.send_frame(request(key, version, self._correlation_id, values, self._client_id))
        answer = self.receive_frame()
        assert answer is not None, f"the connection was closed at API {key} version {version}"
        return read_response(key, version, answer, self._correlation_id)

    def _receive(self, count: int) -> bytes | None:
        chunks = []
        while count:
            chunk = self.socket.recv(min(count, 1 << 20))
            if not chunk:
                return None
            chunks.append(chunk)
            count -= len(chunk)
        return b"".join(chunks)


def request(
    key: int, version: int, correlation_id: int, values: dict[str, Any], client_id: str | None = "wire"
) -> bytes:
    """The bytes of a request, header included, without the frame's length."""
    schema: Any = load_request_schema(key, version)
    header = schema.__header_schema__(
        request_api_key=key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    buffer = BytesIO()
    entity_writer(type(header))(buffer, header)
    entity_writer(schema)(buffer, build(schema, values))
    return buffer.getvalue()


def read_response(key: int, version: int, frame: bytes, correlation_id: int) -> Any:
    """The response in a frame; it must be the one asked for, and use the frame to its last byte."""
    schema: Any = load_response_schema(key, version)
    header, header_size = entity_reader(schema.__header_schema__)(frame, 0)
    assert header.correlation_id == correlation_id
    response, size = entity_reader(schema)(frame, header_size)
    assert header_size + size == len(frame), f"{len(frame) - header_size - size} bytes behind the response"
    return response


def build(schema: Any, values: dict[str, Any]) -> Any:
    """A message of kio's from plain values.

    Nested messages are dicts, times are milliseconds. Fields that this version does not have are left out of it,
    fields without a value get their default or zero: one dict serves all versions of a request.
    """
    hints = _hints(schema)
    chosen = {}
    for field in dataclasses.fields(schema):
        if field.name in values:
            chosen[field.name] = _value(hints[field.name], values[field.name])
        elif field.default is dataclasses.MISSING:
            chosen[field.name] = _zero(hints[field.name])
    return schema(**chosen)


@functools.cache
def _hints(schema: Any) -> dict[str, Any]:
    return typing.get_type_hints(schema)


def _value(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        [element, *_] = typing.get_args(_required(hint))
        return tuple(_value(element, item) for item in value)
    if isinstance(value, dict):
        return build(_required(hint), value)
    if isinstance(value, int) and "Timedelta" in str(hint):
        return datetime.timedelta(milliseconds=value)
    return value


def _zero(hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    if dataclasses.is_dataclass(hint):
        return build(hint, {})
    if "Timedelta" in str(hint):
        return datetime.timedelta(0)
    if issubclass(hint, enum.Enum):
        return hint(0)
    return next(kind() for kind in (bool, int, float, str, bytes) if issubclass(hint, kind))


def _required(hint: Any) -> Any:
    """The hint without `| None`."""
    if isinstance(hint, types.UnionType):
        return next(choice for choice in typing.get_args(hint) if choice is not types.NoneType)
    return hint


def plain(message: Any) -> Any:
    """A message as dicts, lists and numbers, to be compared and printed."""
    if dataclasses.is_dataclass(message):
        return {field.name: plain(getattr(message, field.name)) for field in dataclasses.fields(message)}
    if isinstance(message, tuple):
        return [plain(item) for item in message]
    if isinstance(message, datetime.timedelta):
        return round(message.total_seconds() * 1000)
    if isinstance(message, datetime.datetime):
        return round(message.timestamp() * 1000)
    return message


def varint(number: int) -> bytes:
    """A signed number in zigzag varint form."""
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def batch(values: list[bytes], timestamp: int = 1_700_000_000_000, **lies: int | bytes) -> bytes:
    """A record batch, one millisecond between records; `lies` replace fields of the header (`records` the records)."""
    records = b""
    for number, value in enumerate(values):
        record = b"\0" + varint(number) + varint(number) + varint(-1) + varint(len(value)) + value + varint(0)
        records += varint(len(record)) + record
    told = lies.get("records", records)
    assert isinstance(told, bytes)
    count = len(values)
    after_crc = struct.pack(
        ">hiqqqhii",
        lies.get("attributes", 0),
        lies.get("last_offset_delta", count - 1),
        timestamp,
        lies.get("max_timestamp", timestamp + count - 1),
        lies.get("producer_id", -1),
        lies.get("producer_epoch", -1),
        lies.get("base_sequence", -1),
        lies.get("record_count", count),
    )
    body = struct.pack(">ibI", -1, lies.get("magic", 2), lies.get("crc", crc32c.crc32c(after_crc + told)))
    body += after_crc + told
    return struct.pack(">qi", lies.get("base_offset", 0), lies.get("batch_length", len(body))) + body
