"""The keys of groups of Apache Kafka, the broker key behind each, and the broker keys that bound it.

Same columns as `broker_keys`; every key of a group may change at any time. Streams groups do not exist here: their keys
are taken, checked and shown, as those of a cluster that may have been Kafka's before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.config.definition import OffsetReset, OneOf, Range
from barnabas.model.config.keys.words import BOOLEAN, INT, MEDIUM, NOT_NEGATIVE, POSITIVE, READ_ONLY, STRING

if TYPE_CHECKING:
    from barnabas.model.config.definition import Row

ROWS: Final[tuple[Row, ...]] = (
    ("consumer.assignment.interval.ms", INT, 1000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("consumer.heartbeat.interval.ms", INT, 5000, POSITIVE, MEDIUM, READ_ONLY),
    ("consumer.session.timeout.ms", INT, 45_000, POSITIVE, MEDIUM, READ_ONLY),
    ("errors.deadletterqueue.copy.record.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("errors.deadletterqueue.topic.name", STRING, "", None, MEDIUM, READ_ONLY),
    ("share.assignment.interval.ms", INT, 1000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("share.auto.offset.reset", STRING, "latest", OffsetReset(), MEDIUM, READ_ONLY),
    ("share.delivery.count.limit", INT, 5, Range(2), MEDIUM, READ_ONLY),
    ("share.heartbeat.interval.ms", INT, 5000, POSITIVE, MEDIUM, READ_ONLY),
    (
        "share.isolation.level",
        STRING,
        "read_uncommitted",
        OneOf(("read_committed", "read_uncommitted")),
        MEDIUM,
        READ_ONLY,
    ),
    ("share.partition.max.record.locks", INT, 2000, Range(100), MEDIUM, READ_ONLY),
    ("share.record.lock.duration.ms", INT, 30_000, Range(1000), MEDIUM, READ_ONLY),
    ("share.renew.acknowledge.enable", BOOLEAN, True, None, MEDIUM, READ_ONLY),
    ("share.session.timeout.ms", INT, 45_000, POSITIVE, MEDIUM, READ_ONLY),
    ("streams.assignment.interval.ms", INT, 1000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("streams.heartbeat.interval.ms", INT, 5000, POSITIVE, MEDIUM, READ_ONLY),
    ("streams.initial.rebalance.delay.ms", INT, 3000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("streams.num.standby.replicas", INT, 0, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("streams.session.timeout.ms", INT, 45_000, POSITIVE, MEDIUM, READ_ONLY),
)

SENTENCES: Final = {
    "consumer.assignment.interval.ms": "The minimum time between two assignments of the group.",
    "consumer.heartbeat.interval.ms": "The heartbeat interval that the broker gives to the members of the group.",
    "consumer.session.timeout.ms": "The coordinator removes a member that sent no heartbeat for this long.",
    "errors.deadletterqueue.copy.record.enable": (
        "Whether a dead letter of the share group has the key, the value and the headers of its record as well."
    ),
    "errors.deadletterqueue.topic.name": (
        "The topic for dead letters of the share group: records that are rejected, or whose deliveries are used up. "
        "If blank, there are none."
    ),
    "share.auto.offset.reset": (
        "Where the share group begins to read a partition: earliest, latest, or by_duration: and how long ago."
    ),
    "share.delivery.count.limit": "How often a record is delivered to the share group at most; then it is archived.",
    "share.isolation.level": (
        "Whether the share group reads records of open and aborted transactions (read_uncommitted), or only of "
        "committed ones (read_committed)."
    ),
    "share.partition.max.record.locks": "How many records of a partition may be in flight in the share group.",
    "share.record.lock.duration.ms": (
        "How long a record stays locked for the member that acquired it. Then it is delivered again."
    ),
    "share.renew.acknowledge.enable": "Whether members of the share group may renew their locks (KIP-1222).",
    "share.assignment.interval.ms": "The minimum time between two assignments of the share group.",
    "share.heartbeat.interval.ms": "The heartbeat interval that the broker gives to members of the share group.",
    "share.session.timeout.ms": "The coordinator removes a member of the share group that is silent for this long.",
}
"""Keys that have an effect."""

NO_BROKER_KEY: Final = frozenset(
    {
        "errors.deadletterqueue.copy.record.enable",
        "errors.deadletterqueue.topic.name",
        "share.auto.offset.reset",
        "share.isolation.level",
        "share.renew.acknowledge.enable",
    }
)

BOUNDS: Final[dict[str, tuple[str | None, str]]] = {
    "consumer.heartbeat.interval.ms": (
        "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms",
    ),
    "consumer.session.timeout.ms": ("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    "consumer.assignment.interval.ms": (
        "group.consumer.min.assignment.interval.ms",
        "group.consumer.max.assignment.interval.ms",
    ),
    "share.heartbeat.interval.ms": ("group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"),
    "share.session.timeout.ms": ("group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"),
    "share.record.lock.duration.ms": (
        "group.share.min.record.lock.duration.ms",
        "group.share.max.record.lock.duration.ms",
    ),
    "share.delivery.count.limit": ("group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"),
    "share.partition.max.record.locks": (
        "group.share.min.partition.max.record.locks",
        "group.share.max.partition.max.record.locks",
    ),
    "share.assignment.interval.ms": (
        "group.share.min.assignment.interval.ms",
        "group.share.max.assignment.interval.ms",
    ),
    "streams.heartbeat.interval.ms": (
        "group.streams.min.heartbeat.interval.ms",
        "group.streams.max.heartbeat.interval.ms",
    ),
    "streams.session.timeout.ms": ("group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"),
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
    "streams.assignment.interval.ms": (
        "group.streams.min.assignment.interval.ms",
        "group.streams.max.assignment.interval.ms",
    ),
}
"""The broker keys that have the minimum and the maximum, in the order in which Kafka checks them."""


def broker_key(name: str) -> str | None:
    """The broker key that gives the default, None for a key that has none.

    >>> broker_key("consumer.session.timeout.ms")
    'group.consumer.session.timeout.ms'
    """
    return None if name in NO_BROKER_KEY else f"group.{name}"
