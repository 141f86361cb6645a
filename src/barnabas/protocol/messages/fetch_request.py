"""Fetch requests, unpacked by hand: consumers at the tail of a log send thousands of them a second, most of them tiny.

Versions 4 to 18 differ in which fields a partition has; the layouts below name them. A test holds the result equal to
what kio reads.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.messages.fetch_response import FLEXIBLE, PREFERRED_REPLICA, SESSIONS, TOPIC_IDS
from barnabas.protocol.wire.framing import MAX_PARTITIONS, skip_tags
from barnabas.protocol.wire.packing import INT16, INT32
from barnabas.protocol.wire.varint import read_uvarint

REPLICA_STATE: Final = 15
HEAD: Final = struct.Struct(">iiib")
"""Longest wait, least and most bytes, isolation level."""
SESSION: Final = struct.Struct(">ii")
PARTITION_V4: Final = struct.Struct(">iqi")
PARTITION_V5: Final = struct.Struct(">iqqi")
PARTITION_V9: Final = struct.Struct(">iiqqi")
PARTITION_V12: Final = struct.Struct(">iiqiqi")
REPLICA: Final = struct.Struct(">iq")
ONE: Final = struct.Struct(">iiibiiB16sBiiqiqibbbbb")
"""From version 15 on, a whole request for one partition by its topic's id."""
ONE_REST: Final = [0, 0, 1, 1, 0]
"""... and what follows the partition: no tags, no forgotten topics, no rack."""

Topic = str | bytes
"""A topic as the wire names it: by name up to version 12, by the 16 bytes of its id from 13 on."""


class WantedPartition(NamedTuple):
    """Where in a partition to read, and how much."""

    topic: Topic
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A Fetch request of any version; topics are named by id from version 13 on."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    session_id: int
    session_epoch: int
    partitions: list[WantedPartition]
    forgotten: list[tuple[Topic, int]]
    rack: str
    replica_epoch: int = -1
    """The broker epoch of a follower, if it says so."""


def unpack(data: memoryview, position: int, version: int) -> FetchRequest:
    """Read the request whose body starts at `position`; raises InvalidFrame."""
    try:
        if version >= REPLICA_STATE and len(data) == position + ONE.size:
            request = _unpack_one(data, position)
            if request is not None:
                return request
        return _unpack(data, position, version)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidFrame(f"FETCH request of version {version} cannot be read: {error}") from error


def _unpack_one(data: memoryview, position: int) -> FetchRequest | None:
    """A request of exactly ONE.size bytes, read by one struct if it is for one partition; None if it is not.

    A consumer of one partition sends such, in a session and without. It takes 1.6 µs, going over the fields 5.1.
    """
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation,
        session_id,
        session_epoch,
        topics,
        topic,
        partitions,
        index,
        epoch,
        offset,
        last_epoch,
        log_start,
        most,
        *rest,
    ) = ONE.unpack_from(data, position)
    if topics != 2 or partitions != 2 or rest != ONE_REST:
        return None
    wanted = WantedPartition(topic, index, epoch, offset, last_epoch, log_start, most)
    return FetchRequest(
        -1, max_wait_ms, min_bytes, max_bytes, isolation == 1, session_id, session_epoch, [wanted], [], ""
    )


def _unpack(data: memoryview, position: int, version: int) -> FetchRequest:
    flexible = version >= FLEXIBLE
    replica_id = replica_epoch = -1
    if version < REPLICA_STATE:
        (replica_id,) = INT32.unpack_from(data, position)
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation = HEAD.unpack_from(data, position)
    position += HEAD.size
    session_id, session_epoch = 0, -1
    if version >= SESSIONS:
        session_id, session_epoch = SESSION.unpack_from(data, position)
        position += SESSION.size
    partitions: list[WantedPartition] = []
    count, position = _count(data, position, flexible)
    for _ in range(count):
        position = _topic(data, position, version, partitions)
    forgotten: list[tuple[Topic, int]] = []
    if version >= SESSIONS:
        count, position = _count(data, position, flexible)
        for _ in range(count):
            position = _forgotten(data, position, version, forgotten)
    rack = ""
    if version >= PREFERRED_REPLICA:
        rack, position = _text(data, position, flexible)
    if version >= REPLICA_STATE:
        replica_id, replica_epoch = _replica(data, position)
    elif flexible:
        skip_tags(data, position)
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation == 1,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack,
        replica_epoch,
    )


