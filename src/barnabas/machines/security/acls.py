"""Access control entries (ACLs): what they say, how they are named, and which of them a filter means.

An ACL allows or denies a principal, from a host, an operation on resources: on the one of this name (literal), on all
of a type (literal, `*`), or on all whose names begin so (prefixed). Numbers are those of Kafka's protocol, names those
of Kafka's ZooKeeper mode and tools.
"""

from __future__ import annotations

from enum import IntEnum
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

WILDCARD: Final = "*"
"""As a resource's name or a host: any."""
ANY_USER: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type Cluster."""


class Operation(IntEnum):
    """What is done to a resource."""

    UNKNOWN = 0
    ANY = 1
    """In filters only."""
    ALL = 2
    """In ACLs only."""
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
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @property
    def label(self) -> str:
        """As it is stored and shown: `DescribeConfigs`."""
        return _label(self.name)


class AclResourceType(IntEnum):
    """What something is done to."""

    UNKNOWN = 0
    ANY = 1
    """In filters only."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @property
    def label(self) -> str:
        """As it is stored and shown: `TransactionalId`."""
        return _label(self.name)


class PatternType(IntEnum):
    """How an ACL's name means resources."""

    UNKNOWN = 0
    ANY = 1
    """In filters only: literal or prefixed, of exactly this name."""
    MATCH = 2
    """In filters only: every ACL that is in force for the resource of this name."""
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL says."""

    UNKNOWN = 0
    ANY = 1
    """In filters only."""
    DENY = 2
    ALLOW = 3

    @property
    def label(self) -> str:
        """As it is stored and shown: `Allow`."""
        return _label(self.name)


def _label(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


RESOURCE_TYPES: Final = {each.label: each for each in AclResourceType if each > AclResourceType.ANY}
"""By the names under which they are stored."""
OPERATIONS: Final = {each.label: each for each in Operation if each > Operation.ANY}
PERMISSIONS: Final = {each.label: each for each in Permission if each > Permission.ANY}


class ResourcePattern(NamedTuple):
    """Which resources an ACL is for."""

    resource_type: AclResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{self.resource_type.label}:{self.pattern_type.name}:{self.name}"


class Entry(NamedTuple):
    """Who may, or may not, do what, from where."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """One rule."""

    pattern: ResourcePattern
    entry: Entry

    def __str__(self) -> str:
        principal, host, operation, permission = self.entry
        return f"{permission.label} {principal} {operation.label} on {self.pattern} from {host}"


class AclFilter(NamedTuple):
    """Which ACLs are meant; None, and ANY, is whatever."""

    resource_type: int
    name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        """Whether this ACL is meant."""
        entry = acl.entry
        return (
            self.includes(acl.pattern)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def includes(self, pattern: ResourcePattern) -> bool:
        """Whether ACLs of this pattern may be meant."""
        if self.resource_type not in (AclResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(pattern.name)
        return pattern.name in (self.name, WILDCARD)

    @property
    def is_unknown(self) -> bool:
        """Whether a field has a number that this broker does not know."""
        return not (
            self.resource_type in _KNOWN_TYPES
            and self.pattern_type in _KNOWN_PATTERNS
            and self.operation in _KNOWN_OPERATIONS
            and self.permission in _KNOWN_PERMISSIONS
        )


_KNOWN_TYPES: Final = frozenset(AclResourceType) - {AclResourceType.UNKNOWN}
_KNOWN_PATTERNS: Final = frozenset(PatternType) - {PatternType.UNKNOWN}
_KNOWN_OPERATIONS: Final = frozenset(Operation) - {Operation.UNKNOWN}
_KNOWN_PERMISSIONS: Final = frozenset(Permission) - {Permission.UNKNOWN}

EVERY_ACL: Final = AclFilter(AclResourceType.ANY, None, PatternType.ANY, None, None, Operation.ANY, Permission.ANY)


def canonical_host(host: str) -> str:
    """An address as rules compare it: one spelling for each, and that of IPv4 for what IPv6 maps to it.

    >>> canonical_host("::ffff:10.0.0.7"), canonical_host("0:0:0:0:0:0:0:1")
    ('10.0.0.7', '::1')
    """
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def bits(operations: Iterable[Operation]) -> int:
    """The operations as a bit field, as responses tell what a client may do.

    >>> bits([Operation.READ, Operation.WRITE])
    24
    """
    return sum(1 << operation for operation in operations)


SUPPORTED: Final = {
    AclResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    AclResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    AclResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""What can be done to each type of resource."""

TOPIC_OPERATIONS: Final = bits(SUPPORTED[AclResourceType.TOPIC])
CLUSTER_OPERATIONS: Final = bits(SUPPORTED[AclResourceType.CLUSTER])
GROUP_OPERATIONS: Final = bits(SUPPORTED[AclResourceType.GROUP])
