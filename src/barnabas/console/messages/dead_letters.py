"""Which records are dead letters, and what they were before: headers say it, and anybody may have written those.

Share groups, Kafka Connect, Kafka Streams and Spring each have headers of their own for it. A rule that hides a field
of a topic has to reach its dead letters, so all of them are known here. Only those of share groups can be sent again as
what they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.protocol import dead_letters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.protocol.records.records import Header

TOPICS: Final = {
    dead_letters.PREFIX: dead_letters.TOPIC,
    "__connect.errors.": "__connect.errors.topic",
    "__streams.errors.": "__streams.errors.topic",
    "kafka_dlt-": "kafka_dlt-original-topic",
}
"""The header that names the original topic, by how the names of all headers of a dead letter begin."""
_PREFIXES: Final = tuple(TOPICS)
_NAMES: Final = frozenset(TOPICS.values())


class OriginalPlace(NamedTuple):
    """Where a record was before it became a dead letter."""

    topic: str
    partition: int
    offset: int


def original_place(headers: Iterable[Header] | None) -> OriginalPlace | None:
    """What the headers of a share group's dead letter tell; None of any other record."""
    told = dict(headers or ())
    topic, *numbers = (told.get(name) for name in (dead_letters.TOPIC, dead_letters.PARTITION, dead_letters.OFFSET))
    try:
        partition, offset = (int(number or b"") for number in numbers)
        name = (topic or b"").decode()
    except ValueError:
        return None
    is_place = name and 0 <= partition < 1 << 31 and 0 <= offset < 1 << 63
    return OriginalPlace(name, partition, offset) if is_place else None


def original_topics(headers: Iterable[Header]) -> frozenset[str] | None:
    """The topics that a dead letter says it is of: none for any other record, None if it does not say it legibly."""
    letter = [(name, value) for name, value in headers if name.startswith(_PREFIXES)]
    if not letter:
        return frozenset()
    try:
        named = frozenset((value or b"").decode() for name, value in letter if name in _NAMES)
    except UnicodeDecodeError:
        return None
    return named if named and "" not in named else None
