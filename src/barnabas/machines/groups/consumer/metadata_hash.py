"""A hash over the topics that a group reads: it changes when a topic comes, goes, grows or moves between racks.

A group keeps the hash that its epoch was made for, so a heartbeat sees by one comparison whether partitions have to be
assigned again. The bytes that are hashed are Kafka's: a group that moves to Kafka and back is not rebalanced for it.
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
    for partition, racks in zip(topic.partitions, _racks(topic, brokers), strict=True):
        parts.append(_INT.pack(partition.index))
        for rack in racks:
            parts.append(_INT.pack(len(rack.encode("utf-16-le")) // 2))
            parts.append(_text(rack))
    return _hash(b"".join(parts))


def differs(before: ClusterImage, after: ClusterImage, name: str) -> bool:
    """Whether a topic has another hash than before; leaders and in-sync replicas are no part of it."""
    old, new = before.topic(name), after.topic(name)
    if old is None or new is None:
        return old is not new
    return old.topic_id != new.topic_id or _racks(old, before.brokers) != _racks(new, after.brokers)


def _racks(topic: TopicImage, brokers: Mapping[int, BrokerImage]) -> list[list[str]]:
    """The racks of each partition's replicas that are there."""
    racks = {broker_id: broker.rack for broker_id, broker in brokers.items() if broker.rack is not None}
    return [
        sorted(racks[replica] for replica in partition.replicas if replica in racks) for partition in topic.partitions
    ]


def _text(text: str) -> bytes:
    """Text as Java's hash streams take it: UTF-16, then the number of its units."""
    units = text.encode("utf-16-le")
    return units + _INT.pack(len(units) // 2)


def _hash(data: bytes) -> int:
    hashed = xxhash.xxh3_64_intdigest(data)
    return hashed - (1 << 64) if hashed >= 1 << 63 else hashed
