"""Names of things: partitions and the ids that Kafka gives to topics, clusters and brokers."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple
from uuid import UUID

NO_ID = UUID(int=0)
"""Kafka's zero UUID: "no topic id here"."""

METADATA_TOPIC_ID = UUID(int=1)
"""Reserved by Kafka for the KRaft metadata topic; never given to a topic."""

UNDEFINED: Final = -1
"""As a leader epoch or its end: the log knows nothing of it."""

LONGEST_REMEMBERED: Final = 256
"""Characters of the longest name that a cache keeps. Topics have 249 at most, and so have most ids of groups.

A client may send ids of 32,767 bytes, for which Python needs up to four times as many: some thousand of them, kept
because they were asked for once, are half a gigabyte.
"""


class TopicPartition(NamedTuple):
    """One partition of a topic: the unit of order, storage and leadership."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_to_text(value: UUID) -> str:
    """Kafka's text form of an id: base64url without padding, 22 characters.

    >>> uuid_to_text(UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """Read Kafka's text form of an id; raises ValueError for anything else."""
    raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not an id: it should decode to 16 bytes, not {len(raw)}")
    return UUID(bytes=raw)


def java_hash(text: str) -> int:
    """What Java's String.hashCode gives: Kafka finds a group's coordinator by it.

    >>> java_hash("polygenelubricants")
    -2147483648
    """
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value
