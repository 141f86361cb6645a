"""The broker is stopped and killed -9, again and again, while groups work: no committed offset is lost, no generation
goes back, and all members come back to their partitions.

Clients of two libraries and both protocols live through all of it (kafka-python gives up when there is no broker).
Beside them are two members made by hand, which know their generation and their epoch to the number. And each end comes
while other groups are in the middle of it (`in_flight`): streams of commits with dozens of requests unanswered, a
member that joins again without a pause, and one whose epoch rises with every heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka.admin import AdminClient

from tests.support.brokers import Barnabas
from tests.support.group_scenarios import Crew, create, send
from tests.support.group_wire import (
    CONSUMER_GROUP_HEARTBEAT,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    NEWEST,
    OFFSET_FETCH,
    SYNC_GROUP,
    assignment,
    beating,
    fetching,
    joining,
)
from tests.support.groups import QUICK
from tests.support.in_flight import NOT_YET, Commits, Epochs, Generations, wait_until_busy
from tests.support.members.aiokafka import AioKafkaMember
from tests.support.members.confluent_kafka import ConfluentConsumerProtocolMember, ConfluentMember
from tests.support.members.member import Committed, Member, Place, places_of
from tests.support.members.waiting import wait_until_read, wait_until_shared
from tests.support.processes import free_port
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from pathlib import Path

ENDINGS: Final = ("kill", "stop", "kill", "kill", "stop", "kill")
TOPIC: Final = "grouped"
PARTITIONS: Final = 6
COMMITTERS: Final = 4
SETTINGS: Final = {
    **QUICK,
    "group.consumer.session.timeout.ms": "60000",
    "group.consumer.max.session.timeout.ms": "60000",
}


def say(connection: Connection, key: int, body: dict[str, Any]) -> Any:
    """Ask, and ask again while the coordinator loads."""
    answer: Any = None

    def answered() -> bool:
        nonlocal answer
        answer = connection.ask(key, NEWEST[key], body)
        return getattr(answer, "error_code", 0) not in NOT_YET

    wait_until(answered, f"a coordinator's answer to API {key}")
    return answer


class Classic:
    """A member of the classic protocol, made by hand."""

    group: Final = "by-hand"

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = 0

    def join(self, connection: Connection) -> int:
        """Join (again) and be given a partition; the new generation."""
        how = {"session_timeout": 60_000, "rebalance_timeout": 60_000}
        joined = say(connection, JOIN_GROUP, joining(self.group, TOPIC, self.member_id, **how))
        if not self.member_id:
            self.member_id = joined.member_id
            joined = say(connection, JOIN_GROUP, joining(self.group, TOPIC, self.member_id, **how))
        assert joined.error_code == 0
        self.generation = joined.generation_id
        body = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [{"member_id": self.member_id, "assignment": assignment(TOPIC, 0)}],
        }
        assert say(connection, SYNC_GROUP, body).error_code == 0
        return self.generation

    def is_known(self, connection: Connection) -> bool:
        """Whether the coordinator knows this member in this very generation."""
        body = {"group_id": self.group, "generation_id": self.generation, "member_id": self.member_id}
        return bool(say(connection, HEARTBEAT, body).error_code == 0)


class New:
    """A member of the new protocol, made by hand; it has no partitions, so that nothing but joining moves its epoch."""

    group: Final = "by-hand-new"

    def __init__(self) -> None:
        self.epoch = 0

    def beat(self, connection: Connection) -> int:
        """A heartbeat, the first of which joins; the member's epoch."""
        how: dict[str, Any] = {}
        if self.epoch == 0:
            how = {"subscribed_topic_names": ["nowhere"], "rebalance_timeout": 60_000, "topic_partitions": []}
        answer = say(connection, CONSUMER_GROUP_HEARTBEAT, beating(self.group, "by-hand", self.epoch, **how))
        assert answer.error_code == 0, answer
        self.epoch = answer.member_epoch
        return self.epoch


def offsets(connection: Connection, group: str) -> dict[Place, int]:
    body = fetching(group, {"name": TOPIC}, partitions=tuple(range(PARTITIONS)))
    found: Any = None

    def answered() -> bool:
        nonlocal found
        [found] = connection.ask(OFFSET_FETCH, 8, body).groups
        return found.error_code not in NOT_YET

    wait_until(answered, f"offsets of {group}")
    assert found.error_code == 0
    return {Place(TOPIC, place.partition_index): place.committed_offset for place in found.topics[0].partitions}


