"""A broker to abuse, one for all of these tests, and a client of it that minds its own business.

`BARNABAS_TEST_BOOTSTRAP=host:port` abuses any Kafka instead (its memory is not watched).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.compat.bad_input.victim import CREATE_TOPICS, MEMORY, OPENED, TOPIC, Victim, end_offset, produce
from tests.history.tampering import TOO_LONG, Tampering
from tests.support.brokers import Barnabas
from tests.support.groups import QUICK
from tests.support.waiting import wait_until
from tests.support.wire import Connection, batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MAX_FRAME: Final = 4_000_000


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    given_bootstrap = os.environ.get("BARNABAS_TEST_BOOTSTRAP")
    if given_bootstrap:
        with Connection(given_bootstrap) as bystander:
            make_topics(bystander)
            yield Victim(given_bootstrap, bystander, lambda: 0)
        return
    folder = tmp_path_factory.mktemp("victim")
    with (
        bounded(folder, {"socket.request.max.bytes": str(MAX_FRAME)}) as process,
        Connection(process.bootstrap) as bystander,
    ):
        make_topics(bystander)
        yield Victim(process.bootstrap, bystander, process.anonymous_memory)
        assert process.stop() == 0
        command = [sys.executable, "-m", "barnabas.cli.main", "log", "check", str(process.data)]
        checked = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout


@contextlib.contextmanager
def bounded(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Barnabas]:
    """A broker whose event loop takes no long step until it is stopped, and whose log has no traceback."""
    tampering = Tampering(folder / "steps")
    with Barnabas(folder, {**QUICK, **(settings or {})}, env=tampering.environment) as process:
        yield process
        process.stop()
        longest = tampering.longest_step()
        assert 0 < longest.seconds < TOO_LONG, longest
        assert "Traceback" not in process.output(), "bad input should be foreseen, not an accident"


def make_topics(connection: Connection) -> None:
    plain_topic = {"name": TOPIC, "num_partitions": 1, "replication_factor": 1}
    opened = {**plain_topic, "name": OPENED, "configs": [{"name": "compression.type", "value": "uncompressed"}]}
    connection.ask(CREATE_TOPICS, 7, {"topics": [plain_topic, opened], "timeout": 10_000})
    for topic in (TOPIC, OPENED):
        wait_until(lambda topic=topic: produce(connection, batch([b"first"]), topic=topic)["error_code"] == 0, topic)  # type: ignore[misc]


@pytest.fixture(autouse=True)
def others_go_on(broker: Victim) -> Iterator[None]:
    """Around each case: the bystander's next record is stored and read, and memory is where it may be."""
    before = broker.memory()
    yield
    assert broker.memory() < before + MEMORY
    answer = produce(broker.bystander, batch([b"still here"]), acks=-1)
    assert answer["error_code"] == 0
    assert end_offset(broker.bystander) == answer["base_offset"] + 1
