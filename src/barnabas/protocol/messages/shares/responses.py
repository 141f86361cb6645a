"""ShareFetch and ShareAcknowledge responses, written by hand. Tests hold the bytes equal to kio's.

Records that a member gets are not copied into a frame: where there are many of them, the frame is a list of its pieces.

The classes have the names of kio's fields. They are not frozen: several objects are made for each response, and
freezing takes four times as long as making. Empty ones are made by the types of their fields, so annotations are not
postponed here.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from barnabas.model.errors import ErrorCode
from barnabas.protocol.messages.shares.requests import RENEWALS
from barnabas.protocol.wire.packing import INT16, INT32, NO_ID, add_text, milliseconds, start
from barnabas.protocol.wire.varint import uvarint

LONG: Final = 8 * 1024
"""Bytes of records from which on they stay a piece of their own."""

_ACQUIRED: Final = struct.Struct(">qqhx")
_LEADER: Final = struct.Struct(">iix")
_RESULT: Final = struct.Struct(">ih")


def _of(kind: str) -> Mapping[str, str]:
    return {"kafka_type": kind}


@dataclass(slots=True)
class ShareResponse:
    """What both responses begin with."""

    throttle_time: timedelta = field(metadata=_of("timedelta_i32"))
    error_code: ErrorCode = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))
    acquisition_lock_timeout: timedelta = field(metadata=_of("timedelta_i32"))


@dataclass(slots=True)
class SharePartitionResponse:
    """What both responses have of a partition first: which one, and what is wrong with it."""

    partition_index: int = field(metadata=_of("int32"))
    error_code: ErrorCode = field(metadata=_of("error_code"))
    error_message: str | None = field(metadata=_of("string"))


@dataclass(slots=True)
class LeaderIdAndEpoch:
    """Who leads a partition."""

    leader_id: int = field(metadata=_of("int32"))
    leader_epoch: int = field(metadata=_of("int32"))


NO_LEADER: Final = LeaderIdAndEpoch(0, 0)
"""For members that have asked the right broker."""


@dataclass(slots=True)
class NodeEndpoint:
    """Where a leader is."""

    node_id: int = field(metadata=_of("int32"))
    host: str = field(metadata=_of("string"))
    port: int = field(metadata=_of("int32"))
    rack: str | None = field(metadata=_of("string"), default=None)


@dataclass(slots=True)
class AcquiredShareRecords:
    """Records that a member has acquired."""

    first_offset: int = field(metadata=_of("int64"))
    last_offset: int = field(metadata=_of("int64"))
    delivery_count: int = field(metadata=_of("int16"))


@dataclass(slots=True)
class FetchedSharePartition(SharePartitionResponse):
    """What a partition gives a member, and what became of its acknowledgements."""

    acknowledge_error_code: int = field(metadata=_of("int16"))
    acknowledge_error_message: str | None = field(metadata=_of("string"))
    current_leader: LeaderIdAndEpoch
    records: bytes = field(metadata=_of("records"))
    acquired_records: tuple[AcquiredShareRecords, ...]


@dataclass(slots=True)
class ShareFetchableTopicResponse:
    """The partitions of a topic."""

    topic_id: UUID | None = field(metadata=_of("uuid"))
    partitions: tuple[FetchedSharePartition, ...]


@dataclass(slots=True)
class ShareFetchResponse(ShareResponse):
    """What a member gets."""

    responses: tuple[ShareFetchableTopicResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...]


@dataclass(slots=True)
class AcknowledgedSharePartition(SharePartitionResponse):
    """What became of the acknowledgements of a partition."""

    current_leader: LeaderIdAndEpoch


@dataclass(slots=True)
class ShareAcknowledgeTopicResponse:
    """The partitions of a topic."""

    topic_id: UUID | None = field(metadata=_of("uuid"))
    partitions: tuple[AcknowledgedSharePartition, ...]


@dataclass(slots=True)
class ShareAcknowledgeResponse(ShareResponse):
    """What became of acknowledgements."""

    responses: tuple[ShareAcknowledgeTopicResponse, ...]
    node_endpoints: tuple[NodeEndpoint, ...]


def pack_fetch(correlation_id: int, version: int, response: ShareFetchResponse) -> bytes | list[bytes]:
    """The whole frame of a ShareFetch response, in any version that is served."""
    pieces: list[bytes] = []
    out = start(correlation_id, True)
    _begin(out, response, with_lock=True)
    for topic in response.responses:
        _begin_topic(out, topic)
        for part in topic.partitions:
            _begin_partition(out, part)
            out += INT16.pack(part.acknowledge_error_code)
            add_text(out, part.acknowledge_error_message, True)
            records = part.records
            _add_leader(out, part.current_leader)
            out += uvarint(len(records) + 1)
            if len(records) < LONG:
                out += records
            else:
                pieces += (bytes(out), records)
                out = bytearray()
            out += uvarint(len(part.acquired_records) + 1)
            for each in part.acquired_records:
                out += _ACQUIRED.pack(each.first_offset, each.last_offset, each.delivery_count)
            out.append(0)
        out.append(0)
    _add_endpoints(out, response.node_endpoints)
    return _framed(pieces, out)


def pack_acknowledge(correlation_id: int, version: int, response: ShareAcknowledgeResponse) -> bytes:
    """The whole frame of a ShareAcknowledge response, in any version that is served."""
    out = start(correlation_id, True)
    _begin(out, response, with_lock=version >= RENEWALS)
    for topic in response.responses:
        _begin_topic(out, topic)
        for part in topic.partitions:
            _begin_partition(out, part)
            _add_leader(out, part.current_leader)
            out.append(0)
        out.append(0)
    _add_endpoints(out, response.node_endpoints)
    return _whole(out)


def _begin(out: bytearray, response: ShareFetchResponse | ShareAcknowledgeResponse, *, with_lock: bool) -> None:
    """Add what both responses begin with, and how many topics follow."""
    out += INT32.pack(milliseconds(response.throttle_time))
    out += INT16.pack(response.error_code.value)
    add_text(out, response.error_message, True)
    if with_lock:
        out += INT32.pack(milliseconds(response.acquisition_lock_timeout))
    out += uvarint(len(response.responses) + 1)


def _begin_topic(out: bytearray, topic: ShareFetchableTopicResponse | ShareAcknowledgeTopicResponse) -> None:
    """Add which topic it is, and how many partitions follow."""
    out += NO_ID if topic.topic_id is None else topic.topic_id.bytes
    out += uvarint(len(topic.partitions) + 1)


def _begin_partition(out: bytearray, part: SharePartitionResponse) -> None:
    out += _RESULT.pack(part.partition_index, part.error_code.value)
    add_text(out, part.error_message, True)


def _add_leader(out: bytearray, leader: LeaderIdAndEpoch) -> None:
    out += _LEADER.pack(leader.leader_id, leader.leader_epoch)


def _add_endpoints(out: bytearray, endpoints: Iterable[NodeEndpoint]) -> None:
    """Add the endpoints, which end a response."""
    nodes = tuple(endpoints)
    out += uvarint(len(nodes) + 1)
    for node in nodes:
        out += INT32.pack(node.node_id)
        add_text(out, node.host, True)
        out += INT32.pack(node.port)
        add_text(out, node.rack, True)
        out.append(0)
    out.append(0)


def _framed(pieces: list[bytes], last: bytearray) -> bytes | list[bytes]:
    """A frame in pieces, with its size in the first."""
    if not pieces:
        return _whole(last)
    pieces.append(bytes(last))
    pieces[0] = INT32.pack(sum(map(len, pieces)) - 4) + pieces[0][4:]
    return pieces


def _whole(out: bytearray) -> bytes:
    """A frame in one piece, with its size."""
    INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)
