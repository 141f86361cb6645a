"""`barnabas acls` beside Apache Kafka's kafka-acls, on a broker with an authorizer: each sees the other's rules."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support import java
from tests.support.brokers import Barnabas

if TYPE_CHECKING:
    from collections.abc import Iterator

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def judging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose clients are all super users: there is no other identity without a login."""
    with Barnabas(tmp_path_factory.mktemp("acls"), AUTHORIZER) as broker:
        yield broker.bootstrap


def acls(bootstrap: str, *words: str) -> str:
    command = [sys.executable, "-m", "barnabas.cli.main", "acls", "--bootstrap-server", bootstrap, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_rules_of_either_program_are_seen_and_removed_by_the_other(judging: str) -> None:
    acls(judging, "--add", "--allow-principal", "User:alice", "--consumer", "--topic", "orders", "--group", "billing")
    server = ("--bootstrap-server", judging)
    prefixed = ("--topic", "team-", "--resource-pattern-type", "prefixed")
    java.tool("4.3.0", "acls", *server, "--add", "--deny-principal", "User:bob", "--operation", "Write", *prefixed)
    theirs = java.tool("4.3.0", "acls", *server, "--list")
    ours = acls(judging, "--list")
    assert _blocks(ours) == _blocks(theirs)
    assert "(principal=User:bob, host=*, operation=WRITE, permissionType=DENY)" in ours
    gone = acls(judging, "--remove", "--deny-principal", "User:bob", "--operation", "write", *prefixed)
    assert "name=team-, patternType=PREFIXED" in gone
    left = json.loads(acls(judging, "--list", "--json", "--principal", "User:alice"))
    assert [(one["name"], one["operation"]) for one in left] == [
        ("orders", "Read"),
        ("orders", "Describe"),
        ("billing", "Read"),
    ]
    java.tool("4.3.0", "acls", *server, "--remove", "--topic", "orders", "--force")
    assert "orders" not in acls(judging, "--list")


def _blocks(text: str) -> set[frozenset[str]]:
    """The lines about each resource, in any order."""
    return {frozenset(line.strip() for line in block.splitlines()) for block in text.strip().split("\n\n")}


def test_a_broker_without_an_authorizer_says_so(bootstrap: str) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", "acls", "--bootstrap-server", bootstrap, "--list"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "No Authorizer is configured" in done.stderr


def test_a_real_producer_is_told_what_it_may_not(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {**AUTHORIZER, "super.users": "User:nobody", "allow.everyone.if.no.acl.found": "true"}
    with Barnabas(tmp_path_factory.mktemp("denying"), settings) as broker:
        acls(broker.bootstrap, "--add", "--allow-principal", "User:eve", "--operation", "Write", "--topic", "secret")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        refused: list[str] = []
        for topic in ("secret", "open"):
            producer.produce(topic, b"x", on_delivery=lambda error, _: refused.append(str(error and error.name())))
        assert producer.flush(60) == 0
        assert sorted(refused) == ["None", "TOPIC_AUTHORIZATION_FAILED"]
