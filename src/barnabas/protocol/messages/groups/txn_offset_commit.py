"""TxnOffsetCommit, read and written by hand: a stream processor sends one in each of its transactions.

It is an OffsetCommit with a producer, so topics are read and written as there (`offset_commit`). Nothing is remembered:
the producer has another epoch in each transaction. Tests hold both directions equal to kio's. Annotations are not
postponed, for the reason that is given there.
"""

import struct
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.messages.groups.offset_commit import (
    OffsetCommitRequestTopic,
    OffsetCommitResponseTopic,
    kind,
    not_null,
    pack_flexible,
    pack_plain,
    read_topics,
    short_topics,
    text_reader,
)
from barnabas.protocol.wire.bounds import MAX_ELEMENTS
from barnabas.protocol.wire.packing import INT32, milliseconds
from barnabas.protocol.wire.reading import UNREADABLE

LEADER_EPOCHS: Final = 2
FLEXIBLE: Final = 3
"""Members are named from this version on, too."""
_PRODUCER: Final = struct.Struct(">qh")
_PRODUCER_AND_GENERATION: Final = struct.Struct(">qhi")


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitRequest:
    """Offsets of one group that a transaction is about to commit. Topics have no ids here."""

    transactional_id: str = field(metadata=kind("string"))
    group_id: str = field(metadata=kind("string"))
    producer_id: int = field(metadata=kind("int64"))
    producer_epoch: int = field(metadata=kind("int16"))
    generation_id: int = field(metadata=kind("int32"), default=-1)
    member_id: str = field(metadata=kind("string"), default="")
    group_instance_id: str | None = field(metadata=kind("string"), default=None)
    topics: tuple[OffsetCommitRequestTopic, ...]


@dataclass(slots=True, kw_only=True)
class TxnOffsetCommitResponse:
    """The answer to such a commit."""

    throttle_time: timedelta = field(metadata=kind("timedelta_i32"), default=timedelta(0))
    topics: tuple[OffsetCommitResponseTopic, ...]


def unpack(data: memoryview, position: int, version: int, max_elements: int = MAX_ELEMENTS) -> TxnOffsetCommitRequest:
    """Read a request of any version that is served; raises InvalidFrame."""
    request = None
    if version >= FLEXIBLE:
        try:  # noqa: SIM105  # which costs nothing here, as `suppress` does not
            request = _unpack_short(bytes(data), position, max_elements)
        except UNREADABLE:
            pass  # the general way says what is wrong
    if request is None:
        try:
            request = _unpack(bytes(data), position, version, max_elements)
        except UNREADABLE as error:
            raise InvalidFrame(f"TXN_OFFSET_COMMIT request of version {version} cannot be read: {error}") from error
    return request


def _unpack_short(data: bytes, at: int, left: int) -> TxnOffsetCommitRequest | None:
    """A flexible request whose lengths take a byte each, without tagged fields; None if it is another, or is wrong."""
    id_size = data[at]
    id_at, at = at + 1, at + id_size
    group_size = data[at]
    group_at, at = at + 1, at + group_size
    producer_id, producer_epoch, generation = _PRODUCER_AND_GENERATION.unpack_from(data, at)
    at += _PRODUCER_AND_GENERATION.size
    member_size = data[at]
    member_at, at = at + 1, at + member_size
    instance_at, instance_size = at + 1, data[at]
    topics_at = at + (instance_size or 1)
    if min(id_size, group_size, member_size) == 0 or max(id_size, group_size, member_size, instance_size) >= 0x80:
        return None
    topics = short_topics(data, topics_at, left, by_id=False)
    if topics is None:
        return None
    return TxnOffsetCommitRequest(
        transactional_id=data[id_at : group_at - 1].decode(),
        group_id=data[group_at : group_at + group_size - 1].decode(),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=generation,
        member_id=data[member_at : instance_at - 1].decode(),
        group_instance_id=data[instance_at:topics_at].decode() if instance_size else None,
        topics=topics,
    )


def _unpack(data: bytes, position: int, version: int, left: int) -> TxnOffsetCommitRequest:
    """Read a request with at most `left` topics and partitions."""
    flexible = version >= FLEXIBLE
    read_text = text_reader(flexible)
    transactional_id, position = read_text(data, position)
    group_id, position = read_text(data, position)
    producer_id, producer_epoch = _PRODUCER.unpack_from(data, position)
    position += _PRODUCER.size
    generation, instance_id = -1, None
    member_id: str | None = ""
    if flexible:
        (generation,) = INT32.unpack_from(data, position)
        member_id, position = read_text(data, position + 4)
        instance_id, position = read_text(data, position)
    topics = read_topics(data, position, left, flexible=flexible, epochs=version >= LEADER_EPOCHS, by_id=False)
    return TxnOffsetCommitRequest(
        transactional_id=not_null(transactional_id),
        group_id=not_null(group_id),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        generation_id=generation,
        member_id=not_null(member_id),
        group_instance_id=instance_id,
        topics=topics,
    )


def pack(correlation_id: int, version: int, response: TxnOffsetCommitResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    throttle_ms = milliseconds(response.throttle_time) if response.throttle_time else 0
    if version >= FLEXIBLE:
        return pack_flexible(correlation_id, throttle_ms, response.topics, False)
    return pack_plain(correlation_id, throttle_ms, response.topics)