class Streams:
    """Groups that are in the middle of something when the broker ends."""

    def __init__(self) -> None:
        self.commits = [Commits(f"stream-{number}", TOPIC, number) for number in range(COMMITTERS)]
        self.generations = Generations("rejoining", TOPIC)
        self.epochs = Epochs("rising")
        self._all = (*self.commits, self.generations, self.epochs)

    def run_into_the_end_of(self, broker: Barnabas, ending: str) -> None:
        """Be at work when the broker ends."""
        for stream in self._all:
            stream.begin(broker.bootstrap)
        wait_until_busy(self._all, 10)
        broker.kill() if ending == "kill" else broker.stop()
        for stream in self._all:
            stream.end()
        if ending == "kill":
            unanswered = sum(stream.sent - stream.acknowledged for stream in self.commits)
            assert unanswered >= COMMITTERS, f"the kill came when hardly anything was under way: {unanswered} commits"

    def check(self, connection: Connection) -> None:
        """Nothing that was acknowledged is lost, and nothing is there that nobody sent."""
        for stream in self.commits:
            found = offsets(connection, stream.group)[Place(TOPIC, stream.partition)]
            assert stream.acknowledged <= found <= stream.sent, f"{stream}, and {found} is committed"


def commit(members: list[Member]) -> dict[Place, int]:
    """Let each member commit what it holds, until it is acknowledged; what was."""
    done: dict[Place, int] = {}
    for member in members:
        wanted = {place: end for place, end in member.positions().items() if place in member.owned}

        def acknowledged(member: Member = member, wanted: dict[Place, Committed] = wanted) -> bool:
            try:
                member.commit(wanted)
            except Exception:
                return False
            return True

        wait_until(acknowledged, f"a commit of {member.name}", every=0.2)
        done |= {place: end.offset for place, end in wanted.items()}
    return done


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # kafka-python: sockets of failed connects
def test_groups_live_through_restarts_and_kills(tmp_path: Path) -> None:
    port = free_port()
    broker = Barnabas(tmp_path, SETTINGS, port)
    old, new = Crew(ConfluentMember, broker.bootstrap), Crew(ConfluentConsumerProtocolMember, broker.bootstrap)
    crews: dict[str, list[Member]] = {old.group: [], new.group: []}
    try:
        create(AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0}), TOPIC, PARTITIONS)
        for kind in (ConfluentMember, AioKafkaMember, ConfluentMember):
            old.kind = kind
            crews[old.group].append(old.join(TOPIC, session_ms=60_000))
        crews[new.group] = [new.join(TOPIC) for _ in range(2)]
        by_hand, by_hand_new, streams = Classic(), New(), Streams()
        with Connection(broker.bootstrap) as connection:
            connection.ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": [Classic.group]})
            by_hand.join(connection)
            by_hand_new.beat(connection)
        for number, ending in enumerate(ENDINGS):
            sent = send(broker.bootstrap, TOPIC, PARTITIONS, 120, f"round {number}")
            committed = {}
            for group, members in crews.items():
                wait_until_shared(members, places_of(TOPIC, PARTITIONS))
                wait_until_read(members, sent, 60)
                committed[group] = commit(members)
            streams.run_into_the_end_of(broker, ending)
            broker = Barnabas(tmp_path, SETTINGS, port)
            with Connection(broker.bootstrap) as connection:
                streams.check(connection)
                for group, acknowledged in committed.items():
                    found = offsets(connection, group)
                    assert {place: found[place] for place in acknowledged} == acknowledged, f"{ending} {number}"
                assert by_hand.is_known(connection), f"{ending} {number}: the generation was forgotten"
                generation, epoch = by_hand.generation, by_hand_new.epoch
                assert by_hand.join(connection) == generation + 1
                assert by_hand_new.beat(connection) == epoch
        for members in crews.values():
            wait_until_shared(members, places_of(TOPIC, PARTITIONS))
            wait_until_read(members, send(broker.bootstrap, TOPIC, PARTITIONS, 60, "last"), 60)
    finally:
        old.go_home()
        new.go_home()
        broker.kill()
