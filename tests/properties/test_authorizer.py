"""The authorizer beside a plain model that goes over every ACL, for each question."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.machines.security.acls import (
    Acl,
    AclFilter,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.machines.security.authorizer import Authorizer

PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*"])
HOSTS = st.sampled_from(["10.0.0.1", "10.0.0.2", "*"])
TYPES = st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP])
NAMES = st.text("ab*", min_size=1, max_size=3)
OPERATIONS = st.sampled_from([each for each in Operation if each >= Operation.READ])
PATTERNS = st.builds(ResourcePattern, TYPES, NAMES, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]))
ENTRIES = st.builds(
    Entry, PRINCIPALS, HOSTS, OPERATIONS | st.just(Operation.ALL), st.sampled_from([Permission.ALLOW, Permission.DENY])
)
ACLS = st.dictionaries(PATTERNS, st.frozensets(ENTRIES, max_size=4), max_size=8)
QUESTIONS = st.tuples(
    st.sampled_from(["User:alice", "User:bob"]), st.sampled_from(["10.0.0.1", "10.0.0.2"]), OPERATIONS, TYPES, NAMES
)

IMPLIED = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def is_for(pattern: ResourcePattern, kind: AclResourceType, name: str) -> bool:
    if pattern.resource_type != kind:
        return False
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def model(
    acls: list[Acl], principal: str, host: str, operation: Operation, kind: AclResourceType, name: str, default: bool
) -> bool:
    known = [acl.entry for acl in acls if is_for(acl.pattern, kind, name)]
    if not known:
        return default
    mine = [each for each in known if each.principal in (principal, "User:*") and each.host in (host, "*")]
    if any(each.permission is Permission.DENY and each.operation in (operation, Operation.ALL) for each in mine):
        return False
    enough = {operation, Operation.ALL} | IMPLIED.get(operation, set())
    return any(each.permission is Permission.ALLOW and each.operation in enough for each in mine)


@given(ACLS, st.booleans(), st.lists(QUESTIONS, min_size=1, max_size=20))
def test_every_question_is_answered_as_the_model_does(
    acls: dict[ResourcePattern, frozenset[Entry]],
    default: bool,
    questions: list[tuple[str, str, Operation, AclResourceType, str]],
) -> None:
    authorizer = Authorizer(acls, allow_if_no_acl=default)
    flat = [Acl(pattern, entry) for pattern, entries in acls.items() for entry in entries]
    assert sorted(authorizer) == sorted(flat)
    for question in questions:
        assert authorizer.decide(*question).allowed == model(flat, *question, default)


@given(ACLS, PATTERNS, st.frozensets(ENTRIES, max_size=4), QUESTIONS)
def test_a_changed_snapshot_answers_as_one_made_anew_and_leaves_the_old_one_alone(
    acls: dict[ResourcePattern, frozenset[Entry]],
    pattern: ResourcePattern,
    entries: frozenset[Entry],
    question: tuple[str, str, Operation, AclResourceType, str],
) -> None:
    before = Authorizer(acls)
    answer = before.decide(*question).allowed
    after = before.changed({pattern: entries})
    assert after.decide(*question).allowed == Authorizer({**acls, pattern: entries}).decide(*question).allowed
    assert before.decide(*question).allowed == answer


@given(ACLS, QUESTIONS)
def test_what_one_resource_allows_some_resource_allows(
    acls: dict[ResourcePattern, frozenset[Entry]], question: tuple[str, str, Operation, AclResourceType, str]
) -> None:
    principal, host, operation, kind, _ = question
    authorizer = Authorizer(acls)
    decision = authorizer.decide(*question)
    if decision and isinstance(decision.rule, Acl) and decision.rule.entry.operation in (operation, Operation.ALL):
        assert authorizer.decide_for_some(principal, host, operation, kind)


@given(ACLS, TYPES, NAMES)
def test_a_filter_by_match_finds_what_is_in_force_for_a_resource(
    acls: dict[ResourcePattern, frozenset[Entry]], kind: AclResourceType, name: str
) -> None:
    wanted = AclFilter(kind, name, PatternType.MATCH, None, None, Operation.ANY, Permission.ANY)
    for acl in Authorizer(acls):
        assert wanted.matches(acl) == is_for(acl.pattern, kind, name)
