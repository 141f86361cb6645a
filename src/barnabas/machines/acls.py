"""What can be done to a resource, as numbers that clients read out of a bit field.

There are no access rules yet: everyone may do everything, and is told so.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable


class Operation(IntEnum):
    """Kafka's operations, under Kafka's numbers."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


def bits(operations: Iterable[Operation]) -> int:
    """The operations as a bit field.

    >>> bits([Operation.READ, Operation.WRITE])
    24
    """
    return sum(1 << operation for operation in operations)


TOPIC_OPERATIONS: Final = bits(
    [
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ]
)
"""Everything that can be done to a topic."""

CLUSTER_OPERATIONS: Final = bits(
    [
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ]
)
"""Everything that can be done to a cluster."""

GROUP_OPERATIONS: Final = bits(
    [
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ]
)
"""Everything that can be done to a group."""
