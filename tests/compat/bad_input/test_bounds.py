"""Clients that go past a bound of a real broker: what they take is bounded, and its event loop goes on for the others.

Connections, answers that wait, log lines, threads, descriptors, members of groups and fetch sessions. Of groups and
topics there may be any number, as in Kafka: there what each takes is bounded. Those of frames, buffers and batches are
beside this module. While each test runs, memory is watched (`others_go_on`); the longest step of the event loop is
asked for at the end (`bounded`).
"""

from __future__ import annotations

import os
import resource
import struct
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from barnabas.net.connection import MOST_PARKED
from tests.compat.bad_input.conftest import bounded, make_topics
from tests.compat.bad_input.victim import FETCH, MEMORY, OPENED, TOPIC, Victim, end_offset, produce
from tests.fuzz.record_batches import bomb
from tests.support.group_wire import CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR, OFFSET_COMMIT, beating
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch, plain, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.brokers import Barnabas

pytestmark = pytest.mark.skipif(
    "BARNABAS_TEST_BOOTSTRAP" in os.environ or not sys.platform.startswith("linux"),
    reason="looks into a process of its own by /proc",
)
MEMBERS, SESSIONS, GROUP_MAX_SIZE_REACHED = 5, 10, 81
NOT_YET: Final = {14, 15, 16}
"""The coordinator is loading, or is being made."""
MORE_THREADS: Final = 24
"""What a broker may add to the threads of its start: its pools, when they are full."""
CLIENTS: Final = 60
CONNECTIONS: Final = 20
WAITING: Final = 4
FEW_LINES, FEW_BYTES = 200, 10_000_000
"""What a broker may add to its log, and to its memory, while hundreds of clients do something wrong."""
SPARE: Final = 8
"""Descriptors that are left, for CLIENTS clients."""
GROUPS, MOST_OF_A_GROUP = 1_000, 4_000
TOPICS, MOST_OF_A_TOPIC = 300, 40_000
"""How many are made, and bytes of memory that each may take."""
CREATE_TOPICS: Final = 19


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    folder = tmp_path_factory.mktemp("bounded")
    settings = {"group.consumer.max.size": str(MEMBERS), "max.incremental.fetch.session.cache.slots": str(SESSIONS)}
    with bounded(folder, settings) as process:
        yield process
        assert process.stop() == 0


@pytest.fixture(scope="module")
def broker(process: Barnabas) -> Iterator[Victim]:
    with Connection(process.bootstrap) as bystander:
        make_topics(bystander)
        yield Victim(process.bootstrap, bystander, process.anonymous_memory)


@pytest.fixture
def clients(broker: Victim) -> Iterator[list[Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Connection(broker.bootstrap)) for _ in range(CLIENTS)]


def test_threads(process: Barnabas, clients: list[Connection]) -> None:
    """Everybody has something done that takes a thread, at the same time."""
    before = _threads(process.pid)
    costly = bomb(60_000)
    for connection in clients:
        for records in (costly, batch([b"x" * 200_000])):
            topics = [{"name": OPENED, "partition_data": [{"index": 0, "records": records}]}]
            connection.send_frame(request(0, 9, 1, {"acks": -1, "timeout": 10_000, "topic_data": topics}))
    most = before
    for connection in clients:
        assert connection.receive_frame() is not None
        most = max(most, _threads(process.pid))
    assert most <= before + MORE_THREADS


def test_descriptors(tmp_path: Path) -> None:
    """None is left: who is connected is served, and others have their turn when there are some again."""
    with bounded(tmp_path) as process, Connection(process.bootstrap) as bystander, ExitStack() as stack:
        make_topics(bystander)
        assert produce(bystander, batch([b"before"]), acks=-1)["error_code"] == 0
        memory = process.anonymous_memory()
        before = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        highest = max(int(each.name) for each in Path(f"/proc/{process.pid}/fd").iterdir())
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (highest + 1 + SPARE, before[1]))
        late = [stack.enter_context(Connection(process.bootstrap)) for _ in range(CLIENTS)]
        wait_until(lambda: "Cannot accept connections" in process.output(), "the last descriptor to be taken")
        never_asked_for = request(FIND_COORDINATOR, 4, 1, {"key_type": 0, "coordinator_keys": ["x"]})
        late[0].send_frame(never_asked_for)  # what serves it is in a file that cannot be opened now
        assert late[0].receive_frame() is None
        for _ in range(20):
            assert produce(bystander, batch([b"meanwhile"]), acks=-1)["error_code"] == 0
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, before)
        for connection in late[1:]:
            connection.send_frame(never_asked_for)
        assert None not in [connection.receive_frame() for connection in late[1:]]
        assert process.anonymous_memory() - memory < MEMORY
        assert process.stop() == 0


