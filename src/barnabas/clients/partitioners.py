"""Which partition a record goes to.

A partitioner is any function `(topic, key, partitions) -> partition`: the key as bytes or None, and how many partitions
the topic has. These are ready:

    key_hash      (the default) murmur2 of the key, equal to Java's, so that producers in both languages agree; records
                  without a key stay on one partition for a while, then move to another
    at_random     any partition, for each record
    RoundRobin()  one after the other
    Sticky()      any partition, whatever the key, and the same one for a while: fuller batches

librdkafka has the first two built in, so the producer leaves them to it; the functions here are for use in your own.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Partitioner", "RoundRobin", "Sticky", "at_random", "key_hash", "murmur2"]

Partitioner: TypeAlias = "Callable[[str, bytes | None, int], int]"

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as Java's signed int."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for index in range(0, whole, 4):
        k = int.from_bytes(data[index : index + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def key_hash(topic: str, key: bytes | None, partitions: int) -> int:
    """The partition that Java's producer gives this key; any partition for None."""
    if key is None:
        return random.randrange(partitions)
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def at_random(topic: str, key: bytes | None, partitions: int) -> int:
    """Any partition."""
    return random.randrange(partitions)


class RoundRobin:
    """One partition after the other, in each topic by itself."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        """The next one."""
        chosen = self._next.get(topic, 0) % partitions
        self._next[topic] = chosen + 1
        return chosen


class Sticky:
    """Any partition, whatever the key, and the same one for a number of seconds."""

    def __init__(self, seconds: float = 0.01) -> None:
        self._seconds = seconds
        self._chosen: dict[str, tuple[int, float]] = {}

    def __call__(self, topic: str, key: bytes | None, partitions: int) -> int:
        """The present one, or after its time another."""
        now = time.monotonic()
        partition, until = self._chosen.get(topic, (-1, 0.0))
        if now >= until or partition >= partitions:
            others = [number for number in range(partitions) if number != partition]
            partition = random.choice(others) if others else 0
            self._chosen[topic] = (partition, now + self._seconds)
        return partition


NATIVE: Mapping[Partitioner, Mapping[str, object]] = {
    key_hash: {"partitioner": "murmur2_random"},
    at_random: {"partitioner": "random", "sticky.partitioning.linger.ms": 0},
}
"""Partitioners that librdkafka has, and the properties that choose them."""
