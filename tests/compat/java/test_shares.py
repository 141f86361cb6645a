"""Java's KafkaShareConsumer and Kafka's tools for share groups, on one broker whose log they read as well.

Workers of three versions of the client share one group: the oldest that is no preview, the newest, and the one between.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.storage.dump import DumpOptions, dump
from tests.support import jars, java
from tests.support.brokers import Barnabas
from tests.support.groups import QUICK
from tests.support.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION: Final = "4.3.0"
OLDER, NEWER = jars.CLIENTS
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
def worker(version: str, broker: Barnabas, does: str, count: int) -> Iterator[subprocess.Popen[str]]:
    """A KafkaShareConsumer that treats so many records alike; it is killed if it has not ended by itself."""
    classpath = "" if version == VERSION else f"{jars.clients(version)}/*"
    command = java.command(version, str(WORKER), *java.SHORT_LIVED, classpath=classpath)
    with subprocess.Popen(
        [*command, broker.bootstrap, "jobs", "workers", does, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        try:
            yield started
        finally:
            started.kill()


def worked(version: str, broker: Barnabas, does: str, count: int) -> list[str]:
    """What a worker got that came to its end."""
    with worker(version, broker, does, count) as running:
        out, _ = running.communicate(timeout=120)
        assert running.returncode == 0
        return out.splitlines()


def prepare(broker: Barnabas, topic: str, group: str) -> None:
    """A topic, and a group that reads it from the beginning."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    reset(broker, group)


def reset(broker: Barnabas, group: str) -> None:
    """Let a group begin with what is there."""
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
    connection = Connection(broker.bootstrap)
    connection.ask(INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    connection.socket.close()


def fill(broker: Barnabas, topic: str, *values: str) -> None:
    """Send something to do."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def test_kafkas_tools_take_messages(broker: Barnabas) -> None:
    prepare(broker, "tools", "perf")
    fill(broker, "tools", *(f"job {number}" for number in range(40)))
    where = ("--bootstrap-server", broker.bootstrap, "--topic", "tools")
    verified = ("--group-id", "verified", "--acknowledgement-mode", "sync", "--offset-reset-strategy", "earliest")
    told = java.tool(VERSION, "verifiable-share-consumer", *where, *verified, "--max-messages", "40")
    events = [json.loads(line) for line in told.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 40
    acknowledged = [event for event in events if event["name"] == "offsets_acknowledged"]
    assert acknowledged
    assert all(event["success"] for event in acknowledged)
    assert sum(event["count"] for event in acknowledged) == 40
    measured = java.tool(VERSION, "share-consumer-perf-test", *where, "--group", "perf", "--num-records", "40")
    assert measured.splitlines()[-1].split(", ")[5] == "40", measured
    reset(broker, "console")
    printed = java.tool(VERSION, "console-share-consumer", *where, "--group", "console", "--max-messages", "40")
    assert sorted(printed.split("\n")[:-1]) == sorted(f"job {number}" for number in range(40))


def test_java_consumers_share_a_queue_and_kafka_reads_its_states(broker: Barnabas) -> None:
    prepare(broker, "jobs", "workers")
    fill(broker, "jobs", *(f"job {number}" for number in range(6)))
    with worker(OLDER, broker, "HOLD", 6) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "0 1 job 0\n"
    got = worked(NEWER, broker, "ACCEPT", 6)
    assert sorted(got) == [f"{number} 2 job {number}" for number in range(6)], "what the killed worker held comes again"
    fill(broker, "jobs", "poison")
    got = worked(VERSION, broker, "RELEASE", 5)
    assert got == [f"6 {delivery} poison" for delivery in range(1, 6)]
    assert broker.stop() == 0, broker.tail()
    [log] = broker.data.glob("__share_group_state-0/*.log")
    theirs = DATA.findall(java.tool(VERSION, "dump-log", "--share-group-state-decoder", "--files", str(log)))
    ours = DATA.findall("\n".join(dump(log, DumpOptions(share_group_state_decoder=True))))
    assert ours == theirs
    assert any('"deliveryState":2' in line for line in ours)