def test_connections(tmp_path: Path) -> None:
    """Beyond those that an address may have, each is closed at once; those that are there go on."""
    with bounded(tmp_path, {"max.connections.per.ip": str(CONNECTIONS)}) as process, ExitStack() as stack:
        kept = [stack.enter_context(Connection(process.bootstrap)) for _ in range(CONNECTIONS)]
        make_topics(kept[0])
        memory, lines = process.anonymous_memory(), len(process.output().splitlines())
        for _ in range(20 * CONNECTIONS):
            with Connection(process.bootstrap) as refused:
                assert refused.receive_frame() is None
        for each in kept:
            assert produce(each, batch([b"meanwhile"]), acks=-1)["error_code"] == 0
        assert process.anonymous_memory() - memory < FEW_BYTES
        assert len(process.output().splitlines()) - lines < FEW_LINES
        assert process.stop() == 0


def test_answers_that_wait(broker: Victim, clients: list[Connection]) -> None:
    """A connection whose answers wait is read no further, and goes on when they came; others do not wait for it."""
    end = end_offset(broker.bystander)
    place = {"partition": 0, "fetch_offset": end, "partition_max_bytes": 10_000}
    topics = [{"topic": TOPIC, "partitions": [place]}]
    values = {"max_wait": 60_000, "min_bytes": 2_000, "max_bytes": 10_000, "session_epoch": -1, "topics": topics}
    requests = [request(FETCH, 12, number, values) for number in range(3 * MOST_PARKED)]
    memory = broker.memory()
    for connection in clients[:WAITING]:
        connection.socket.sendall(b"".join(struct.pack(">i", len(each)) + each for each in requests))
    for number in range(5):
        assert produce(broker.bystander, batch([b"%d" % number]), acks=-1)["error_code"] == 0
    assert broker.memory() - memory < MEMORY
    assert produce(broker.bystander, batch([b"x" * 2_000]), acks=-1)["error_code"] == 0
    for connection in clients[:WAITING]:
        for number in range(len(requests)):
            answer = connection.receive_frame()
            assert answer is not None and struct.unpack_from(">i", answer) == (number,)


def test_lines_of_a_log(process: Barnabas) -> None:
    """Whatever clients do wrong, and however often."""
    before = len(process.output().splitlines())
    for _ in range(20 * FEW_LINES):
        with Connection(process.bootstrap) as connection:
            connection.send_frame(struct.pack(">hhih", 9_999, 0, 1, -1) + bytes(20))
            assert connection.receive_frame() is None
    assert 0 < len(process.output().splitlines()) - before < FEW_LINES


def test_members_of_a_group(clients: list[Connection]) -> None:
    clients[0].ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["crowded"]})
    wait_until(lambda: _join(clients[0], 0) not in NOT_YET, "a coordinator")
    codes = [_join(each, number) for number, each in enumerate(clients)]
    assert codes.count(0) == MEMBERS
    assert codes.count(GROUP_MAX_SIZE_REACHED) == CLIENTS - MEMBERS


def test_fetch_sessions(clients: list[Connection]) -> None:
    """Who finds no place is served without a session."""
    topics = [{"topic": TOPIC, "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
    answers = [
        plain(each.ask(FETCH, 12, {"max_wait": 0, "min_bytes": 0, "session_epoch": 0, "topics": topics}))
        for each in clients
    ]
    assert [each["responses"][0]["partitions"][0]["error_code"] for each in answers] == [0] * CLIENTS
    assert len({each["session_id"] for each in answers} - {0}) == SESSIONS


def test_groups(process: Barnabas, clients: list[Connection]) -> None:
    """There may be any number of them, so each may take little."""
    clients[0].ask(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["group"]})
    wait_until(lambda: _commit(clients[0], "group") not in NOT_YET, "a coordinator")
    before = process.anonymous_memory()
    assert {_commit(clients[number % CLIENTS], f"group-{number}") for number in range(GROUPS)} == {0}
    assert process.anonymous_memory() - before < GROUPS * MOST_OF_A_GROUP


def test_topics(process: Barnabas, clients: list[Connection]) -> None:
    """Likewise, also when they come in one request."""
    before = process.anonymous_memory()
    wanted = [{"name": f"many-{number}", "num_partitions": 1, "replication_factor": 1} for number in range(TOPICS)]
    made = plain(clients[0].ask(CREATE_TOPICS, 7, {"topics": wanted, "timeout": 60_000}))["topics"]
    assert {each["error_code"] for each in made} == {0} and len(made) == TOPICS
    assert process.anonymous_memory() - before < TOPICS * MOST_OF_A_TOPIC


def _commit(connection: Connection, group: str) -> int:
    partitions = [{"partition_index": 0, "committed_offset": 1, "committed_metadata": "x" * 100}]
    body = {"group_id": group, "member_id": "", "topics": [{"name": TOPIC, "partitions": partitions}]}
    answer = plain(connection.ask(OFFSET_COMMIT, 8, {**body, "generation_id_or_member_epoch": -1}))
    return int(answer["topics"][0]["partitions"][0]["error_code"])


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _join(connection: Connection, member: int) -> int:
    body = beating("crowded", f"member-{member}", 0, subscribed_topic_names=[TOPIC], topic_partitions=[])
    body["rebalance_timeout"] = 10_000
    return int(plain(connection.ask(CONSUMER_GROUP_HEARTBEAT, 1, body))["error_code"])
