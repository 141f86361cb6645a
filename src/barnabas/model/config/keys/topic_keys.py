"""The topic keys of Apache Kafka, and the broker keys that give each its default.

Same columns as `broker_keys`; the update mode means nothing here, since every topic key may change at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.model.config.definition import Items, OneOf, OneOrRange, Range, ThrottledReplicas
from barnabas.model.config.keys.words import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    MAX_LONG,
    MEDIUM,
    NOT_NEGATIVE,
    POSITIVE,
    READ_ONLY,
    STRING,
)

if TYPE_CHECKING:
    from barnabas.model.config.definition import Row

SHOWN: Final[tuple[Row, ...]] = (
    ("cleanup.policy", LIST, ("delete",), Items(("compact", "delete")), MEDIUM, READ_ONLY),
    ("compression.gzip.level", INT, -1, OneOrRange(-1, 1, 9), MEDIUM, READ_ONLY),
    ("compression.lz4.level", INT, 9, Range(1, 17), MEDIUM, READ_ONLY),
    (
        "compression.type",
        STRING,
        "producer",
        OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        MEDIUM,
        READ_ONLY,
    ),
    ("compression.zstd.level", INT, 3, Range(-131_072, 22), MEDIUM, READ_ONLY),
    ("delete.retention.ms", LONG, 86_400_000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("errors.deadletterqueue.group.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("file.delete.delay.ms", LONG, 60_000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("flush.messages", LONG, MAX_LONG, POSITIVE, MEDIUM, READ_ONLY),
    ("flush.ms", LONG, MAX_LONG, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("follower.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, READ_ONLY),
    ("index.interval.bytes", INT, 4096, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("leader.replication.throttled.replicas", LIST, (), ThrottledReplicas(), MEDIUM, READ_ONLY),
    ("local.retention.bytes", LONG, -2, Range(-2), MEDIUM, READ_ONLY),
    ("local.retention.ms", LONG, -2, Range(-2), MEDIUM, READ_ONLY),
    ("max.compaction.lag.ms", LONG, MAX_LONG, POSITIVE, MEDIUM, READ_ONLY),
    ("max.message.bytes", INT, 1_048_588, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("message.timestamp.after.max.ms", LONG, 3_600_000, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("message.timestamp.before.max.ms", LONG, MAX_LONG, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("message.timestamp.type", STRING, "CreateTime", OneOf(("CreateTime", "LogAppendTime")), MEDIUM, READ_ONLY),
    ("min.cleanable.dirty.ratio", DOUBLE, 0.5, Range(0, 1), MEDIUM, READ_ONLY),
    ("min.compaction.lag.ms", LONG, 0, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("min.insync.replicas", INT, 1, POSITIVE, MEDIUM, READ_ONLY),
    ("preallocate", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("remote.log.copy.disable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("remote.log.delete.on.disable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("remote.storage.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
    ("retention.bytes", LONG, -1, None, MEDIUM, READ_ONLY),
    ("retention.ms", LONG, 604_800_000, Range(-1), MEDIUM, READ_ONLY),
    ("segment.bytes", INT, 1_073_741_824, Range(1_048_576), MEDIUM, READ_ONLY),
    ("segment.index.bytes", INT, 10_485_760, Range(4), MEDIUM, READ_ONLY),
    ("segment.jitter.ms", LONG, 0, NOT_NEGATIVE, MEDIUM, READ_ONLY),
    ("segment.ms", LONG, 604_800_000, POSITIVE, MEDIUM, READ_ONLY),
    ("unclean.leader.election.enable", BOOLEAN, False, None, MEDIUM, READ_ONLY),
)
"""Topic keys of Kafka 4.3, and the one of 4.4 for dead letters (KIP-1191)."""

HIDDEN: Final[tuple[Row, ...]] = (("internal.segment.bytes", INT, None, None, MEDIUM, READ_ONLY),)
"""Topic keys for tests: shown only when they are set."""

RETIRED: Final = frozenset(
    {"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
)
"""Topic keys of Kafka 3.9 only: no longer taken, but a metadata tree of that time may hold them."""

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE

SYNONYMS: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (("log.retention.ms", 1), ("log.retention.minutes", MINUTE), ("log.retention.hours", HOUR)),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", HOUR)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}
"""The broker keys that a topic key falls back to, first the strongest, each with its unit in the topic key's unit."""
