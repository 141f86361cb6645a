"""The topics that the members of a classic group subscribe to, as their JoinGroup metadata says.

Only clients need that metadata; the broker reads it only to know which offsets are in use. They
start with a version, and every version starts with the fields of version 0, so version 0 is what is read, whatever
comes. If the bytes cannot be read, the topics are unknown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers; others, such as workers of Kafka Connect, put other things into their bytes."""
SHORT: Final = 512
"""Bytes of a subscription that is remembered."""


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = (_remembered if len(subscription) <= SHORT else _read)(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def _read(subscription: bytes) -> tuple[str, ...] | None:
    try:
        read = bounds.read(ConsumerProtocolSubscription, subscription, bounds.VERSION_BYTES, bounds.MAX_ELEMENTS)
    except InvalidFrame:
        return None
    return read.topics  # type: ignore[no-any-return]


_remembered: Final = lru_cache(maxsize=1024)(_read)
"""Those of many members are the same, and all are read twice in each rebalance."""
