"""Fifty members of five groups join, leave and crash under load, in mixed protocols and from four client libraries.

In the end every group has read every record at least once and committed it, at rest each partition has one owner, the
members speak the protocol that they have in common, and nobody is stuck. `BARNABAS_TEST_CHURN_SECONDS` says how long it
goes on before it comes to rest; a line at the end says what happened (pytest -s shows it):

    BARNABAS_TEST_CHURN_SECONDS=300 pytest -s tests/compat/churn
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer

from tests.support import java
from tests.support.group_wire import CONSUMER_GROUP_DESCRIBE, DESCRIBE_GROUPS, OFFSET_FETCH, fetching, owners
from tests.support.processes import Process
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from confluent_kafka import KafkaError, Message

    from tests.compat.conftest import TopicMaker

SECONDS: Final = float(os.environ.get("BARNABAS_TEST_CHURN_SECONDS", "25"))
FIRST_KILL: Final = 6.0
KILL_EVERY: Final = 3.0
JAVA_EVERY: Final = 3
"""Every so manieth victim is a Java process."""
REST: Final = 180.0
"""How long everything may take to come to rest: expired sessions, a last rebalance, the tail of the records."""
PARTITIONS: Final = 20
PER_SECOND: Final = 300


@dataclass(frozen=True, slots=True)
class Crowd:
    """Members of one kind in one group, in one process."""

    name: str
    group: str
    kind: str
    assignors: tuple[str, ...]
    members: int


CROWDS: Final = (
    Crowd("range-1", "range", "confluent", ("roundrobin", "range"), 4),
    Crowd("range-2", "range", "kafka-python", ("range", "roundrobin"), 3),
    Crowd("range-3", "range", "aiokafka", ("range",), 3),  # with two it joins twice, and two such never come to rest
    Crowd("robin-1", "robin", "confluent", ("range", "roundrobin"), 4),
    Crowd("robin-2", "robin", "kafka-python", ("roundrobin", "range"), 2),
    Crowd("robin-3", "robin", "aiokafka", ("roundrobin",), 2),
    Crowd("sticky-1", "sticky", "kafka-python", ("sticky",), 2),
    Crowd("sticky-2", "sticky", "aiokafka", ("sticky",), 3),
    Crowd("cooperative-1", "cooperative", "confluent", ("cooperative-sticky",), 5),
    Crowd("cooperative-2", "cooperative", "confluent", ("cooperative-sticky",), 3),
    Crowd("cooperative-3", "cooperative", "kafka-python", ("cooperative-sticky",), 2),
    Crowd("new-1", "new", "confluent-consumer", ("uniform",), 7),
    Crowd("new-2", "new", "confluent-consumer", ("uniform",), 7),
)
CHOSEN: Final = {
    "range": "range",
    "robin": "roundrobin",
    "sticky": "sticky",
    "cooperative": "cooperative-sticky",
    "new": "uniform",
}
"""The only assignor that all members of a group have, where the members choose."""
JAVA: Final = {
    "range": ("classic", "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor"),
    "robin": ("classic", "--assignment-strategy", "org.apache.kafka.clients.consumer.RoundRobinAssignor"),
    "new": ("consumer",),
}
"""Groups in which there is a Java consumer too: its protocol, and what else it is started with."""
assert sum(crowd.members for crowd in CROWDS) + len(JAVA) == 50


class Load:
    """Numbers on their way into all partitions, at a steady pace."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0})
        self._sent = 0
        self._started = time.monotonic()

    def go_on(self) -> None:
        """Send what is due by now."""
        due = (time.monotonic() - self._started) * PER_SECOND
        while self._sent < due:
            partition = self._sent % PARTITIONS
            self._producer.produce(self._topic, b"%d" % self._sent, partition=partition, on_delivery=self._stored)
            self._sent += 1
        self._producer.poll(0.02)

    def finish(self) -> None:
        """Wait until all is stored."""
        assert self._producer.flush(60) == 0
        assert sum(self.ends.values()) == self._sent

    def _stored(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.ends[partition] = max(self.ends[partition], offset + 1)


class Field:
    """All processes with members, and what they have read so far."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, tag: str) -> None:
        self.kills: Counter[str] = Counter()
        self.joins = 0
        """Of processes that were killed."""
        self.quiet = False
        self.folder = folder
        self.tag = tag
        self._bootstrap = bootstrap
        self._topic = topic
        self._seeds = random.Random(tag)
        self._starts: dict[str, Callable[[], Process]] = {}
        self.processes: dict[str, Process] = {}
        for crowd in CROWDS:
            self._starts[crowd.name] = lambda crowd=crowd: self._worker(crowd)  # type: ignore[misc]
        for group in JAVA:
            self._starts[f"java-{group}"] = lambda group=group: self._java(group)  # type: ignore[misc]
        for name in self._starts:
            self.start(name)

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()

    def start(self, name: str) -> None:
        self.processes[name] = self._starts[name]()

    def kill_one(self) -> None:
        """kill -9 for one process, and a new one in its place; Java's die in turn, the others by chance."""
        turn, others = divmod(self.kills.total() + 1, JAVA_EVERY)
        if others:
            name = self._seeds.choice([crowd.name for crowd in CROWDS])
        else:
            name = f"java-{list(JAVA)[turn % len(JAVA)]}"
        if others:
            self.joins += self.statuses()[name]["joins"]
        self.kills[name] += 1
        self.processes[name].kill()
        self.start(name)

    def tell(self, order: str) -> None:
        """Tell all Python processes, and those that are started from now on."""
        self.quiet = True
        for crowd in CROWDS:
            self.processes[crowd.name].tell(order)

    def summary(self, load: Load) -> str:
        """What happened."""
        java = sum(count for name, count in self.kills.items() if name.startswith("java"))
        joins = self.joins + sum(status["joins"] for status in self.statuses().values()) + len(JAVA) + java
        groups = len(CHOSEN)
        return (
            f"churn: {SECONDS:g} s, {sum(load.ends.values())} records to {groups} groups, {joins} joins, "
            f"{self.kills.total()} processes killed, {java} of them Java: {dict(self.kills)}"
        )

    def statuses(self) -> dict[str, dict[str, Any]]:
        """The last word of each Python process."""
        found = {}
        for crowd in CROWDS:
            written = self.processes[crowd.name].output().splitlines(keepends=True)
            lines = [line for line in written if line.startswith("{") and line.endswith("}\n")]  # the last may be half
            unheard = {"quiet": False, "owned": [], "joins": 0, "failures": []}
            found[crowd.name] = json.loads(lines[-1]) if lines else unheard
        return found

    def read_by(self, group: str) -> set[tuple[int, int]]:
        """Partition and offset of everything that members of a group have read."""
        found: set[tuple[int, int]] = set()
        for crowd in CROWDS:
            if crowd.group == group and (self.folder / f"{crowd.name}.read").exists():
                for line in (self.folder / f"{crowd.name}.read").read_text().splitlines():
                    partition, _, offset = line.partition(" ")
                    found.add((int(partition), int(offset)))
        for log in self.folder.glob(f"java-{group}-*.log"):
            for line in log.read_text().splitlines():
                if '"records_consumed"' in line and line.endswith("}"):
                    for read in json.loads(line)["partitions"]:
                        offsets = range(read["minOffset"], read["maxOffset"] + 1)
                        found.update((read["partition"], offset) for offset in offsets)
        return found

    def _worker(self, crowd: Crowd) -> Process:
        settings = {
            "name": crowd.name,
            "folder": str(self.folder),
            "bootstrap": self._bootstrap,
            "group": f"{crowd.group}-{self.tag}",
            "topic": self._topic,
            "kind": crowd.kind,
            "assignors": crowd.assignors,
            "members": crowd.members,
            "seed": self._seeds.random(),
            "quiet": self.quiet,
        }
        command = [sys.executable, "-m", "tests.compat.churn.worker", json.dumps(settings)]
        return Process(crowd.name, command, self.folder / f"{crowd.name}.log", listens=True)

    def _java(self, group: str) -> Process:
        """It prints what it read before it commits. Each has a log of its own, as a kill may cut the last line."""
        protocol, *more = JAVA[group]
        words = java.command(
            "4.3.0", java.TOOLS["verifiable-consumer"], "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"
        )
        settings = ["--bootstrap-server", self._bootstrap, "--topic", self._topic, "--group-protocol", protocol]
        settings += ["--group-id", f"{group}-{self.tag}", "--reset-policy", "earliest"]
        if protocol == "classic":
            settings += ["--session-timeout", "6000"]
        log = self.folder / f"java-{group}-{self.kills[f'java-{group}']}.log"
        return Process(f"java-{group}", [*words, *settings, *more], log)


def at_rest(field: Field, connection: Connection, topic: str) -> str | None:
    """None when every group is; else what is missing."""
    places = {(topic, partition) for partition in range(PARTITIONS)}
    statuses = field.statuses()
    for group in {crowd.group for crowd in CROWDS}:
        state, members = owners(connection, f"{group}-{field.tag}")
        expected = sum(crowd.members for crowd in CROWDS if crowd.group == group) + (group in JAVA)
        held = [place for owned in members.values() for place in owned]
        if state != "Stable" or len(members) != expected:
            return f"{group} is {state} with {len(members)} of {expected} members"
        if (spoken := assignor(connection, f"{group}-{field.tag}")) != CHOSEN[group]:
            return f"{group} chose {spoken}"
        if sorted(held) != sorted(places):
            return f"{group}: the broker has {len(held)} assignments of {len(set(held))} partitions"
        mine = [status for name, status in statuses.items() if name.startswith(f"{group}-")]
        owned = [partition for status in mine for one in status["owned"] for partition in one]
        if not all(status["quiet"] for status in mine) or len(owned) != len(set(owned)):
            return f"{group}: members hold {len(owned)} times {len(set(owned))} partitions"
        if group not in JAVA and len(owned) != PARTITIONS:
            return f"{group}: members hold {len(owned)} of {PARTITIONS} partitions"
    return None


def assignor(connection: Connection, group: str) -> str:
    """What shares out the partitions of a group of either protocol."""
    [found] = connection.ask(CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}).groups
    if found.error_code == 0:
        return str(found.assignor_name)
    [found] = connection.ask(DESCRIBE_GROUPS, 5, {"groups": [group]}).groups
    return str(found.protocol_data)


