"""Quickstarts of Apache Kafka of all ages, followed word by word through the shims, against our broker.

The words are those of the tutorials. Only what a test has to choose for itself is put in their place: ports (tutorials
have 9092 and 2181) and folders (they have /tmp).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support import jars
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BARNABAS: Final = [sys.executable, "-m", "barnabas.cli.main"]
READY: Final = r"Barnabas .* is ready"
IGNORED: Final = "WARNING: --zookeeper is ignored: tools talk to brokers, and no longer to ZooKeeper.\n"
RENAMED: Final = "WARNING: --broker-list is --bootstrap-server now.\n"


class Tutorial:
    """A folder like that of an unpacked Kafka, and a shell in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = {usual: str(free_port()) for usual in ("9092", "9093", "9094", "2181")}
        (folder / "zookeeper").mkdir()
        (folder / "zookeeper" / "lib").symlink_to(jars.kafka("3.9.1"))
        self._environment = os.environ | {
            "ZOOKEEPER_HOME": str(folder / "zookeeper"),
            "BARNABAS_BOOTSTRAP_SERVER": f"localhost:{self._ports['9092']}",
        }
        self._count = 0
        self._processes: list[Process] = []
        made = subprocess.run(
            [*BARNABAS, "shims", "bin", "--samples", "config"], cwd=folder, capture_output=True, text=True, timeout=60
        )
        assert made.returncode == 0, made.stderr
        for file in ("server.properties", "kraft/server.properties"):
            self.change(file, "PLAINTEXT://localhost:9092", f"PLAINTEXT://localhost:{self._ports['9092']}")
        self.change("zookeeper.properties", "/tmp/zookeeper", str(folder / "zookeeper-data"))
        self.change("zookeeper.properties", "2181", self._ports["2181"])

    def change(self, name: str, old: str, new: str) -> None:
        """Edit a file of `config`."""
        file = self._folder / "config" / name
        assert old in file.read_text()
        file.write_text(file.read_text().replace(old, new))

    def _words(self, line: str) -> list[str]:
        for usual, ours in self._ports.items():
            line = re.sub(rf":{usual}\b", f":{ours}", line)
        return ["sh", "-c", f"cd {self._folder}; {line}"]

    def port(self, usual: int) -> str:
        """The port that stands in the place of a tutorial's."""
        return self._ports[str(usual)]

    def run(self, line: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        """Type a command that ends by itself, or at the end of what is typed into it."""
        done = subprocess.run(
            self._words(line), input=typed, capture_output=True, text=True, timeout=120, env=self._environment
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done

    def leave_running(self, line: str) -> Process:
        """Type a command into a terminal of its own."""
        self._count += 1
        words = self._words(f"exec {line}")
        process = Process(line, words, self._folder / f"terminal-{self._count}.log", env=self._environment)
        self._processes.append(process)
        return process

    def watch(self, line: str, *expected: str) -> str:
        """Type a command that goes on, wait until its output has these lines, then press Ctrl-C."""
        process = self.leave_running(line)
        wait_until(
            lambda: set(expected) <= set(process.output().splitlines()) or (not process.alive or None),
            f"{expected} from {line}",
        )
        process.send(signal.SIGINT)
        process.wait()
        lines = [told for told in process.output().splitlines() if told in expected]
        assert lines == list(expected), process.output()
        return process.output()

    def close(self) -> None:
        """End what is still running, here and in the background."""
        for script in ("kafka-server-stop.sh", "zookeeper-server-stop.sh"):
            subprocess.run([self._folder / "bin" / script], capture_output=True, timeout=60)
        for process in reversed(self._processes):
            process.kill()


@pytest.fixture
def tutorial(tmp_path: Path) -> Iterator[Tutorial]:
    tutorial = Tutorial(tmp_path)
    yield tutorial
    tutorial.close()


def test_the_quickstart_of_2014(tutorial: Tutorial) -> None:
    """Kafka 0.8.1: ZooKeeper everywhere."""
    zookeeper = tutorial.leave_running("bin/zookeeper-server-start.sh config/zookeeper.properties")
    zookeeper.wait_for_output("ZooKeeper of .* on localhost")
    broker = tutorial.leave_running("bin/kafka-server-start.sh config/server.properties")
    broker.wait_for_output(READY)
    made = tutorial.run(
        "bin/kafka-topics.sh --create --zookeeper localhost:2181 --replication-factor 1 --partitions 1 --topic test"
    )
    assert (made.stdout, made.stderr) == ("Created topic test.\n", IGNORED)
    listed = tutorial.run("bin/kafka-topics.sh --list --zookeeper localhost:2181")
    assert (listed.stdout, listed.stderr) == ("test\n", IGNORED)
    sent = tutorial.run(
        "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test",
        "This is a message\nThis is another message\n",
    )
    assert RENAMED in sent.stderr
    tutorial.watch(
        "bin/kafka-console-consumer.sh --zookeeper localhost:2181 --topic test --from-beginning",
        "This is a message",
        "This is another message",
    )
    described = tutorial.run("bin/kafka-topics.sh --describe --zookeeper localhost:2181 --topic test").stdout
    assert re.search(r"Topic: test\b.*PartitionCount: 1\tReplicationFactor: 1\t", described)
    assert re.search(r"\tTopic: test\tPartition: 0\tLeader: 0\tReplicas: 0\tIsr: 0\t", described)
    nodes = tutorial.run("bin/zookeeper-shell.sh localhost:2181 ls /").stdout
    assert nodes.splitlines()[-1] == "[zookeeper]"


def test_the_quickstart_of_2013(tutorial: Tutorial) -> None:
    """Kafka 0.8.0 had a script for each thing that one does with topics."""
    tutorial.leave_running("bin/kafka-server-start.sh config/server.properties").wait_for_output(READY)
    tutorial.run("bin/kafka-create-topic.sh --zookeeper localhost:2181 --replica 1 --partition 1 --topic test")
    assert "Topic: test\t" in tutorial.run("bin/kafka-list-topic.sh --zookeeper localhost:2181").stdout


def test_the_quickstart_of_2019(tutorial: Tutorial) -> None:
    """Kafka 2.x: still with a ZooKeeper, in the background here, and tools that talk to brokers."""
    tutorial.run("bin/zookeeper-server-start.sh -daemon config/zookeeper.properties")
    tutorial.run("bin/kafka-server-start.sh -daemon config/server.properties")
    made = tutorial.run(
        "bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --replication-factor 1 --partitions 1 "
        "--topic test"
    )
    assert (made.stdout, made.stderr) == ("Created topic test.\n", "")
    assert tutorial.run("bin/kafka-topics.sh --list --bootstrap-server localhost:9092").stdout == "test\n"
    tutorial.run(
        "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic test",
        "This is a message\nThis is another message\n",
    )
    tutorial.watch(
        "bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic test --from-beginning",
        "This is a message",
        "This is another message",
    )
    offsets = tutorial.run(
        "bin/kafka-run-class.sh kafka.tools.GetOffsetShell --broker-list localhost:9092 --topic test --time -1"
    )
    assert offsets.stdout == "test:0:2\n"
    assert "Stopped the broker" in tutorial.run("bin/kafka-server-stop.sh").stdout
    assert "Stopped the ZooKeeper" in tutorial.run("bin/zookeeper-server-stop.sh").stdout


def test_the_cluster_of_2019(tutorial: Tutorial) -> None:
    """Step 6 of Kafka 2.x's quickstart, "Setting up a multi-broker cluster", whose first broker dies."""
    tutorial.run("bin/kafka-server-start.sh -daemon config/server.properties")
    for number in (1, 2):
        name = f"server-{number}.properties"
        tutorial.run(f"cp config/server.properties config/{name}")
        tutorial.change(name, "broker.id=0", f"broker.id={number}")
        tutorial.change(name, f"localhost:{tutorial.port(9092)}", f"localhost:{tutorial.port(9092 + number)}")
        tutorial.change(name, "log.dirs=data", f"log.dirs=kafka-logs-{number}")
        tutorial.run(f"bin/kafka-server-start.sh -daemon config/{name}")

    def knows_all() -> bool:
        told = tutorial.run("bin/kafka-cluster.sh list-endpoints --bootstrap-server localhost:9092").stdout
        return all(tutorial.port(usual) in told for usual in (9092, 9093, 9094))

    wait_until(knows_all, "the first broker to know of the others")
    tutorial.run(
        "bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --replication-factor 3 --partitions 1 "
        "--topic my-replicated-topic"
    )
    describe = "bin/kafka-topics.sh --describe --bootstrap-server localhost:9092 --topic my-replicated-topic"
    found = re.search(
        r"Leader: (\d)\tReplicas: [012],[012],[012]\tIsr: [012],[012],[012]\t", tutorial.run(describe).stdout
    )
    assert found
    tutorial.run(
        "bin/kafka-console-producer.sh --broker-list localhost:9092 --topic my-replicated-topic",
        "my test message 1\nmy test message 2\n",
    )
    survivors = "localhost:9092,localhost:9093,localhost:9094"
    data = "data" if found[1] == "0" else f"kafka-logs-{found[1]}"
    tutorial.run(f"kill -9 $(cat {data}/barnabas.pid)")
    wait_until(
        lambda: re.search(r"Isr: [012],[012]\t", tutorial.run(describe.replace("localhost:9092", survivors)).stdout),
        "the dead broker to leave the replicas in sync",
    )
    tutorial.watch(
        f"bin/kafka-console-consumer.sh --bootstrap-server {survivors} --from-beginning --topic my-replicated-topic",
        "my test message 1",
        "my test message 2",
    )


@pytest.mark.parametrize(
    ("flags", "file"), [("", "config/kraft/server.properties"), ("--standalone ", "config/server.properties")]
)
def test_the_quickstart_without_zookeeper(tutorial: Tutorial, flags: str, file: str) -> None:
    """Kafka 3.x and 4.x: no ZooKeeper, and a format first."""
    tutorial.run(
        'KAFKA_CLUSTER_ID="$(bin/kafka-storage.sh random-uuid)"; '
        f"bin/kafka-storage.sh format {flags}-t $KAFKA_CLUSTER_ID -c {file}"
    )
    tutorial.leave_running(f"bin/kafka-server-start.sh {file}").wait_for_output(READY)
    tutorial.run("bin/kafka-topics.sh --create --topic quickstart-events --bootstrap-server localhost:9092")
    described = tutorial.run(
        "bin/kafka-topics.sh --describe --topic quickstart-events --bootstrap-server localhost:9092"
    ).stdout
    assert re.search(
        r"Topic: quickstart-events\tTopicId: \S{22}\tPartitionCount: 1\tReplicationFactor: 1\tConfigs:", described
    )
    tutorial.run(
        "bin/kafka-console-producer.sh --topic quickstart-events --bootstrap-server localhost:9092",
        "This is my first event\nThis is my second event\n",
    )
    tutorial.watch(
        "bin/kafka-console-consumer.sh --topic quickstart-events --from-beginning --bootstrap-server localhost:9092",
        "This is my first event",
        "This is my second event",
    )
    tutorial.run("bin/kafka-server-stop.sh")


def test_the_other_scripts(tutorial: Tutorial) -> None:
    """What tutorials have after the quickstart: settings, groups, measurements and elections."""
    tutorial.leave_running("bin/kafka-server-start.sh config/kraft/server.properties").wait_for_output(READY)
    tutorial.run("bin/kafka-topics.sh --create --topic test --partitions 2 --bootstrap-server localhost:9092")
    changed = tutorial.run(
        "bin/kafka-configs.sh --bootstrap-server localhost:9092 --entity-type topics --entity-name test --alter "
        "--add-config retention.ms=3600000"
    )
    assert changed.stdout == "Completed updating config for topic test.\n"
    described = tutorial.run(
        "bin/kafka-configs.sh --zookeeper localhost:2181 --describe --entity-type topics --entity-name test"
    )
    assert described.stderr == IGNORED
    assert "retention.ms=3600000 " in described.stdout

    sent = tutorial.run(
        "bin/kafka-producer-perf-test.sh --topic test --num-records 1000 --record-size 100 --throughput -1 "
        "--producer-props bootstrap.servers=localhost:9092 acks=1"
    )
    assert sent.stdout.startswith("1000 records sent, ")
    read = tutorial.run(
        "bin/kafka-consumer-perf-test.sh --broker-list localhost:9092 --topic test --messages 1000 --group perf "
        "--threads 1"
    )
    assert read.stdout.splitlines()[0].startswith("start.time, end.time, data.consumed.in.MB, ")
    assert read.stdout.splitlines()[1].split(", ")[4] == "1000"

    listed = tutorial.run("bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --list")
    assert listed.stdout == "perf\n"
    groups = tutorial.run(
        "bin/kafka-consumer-groups.sh --bootstrap-server localhost:9092 --describe --group perf"
    ).stdout
    rows = [line.split()[:6] for line in groups.splitlines() if line.startswith("perf ")]
    # One row or two: librdkafka may have sent all records to one partition, and commits only what it has read.
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 1000
    assert {row[5] for row in rows} == {"0"}

    elected = tutorial.run(
        "bin/kafka-leader-election.sh --bootstrap-server localhost:9092 --election-type PREFERRED --topic test "
        "--partition 0"
    )
    assert elected.stdout == "Valid replica already elected for partitions test-0\n"
    transactions = tutorial.run("bin/kafka-transactions.sh --bootstrap-server localhost:9092 list").stdout
    assert transactions.split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    told = tutorial.run("bin/kafka-cluster.sh cluster-id --bootstrap-server localhost:9092").stdout
    assert re.fullmatch(r"Cluster ID: \S{22}\n", told)
    tutorial.run("bin/kafka-server-stop.sh")
