"""Which topics the members of a classic group read: told by the bytes that consumers send along when they join.

To the broker those bytes are the client's own affair; it looks into them only to know whose offsets are in use. They
start with a version, and every version starts with the fields of version 0, so version 0 is what is read, whatever
comes. Bytes that cannot be read harm nobody: the topics are then unknown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.consumer_protocol_subscription.v0 import ConsumerProtocolSubscription

from barnabas.model.errors import InvalidFrame
from barnabas.protocol import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers; others, such as workers of Kafka Connect, put other things into their bytes."""

_VERSION_BYTES: Final = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        try:
            read = bounds.read(ConsumerProtocolSubscription, subscription, _VERSION_BYTES, bounds.MAX_ELEMENTS)
        except InvalidFrame:
            return None
        topics.update(read.topics)
    return frozenset(topics)
