"""Permissions beside Apache Kafka's own StandardAuthorizer: the same ACLs and the same questions get the same answers.

BARNABAS_TEST_AUTHORIZER_QUESTIONS=100000 asks more than every run does.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Final

from barnabas.machines.security.acls import (
    SUPPORTED,
    AclResourceType,
    Entry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
)
from barnabas.machines.security.authorizer import Authorizer
from tests.support import jars, java

VERSION: Final = "4.3.0"
QUESTIONS: Final = int(os.environ.get("BARNABAS_TEST_AUTHORIZER_QUESTIONS", "5000"))
PER_SET: Final = 100
SOURCE: Final = Path(java.__file__).with_name("StandardAuthorizerOracle.java")

PRINCIPALS: Final = ("User:alice", "User:bob", "User:CN=c,O=d:e", "Group:alice", "User:ANONYMOUS")
HOSTS: Final = ("10.0.0.1", "10.0.0.2", "127.0.0.1")
NAMES: Final = ("a", "ab", "abc", "abcd", "abd", "b", "ba", "foo", "foo.bar", "foo-bar", "hardcode", "h", "_x")
TYPES: Final = tuple(SUPPORTED)


def test_the_same_answers_as_kafkas_standard_authorizer() -> None:
    chance = random.Random(18)
    lines: list[str] = []
    ours: list[str] = []
    questions: list[str] = []
    while len(ours) < QUESTIONS:
        authorizer, said = _rules(chance)
        lines += said
        for _ in range(PER_SET):
            question, answer = _ask(chance, authorizer)
            lines.append(question)
            questions.append(f"{question!r} of {said}")
            ours.append("1" if answer else "0")
    theirs = _kafkas_answers(lines)
    wrong = [question for question, own, other in zip(questions, ours, theirs, strict=True) if own != other]
    assert not wrong, f"{len(wrong)} of {len(ours)} answers differ from Kafka's; the first: {wrong[0]}"
    assert 0.1 < ours.count("1") / len(ours) < 0.9  # else the questions prove little


def _rules(chance: random.Random) -> tuple[Authorizer, list[str]]:
    supers = chance.sample(PRINCIPALS, chance.choice((0, 0, 1)))
    everyone = chance.random() < 0.3
    acls: dict[ResourcePattern, set[Entry]] = {}
    said = [f"new\t{';'.join(supers)}\t{str(everyone).lower()}"]
    for _ in range(chance.choice((0, 1, 3, 10, 40))):
        pattern_type = chance.choice((PatternType.LITERAL, PatternType.PREFIXED))
        name = "*" if pattern_type is PatternType.LITERAL and chance.random() < 0.15 else chance.choice(NAMES)
        pattern = ResourcePattern(chance.choice(TYPES), name, pattern_type)
        operation = chance.choice((Operation.ALL, *SUPPORTED[pattern.resource_type]))
        entry = Entry(
            chance.choice((*PRINCIPALS, "User:*")),
            chance.choice((*HOSTS, "*", "*")),
            operation,
            chance.choice((Permission.ALLOW, Permission.ALLOW, Permission.DENY)),
        )
        if entry not in acls.setdefault(pattern, set()):
            acls[pattern].add(entry)
            words = (pattern.resource_type, name, pattern_type, entry.principal, entry.host, operation)
            said.append("\t".join(["acl", *map(_word, words), str(int(entry.permission))]))
    return Authorizer(acls, supers, allow_if_no_acl=everyone), said


def _word(value: object) -> str:
    return str(int(value)) if isinstance(value, int) else str(value)


def _ask(chance: random.Random, authorizer: Authorizer) -> tuple[str, bool]:
    principal, host, kind = chance.choice(PRINCIPALS), chance.choice(HOSTS), chance.choice(TYPES)
    operation = chance.choice(SUPPORTED[kind])
    if chance.random() < 0.2:
        some = authorizer.decide_for_some(principal, host, operation, kind)
        return f"some\t{principal}\t{host}\t{int(operation)}\t{int(kind)}", some.allowed
    name = _name(chance, kind)
    decision = authorizer.decide(principal, host, operation, kind, name)
    return f"ask\t{principal}\t{host}\t{int(operation)}\t{int(kind)}\t{name}", decision.allowed


def _name(chance: random.Random, kind: AclResourceType) -> str:
    if kind is AclResourceType.CLUSTER and chance.random() < 0.5:
        return "kafka-cluster"
    return chance.choice(NAMES) + chance.choice(("", "", "x", "d"))


def _kafkas_answers(lines: list[str]) -> list[str]:
    words = [jars.program("java"), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", jars.classpath(VERSION)]
    done = subprocess.run(
        [*words, "-Dlog4j2.level=ERROR", str(SOURCE)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
