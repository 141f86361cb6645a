"""Workers of a share group over plain sockets: one thread, one epoll, requests packed and answers read by hand.

A worker does what Java's KafkaShareConsumer does that acknowledges by polling on: it fetches up to 500 messages, and
its next fetch acknowledges them all. It does nothing with the messages, and looks only at what was acquired and at
error codes, so that a hundred workers cost this side less than they cost any broker. That the bytes are Kafka's is
tested.
"""

from __future__ import annotations

import select
import struct
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_fetch.v2.request import ShareFetchRequest
from kio.schema.types import GroupId
from kio.static.primitive import i8, i32, i32Timedelta

from bench.clients import wire
from bench.clients.sockets import Load

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable, Sequence

    from bench.clients.share_members import ShareGroup, SharePlace

MOST: Final = 500
"""Messages that a worker wants at once: max.poll.records of Java's consumer."""
_MARK: Final = i32(0x5A17C0DE)
_ACCEPT: Final = b"\x02\x01\0"
"""An array with the one type "accept", and no tags."""
_OFFSETS: Final = struct.Struct(">qq")
_ACQUIRED: Final = struct.Struct(">qqhb")
_EPOCH: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">ih")
_HEAD: Final = 4 + 4 + 1 + 4
"""Size, correlation id, no tags and throttle time stand before the error code."""
_SILENCE: Final = 30.0


class Acquired(NamedTuple):
    """Messages of a partition that a worker holds."""

    place: SharePlace
    first: int
    last: int


class ShareFrames:
    """The requests of one member."""

    def __init__(self, group: str, member: str, most: int = MOST, wait: float = 0.5, *, exact: bool = False) -> None:
        """With `exact` no more than `most` messages are acquired at once; otherwise batches are not divided."""
        fetch = ShareFetchRequest(
            group_id=GroupId(group),
            member_id=member,
            share_session_epoch=_MARK,
            max_wait=i32Timedelta.parse(timedelta(seconds=wait)),
            min_bytes=i32(1),
            max_bytes=i32(50 << 20),
            max_records=i32(most),
            batch_size=i32(most),
            share_acquire_mode=i8(1 if exact else 0),
            topics=(),
            forgotten_topics_data=(),
        )
        acknowledge = ShareAcknowledgeRequest(
            group_id=GroupId(group), member_id=member, share_session_epoch=_MARK, is_renew_ack=False, topics=()
        )
        no_topics_no_forgotten_no_tags, no_topics_no_tags = 3, 2
        self._fetch = wire.frame(fetch)[4:-no_topics_no_forgotten_no_tags].split(_MARK.to_bytes(4, "big"))
        self._acknowledge = wire.frame(acknowledge)[4:-no_topics_no_tags].split(_MARK.to_bytes(4, "big"))

    def fetch(self, epoch: int, places: Iterable[SharePlace], acknowledged: Sequence[Acquired] = ()) -> bytes:
        """A ShareFetch of partitions that are new in the session, with acknowledgements."""
        before, after = self._fetch
        body = b"".join((before, _EPOCH.pack(epoch), after, _topics(places, acknowledged), b"\x01\0"))
        return _EPOCH.pack(len(body)) + body

    def acknowledge(self, epoch: int, acknowledged: Sequence[Acquired]) -> bytes:
        """A ShareAcknowledge."""
        before, after = self._acknowledge
        body = b"".join((before, _EPOCH.pack(epoch), after, _topics((), acknowledged), b"\0"))
        return _EPOCH.pack(len(body)) + body


class ShareWorker:
    """A member with its connection and its share session."""

    def __init__(self, port: int, frames: ShareFrames, places: Sequence[SharePlace]) -> None:
        self.socket = wire.connect(port)
        self.held: list[Acquired] = []
        self._frames = frames
        self._places = places
        self._epoch = 0
        self._acknowledging = 0

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def ask(self) -> None:
        """Acknowledge what the worker holds, and ask for more."""
        places = () if self._epoch else self._places
        self.socket.sendall(self._frames.fetch(self._epoch, places, self.held))
        self._acknowledging = sum(each.last - each.first + 1 for each in self.held)
        self._epoch += 1

    def take(self) -> int:
        """Take the answer; returns how many messages are acknowledged by it."""
        self.held = acquired(_received(self.socket))
        return self._acknowledging

    def acknowledge(self, messages: Sequence[Acquired]) -> None:
        """Acknowledge these messages, and wait until they are."""
        self.socket.sendall(self._frames.acknowledge(self._epoch, messages))
        self._epoch += 1
        check_acknowledged(_received(self.socket))


