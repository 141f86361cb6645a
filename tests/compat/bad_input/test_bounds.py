"""Clients that go past a bound of a real broker: what they take is bounded, and its event loop goes on for the others.

Threads, members of groups and fetch sessions. Those of connections, buffers and log lines are in `tests/unit/net`,
those of frames and batches beside this module. While each test runs, memory is watched (`others_go_on`); the longest
step of the event loop is asked for at the end.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.compat.bad_input.conftest import make_topics
from tests.compat.bad_input.victim import FETCH, OPENED, TOPIC, Victim
from tests.fuzz.record_batches import bomb
from tests.history.tampering import Tampering
from tests.support.brokers import Barnabas
from tests.support.group_wire import CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR, beating
from tests.support.groups import QUICK
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch, plain, request

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(
    "BARNABAS_TEST_BOOTSTRAP" in os.environ or not sys.platform.startswith("linux"),
    reason="looks into a process of its own by /proc",
)
LONG: Final = 0.1
"""Seconds of processor time that a step of the event loop must not take."""
MEMBERS, SESSIONS, GROUP_MAX_SIZE_REACHED = 5, 10, 81
NOT_YET: Final = {14, 15, 16}
"""The coordinator is loading, or is being made."""
MORE_THREADS: Final = 24
"""What a broker may add to the threads of its start: its pools, when they are full."""
CLIENTS: Final = 60


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    folder = tmp_path_factory.mktemp("bounded")
    tampering = Tampering(folder / "steps")
    settings = {
        **QUICK,
        "group.consumer.max.size": str(MEMBERS),
        "max.incremental.fetch.session.cache.slots": str(SESSIONS),
    }
    with Barnabas(folder, settings, env=tampering.environment) as process:
        yield process
        assert process.stop() == 0
        longest = tampering.longest_step()
        assert 0 < longest.seconds < LONG, longest
        assert "Traceback" not in process.output()


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


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def _join(connection: Connection, member: int) -> int:
    body = beating("crowded", f"member-{member}", 0, subscribed_topic_names=[TOPIC], topic_partitions=[])
    body["rebalance_timeout"] = 10_000
    return int(plain(connection.ask(CONSUMER_GROUP_HEARTBEAT, 1, body))["error_code"])
