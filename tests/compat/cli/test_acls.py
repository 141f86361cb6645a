"""`barnabas acls` beside Apache Kafka's kafka-acls, on a broker with an authorizer: each sees the other's rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.support import java
from tests.support.brokers import Barnabas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


@pytest.mark.parametrize("resource", [("--topic", "t"), ("--cluster",)])
def test_both_programs_take_the_same_operations_of_a_resource(judging: str, resource: tuple[str, ...]) -> None:
    rule = ("--add", "--allow-principal", "User:a", "--operation", "ClusterAction", *resource)
    programs: tuple[Callable[[], object], ...] = (
        lambda: acls(judging, *rule),
        lambda: java.tool("4.3.0", "acls", "--bootstrap-server", judging, *rule),
    )
    assert [_takes(program) for program in programs] == [resource == ("--cluster",)] * 2


def _takes(program: Callable[[], object]) -> bool:
    try:
        program()
    except (subprocess.CalledProcessError, java.ToolFailed):
        return False
    return True


def test_a_terminal_is_asked_before_rules_go(judging: str) -> None:
    def left() -> int:
        return len(json.loads(acls(judging, "--list", "--json", "--topic", "asked")))

    acls(judging, "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "asked")
    assert "Remove this ACL of Topic asked? [y/N]: " in typed(judging, "n")
    assert left() == 1
    typed(judging, "y")
    assert left() == 0
    assert "[y/N]" not in typed(judging, "n"), "there is nothing to ask about"
    acls(judging, "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "asked")
    assert "[y/N]" not in typed(judging, "n", "--force")
    assert left() == 0


def typed(bootstrap: str, answer: str, *more: str) -> str:
    """What `--remove` says on standard error to somebody at a terminal, who answers so."""
    ours, theirs = os.openpty()
    try:
        os.write(ours, f"{answer}\n".encode())
        words = ["acls", "--bootstrap-server", bootstrap, "--remove", "--topic", "asked", *more]
        done = subprocess.run(
            [sys.executable, "-m", "barnabas.cli.main", *words],
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    return done.stderr


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
