"""Fetch responses, packed by hand around record data that stays in its files.

The response is a list of parts: bytes that are written here, and slices of log files that the connection sends with
sendfile. Nothing in this module touches a record. A test holds the bytes equal to kio's.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from barnabas.protocol.wire.packing import INT16, INT32, NO_TAGS
from barnabas.protocol.wire.varint import uvarint

if TYPE_CHECKING:
    from collections.abc import Sequence

FLEXIBLE: Final = 12
TOPIC_IDS: Final = 13
SESSIONS: Final = 7
LOG_START: Final = 5
PREFERRED_REPLICA: Final = 11

SESSION_HEAD: Final = struct.Struct(">ihi")
"""Throttle time, error, session id."""
PARTITION_V4: Final = struct.Struct(">ihqq")
"""Index, error, high watermark, last stable offset."""
PARTITION_V5: Final = struct.Struct(">ihqqq")
"""... and the log start offset."""
NOTHING_NEW: Final = struct.Struct(">ihqqqbibb")
"""In flexible versions, a partition without records: all up to the preferred replica, the size, and no tags."""
LEADER_TAG: Final = struct.Struct(">bbiib")
DIVERGING_TAG: Final = struct.Struct(">bbiqb")

Topic = str | bytes
"""A topic as the wire names it: by name up to version 12, by the 16 bytes of its id from 13 on."""


class RequestedPartition(Protocol):
    """A partition that a Fetch asked for."""

    @property
    def topic(self) -> Topic:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The number of the partition."""
        ...


Wanted = TypeVar("Wanted", bound=RequestedPartition)
Slice = TypeVar("Slice")


class FetchedPartition(NamedTuple, Generic[Wanted, Slice]):
    """The result of one partition."""

    partition: Wanted
    """The partition as it was requested."""
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of aborted transactions; None unless the client reads committed data only."""
    size: int = 0
    slices: Sequence[Slice] = ()
    leader: tuple[int, int] | None = None
    """Leader id and epoch, for a client that asked the wrong broker or with the wrong epoch."""
    diverging_epoch: tuple[int, int] | None = None
    """The epoch and end offset after which the fetcher's log diverges from ours."""
    preferred_read_replica: int = -1


def pack(
    correlation_id: int,
    version: int,
    error: int,
    session_id: int,
    results: Sequence[FetchedPartition[Wanted, Slice]],
    throttle_ms: int = 0,
) -> list[bytes | Slice]:
    """The whole frame as bytes and file slices, in the order in which they go out.

    Results of one topic that follow each other are put together. A client that has to wait is sent none.
    """
    flexible = version >= FLEXIBLE
    if flexible and len(results) == 1:
        result = results[0]
        if not (result.aborted or result.leader or result.diverging_epoch):
            return _pack_one(correlation_id, error, session_id, result)
    parts: list[bytes | Slice] = []
    out = bytearray(4)
    out += INT32.pack(correlation_id)
    if flexible:
        out.append(0)
    out += SESSION_HEAD.pack(throttle_ms, error, session_id) if version >= SESSIONS else INT32.pack(throttle_ms)
    topics = _by_topic(results)
    out += uvarint(len(topics) + 1) if flexible else INT32.pack(len(topics))
    sent = 0
    for partitions in topics:
        out += _pack_topic(partitions[0].partition.topic, flexible)
        out += uvarint(len(partitions) + 1) if flexible else INT32.pack(len(partitions))
        for partition in partitions:
            wanted, code, high_watermark, stable, start, aborted, size, _, leader, diverging, preferred = partition
            if flexible and not (size or aborted or leader or diverging):  # most of those of a consumer of many
                empty = 0 if aborted is None else 1
                out += NOTHING_NEW.pack(wanted.partition, code, high_watermark, stable, start, empty, preferred, 1, 0)
                continue
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
    length = INT32.pack(sent + len(out) - 4)
    if parts:
        first = parts[0]
        assert isinstance(first, bytes)
        parts[0] = length + first[4:]
    else:
        out[:4] = length
    if out:
        parts.append(bytes(out))
    return parts


def _pack_one(
    correlation_id: int, error: int, session_id: int, result: FetchedPartition[Wanted, Slice]
) -> list[bytes | Slice]:
    """The commonest response, packed by one struct: one partition without tags, in a flexible version."""
    wanted, code, high_watermark, last_stable, log_start, aborted, size, slices, _, _, preferred = result
    topic = _pack_topic(wanted.topic, flexible=True)
    layout = _one_result(len(topic))
    length = uvarint(size + 1)
    head = layout.pack(
        layout.size - 4 + len(length) + size + len(NO_TAGS),
        correlation_id,
        0,
        0,
        error,
        session_id,
        2,
        topic,
        2,
        wanted.partition,
        code,
        high_watermark,
        last_stable,
        log_start,
        0 if aborted is None else 1,
        preferred,
    )
    if not size:
        return [head + length + NO_TAGS]
    return [head + length, *slices, NO_TAGS]


@cache
def _one_result(topic_size: int) -> struct.Struct:
    """The frame up to the size of its records; topics differ in their names' lengths only, so there are few."""
    return struct.Struct(f">iibihib{topic_size}sbihqqqbi")


def _by_topic(results: Sequence[FetchedPartition[Wanted, Slice]]) -> list[list[FetchedPartition[Wanted, Slice]]]:
    topics: list[list[FetchedPartition[Wanted, Slice]]] = []
    last: Topic | None = None
    for result in results:
        topic = result.partition.topic
        if topic != last:
            last = topic
            topics.append([])
        topics[-1].append(result)
    return topics


def _pack_topic(topic: Topic, flexible: bool) -> bytes:
    if isinstance(topic, bytes):
        return topic
    name = topic.encode()
    return (uvarint(len(name) + 1) if flexible else INT16.pack(len(name))) + name


def _pack_partition(out: bytearray, version: int, partition: FetchedPartition[Wanted, Slice]) -> None:
    """Everything of a partition up to its records."""
    wanted, error, high_watermark, last_stable, log_start, aborted, size, *_ = partition
    index = wanted.partition
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
        out += INT32.pack(partition.preferred_read_replica)
    out += uvarint(size + 1) if flexible else INT32.pack(size)


def _pack_tags(partition: FetchedPartition[Wanted, Slice]) -> bytes:
    leader, diverging = partition.leader, partition.diverging_epoch
    if leader is None and diverging is None:
        return b"\0"
    first = b"" if diverging is None else DIVERGING_TAG.pack(0, 13, *diverging, 0)
    second = b"" if leader is None else LEADER_TAG.pack(1, 9, *leader, 0)
    return bytes((bool(first) + bool(second),)) + first + second
