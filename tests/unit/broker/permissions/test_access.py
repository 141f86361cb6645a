"""What a connection remembers of its permissions, and the audit log."""

from __future__ import annotations

import gc
import json
import logging
import weakref

import pytest
from kio.index import load_request_schema

from barnabas.broker.permissions.access import REMEMBERED, Permissions
from barnabas.broker.permissions.audit import LINES_PER_SECOND, REPEAT_SECONDS, AuditLog
from barnabas.broker.permissions.needs import Admitted, Asked
from barnabas.broker.permissions.transactions import init_producer_id
from barnabas.broker.serving.caller import NO_MEMO, Caller, Session
from barnabas.machines.controller.image import ClusterImage
from barnabas.machines.security.acls import (
    CLUSTER_NAME,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    bits,
)
from barnabas.machines.security.authorizer import Authorizer
from barnabas.protocol.apis import ApiKey
from tests.support.wire import build

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders")


def rules(*operations: Operation, principal: str = "User:alice") -> Authorizer:
    return Authorizer({ORDERS: {Entry(principal, "*", each, Permission.ALLOW) for each in operations}})


def permissions(authorizer: Authorizer, now: list[float] | None = None) -> Permissions:
    return Permissions(authorizer, AuditLog(lambda: (now or [0.0])[0]))


def caller(principal: str = "User:alice", host: str = "10.0.0.1") -> Caller:
    return Caller(listener="L", address=(host, 1), client_id="c", session=Session(principal=principal))


def test_an_answer_dies_with_the_rules_that_gave_it() -> None:
    judge, alice = permissions(rules(Operation.READ)), caller()
    assert judge.of(alice, "FETCH").allows_topic(Operation.READ, "orders")
    assert alice.session.memo is not NO_MEMO
    judge.replace(rules())
    assert alice.session.memo is NO_MEMO
    assert not judge.of(alice, "FETCH").allows_topic(Operation.READ, "orders")
    judge.replace(rules(Operation.READ))
    assert judge.of(alice, "FETCH").allows_topic(Operation.READ, "orders")


def test_an_answer_is_not_given_to_somebody_else_on_the_same_connection() -> None:
    judge, one = permissions(rules(Operation.READ)), caller()
    assert judge.of(one, "FETCH").allows_topic(Operation.READ, "orders")
    one.session.principal = "User:bob"
    assert not judge.of(one, "FETCH").allows_topic(Operation.READ, "orders")


def test_a_connection_remembers_a_limited_number_of_answers_and_is_not_kept_alive_by_them() -> None:
    judge, alice = permissions(Authorizer(allow_if_no_acl=True)), caller()
    for number in range(REMEMBERED + 10):
        assert judge.of(alice, "FETCH").allows_topic(Operation.READ, f"t{number}", quiet=True)
    assert 0 < len(alice.session.memo.decisions) <= REMEMBERED
    gone = weakref.ref(alice.session)
    del alice
    gc.collect()
    assert gone() is None
    assert not NO_MEMO.decisions
    assert not NO_MEMO.writable
    assert not NO_MEMO.readable


def test_a_client_that_may_do_nothing_takes_no_memory_and_long_names_take_none_either() -> None:
    judge, eve = permissions(rules()), caller("User:eve")
    assert not judge.of(eve, "FETCH").allows_topic(Operation.READ, "orders")
    assert eve.session.memo is NO_MEMO
    judge.replace(Authorizer(allow_if_no_acl=True))
    assert judge.of(eve, "FETCH").allows_topic(Operation.READ, "t" * 10_000)
    assert eve.session.memo is NO_MEMO


def test_an_address_of_ipv4_in_ipv6_is_the_one_of_ipv4() -> None:
    entry = Entry("User:alice", "10.0.0.1", Operation.READ, Permission.ALLOW)
    judge = permissions(Authorizer({ORDERS: {entry}}))
    assert judge.of(caller(host="::ffff:10.0.0.1"), "FETCH").allows_topic(Operation.READ, "orders")


def test_operations_that_are_told_are_those_that_are_allowed() -> None:
    judge = permissions(rules(Operation.READ, Operation.ALTER_CONFIGS))
    expected = [Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS]
    assert judge.of(caller(), "METADATA").operations(AclResourceType.TOPIC, "orders") == bits(expected)
    assert judge.of(caller(), "METADATA").cluster_operations() == 0


