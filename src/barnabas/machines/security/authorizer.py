"""Whether a principal may do something: the rules of Kafka's StandardAuthorizer, on a snapshot of all ACLs.

    super user                                      allowed, whatever the ACLs say
    an ACL that matches denies                      denied, whatever others allow
    an ACL that matches allows                      allowed
    some ACL is for the resource, none matches      denied
    no ACL is for the resource                      denied, or allowed with allow.everyone.if.no.acl.found

An ACL is for a resource by its literal name, by `*`, or by a prefix of its name. It matches by principal (or `User:*`),
host (or `*`) and operation (or All). Where an ACL *allows* Read, Write, Delete or Alter it allows Describe as well,
and with AlterConfigs DescribeConfigs; a denial implies nothing.

A snapshot is never changed: `changed` gives the next one. A question costs a look at the literal name, at `*`, and at
each length that a prefix has, however many ACLs there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.machines.security.acls import (
    ANY_USER,
    WILDCARD,
    Acl,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    canonical_host,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

IMPLIES: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""By operation, those that include it where they are allowed."""
_ANY_NAME: Final = "hardcode"
"""A name that stands for any, as in Kafka: whether super users, `*` or the default allow everything of a type."""


class Authorization(NamedTuple):
    """An answer, and the rule that it comes from."""

    allowed: bool
    rule: Acl | str

    def __bool__(self) -> bool:
        return self.allowed


SUPER_USER: Final = Authorization(True, "super user")
DEFAULT_ALLOW: Final = Authorization(True, "no ACL is for the resource, and allow.everyone.if.no.acl.found is true")
DEFAULT_DENY: Final = Authorization(False, "no ACL is for the resource")
NO_MATCH: Final = Authorization(False, "no ACL for the resource allows it")
NO_MATCH_OF_ANY: Final = Authorization(False, "no ACL allows it for any resource of this type")

NOBODY: Final = frozenset({Entry(ANY_USER, WILDCARD, Operation.ALL, Permission.DENY)})
"""The ACLs of a pattern whose own cannot be read, and never could: only super users may do anything."""

Acls = dict[ResourcePattern, frozenset[Entry]]


