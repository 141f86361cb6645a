"""ShareFetch and ShareAcknowledge requests, read by hand: a worker of a queue sends one for each message, or for a few.

Everything is read in one pass with its bounds checked; tests hold what is read equal to kio's. The names of the fields
are those of kio's newest version.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from uuid import UUID

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.framing import MAX_STRING, skip_tags
from barnabas.protocol.wire.packing import INT32
from barnabas.protocol.wire.varint import read_uvarint

if TYPE_CHECKING:
    from collections.abc import Callable

_Request = TypeVar("_Request")

RENEWALS: Final = 2
"""The version from which on locks may be renewed, and fetches have an acquire mode."""

_LIMITS: Final = struct.Struct(">iiiiii")
_LIMITS_AND_MODES: Final = struct.Struct(">iiiiiib?")
_BATCH: Final = struct.Struct(">qq")
_SMALLEST_TOPIC: Final = 18
_SMALLEST_PARTITION: Final = 6
_SMALLEST_BATCH: Final = 18
_ID: Final = 16
_NO_ID: Final = bytes(_ID)


class ShareAcknowledgementBatch(NamedTuple):
    """Records, and one type for all of them or one for each."""

    first_offset: int
    last_offset: int
    acknowledge_types: tuple[int, ...]


class RequestedSharePartition(NamedTuple):
    """A partition that is fetched or acknowledged."""

    partition_index: int
    acknowledgement_batches: tuple[ShareAcknowledgementBatch, ...]


class RequestedShareTopic(NamedTuple):
    """Partitions of a topic."""

    topic_id: UUID | None
    partitions: tuple[RequestedSharePartition, ...]


class ForgottenShareTopic(NamedTuple):
    """Partitions of a topic that leave a session."""

    topic_id: UUID | None
    partitions: tuple[int, ...]


@dataclass(slots=True)
class ShareFetchRequest:
    """What a member wants to have."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait: timedelta
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: tuple[RequestedShareTopic, ...]
    forgotten_topics_data: tuple[ForgottenShareTopic, ...]


