"""A hash over the topics that a group reads: it changes when a topic comes, goes, grows or moves between racks.

A group keeps the hash that its epoch was made for, so a heartbeat sees by one comparison whether partitions have to be
assigned anew. The bytes that are hashed are Kafka's: a group that moves to Kafka and back is not rebalanced for it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import xxhash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.machines.controller.image import BrokerImage, ClusterImage, TopicImage

_MAGIC: Final = b"\x00"
"""The version of the way in which topics are hashed."""
_INT: Final = struct.Struct("<i")
_LONG: Final = struct.Struct("<q")


def group_hash(topics: Iterable[str], image: ClusterImage, cache: dict[str, int]) -> int:
    """The hash of a group that reads these topics; 0 if none of them exists. `cache` keeps the hashes of topics."""
    found = []
    for name in sorted(topics):
        if (topic := image.topic(name)) is None:
            continue
        if (hashed := cache.get(name)) is None:
            hashed = cache[name] = topic_hash(topic, image.brokers)
        found.append(_LONG.pack(hashed))
    return _hash(b"".join(found)) if found else 0


def topic_hash(topic: TopicImage, brokers: Mapping[int, BrokerImage]) -> int:
    """The hash of one topic."""
    parts = [_MAGIC, topic.topic_id.bytes[7::-1], topic.topic_id.bytes[:7:-1], _text(topic.name)]
    parts.append(_INT.pack(len(topic.partitions)))
    for partition in topic.partitions:
        parts.append(_INT.pack(partition.index))
        racks = (brokers[replica].rack for replica in partition.replicas if replica in brokers)
        for rack in sorted(rack for rack in racks if rack is not None):
            parts.append(_INT.pack(len(rack.encode("utf-16-le")) // 2))
            parts.append(_text(rack))
    return _hash(b"".join(parts))


def _text(text: str) -> bytes:
    """Text as Java's hash streams take it: UTF-16, then the number of its units."""
    units = text.encode("utf-16-le")
    return units + _INT.pack(len(units) // 2)


def _hash(data: bytes) -> int:
    hashed = xxhash.xxh3_64_intdigest(data)
    return hashed - (1 << 64) if hashed >= 1 << 63 else hashed