class Authorizer:
    """All rules at one moment."""

    __slots__ = ("_acls", "_default", "_lengths", "_super_users")

    def __init__(
        self,
        acls: Mapping[ResourcePattern, Collection[Entry]] | None = None,
        super_users: Collection[str] = (),
        *,
        allow_if_no_acl: bool = False,
    ) -> None:
        self._acls: Acls = {pattern: frozenset(entries) for pattern, entries in (acls or {}).items() if entries}
        self._super_users = frozenset(super_users)
        self._default = DEFAULT_ALLOW if allow_if_no_acl else DEFAULT_DENY
        self._lengths = _lengths(self._acls)
        """By type of resource, the lengths of prefixes that some ACL has."""

    def changed(self, changes: Mapping[ResourcePattern, Collection[Entry]]) -> Authorizer:
        """The snapshot after this one, with all ACLs of some patterns replaced.

        What did not change is taken over as it is, so that each of ten thousand ACLs can be added on its own.
        """
        after = Authorizer({}, self._super_users, allow_if_no_acl=self._default.allowed)
        after._acls = acls = self._acls.copy()
        for pattern, entries in changes.items():
            acls.pop(pattern, None)
            if entries:
                acls[pattern] = frozenset(entries)
        has_prefixes = any(pattern.pattern_type is PatternType.PREFIXED for pattern in changes)
        after._lengths = _lengths(acls) if has_prefixes else self._lengths
        return after

    def with_acls(self, acls: Mapping[ResourcePattern, Collection[Entry]]) -> Authorizer:
        """The snapshot with other ACLs, and the same super users and default."""
        return Authorizer(acls, self._super_users, allow_if_no_acl=self._default.allowed)

    def __len__(self) -> int:
        return sum(map(len, self._acls.values()))

    def __iter__(self) -> Iterator[Acl]:
        return (Acl(pattern, entry) for pattern, entries in self._acls.items() for entry in entries)

    def entries(self, pattern: ResourcePattern) -> frozenset[Entry]:
        """The ACLs of one pattern."""
        return self._acls.get(pattern, frozenset())

    def decide(
        self, principal: str, host: str, operation: Operation, resource_type: AclResourceType, name: str
    ) -> Authorization:
        """Whether the principal may do this, from this host (`canonical_host`), to the resource of this name."""
        if principal in self._super_users:
            return SUPER_USER
        found = False
        allowed: Acl | None = None
        for pattern, entries in self._patterns(resource_type, name):
            found = True
            for entry in entries:
                if not _is_about(entry, principal, host, operation):
                    continue
                if entry.permission is Permission.DENY:
                    return Authorization(False, Acl(pattern, entry))
                allowed = Acl(pattern, entry)
        if allowed is not None:
            return Authorization(True, allowed)
        return NO_MATCH if found else self._default

    def decide_for_some(
        self, principal: str, host: str, operation: Operation, resource_type: AclResourceType
    ) -> Authorization:
        """Whether the principal may do this to at least one resource of this type, if there were one of every name.

        A literal permission counts unless the same name or a prefix of it is denied; a prefixed one unless a prefix of
        it is denied. Operations imply nothing here, as in Kafka.
        """
        for_any = self.decide(principal, host, operation, resource_type, _ANY_NAME)
        if for_any:
            return for_any
        denied: set[ResourcePattern] = set()
        allowed: dict[ResourcePattern, Acl] = {}
        for pattern, entries in self._acls.items():
            if pattern.resource_type is not resource_type:
                continue
            for entry in entries:
                if entry.operation not in (operation, Operation.ALL) or not _is_of(entry, principal, host):
                    continue
                if entry.permission is Permission.ALLOW:
                    allowed[pattern] = Acl(pattern, entry)
                elif pattern.name == WILDCARD and pattern.pattern_type is PatternType.LITERAL:
                    return Authorization(False, Acl(pattern, entry))
                else:
                    denied.add(pattern)
        everything = allowed.get(ResourcePattern(resource_type, WILDCARD))
        if everything is not None:
            return Authorization(True, everything)
        for pattern, acl in allowed.items():
            if pattern not in denied and not any(prefix in denied for prefix in _prefixes(pattern)):
                return Authorization(True, acl)
        return NO_MATCH_OF_ANY

    def _patterns(
        self, resource_type: AclResourceType, name: str
    ) -> Iterable[tuple[ResourcePattern, frozenset[Entry]]]:
        """Everything that is for a resource."""
        acls = self._acls
        wanted = [ResourcePattern(resource_type, name)]
        if name != WILDCARD:
            wanted.append(ResourcePattern(resource_type, WILDCARD))
        size = len(name)
        for length in self._lengths.get(resource_type, ()):
            if length > size:
                break
            wanted.append(ResourcePattern(resource_type, name[:length], PatternType.PREFIXED))
        return [(pattern, acls[pattern]) for pattern in wanted if pattern in acls]


def _lengths(acls: Acls) -> dict[AclResourceType, tuple[int, ...]]:
    """By type of resource, the lengths of prefixes that some ACL has."""
    lengths: dict[AclResourceType, set[int]] = {}
    for resource_type, name, pattern_type in acls:
        if pattern_type is PatternType.PREFIXED:
            lengths.setdefault(resource_type, set()).add(len(name))
    return {resource_type: tuple(sorted(found)) for resource_type, found in lengths.items()}


def _is_of(entry: Entry, principal: str, host: str) -> bool:
    return entry.principal in (principal, ANY_USER) and (
        entry.host in (WILDCARD, host) or canonical_host(entry.host) == host
    )


def _is_about(entry: Entry, principal: str, host: str, operation: Operation) -> bool:
    """Whether an ACL of the resource says something of this operation."""
    if not _is_of(entry, principal, host):
        return False
    if entry.operation in (operation, Operation.ALL):
        return True
    return entry.permission is Permission.ALLOW and entry.operation in IMPLIES.get(operation, ())


def _prefixes(pattern: ResourcePattern) -> Iterator[ResourcePattern]:
    """The prefixed patterns that include all of this one."""
    for length in range(1, len(pattern.name) + 1):
        yield ResourcePattern(pattern.resource_type, pattern.name[:length], PatternType.PREFIXED)