@dataclass(slots=True)
class ShareAcknowledgeRequest:
    """What has become of records."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: tuple[RequestedShareTopic, ...]


def unpack_fetch(data: memoryview, position: int, version: int, max_elements: int = MAX_ELEMENTS) -> ShareFetchRequest:
    """Read a ShareFetch; raises InvalidFrame."""
    return _refusing(_unpack_fetch, "SHARE_FETCH", bytes(data), position, version, max_elements)


def unpack_acknowledge(
    data: memoryview, position: int, version: int, max_elements: int = MAX_ELEMENTS
) -> ShareAcknowledgeRequest:
    """Read a ShareAcknowledge; raises InvalidFrame."""
    return _refusing(_unpack_acknowledge, "SHARE_ACKNOWLEDGE", bytes(data), position, version, max_elements)


def _refusing(
    read: Callable[[bytes, int, int, int], _Request], name: str, data: bytes, position: int, version: int, most: int
) -> _Request:
    try:
        return read(data, position, version, most)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidFrame(f"{name} request of version {version} cannot be read: {error}") from error


def _unpack_fetch(data: bytes, position: int, version: int, left: int) -> ShareFetchRequest:
    group_id, position = _text(data, position)
    member_id, position = _text(data, position)
    mode, renews = 0, False
    if version >= RENEWALS:
        limits = _LIMITS_AND_MODES.unpack_from(data, position)
        epoch, wait_ms, min_bytes, max_bytes, max_records, batch_size, mode, renews = limits
        position += _LIMITS_AND_MODES.size
    else:
        epoch, wait_ms, min_bytes, max_bytes, max_records, batch_size = _LIMITS.unpack_from(data, position)
        position += _LIMITS.size
    topics, position, left = _topics(data, position, left)
    forgotten, position = _forgotten(data, position, left)
    _end(data, position)
    wait = timedelta(milliseconds=wait_ms)
    return ShareFetchRequest(
        group_id, member_id, epoch, wait, min_bytes, max_bytes, max_records, batch_size, mode, renews, topics, forgotten
    )


def _unpack_acknowledge(data: bytes, position: int, version: int, left: int) -> ShareAcknowledgeRequest:
    group_id, position = _text(data, position)
    member_id, position = _text(data, position)
    (epoch,) = INT32.unpack_from(data, position)
    position += 4
    renews = False
    if version >= RENEWALS:
        renews = data[position] != 0
        position += 1
    topics, position, _ = _topics(data, position, left)
    _end(data, position)
    return ShareAcknowledgeRequest(group_id, member_id, epoch, renews, topics)


# Each of these gives what stands at a position, and the position after it.


def _topics(data: bytes, position: int, left: int) -> tuple[tuple[RequestedShareTopic, ...], int, int]:
    """The topics of a request with at most `left` elements; how many more it may have."""
    count, position = _count(data, position, _SMALLEST_TOPIC, left)
    left -= count
    topics = []
    for _ in range(count):
        topic_id, position = _topic_id(data, position)
        partition_count, position = _count(data, position, _SMALLEST_PARTITION, left)
        left -= partition_count
        partitions = []
        for _ in range(partition_count):
            (index,) = INT32.unpack_from(data, position)
            position += 4
            batches: tuple[ShareAcknowledgementBatch, ...] = ()
            if data[position] == 1:  # none, as in most fetches
                position += 1
            else:
                batches, position, left = _batches(data, position, left)
            position = _end(data, position)
            partitions.append(RequestedSharePartition(index, batches))
        position = _end(data, position)
        topics.append(RequestedShareTopic(topic_id, tuple(partitions)))
    return tuple(topics), position, left


def _batches(data: bytes, position: int, left: int) -> tuple[tuple[ShareAcknowledgementBatch, ...], int, int]:
    count, position = _count(data, position, _SMALLEST_BATCH, left)
    left -= count
    batches = []
    for _ in range(count):
        first, last = _BATCH.unpack_from(data, position)
        kinds, position = _count(data, position + _BATCH.size, 1, left)
        left -= kinds
        types = struct.unpack_from(f">{kinds}b", data, position)
        position = _end(data, position + kinds)
        batches.append(ShareAcknowledgementBatch(first, last, types))
    return tuple(batches), position, left


def _forgotten(data: bytes, position: int, left: int) -> tuple[tuple[ForgottenShareTopic, ...], int]:
    count, position = _count(data, position, _SMALLEST_TOPIC, left)
    left -= count
    topics = []
    for _ in range(count):
        topic_id, position = _topic_id(data, position)
        partitions, position = _count(data, position, 4, left)
        left -= partitions
        indexes = struct.unpack_from(f">{partitions}i", data, position)
        position = _end(data, position + 4 * partitions)
        topics.append(ForgottenShareTopic(topic_id, indexes))
    return tuple(topics), position


def _text(data: bytes, position: int) -> tuple[str | None, int]:
    length, position = read_uvarint(data, position)
    if not length:
        return None, position
    end = position + length - 1
    if length > MAX_STRING + 1 or end > len(data):
        raise InvalidFrame(f"a string of {length - 1} bytes at byte {position} of {len(data)}")
    return data[position:end].decode(), end


def _count(data: bytes, position: int, smallest: int, most: int) -> tuple[int, int]:
    length, position = read_uvarint(data, position)
    count = length - 1
    if not 0 <= count <= most or position + count * smallest > len(data):
        raise InvalidFrame(f"array length {count} before byte {position} is more than the message can have")
    return count, position


def _topic_id(data: bytes, position: int) -> tuple[UUID | None, int]:
    raw = data[position : position + _ID]
    if len(raw) < _ID:
        raise InvalidFrame("the message ends inside a topic's id")
    return None if raw == _NO_ID else UUID(bytes=raw), position + _ID


def _end(data: bytes, position: int) -> int:
    """Pass over tagged fields, of which the protocol has none here."""
    return position + 1 if data[position] == 0 else skip_tags(memoryview(data), position)
