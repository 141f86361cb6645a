"""From options to ACLs and filters, by the rules of kafka-acls.

A rule stands for every combination: each resource, with each principal, each of its hosts and each operation.
`--producer` and `--consumer` stand for the operations that such a client needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.machines.security.acls import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.cli.acls.command import Options

PRODUCER: Final = {
    AclResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    AclResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
CONSUMER: Final = {
    AclResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    AclResourceType.GROUP: (Operation.READ,),
}


FLAGS: Final = {
    AclResourceType.TOPIC: "topic",
    AclResourceType.GROUP: "group",
    AclResourceType.CLUSTER: "cluster",
    AclResourceType.TRANSACTIONAL_ID: "transactional_id",
    AclResourceType.DELEGATION_TOKEN: "delegation_token",
    AclResourceType.USER: "user_principal",
}
"""The fields of the options that name resources of a type, in the order of the help."""


def resources(options: Options) -> list[tuple[AclResourceType, str]]:
    """What the options name, in the order of the help."""
    named = {kind: getattr(options, field) for kind, field in FLAGS.items()}
    named[AclResourceType.CLUSTER] = (CLUSTER_NAME,) if options.cluster else ()
    return [(kind, name) for kind, names in named.items() for name in names]


def entries(options: Options, operations: Iterable[Operation]) -> list[Entry]:
    """Who is allowed or denied these operations, and from where."""
    allowed = _entries(options.allow_principal, options.allow_host, operations, Permission.ALLOW)
    return [*allowed, *_entries(options.deny_principal, options.deny_host, operations, Permission.DENY)]


def _entries(
    principals: Iterable[str], hosts: Iterable[str], operations: Iterable[Operation], permission: Permission
) -> Iterator[Entry]:
    for principal in principals:
        for host in hosts or (WILDCARD,):
            for operation in operations:
                yield Entry(principal, host, operation, permission)


def acls(options: Options) -> list[Acl]:
    """The ACLs that the options stand for."""
    pattern_type = PatternType[options.resource_pattern_type.upper()]
    found: dict[Acl, None] = {}
    for kind, name in resources(options):
        exact = PatternType.LITERAL if kind is AclResourceType.CLUSTER else pattern_type
        for entry in entries(options, _operations(options, kind)):
            found[Acl(ResourcePattern(kind, name, exact), entry)] = None
    if options.producer and options.idempotent:
        cluster = ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME)
        for entry in entries(options, (Operation.IDEMPOTENT_WRITE,)):
            found[Acl(cluster, entry)] = None
    return list(found)


def _operations(options: Options, kind: AclResourceType) -> tuple[Operation, ...]:
    if not (options.producer or options.consumer):
        return tuple(OPERATIONS[name] for name in options.operation) or (Operation.ALL,)
    wanted: dict[Operation, None] = {}
    for is_meant, needed in ((options.producer, PRODUCER), (options.consumer, CONSUMER)):
        if is_meant:
            wanted |= dict.fromkeys(needed.get(kind, ()))
    return tuple(wanted)


def filters(options: Options) -> list[AclFilter]:
    """Everything that the options mean, whatever it says, about the resources named or about all."""
    pattern_type = PatternType[options.resource_pattern_type.upper()]
    any_entry = (None, Operation.ANY, Permission.ANY)
    principals = options.principal or (None,)
    return [
        AclFilter(kind, name, pattern, principal, *any_entry)
        for kind, name, pattern in _meant(options, pattern_type)
        for principal in principals
    ]


def _meant(options: Options, pattern_type: PatternType) -> list[tuple[AclResourceType, str | None, PatternType]]:
    named = resources(options)
    if not named:
        return [(AclResourceType.ANY, None, PatternType.ANY)]
    return [
        (kind, name, PatternType.LITERAL if kind is AclResourceType.CLUSTER else pattern_type) for kind, name in named
    ]


def exactly(acl: Acl) -> AclFilter:
    """The filter that means this ACL alone."""
    (kind, name, pattern_type), (principal, host, operation, permission) = acl
    return AclFilter(kind, name, pattern_type, principal, host, operation, permission)