def test_a_denial_is_one_line_of_json_whatever_the_names_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.audit")
    judge = permissions(rules(Operation.READ))
    judge.of(caller("User:eve\nUser:admin"), "PRODUCE").allows_topic(Operation.WRITE, "orders")
    (line,) = caplog.messages
    assert "\n" not in line
    assert json.loads(line) == {
        "principal": "User:eve\nUser:admin",
        "host": "10.0.0.1",
        "operation": "Write",
        "resource": "Topic:orders",
        "api": "PRODUCE",
        "decision": "denied",
        "rule": "no ACL for the resource allows it",
    }


def test_permissions_are_logged_at_debug_with_their_rule(caplog: pytest.LogCaptureFixture) -> None:
    judge = permissions(rules(Operation.READ))
    caplog.set_level(logging.INFO, "barnabas.audit")
    judge.of(caller(), "FETCH").allows_topic(Operation.READ, "orders")
    assert not caplog.messages
    caplog.set_level(logging.DEBUG, "barnabas.audit")
    judge.of(caller(), "FETCH").allows_topic(Operation.READ, "orders")
    (line,) = map(json.loads, caplog.messages)
    assert line["rule"] == "Allow User:alice Read on Topic:LITERAL:orders from *"


def ask_for_a_producer_id(judge: Permissions) -> bool:
    """Whether an idempotent producer of alice is admitted."""
    schema = load_request_schema(ApiKey.INIT_PRODUCER_ID, 5)
    asked = Asked(
        judge.of(caller(), "INIT_PRODUCER_ID"),
        ApiKey.INIT_PRODUCER_ID,
        5,
        5,
        build(schema, {"transactional_id": None}),
        image=ClusterImage(),
    )
    return isinstance(init_producer_id(asked), Admitted)


@pytest.mark.parametrize(
    ("entry", "pattern", "expected"),
    [
        (
            Operation.WRITE,
            ResourcePattern(AclResourceType.TOPIC, "app-", PatternType.PREFIXED),
            ("Write", "any Topic", "Allow User:alice Write on Topic:PREFIXED:app- from *"),
        ),
        (
            Operation.IDEMPOTENT_WRITE,
            ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME),
            (
                "IdempotentWrite",
                "Cluster:kafka-cluster",
                "Allow User:alice IdempotentWrite on Cluster:LITERAL:kafka-cluster from *",
            ),
        ),
    ],
)
def test_what_lets_an_idempotent_producer_in_is_logged(
    caplog: pytest.LogCaptureFixture, entry: Operation, pattern: ResourcePattern, expected: tuple[str, str, str]
) -> None:
    caplog.set_level(logging.DEBUG, "barnabas.audit")
    judge = permissions(Authorizer({pattern: {Entry("User:alice", "*", entry, Permission.ALLOW)}}))
    assert ask_for_a_producer_id(judge)
    assert [logged(line) for line in caplog.messages] == [("allowed", *expected)]


def test_an_idempotent_producer_that_is_refused_lacks_both_permissions(caplog: pytest.LogCaptureFixture) -> None:
    """One line was logged, of a topic named any."""
    caplog.set_level(logging.DEBUG, "barnabas.audit")
    denial = {Entry("User:alice", "*", Operation.ALL, Permission.DENY)}
    cluster = ResourcePattern(AclResourceType.CLUSTER, CLUSTER_NAME)
    assert not ask_for_a_producer_id(permissions(Authorizer({cluster: denial})))
    assert [logged(line) for line in caplog.messages] == [
        ("denied", "Write", "any Topic", "no ACL allows it for any resource of this type"),
        ("denied", "IdempotentWrite", "Cluster:kafka-cluster", f"Deny User:alice All on {cluster} from *"),
    ]


def logged(line: str) -> tuple[str, ...]:
    found = json.loads(line)
    return tuple(found[key] for key in ("decision", "operation", "resource", "rule"))


def test_a_denial_that_is_repeated_without_end_is_logged_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "barnabas.audit")
    now = [100.0]
    judge = permissions(rules(), now)
    for _ in range(50):
        judge.of(caller(), "FETCH").allows_topic(Operation.READ, "orders")
    assert len(caplog.messages) == 1
    now[0] += REPEAT_SECONDS
    judge.of(caller(), "FETCH").allows_topic(Operation.READ, "orders")
    assert json.loads(caplog.messages[1])["left_out"] == 49
    caplog.clear()
    now[0] += 1
    for number in range(10 * LINES_PER_SECOND):
        judge.of(caller(), "FETCH").allows_topic(Operation.READ, f"t{number}")
    assert len(caplog.messages) == LINES_PER_SECOND
    caplog.clear()
    now[0] += 1
    judge.of(caller(), "FETCH").allows_group(Operation.READ, "g" * 30_000)
    assert len(caplog.messages[0]) < 1000
