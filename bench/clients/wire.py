"""Requests as bytes, built once and sent many times, so that a client costs little beside the broker it measures."""

from __future__ import annotations

import io
import socket
import ssl
import struct
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

import crc32c
from kio.schema.fetch.v12 import request as fetch
from kio.schema.fetch.v12.response import FetchResponse
from kio.schema.fetch.v16 import request as fetch_v16
from kio.schema.metadata.v12.request import MetadataRequest
from kio.schema.metadata.v12.response import MetadataResponse
from kio.schema.produce.v9 import request as produce
from kio.schema.types import TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records, i16, i32, i32Timedelta, i64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kio.static.protocol import Entity, RequestPayload

    Answer = TypeVar("Answer", bound=Entity)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_START: Final = 21
_LOG_OVERHEAD: Final = 12
_SIZE: Final = struct.Struct(">i")
_AT_ONCE: Final = 8 * 1024
_BODY: Final = 4 + 4 + 1
"""Size, correlation id and no tags stand before the body of a response."""
_WAIT: Final = i32Timedelta.parse(timedelta(seconds=30))
_NO_WAIT: Final = i32Timedelta.parse(timedelta())


def connect(port: int, timeout: float = 60.0) -> socket.socket:
    """A connection to a broker of this machine."""
    connection = socket.create_connection(("127.0.0.1", port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def receive(connection: socket.socket) -> bytes:
    """One whole response: size, correlation id, header tags and body."""
    size = _exactly(connection, _SIZE.size)
    return size + _exactly(connection, _SIZE.unpack(size)[0])


def receive_only(connection: socket.socket) -> bytes:
    """The answer to the one request that has none yet: one call takes all that is there, as nothing comes behind it."""
    data = connection.recv(_AT_ONCE)
    while len(data) < _SIZE.size or len(data) < _SIZE.size + _SIZE.unpack_from(data)[0]:
        more = connection.recv(_AT_ONCE)
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


def batch(values: list[bytes]) -> bytes:
    """An uncompressed record batch with these values, without keys, made now."""
    now = time.time_ns() // 1_000_000
    records = bytearray()
    for delta, value in enumerate(values):
        body = b"\0\0" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
        records += _varint(len(body)) + body
    count = len(values)
    fields = (0, count - 1, now, now, -1, -1, -1, count)
    length = _HEADER.size + len(records) - _LOG_OVERHEAD
    unsigned = _HEADER.pack(0, length, -1, 2, 0, *fields)[_CRC_START:] + records
    return _HEADER.pack(0, length, -1, 2, crc32c.crc32c(unsigned), *fields)[:_CRC_START] + unsigned


def produce_request(topic: str, partition: int, records: bytes) -> bytes:
    """A Produce request (acks=1) with one batch."""
    return produce_batches(topic, (partition,), records, 1)


def produce_batches(topic: str, partitions: Iterable[int], records: bytes, acks: int) -> bytes:
    """A Produce request with the same batch for each of these partitions."""
    data = tuple(produce.PartitionProduceData(index=i32(each), records=Records(records)) for each in partitions)
    return frame(
        produce.ProduceRequest(
            acks=i16(acks),
            timeout=_WAIT,
            topic_data=(produce.TopicProduceData(name=TopicName(topic), partition_data=data),),
        )
    )


def produce_error_at(topic: str) -> slice:
    """Where a response to `produce_request`, its size included, carries the error code; it is 0 when all is well."""
    topics_name_partitions_index = 1 + 1 + len(topic) + 1 + 4
    start = _BODY + topics_name_partitions_index
    return slice(start, start + 2)


def fetch_request(topic: str, partition: int, offset: int, max_bytes: int, *, wait: bool = False) -> bytes:
    """A Fetch request outside any session that is answered at once, or waits until there is something."""
    wanted = fetch.FetchPartition(
        partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
    )
    return frame(
        fetch.FetchRequest(
            max_wait=_WAIT if wait else _NO_WAIT,
            min_bytes=i32(1),
            topics=(fetch.FetchTopic(topic=TopicName(topic), partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
    )


def fetch_by_id(topic_id: UUID, partition: int, offset: int, max_bytes: int, *, wait: bool = False) -> bytes:
    """The same in a version that names topics by their ids, as clients of today do."""
    wanted = fetch_v16.FetchPartition(
        partition=i32(partition), fetch_offset=i64(offset), partition_max_bytes=i32(max_bytes)
    )
    return frame(
        fetch_v16.FetchRequest(
            max_wait=_WAIT if wait else _NO_WAIT,
            min_bytes=i32(1),
            topics=(fetch_v16.FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
            forgotten_topics_data=(),
        )
    )


FETCH_BY_ID_ERROR: Final = slice(_BODY + 4 + 2 + 4 + 1 + 16 + 1 + 4, _BODY + 34)
"""Where a response to `fetch_by_id` carries its partition's error code: after throttle time, error, session, topic."""


def topic_id(port: int, topic: str) -> UUID:
    """The id of a topic."""
    with connect(port) as connection:
        for found in metadata(connection).topics:
            if found.name == topic and found.topic_id is not None:
                return found.topic_id
    raise RuntimeError(f"there is no topic {topic}")


def first_offset(response: bytes) -> int:
    """The base offset of the first batch in a response to `fetch_request`."""
    (partition,) = parse(FetchResponse, response).responses[0].partitions
    if partition.error_code != 0 or not partition.records:
        raise RuntimeError(f"fetch answered {partition.error_code!r} with {len(partition.records or b'')} bytes")
    return int.from_bytes(partition.records[:8], "big")


def metadata(connection: socket.socket) -> MetadataResponse:
    """What the broker says of itself and all its topics."""
    connection.sendall(_METADATA)
    return parse(MetadataResponse, receive(connection))


def parse(kind: type[Answer], response: bytes) -> Answer:
    """The message behind size, correlation id and (empty) header tags."""
    return entity_reader(kind)(response, _BODY)[0]


def uuid_at(response: bytes, position: int) -> UUID:
    """The id that stands at a position of a response."""
    return UUID(bytes=response[position : position + 16])


def frame(request: RequestPayload) -> bytes:
    """A request with its header and size."""
    header_type = request.__header_schema__
    header = header_type(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=i32(0),
        client_id="bench",
    )
    buffer = io.BytesIO()
    entity_writer(header_type)(buffer, header)
    entity_writer(type(request))(buffer, request)
    body = buffer.getvalue()
    return _SIZE.pack(len(body)) + body


def _exactly(connection: socket.socket, size: int) -> bytes:
    flags = 0 if isinstance(connection, ssl.SSLSocket) else socket.MSG_WAITALL
    data = connection.recv(size, flags)
    while len(data) < size:
        more = connection.recv(size - len(data), flags)
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return data


def _varint(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


_METADATA: Final = frame(
    MetadataRequest(topics=None, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
)
