"""What a broker says of the cluster, counted from the bytes of its Metadata answer.

kio takes seconds to read an answer of 100,000 partitions; this takes a fraction of one, so that waiting for such a
cluster does not become what is measured.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.clients import wire
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.types import TopicName

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

_BODY: Final = 4 + 4 + 1
"""Size, correlation id and no tags stand before the body of a response."""
_THROTTLE: Final = 4
_ID_AND_INTERNAL: Final = 16 + 1
_ERROR_AND_INDEX: Final = 2 + 4
_OPERATIONS_AND_TAGS: Final = 4 + 1


@dataclass
class ClusterView:
    """What one answer said."""

    controller: int = -1
    topics: int = 0
    partitions: int = 0
    leaders: Counter[int] = field(default_factory=Counter)
    """How many partitions each broker leads; -1 has those without a leader."""
    in_sync: int = 0
    """Partitions all of whose replicas are in sync."""
    size: int = 0
    """Bytes of the answer."""

    def led_by(self, brokers: Iterable[int]) -> int:
        """How many partitions these brokers lead."""
        return sum(self.leaders[each] for each in brokers)


def request(topics: Iterable[str] | None) -> bytes:
    """A Metadata request for these topics, or for all."""
    wanted = None
    if topics is not None:
        wanted = tuple(MetadataRequestTopic(topic_id=None, name=TopicName(each)) for each in topics)
    return wire.frame(
        MetadataRequest(topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=False)
    )


def ask(connection: socket.socket, frame: bytes) -> ClusterView:
    """Send such a request, and read the answer."""
    connection.sendall(frame)
    return read(wire.receive(connection))


def read(answer: bytes) -> ClusterView:
    """An answer to Metadata of version 12, its size included."""
    view = ClusterView(size=len(answer))
    brokers, at = _varint(answer, _BODY + _THROTTLE)
    for _ in range(brokers - 1):
        at = _skip_text(answer, at + 4)
        at = _skip_text(answer, at + 4) + 1
    at = _skip_text(answer, at)
    view.controller = int.from_bytes(answer[at : at + 4], "big", signed=True)
    topics, at = _varint(answer, at + 4)
    view.topics = topics - 1
    for _ in range(view.topics):
        at = _read_topic(answer, _skip_text(answer, at + 2) + _ID_AND_INTERNAL, view)
    if answer[at:] != b"\0":
        raise RuntimeError(f"{len(answer) - at} bytes are left of a Metadata answer")
    return view


def _read_topic(answer: bytes, at: int, view: ClusterView) -> int:
    partitions, at = _varint(answer, at)
    view.partitions += partitions - 1
    leaders = view.leaders
    for _ in range(partitions - 1):
        at += _ERROR_AND_INDEX
        leaders[int.from_bytes(answer[at : at + 4], "big", signed=True)] += 1
        at += 8
        replicas = answer[at]
        at += 4 * replicas - 3
        in_sync = answer[at]
        at += 4 * in_sync - 3
        at += 4 * answer[at] - 3 + 1
        view.in_sync += replicas == in_sync
    return at + _OPERATIONS_AND_TAGS


def _skip_text(answer: bytes, at: int) -> int:
    size, at = _varint(answer, at)
    return at + max(0, size - 1)


def _varint(answer: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = answer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
