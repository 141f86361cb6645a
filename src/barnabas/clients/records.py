"""What goes through a topic, as plain values: where a record went, and what came back.

`ConsumerRecord` is a named tuple, for speed alone: a frozen dataclass of nine fields takes ten times as long to make,
which would halve the rate of a consumer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeAlias

from barnabas.model.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

__all__ = ["ConsumerRecord", "Headers", "RecordMetadata", "TimestampType", "TopicPartition"]

Headers: TypeAlias = "Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]"
"""Headers to send; a name may come more than once in a list of pairs."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimestampType(IntEnum):
    """Who set a record's timestamp."""

    NONE = 0
    CREATE_TIME = 1
    LOG_APPEND_TIME = 2


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record went. With acks=0 nobody knows the offset, and it is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, or -1."""

    @property
    def time(self) -> datetime | None:
        """The timestamp as a moment in UTC."""
        return as_time(self.timestamp)


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record as it was read. A key or value that is null in the topic is None, whatever the deserializer."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970, or -1."""
    timestamp_type: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None
    delivery_count: int | None = None
    """How often it was delivered, this time included; None unless it comes from a share group."""

    @property
    def time(self) -> datetime | None:
        """The timestamp as a moment in UTC."""
        return as_time(self.timestamp)

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition it was read from."""
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """The last header of this name, which is the one that counts in Kafka; None if there is none."""
        return next((value for key, value in reversed(self.headers) if key == name), None)


def as_time(timestamp: int) -> datetime | None:
    """Milliseconds since 1970 as a moment in UTC; None for "no timestamp"."""
    return None if timestamp < 0 else _EPOCH + timedelta(milliseconds=timestamp)


def as_milliseconds(when: datetime | int) -> int:
    """A moment as milliseconds since 1970; a datetime without a zone is local time, as everywhere in Python."""
    if isinstance(when, int):
        return when
    return (when.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
