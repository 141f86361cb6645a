"""Java's KafkaShareConsumer and Kafka's tools for share groups, on one broker whose log they read as well."""

from __future__ import annotations

import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.storage.dump import DumpOptions, dump
from tests.support import java
from tests.support.brokers import Barnabas
from tests.support.groups import QUICK
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = "4.3.0"
WORKER: Final = Path(java.__file__).with_name("ShareWorker.java")
SETTINGS: Final = {**QUICK, "share.coordinator.state.topic.num.partitions": "1"}
"""One partition of states, so that one log has all of them."""
INCREMENTAL_ALTER_CONFIGS: Final = 44
DATA: Final = re.compile(r"key: (.*)$", re.MULTILINE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Barnabas]:
    with Barnabas(tmp_path_factory.mktemp("queue"), SETTINGS) as running:
        yield running


@contextmanager
def worker(broker: Barnabas, topic: str, group: str, does: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A KafkaShareConsumer that treats so many records alike; it is killed if it has not ended by itself."""
    command = java.command(VERSION, str(WORKER), *java.SHORT_LIVED)
    with subprocess.Popen(
        [*command, broker.bootstrap, topic, group, does, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def worked(broker: Barnabas, topic: str, group: str, does: str, count: int) -> list[str]:
    """What a worker got that came to its end."""
    with worker(broker, topic, group, does, count) as running:
        out, _ = running.communicate(timeout=120)
        assert running.returncode == 0
        return out.splitlines()


def prepare(broker: Barnabas) -> None:
    """A topic, and a group that reads it from the beginning."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("jobs", 1, 1)])["jobs"].result()
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": "workers", "configs": [change]}
    connection = Connection(broker.bootstrap)
    connection.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    connection.socket.close()


def test_java_consumers_share_a_queue_and_kafka_reads_its_states(
    broker: Barnabas,
) -> None:
    prepare(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        producer.produce("jobs", f"job {number}")
    assert producer.flush(30) == 0
    with worker(broker, "jobs", "workers", "HOLD", 6) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "0 1 job 0\n"
    got = worked(broker, "jobs", "workers", "ACCEPT", 6)
    assert sorted(got) == [f"{number} 2 job {number}" for number in range(6)], "what the killed worker held comes again"
    producer.produce("jobs", "poison")
    assert producer.flush(30) == 0
    got = worked(broker, "jobs", "workers", "RELEASE", 5)
    assert got == [f"6 {delivery} poison" for delivery in range(1, 6)]
    assert broker.stop() == 0, broker.tail()
    [log] = broker.data.glob("__share_group_state-0/*.log")
    theirs = DATA.findall(java.tool(VERSION, "dump-log", "--share-group-state-decoder", "--files", str(log)))
    ours = DATA.findall("\n".join(dump(log, DumpOptions(share_group_state_decoder=True))))
    assert ours == theirs
    assert any('"deliveryState":2' in line for line in ours)
