"""What a broker's settings do to groups, seen over the wire: limits, delays, retention; and a coordinator that loads.

One broker serves all of it. Its clock can be put forward, and its coordinators can be kept from loading.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.history.tampering import Tampering
from tests.support.brokers import Barnabas
from tests.support.group_wire import (
    DESCRIBE_GROUPS,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_GROUPS,
    NEWEST,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    SYNC_GROUP,
    assignment,
    committing,
    fetching,
    joining,
)
from tests.support.groups import QUICK
from tests.support.processes import free_port
from tests.support.waiting import wait_until
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

API_VERSIONS, CREATE_TOPICS = 18, 19
LOAD_IN_PROGRESS, GROUP_MAX_SIZE_REACHED = 14, 81
TOPIC: Final = "t"
DELAY: Final = 1.5
SETTINGS: Final = {
    **QUICK,
    "offsets.topic.num.partitions": "1",
    "group.max.size": "2",
    "group.initial.rebalance.delay.ms": str(round(DELAY * 1000)),
    "offsets.retention.minutes": "1",
    "offsets.retention.check.interval.ms": "50",
}


class Subject:
    """The broker, which can be started again."""

    def __init__(self, tmp: pytest.TempPathFactory) -> None:
        self._folder = tmp.mktemp("groups")
        self._port = free_port()
        self.tampering = Tampering(self._folder / "tampered")
        self.broker = self._start()
        with self.connect() as connection:
            topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
            connection.ask(CREATE_TOPICS, 7, {"topics": [topic], "timeout": 10_000})
            connection.ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["any"]})

    def connect(self) -> Connection:
        return Connection(self.broker.bootstrap)

    def restart(self) -> None:
        assert self.broker.stop() == 0
        self.broker = self._start()

    def _start(self) -> Barnabas:
        return Barnabas(self._folder, SETTINGS, self._port, self.tampering.environment)


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    started = Subject(tmp_path_factory)
    yield started
    assert started.broker.stop() == 0


@pytest.fixture
def connection(subject: Subject) -> Iterator[Connection]:
    with subject.connect() as opened:
        yield opened


def commit(connection: Connection, group: str, offset: int, **member: Any) -> None:
    [topic] = connection.ask(OFFSET_COMMIT, 9, committing(group, {"name": TOPIC}, offset, **member)).topics
    assert topic.partitions[0].error_code == 0


def committed(connection: Connection, group: str) -> int:
    """The offset that a group has committed, -1 if none, or the error that keeps it from being told, above 10,000."""
    [found] = connection.ask(OFFSET_FETCH, 9, fetching(group, {"name": TOPIC})).groups
    return 10_000 + int(found.error_code) if found.error_code else int(found.topics[0].partitions[0].committed_offset)


def groups(connection: Connection) -> set[str]:
    listed = connection.ask(LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
    assert listed.error_code == 0
    return {group.group_id for group in listed.groups}


def join(connection: Connection, group: str) -> Any:
    """Join in one step, as before version 4: a group with nothing but ids given out is swept away with old offsets."""

    def ask() -> Any:
        answer = connection.ask(JOIN_GROUP, 3, joining(group, TOPIC, session_timeout=60_000))
        return None if answer.error_code == LOAD_IN_PROGRESS else answer

    return wait_until(ask, "the coordinator to be loaded")


def sync(connection: Connection, group: str, joined: Any) -> None:
    body = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": joined.member_id, "assignment": assignment(TOPIC, 0)}],
    }
    assert connection.ask(SYNC_GROUP, 5, body).error_code == 0


def test_the_feature_of_the_new_protocol_is_final(connection: Connection) -> None:
    names = {"client_software_name": "wire", "client_software_version": "1"}
    answer = connection.ask(API_VERSIONS, 4, names)
    assert answer.finalized_features_epoch >= 0
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    assert levels["group.version"] == (1, 1)
    assert {each.name: each.max_version for each in answer.supported_features}["group.version"] == 1


def test_a_first_rebalance_waits_for_more_members_and_a_group_has_a_limit(subject: Subject) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(2) as threads:
        one, two, three = (stack.enter_context(subject.connect()) for _ in range(3))
        began = time.monotonic()
        first = threads.submit(join, one, "delayed")
        state = {"groups": ["delayed"]}
        wait_until(
            lambda: three.ask(DESCRIBE_GROUPS, 5, state).groups[0].group_state == "PreparingRebalance", "the first"
        )
        second = threads.submit(join, two, "delayed")
        joined = [each.result(60) for each in (first, second)]
        assert time.monotonic() - began >= DELAY
        assert [(each.error_code, each.generation_id) for each in joined] == [(0, 1), (0, 1)]  # one round for both
        [members] = [each.members for each in joined if each.leader == each.member_id]
        assert {member.member_id for member in members} == {each.member_id for each in joined}
        assert join(three, "delayed").error_code == GROUP_MAX_SIZE_REACHED
        assert len(three.ask(DESCRIBE_GROUPS, 5, state).groups[0].members) == 2


def test_offsets_that_nobody_uses_are_forgotten_and_no_others(subject: Subject, connection: Connection) -> None:
    commit(connection, "idle", 7)
    joined = join(connection, "used")
    sync(connection, "used", joined)
    mine = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    commit(connection, "used", 8, **mine)
    subject.tampering.tamper("clock", 35)
    with subject.connect() as later:
        commit(later, "younger", 9)
    assert (committed(connection, "idle"), committed(connection, "used")) == (7, 8)
    subject.tampering.tamper("clock", 65)
    wait_until(lambda: committed(connection, "idle") == -1, "the offset to be forgotten")
    wait_until(lambda: "idle" not in groups(connection), "the group to be forgotten")
    assert (committed(connection, "used"), committed(connection, "younger")) == (8, 9)
    subject.tampering.tamper("clock", 0)


def test_while_a_coordinator_loads_clients_are_told_to_come_again(subject: Subject) -> None:
    with subject.connect() as connection:
        commit(connection, "kept", 11)
    subject.tampering.tamper("unloaded", 1)
    subject.restart()
    with subject.connect() as connection:
        assert committed(connection, "kept") == 10_000 + LOAD_IN_PROGRESS
        assert connection.ask(JOIN_GROUP, 9, joining("kept", TOPIC)).error_code == LOAD_IN_PROGRESS
        [described] = connection.ask(DESCRIBE_GROUPS, 5, {"groups": ["kept"]}).groups
        assert described.error_code == LOAD_IN_PROGRESS
        listed = connection.ask(LIST_GROUPS, 5, {"states_filter": [], "types_filter": []})
        assert (listed.error_code, listed.groups) == (LOAD_IN_PROGRESS, ())
        [topic] = connection.ask(OFFSET_COMMIT, 9, committing("kept", {"name": TOPIC}, 12)).topics
        assert topic.partitions[0].error_code == LOAD_IN_PROGRESS
        beat = {"group_id": "kept", "generation_id": 1, "member_id": "m"}
        assert connection.ask(HEARTBEAT, NEWEST[HEARTBEAT], beat).error_code == 0  # as in Kafka: nobody is sent away
        subject.tampering.tamper("unloaded", 0)
        wait_until(lambda: committed(connection, "kept") == 11, "the coordinator to be loaded")
        assert "kept" in groups(connection)