def lag(connection: Connection, group: str, topic: str, ends: dict[int, int]) -> int:
    """Records that a group has not committed yet."""
    body = fetching(group, {"name": topic}, partitions=tuple(ends))
    [found] = connection.ask(OFFSET_FETCH, 8, body).groups
    committed = {place.partition_index: place.committed_offset for place in found.topics[0].partitions}
    return sum(end - max(0, committed[partition]) for partition, end in ends.items())


@pytest.mark.timeout(SECONDS + 5 * REST)
def test_groups_survive_members_that_come_and_go(bootstrap: str, new_topic: TopicMaker, tmp_path: Path) -> None:
    topic = new_topic(PARTITIONS)
    load = Load(bootstrap, topic)
    with Field(bootstrap, topic, tmp_path, topic) as field, Connection(bootstrap) as connection:
        ending = time.monotonic() + SECONDS
        next_kill = time.monotonic() + FIRST_KILL
        while time.monotonic() < ending:
            load.go_on()
            if time.monotonic() > next_kill:
                field.kill_one()
                next_kill = time.monotonic() + KILL_EVERY
        field.tell("quiet")
        load.finish()

        missing = "nothing yet"

        def resting() -> bool:
            nonlocal missing
            missing = at_rest(field, connection, topic) or ""
            return not missing

        def come_to_rest() -> None:
            try:
                wait_until(resting, "rest", REST, every=0.5)
            except AssertionError:
                raise AssertionError(f"no rest after {REST:g} s: {missing}; {failures(field)}") from None

        come_to_rest()
        wanted = {(partition, offset) for partition, end in load.ends.items() for offset in range(end)}
        for group in sorted({crowd.group for crowd in CROWDS}):
            wait_until(
                lambda group=group: lag(connection, f"{group}-{topic}", topic, load.ends) == 0,  # type: ignore[misc]
                f"{group} to commit everything",
                REST,
            )
            lost = wanted - field.read_by(group)
            assert not lost, f"{group} committed {len(lost)} records that nobody read, like {sorted(lost)[:5]}"
        come_to_rest()
        assert not failures(field)
        print(field.summary(load))
        field.tell("stop")
        for crowd in CROWDS:
            assert field.processes[crowd.name].wait() == 0


def failures(field: Field) -> list[str]:
    """What members gave up over, without what Python says of itself."""
    told = [f"{name}: {failure}" for name, status in field.statuses().items() for failure in status["failures"]]
    return [re.sub(r"0x[0-9a-f]+", "", line) for line in told]
