"""OffsetCommit, read and written by hand: it is the request that a busy group coordinator gets most of.

Everything is read in one pass with its bounds checked, into the classes of `protocol/group_offsets`; tests hold both
directions equal to kio's.
"""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import TYPE_CHECKING, Final
from uuid import UUID

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.bounds import MAX_STRING
from barnabas.protocol.framing import skip_tags
from barnabas.protocol.group_offsets import (
    NO_RETENTION,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.varint import read_uvarint, uvarint

if TYPE_CHECKING:
    from barnabas.protocol.group_offsets import OffsetCommitResponse

FLEXIBLE: Final = 8
TOPIC_IDS: Final = 10
INSTANCES: Final = 7
LEADER_EPOCHS: Final = 6
RETENTION: Final = range(2, 5)
THROTTLE: Final = 3

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">ii")
_RESULT: Final = struct.Struct(">ih")
_OFFSET: Final = struct.Struct(">iq")
_OFFSET_AND_EPOCH: Final = struct.Struct(">iqi")
_SMALLEST_PARTITION: Final = 14
_SMALLEST_TOPIC: Final = 2


def unpack(data: memoryview, position: int, version: int, max_elements: int) -> OffsetCommitRequest:
    """Read a request of any version that is served; raises InvalidFrame."""
    try:
        return _Reader(data, position, version, max_elements).request()
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise InvalidFrame(f"OFFSET_COMMIT request of version {version} cannot be read: {error}") from error


class _Reader:
    """One request."""

    __slots__ = ("data", "flexible", "left", "position", "version")

    def __init__(self, data: memoryview, position: int, version: int, max_elements: int) -> None:
        self.data = data
        self.position = position
        self.version = version
        self.flexible = version >= FLEXIBLE
        self.left = max_elements

    def request(self) -> OffsetCommitRequest:
        version = self.version
        group_id = self._text()
        (generation,) = _INT32.unpack_from(self.data, self.position)
        self.position += 4
        member_id = self._text()
        instance_id = self._text_or_null() if version >= INSTANCES else None
        retention = NO_RETENTION
        if version in RETENTION:
            (milliseconds,) = _INT64.unpack_from(self.data, self.position)
            self.position += 8
            retention = _duration(milliseconds)
        topics = tuple([self._topic() for _ in range(self._count(_SMALLEST_TOPIC))])
        self._end()
        return OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time=retention,
            topics=topics,
        )

    def _topic(self) -> OffsetCommitRequestTopic:
        topic_id, name = None, ""
        if self.version >= TOPIC_IDS:
            raw = bytes(self.data[self.position : self.position + 16])
            if len(raw) < 16:
                raise InvalidFrame("the message ends inside a topic's id")
            topic_id = UUID(bytes=raw) if any(raw) else None
            self.position += 16
        else:
            name = self._text()
        partitions = tuple([self._partition() for _ in range(self._count(_SMALLEST_PARTITION))])
        self._end()
        return OffsetCommitRequestTopic(topic_id=topic_id, name=name, partitions=partitions)

    def _partition(self) -> OffsetCommitRequestPartition:
        if self.version >= LEADER_EPOCHS:
            index, offset, epoch = _OFFSET_AND_EPOCH.unpack_from(self.data, self.position)
            self.position += _OFFSET_AND_EPOCH.size
        else:
            index, offset = _OFFSET.unpack_from(self.data, self.position)
            epoch = -1
            self.position += _OFFSET.size
        metadata = self._text_or_null()
        self._end()
        return OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=epoch, committed_metadata=metadata
        )

    def _text(self) -> str:
        text = self._text_or_null()
        if text is None:
            raise InvalidFrame(f"null before byte {self.position}, where a string must be")
        return text

    def _text_or_null(self) -> str | None:
        data, position = self.data, self.position
        if self.flexible:
            length = data[position]
            if length < 0x80:
                position += 1
            else:
                length, position = read_uvarint(data, position)
            length -= 1
        else:
            (length,) = _INT16.unpack_from(data, position)
            position += 2
        if length < 0:
            if length < -1:
                raise InvalidFrame(f"negative length {length} before byte {position}")
            self.position = position
            return None
        if length > MAX_STRING:
            raise InvalidFrame(f"a string of {length} bytes before byte {position}; Kafka's have at most {MAX_STRING}")
        end = self.position = position + length
        if end > len(data):
            raise InvalidFrame(f"length {length} before byte {position} goes beyond the message's {len(data)} bytes")
        return str(data[position:end], "utf-8")

    def _count(self, smallest: int) -> int:
        if self.flexible:
            count, self.position = read_uvarint(self.data, self.position)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(self.data, self.position)
            self.position += 4
        if count < 0:
            raise InvalidFrame(f"array length {count} before byte {self.position}")
        self.left -= count
        if self.left < 0 or self.position + count * smallest > len(self.data):
            raise InvalidFrame(f"array length {count} before byte {self.position} is more than the message can have")
        return count

    def _end(self) -> None:
        """Pass over tagged fields, of which the protocol has none here."""
        if self.flexible:
            position = self.position
            self.position = position + 1 if self.data[position] == 0 else skip_tags(self.data, position)


def _duration(milliseconds: int) -> timedelta:
    """A retention time; what is longer than Python can say is as good as for ever."""
    try:
        return timedelta(milliseconds=milliseconds)
    except OverflowError:
        return timedelta.max if milliseconds > 0 else NO_RETENTION


def pack(correlation_id: int, version: int, response: OffsetCommitResponse) -> bytes:
    """The whole frame of a response, in any version that is served."""
    flexible = version >= FLEXIBLE
    out = bytearray(_HEAD.pack(0, correlation_id))
    if flexible:
        out.append(0)
    if version >= THROTTLE:
        out += _INT32.pack(response.throttle_time // timedelta(milliseconds=1))
    out += _length(len(response.topics), flexible)
    for topic in response.topics:
        if version >= TOPIC_IDS:
            out += bytes(16) if topic.topic_id is None else topic.topic_id.bytes
        else:
            name = topic.name.encode()
            out += uvarint(len(name) + 1) if flexible else _INT16.pack(len(name))
            out += name
        out += _length(len(topic.partitions), flexible)
        for partition in topic.partitions:
            out += _RESULT.pack(partition.partition_index, partition.error_code.value)
            if flexible:
                out.append(0)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    _INT32.pack_into(out, 0, len(out) - 4)
    return bytes(out)


def _length(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)
