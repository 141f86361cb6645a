"""A follower's Fetch, packed and read by hand: requests out of partitions and offsets, responses as views of records.

Followers fetch in one version, 17, with topic ids and a session: a request names only the partitions whose position is
not what the leader knows from the last one. Records are not copied out of the response. A test holds both directions
equal to kio's bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

VERSION: Final = 17
_HEAD: Final = struct.Struct(">iiibii")
"""Max wait, min bytes, max bytes, isolation level, session id, session epoch."""
_PARTITION: Final = struct.Struct(">iiqiqib")
"""Index, current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes, no tags."""
_INDEX: Final = struct.Struct(">i")
_REPLICA: Final = struct.Struct(">BBBBiqB")
"""One tag: number 1, 13 bytes: the replica's id and epoch, no tags. After an empty rack and before nothing else."""
_RESPONSE: Final = struct.Struct(">ihi")
"""Throttle time, error, session id."""
_RESULT: Final = struct.Struct(">ihqqq")
"""Index, error, high watermark, last stable offset, log start offset."""
_DIVERGING: Final = struct.Struct(">iq")
_EPOCH_AND_END_TAG: Final = 0


class FetchPosition(NamedTuple):
    """One partition of a follower's request."""

    leader_epoch: int
    """The epoch that it follows."""
    offset: int
    """Its log's end."""
    last_epoch: int
    """The epoch of its last batch, or -1."""
    log_start: int


Place = tuple[bytes, int]
"""The bytes of the topic's id, and the partition."""


class Fetched(NamedTuple):
    """The leader's answer for one partition."""

    topic_id: bytes
    partition: int
    error: int
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None
    """The epoch and end offset after which the logs diverge: the follower must truncate to it."""
    records: memoryview


class Response(NamedTuple):
    """The leader's answer."""

    error: int
    session_id: int
    partitions: list[Fetched]


def pack_request(
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_max_bytes: int,
    session: tuple[int, int],
    positions: Mapping[Place, FetchPosition],
    forgotten: Sequence[Place],
    replica: tuple[int, int],
) -> bytes:
    """The body of a request; `session` is its id and epoch, `replica` the follower's id and epoch."""
    out = bytearray(_HEAD.pack(max_wait_ms, min_bytes, max_bytes, 0, *session))
    topics = _by_topic(positions)
    out += uvarint(len(topics) + 1)
    for topic_id, indexes in topics.items():
        out += topic_id
        out += uvarint(len(indexes) + 1)
        for index in indexes:
            at = positions[topic_id, index]
            out += _PARTITION.pack(
                index, at.leader_epoch, at.offset, at.last_epoch, at.log_start, partition_max_bytes, 0
            )
        out.append(0)
    gone = _by_topic(forgotten)
    out += uvarint(len(gone) + 1)
    for topic_id, indexes in gone.items():
        out += topic_id
        out += uvarint(len(indexes) + 1)
        for index in indexes:
            out += _INDEX.pack(index)
        out.append(0)
    out += _REPLICA.pack(1, 1, 1, 13, *replica, 0)
    return bytes(out)


def _by_topic(places: Mapping[Place, FetchPosition] | Sequence[Place]) -> dict[bytes, list[int]]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in places:
        topics.setdefault(topic_id, []).append(index)
    return topics


def read_response(data: memoryview) -> Response:
    """Read a response, from the first byte after the correlation id on; raises InvalidFrame."""
    try:
        position = _skip_tags(data, 0)
        _, error, session_id = _RESPONSE.unpack_from(data, position)
        position += _RESPONSE.size
        partitions = list(_topics(data, position))
    except (struct.error, IndexError, ValueError) as failure:
        raise InvalidFrame(f"a Fetch response cannot be read: {failure}") from failure
    return Response(error, session_id, partitions)


def _topics(data: memoryview, position: int) -> Iterator[Fetched]:
    topics, position = read_uvarint(data, position)
    for _ in range(topics - 1):
        topic_id = bytes(data[position : position + 16])
        count, position = read_uvarint(data, position + 16)
        for _ in range(count - 1):
            fetched, position = _partition(data, position, topic_id)
            yield fetched
        position = _skip_tags(data, position)


def _partition(data: memoryview, position: int, topic_id: bytes) -> tuple[Fetched, int]:
    index, error, high_watermark, _, log_start = _RESULT.unpack_from(data, position)
    aborted, position = read_uvarint(data, position + _RESULT.size)
    for _ in range(aborted - 1):
        position = _skip_tags(data, position + 16)
    size, position = read_uvarint(data, position + 4)
    end = position + max(size - 1, 0)
    if end > len(data):
        raise InvalidFrame(f"the records of partition {index} go beyond the response")
    records = data[position:end]
    diverging = None
    count, position = read_uvarint(data, end)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        if tag == _EPOCH_AND_END_TAG:
            epoch, end_offset = _DIVERGING.unpack_from(data, position)
            diverging = epoch, end_offset
        position += length
    return Fetched(topic_id, index, error, high_watermark, log_start, diverging, records), position


def _skip_tags(data: memoryview, position: int) -> int:
    count, position = read_uvarint(data, position)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        position += length
    return position
