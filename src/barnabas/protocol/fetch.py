"""Fetch responses, packed by hand around record data that stays in its files.

The response is a list of parts: bytes that are written here, and slices of log files that the connection sends with
sendfile. Nothing in this module touches a record. A test holds the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from barnabas.protocol.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

FLEXIBLE: Final = 12
TOPIC_IDS: Final = 13
SESSIONS: Final = 7
LOG_START: Final = 5
PREFERRED_REPLICA: Final = 11

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
SESSION_HEAD: Final = struct.Struct(">ihi")
"""Throttle time, error, session id."""
PARTITION_V4: Final = struct.Struct(">ihqq")
"""Index, error, high watermark, last stable offset."""
PARTITION_V5: Final = struct.Struct(">ihqqq")
"""... and the log start offset."""
LEADER_TAG: Final = struct.Struct(">bbiib")
DIVERGING_TAG: Final = struct.Struct(">bbiqb")

Slice = TypeVar("Slice")


class FetchedPartition(NamedTuple, Generic[Slice]):
    """What one partition answers."""

    partition: int
    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: Sequence[tuple[int, int]] | None
    """Producer id and first offset of aborted transactions; None unless the client reads committed data only."""
    size: int
    slices: Sequence[Slice]
    leader: tuple[int, int] | None = None
    """Leader id and epoch, for a client that asked the wrong broker or with the wrong epoch."""
    diverging: tuple[int, int] | None = None
    """Epoch and end offset from which on the fetcher's log is not ours."""


class FetchedTopic(NamedTuple, Generic[Slice]):
    """A topic, by name up to version 12 and by id from 13 on."""

    name: str
    topic_id: UUID
    partitions: Sequence[FetchedPartition[Slice]]


def pack(
    correlation_id: int,
    version: int,
    error: int,
    session_id: int,
    topics: Sequence[FetchedTopic[Slice]],
) -> list[bytes | Slice]:
    """The whole frame as bytes and file slices, in the order in which they go out."""
    flexible = version >= FLEXIBLE
    parts: list[bytes | Slice] = []
    out = bytearray(4)
    out += INT32.pack(correlation_id)
    if flexible:
        out.append(0)
    out += SESSION_HEAD.pack(0, error, session_id) if version >= SESSIONS else INT32.pack(0)
    out += uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    sent = 0
    for topic in topics:
        if version >= TOPIC_IDS:
            out += topic.topic_id.bytes
        else:
            name = topic.name.encode()
            out += uvarint(len(name) + 1) if flexible else INT16.pack(len(name))
            out += name
        out += uvarint(len(topic.partitions) + 1) if flexible else INT32.pack(len(topic.partitions))
        for partition in topic.partitions:
            _pack_partition(out, version, partition)
            if partition.size:
                parts.append(bytes(out))
                parts += partition.slices
                sent += len(out) + partition.size
                out = bytearray()
            if flexible:
                out += _pack_tags(partition)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    size = INT32.pack(sent + len(out) - 4)
    if parts:
        first = parts[0]
        assert isinstance(first, bytes)
        parts[0] = size + first[4:]
    else:
        out[:4] = size
    if out:
        parts.append(bytes(out))
    return parts


def _pack_partition(out: bytearray, version: int, partition: FetchedPartition[Slice]) -> None:
    """Everything of a partition up to its records."""
    index, error, high_watermark, last_stable, log_start, aborted, size, *_ = partition
    if version >= LOG_START:
        out += PARTITION_V5.pack(index, error, high_watermark, last_stable, log_start)
    else:
        out += PARTITION_V4.pack(index, error, high_watermark, last_stable)
    flexible = version >= FLEXIBLE
    if aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        out += uvarint(len(aborted) + 1) if flexible else INT32.pack(len(aborted))
        for producer_id, first_offset in aborted:
            out += struct.pack(">qq", producer_id, first_offset)
            if flexible:
                out.append(0)
    if version >= PREFERRED_REPLICA:
        out += b"\xff\xff\xff\xff"
    out += uvarint(size + 1) if flexible else INT32.pack(size)


def _pack_tags(partition: FetchedPartition[Slice]) -> bytes:
    leader, diverging = partition.leader, partition.diverging
    if leader is None and diverging is None:
        return b"\0"
    first = b"" if diverging is None else DIVERGING_TAG.pack(0, 13, *diverging, 0)
    second = b"" if leader is None else LEADER_TAG.pack(1, 9, *leader, 0)
    return bytes((bool(first) + bool(second),)) + first + second