class ShareWorkers:
    """All members of a group at work; a context manager that hangs up."""

    def __init__(self, port: int, group: ShareGroup, most: int = MOST, *, exact: bool = False) -> None:
        self._workers = [
            ShareWorker(port, ShareFrames(group.name, member.name, most, exact=exact), member.places)
            for member in group.members
        ]
        self._epoll = select.epoll()
        for worker in self._workers:
            self._epoll.register(worker.socket, select.EPOLLIN)
        self._by_descriptor = {worker.socket.fileno(): worker for worker in self._workers}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._epoll.close()
        for worker in self._workers:
            worker.close()

    def work(self, total: int) -> Load:
        """Go on until so many messages are acknowledged. Some more may be, if there are more."""
        started, cpu = time.perf_counter(), time.thread_time()
        done = requests = 0
        for worker in self._workers:
            worker.ask()
        while done < total:
            ready = self._epoll.poll(_SILENCE)
            if not ready:
                raise RuntimeError(f"no worker was answered for {_SILENCE:.0f} seconds, {total - done} messages to go")
            for descriptor, _ in ready:
                worker = self._by_descriptor[descriptor]
                done += worker.take()
                requests += 1
                worker.ask()
        return Load(requests, time.perf_counter() - started, time.thread_time() - cpu)


def acquired(answer: bytes) -> list[Acquired]:
    """What an answer to a ShareFetch gives a worker; raises where it has an error."""
    from bench.clients.share_members import SharePlace

    _check(answer, _HEAD, "a share fetch")
    found = []
    position = _HEAD + 2
    length, position = _varint(answer, position)  # of an error message
    position += max(length - 1, 0) + 4  # and the lock timeout
    topics, position = _varint(answer, position)
    for _ in range(topics - 1):
        topic_id = wire.uuid_at(answer, position)
        partitions, position = _varint(answer, position + 16)
        for _ in range(partitions - 1):
            index, _ = _PARTITION.unpack_from(answer, position)
            _check(answer, position + 4, "a fetch of a share partition")
            length, position = _varint(answer, position + 6)
            position += max(length - 1, 0)
            _check(answer, position, "an acknowledgement")
            length, position = _varint(answer, position + 2)
            leader_and_epoch_and_tags = 4 + 4 + 1
            position += max(length - 1, 0) + leader_and_epoch_and_tags
            length, position = _varint(answer, position)
            position += max(length - 1, 0)
            count, position = _varint(answer, position)
            place = SharePlace(topic_id, index)
            for _ in range(count - 1):
                first, last, _, _ = _ACQUIRED.unpack_from(answer, position)
                found.append(Acquired(place, first, last))
                position += _ACQUIRED.size
            position += 1
        position += 1
    return found


def check_acknowledged(answer: bytes) -> None:
    """Raise where an answer to a ShareAcknowledge has an error."""
    _check(answer, _HEAD, "a share acknowledgement")
    length, position = _varint(answer, _HEAD + 2)
    position += max(length - 1, 0) + 4
    topics, position = _varint(answer, position)
    for _ in range(topics - 1):
        partitions, position = _varint(answer, position + 16)
        for _ in range(partitions - 1):
            _check(answer, position + 4, "an acknowledgement")
            length, position = _varint(answer, position + 6)
            leader_and_epoch_and_tags = 4 + 4 + 1
            position += max(length - 1, 0) + leader_and_epoch_and_tags + 1
        position += 1


def _topics(places: Iterable[SharePlace], acknowledged: Sequence[Acquired]) -> bytes:
    """The array of topics of a request: all partitions that it names, with the batches that it acknowledges."""
    partitions: dict[SharePlace, list[Acquired]] = {place: [] for place in places}
    for each in acknowledged:
        partitions.setdefault(each.place, []).append(each)
    by_topic: dict[bytes, list[bytes]] = {}
    for place, batches in partitions.items():
        packed = (_OFFSETS.pack(first, last) + _ACCEPT for _, first, last in batches)
        by_topic.setdefault(place.topic_id.bytes, []).append(
            b"".join((_EPOCH.pack(place.partition), _length(len(batches)), *packed, b"\0"))
        )
    topics = (
        b"".join((topic_id, _length(len(packed)), *packed, b"\0")) for topic_id, packed in sorted(by_topic.items())
    )
    return b"".join((_length(len(by_topic)), *topics))


def _length(count: int) -> bytes:
    """The length of a compact array."""
    value, out = count + 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _check(answer: bytes, position: int, what: str) -> None:
    if answer[position : position + 2] != b"\0\0":
        raise RuntimeError(f"{what} failed with error {int.from_bytes(answer[position : position + 2], 'big')}")


def _received(connection: socket.socket) -> bytes:
    return wire.receive(connection)
