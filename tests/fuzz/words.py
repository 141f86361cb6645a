"""The values that generated requests are made of: by a field's name, so that many of them mean something.

Names come from small pools: requests then meet each other's topics, groups and transactions, and the broker's state
stays bounded however many there are. None of them is the canary's.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from tests.fuzz.record_batches import any_batch

if TYPE_CHECKING:
    from random import Random

TOPICS: Final = (
    *(f"fuzz-{number}" for number in range(8)),
    "fuzz.dots",
    "",
    ".",
    "..",
    "../up",
    "/etc/passwd",
    "x" * 249,
    "x" * 250,
    "nul\0",
    "caf\u00e9",
    "__consumer_offsets",
    "__transaction_state",
    "__cluster_metadata",
)
GROUPS: Final = (*(f"fuzz-group-{number}" for number in range(20)), "", "g" * 1000)
TRANSACTIONS: Final = (*(f"fuzz-txn-{number}" for number in range(10)), "", "t" * 300)
MEMBERS: Final = ("", "", "fuzz-member-1", "fuzz-member-2", "m" * 300)
CONFIG_KEYS: Final = (
    "retention.ms",
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "segment.bytes",
    "min.insync.replicas",
    "message.timestamp.type",
    "flush.messages",
    "index.interval.bytes",
    "consumer.session.timeout.ms",
    "no.such.key",
)
CONFIG_VALUES: Final = (
    "1",
    "-1",
    "0",
    "compact",
    "delete",
    "compact,delete",
    "zstd",
    "gzip",
    "LogAppendTime",
    "9" * 30,
    "1e9",
    "",
    " 1000 ",
    "0x10",
    "1048588",
)
PATTERNS: Final = ("fuzz.*", "(", "(a+)+$", ".*" * 50, "", "[", "x{1000}{1000}", "\\p{L}+")
PLAIN: Final = (
    "",
    "x",
    "consumer",
    "range",
    "uniform",
    "group.version",
    "transaction.version",
    "\u20ac" * 30,
    "y" * 400,
)

_BY_PART_OF_NAME: Final = (
    ("group", GROUPS),
    ("transactional", TRANSACTIONS),
    ("regex", PATTERNS),
    ("topic", TOPICS),
    ("member", MEMBERS),
    ("instance", MEMBERS),
    ("protocol_type", ("consumer", "consumer", "connect", "")),
    ("resource_name", (*TOPICS, *GROUPS, "1", "-1", "one")),
    ("assignor", ("uniform", "range", "nope", "")),
)
_BY_NAME: Final = {
    "name": (*TOPICS, *CONFIG_KEYS, "range", "group.version"),
    "value": CONFIG_VALUES,
    "key": (*GROUPS, *TRANSACTIONS),
}
EDGES: Final = {
    8: (0, 0, 1, 2, 3, 4, 8, 16, 32, 127, -1, -128),
    16: (0, 0, 1, -1, 2, 3, 5, -2, 0x7FFF, -0x8000),
    32: (0, 0, 1, 2, -1, -2, 3, 5, 100, 1000, 0x10000, 0x7FFFFFFF, -0x80000000),
    64: (0, 0, 1, 2, -1, -2, -3, -4, -5, -6, 1000, 1_700_000_000_000, (1 << 63) - 1, -(1 << 63)),
}
_UUIDS: Final = (bytes(16), b"\xff" * 16, bytes(15) + b"\1")
_WAITS: Final = (0, 0, 1, 10, 100, 6000, 45_000, -1, 0x7FFFFFFF)


def text(name: str, random: Random) -> str:
    """A text for a field of this name."""
    for part, pool in _BY_PART_OF_NAME:
        if part in name:
            return random.choice(pool)
    return random.choice(_BY_NAME.get(name, PLAIN))


def number(name: str, bits: int, random: Random) -> int:
    """A signed number for a field of this name."""
    if "wait" in name or "timeout" in name:
        return _fit(random.choice(_WAITS), bits)
    if ("partition" in name or name == "index") and random.random() < 0.7:
        return random.choice((0, 0, 0, 1, 2))
    if name in ("num_partitions", "count"):
        return random.choice((-1, -1, 0, 1, 1, 2, 3, 50, 0x7FFFFFFF))
    if "producer_id" in name and random.random() < 0.6:
        return random.choice((0, 1, 2, 1000, -1))
    return random.choice(EDGES[bits])


def _fit(value: int, bits: int) -> int:
    most = (1 << bits - 1) - 1
    return max(-most - 1, min(value, most))


def uuid(random: Random) -> bytes:
    """A topic's or anybody's id."""
    return random.choice(_UUIDS)


def blob(name: str, random: Random) -> bytes:
    """Bytes for a field of this name: batches, subscriptions and assignments where such belong."""
    if "record" in name:
        return any_batch(random)
    if random.random() < 0.7:
        if "metadata" in name:
            return _subscription(random)
        if "assignment" in name:
            return _assignment(random)
    return random.randbytes(random.choice((0, 0, 1, 4, 30, 300)))


def _subscription(random: Random) -> bytes:
    """What a member of a classic group says of itself, its counts sometimes false."""
    count = random.choice((1, 1, 1, -1, 0x7FFFFFFF))
    data = random.choice((0, -1, 5, 0x7FFFFFFF))
    return (
        struct.pack(">hi", random.choice((0, 1, 3, -1)), count)
        + _short(random.choice(TOPICS))
        + struct.pack(">i", data)
    )


def _assignment(random: Random) -> bytes:
    return struct.pack(">hi", random.choice((0, 1)), 1) + _short(random.choice(TOPICS)) + struct.pack(">iii", 1, 0, -1)


def _short(name: str) -> bytes:
    encoded = name.encode()
    return struct.pack(">h", len(encoded)) + encoded
