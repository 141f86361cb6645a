"""What the authorizer answers, by which rule, in cases that a person would ask about."""

from __future__ import annotations

from barnabas.machines.security.acls import (
    Acl,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    canonical_host,
)
from barnabas.machines.security.authorizer import SUPER_USER, Authorizer

TOPIC = AclResourceType.TOPIC
HOST = "10.0.0.1"


def allow(operation: Operation, principal: str = "User:alice", host: str = "*") -> Entry:
    return Entry(principal, host, operation, Permission.ALLOW)


def deny(operation: Operation, principal: str = "User:alice", host: str = "*") -> Entry:
    return Entry(principal, host, operation, Permission.DENY)


def literal(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, name)


def prefixed(name: str) -> ResourcePattern:
    return ResourcePattern(TOPIC, name, PatternType.PREFIXED)


def ask(authorizer: Authorizer, operation: Operation, name: str, principal: str = "User:alice") -> bool:
    return authorizer.decide(principal, HOST, operation, TOPIC, name).allowed


def test_a_denial_by_prefix_outweighs_a_literal_permission_and_is_the_rule_that_is_named() -> None:
    authorizer = Authorizer({literal("orders"): {allow(Operation.READ)}, prefixed("ord"): {deny(Operation.READ)}})
    decision = authorizer.decide("User:alice", HOST, Operation.READ, TOPIC, "orders")
    assert decision == (False, Acl(prefixed("ord"), deny(Operation.READ)))


def test_permission_to_read_includes_describe_but_a_denial_of_read_does_not_deny_describe() -> None:
    assert ask(Authorizer({literal("t"): {allow(Operation.READ)}}), Operation.DESCRIBE, "t")
    both = Authorizer({literal("t"): {deny(Operation.READ), allow(Operation.DESCRIBE)}})
    assert ask(both, Operation.DESCRIBE, "t")
    assert not ask(both, Operation.READ, "t")


def test_the_default_counts_only_where_no_acl_is_for_the_resource() -> None:
    authorizer = Authorizer({literal("t"): {allow(Operation.READ, "User:bob")}}, allow_if_no_acl=True)
    assert ask(authorizer, Operation.WRITE, "other")
    assert not ask(authorizer, Operation.WRITE, "t")


def test_a_super_user_may_do_what_is_denied_to_everybody() -> None:
    authorizer = Authorizer({literal("*"): {deny(Operation.ALL, "User:*")}}, ["User:root"])
    assert authorizer.decide("User:root", HOST, Operation.WRITE, TOPIC, "t") is SUPER_USER


def test_a_prefix_of_another_type_allows_nothing() -> None:
    group = ResourcePattern(AclResourceType.GROUP, "o", PatternType.PREFIXED)
    assert not ask(Authorizer({group: {allow(Operation.ALL)}}), Operation.READ, "orders")


def test_a_host_is_the_same_in_any_spelling() -> None:
    authorizer = Authorizer({literal("t"): {allow(Operation.READ, host="0:0:0:0:0:0:0:1")}})
    assert authorizer.decide("User:alice", canonical_host("::1"), Operation.READ, TOPIC, "t")
    assert not authorizer.decide("User:alice", "127.0.0.1", Operation.READ, TOPIC, "t")


def test_an_emptied_pattern_is_none_at_all() -> None:
    authorizer = Authorizer({literal("t"): {allow(Operation.READ)}}, allow_if_no_acl=True)
    assert ask(authorizer.changed({literal("t"): ()}), Operation.WRITE, "t")
