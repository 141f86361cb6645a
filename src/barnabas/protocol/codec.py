"""Messages to bytes and back, through kio, in any version that a client may speak.

`decode` gives a handler the newest version of a request; `encode` writes a response of the newest version as the older
version that the client asked in. Readers and writers are made once per API and version: importing a schema costs a
millisecond, and a broker that nobody asks for ACLs never imports them. OffsetCommit and EndTxn, and the responses of
Metadata and of those by which groups rebalance, are packed by hand (`protocol/offset_commit`, `end_txn`,
`metadata_response`, `group_responses`), and so are Produce and Fetch, which do not come this way.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_writer

from barnabas.protocol import bounds, shapes
from barnabas.protocol.apis import FLEXIBLE_FROM, ApiKey
from barnabas.protocol.conversion import convert, zero

if TYPE_CHECKING:
    from barnabas.model.errors import ErrorCode

HEADER_V0: Final = struct.Struct(">ii")
HEADER_V1: Final = struct.Struct(">iib")

INTERNAL: Final = frozenset({4, 5, 6, 7, 1000, 1001, 1002, 1003})
"""The API keys of messages that `protocol/internal` declares."""


REBALANCING: Final = frozenset(
    {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT}
)
"""The APIs whose responses `protocol/group_responses` writes."""


class RequestCodec(NamedTuple):
    """Reads one version of one request."""

    message_class: type
    newest: type


class ResponseCodec(NamedTuple):
    """Writes one version of one response."""

    message_class: type
    write: Any
    flexible_header: bool


def request_class(key: ApiKey, version: int) -> type:
    """The class of a request: kio's, or our own for what brokers tell each other."""
    if key.value in INTERNAL:
        from barnabas.protocol import internal

        return internal.REQUESTS[key.value]
    message_class: type = load_request_schema(key, version)
    return message_class


def response_class(key: ApiKey, version: int) -> type:
    """The class of a response."""
    if key.value in INTERNAL:
        from barnabas.protocol import internal

        return internal.RESPONSES[key.value]
    message_class: type = load_response_schema(key, version)
    return message_class


@cache
def request_codec(key: ApiKey, version: int, newest: int) -> RequestCodec:
    """The reader for this version, which answers in the newest one."""
    message_class = request_class(key, version)
    known = shapes.own_request(key) or request_class(key, newest)
    return RequestCodec(message_class, known)


@cache
def response_codec(key: ApiKey, version: int) -> ResponseCodec:
    """The writer for this version. ApiVersions keeps the oldest header, since its client knows nothing yet."""
    message_class = response_class(key, version)
    flexible_header = version >= FLEXIBLE_FROM[key] and key is not ApiKey.API_VERSIONS
    return ResponseCodec(message_class, entity_writer(message_class), flexible_header)


def decode(key: ApiKey, version: int, newest: int, data: memoryview, position: int) -> Any:
    """The request that starts at `position`, as the newest version's class; raises InvalidFrame."""
    if key is ApiKey.OFFSET_COMMIT:
        from barnabas.protocol import offset_commit

        return offset_commit.unpack(data, position, version, bounds.MAX_ELEMENTS)
    if key is ApiKey.END_TXN:
        from barnabas.protocol import end_txn

        return end_txn.unpack(data, position, version)
    codec = request_codec(key, version, newest)
    most = bounds.MAX_INTERNAL_ELEMENTS if key.value in INTERNAL else bounds.MAX_ELEMENTS
    message = bounds.read(codec.message_class, data, position, most)
    if (up := shapes.UP.get(key)) is not None:
        message = up(message, version)
    return convert(message, codec.newest)


def encode(key: ApiKey, version: int, correlation_id: int, response: Any) -> bytes:
    """The whole frame of a response: size, header, body."""
    if key is ApiKey.OFFSET_COMMIT:
        from barnabas.protocol import offset_commit

        return offset_commit.pack(correlation_id, version, response)
    if key is ApiKey.END_TXN:
        from barnabas.protocol import end_txn

        return end_txn.pack(correlation_id, version, response)
    if key in REBALANCING:
        from barnabas.protocol import group_responses

        return group_responses.pack(key, correlation_id, version, response)
    message = response
    if (down := shapes.DOWN.get(key)) is not None:
        message = down(message, version)
    if key is ApiKey.METADATA:
        from barnabas.protocol import metadata_response

        return metadata_response.pack(correlation_id, version, message)
    codec = response_codec(key, version)
    message = convert(message, codec.message_class)
    buffer = BytesIO()
    if codec.flexible_header:
        buffer.write(HEADER_V1.pack(0, correlation_id, 0))
    else:
        buffer.write(HEADER_V0.pack(0, correlation_id))
    codec.write(buffer, message)
    size = buffer.tell() - 4
    with buffer.getbuffer() as view:
        view[:4] = size.to_bytes(4, "big")
    return buffer.getvalue()


def error_response(key: ApiKey, newest: int, code: ErrorCode, message: str) -> Any | None:
    """A response that says nothing but this error; None if responses of this API have no place for one."""
    message_class = response_class(key, newest)
    names = {field.name for field in fields(message_class)}
    if "error_code" not in names:
        return None
    values: dict[str, object] = {"error_code": code}
    if "error_message" in names:
        values["error_message"] = message
    return zero(message_class, **values)