def _topic(data: memoryview, position: int, version: int, into: list[WantedPartition]) -> int:
    flexible = version >= FLEXIBLE
    topic, position = _topic_key(data, position, version)
    count, position = _count(data, position, flexible)
    for _ in range(count):
        epoch = last_epoch = log_start = -1
        if version >= FLEXIBLE:
            index, epoch, offset, last_epoch, log_start, most = PARTITION_V12.unpack_from(data, position)
            position += PARTITION_V12.size
            position = position + 1 if data[position] == 0 else skip_tags(data, position)
        elif version >= 9:
            index, epoch, offset, log_start, most = PARTITION_V9.unpack_from(data, position)
            position += PARTITION_V9.size
        elif version >= 5:
            index, offset, log_start, most = PARTITION_V5.unpack_from(data, position)
            position += PARTITION_V5.size
        else:
            index, offset, most = PARTITION_V4.unpack_from(data, position)
            position += PARTITION_V4.size
        into.append(WantedPartition(topic, index, epoch, offset, last_epoch, log_start, most))
    if len(into) > MAX_PARTITIONS:
        raise _too_many(len(into))
    return skip_tags(data, position) if flexible else position


def _forgotten(data: memoryview, position: int, version: int, into: list[tuple[Topic, int]]) -> int:
    flexible = version >= FLEXIBLE
    topic, position = _topic_key(data, position, version)
    count, position = _count(data, position, flexible)
    into += [(topic, index) for index in struct.unpack_from(f">{count}i", data, position)]
    if len(into) > MAX_PARTITIONS:
        raise _too_many(len(into))
    position += 4 * count
    return skip_tags(data, position) if flexible else position


def _topic_key(data: memoryview, position: int, version: int) -> tuple[Topic, int]:
    if version < TOPIC_IDS:
        return _text(data, position, version >= FLEXIBLE)
    end = position + 16
    if end > len(data):
        raise InvalidFrame("the FETCH request ends inside a topic id")
    return bytes(data[position:end]), end


def _replica(data: memoryview, position: int) -> tuple[int, int]:
    """The replica's id and epoch from the tagged fields; -1 for consumers, who leave them out."""
    if data[position] == 0:
        return -1, -1
    skip_tags(data, position)
    count, position = read_uvarint(data, position)
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        if tag == 1:
            replica_id, replica_epoch = REPLICA.unpack_from(data, position)
            return replica_id, replica_epoch
        position += size
    return -1, -1


def _text(data: memoryview, position: int, flexible: bool) -> tuple[str, int]:
    if flexible:
        length, position = read_uvarint(data, position)
        length -= 1
    else:
        (length,) = INT16.unpack_from(data, position)
        position += 2
    end = position + length
    if length < 0 or end > len(data):
        raise InvalidFrame(f"a string of {length} bytes at byte {position} does not fit the FETCH request")
    return str(data[position:end], "utf-8"), end


def _count(data: memoryview, position: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, position = read_uvarint(data, position)
        count -= 1
    else:
        (count,) = INT32.unpack_from(data, position)
        position += 4
    if count > MAX_PARTITIONS:
        raise _too_many(count)
    return max(count, 0), position


def _too_many(count: int) -> InvalidFrame:
    return InvalidFrame(f"{count} elements are more than the {MAX_PARTITIONS} that a FETCH request may have")
