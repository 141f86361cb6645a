"""docs/moving-data.md, word by word: its commands are run as they stand there, to Apache Kafka 3.9.1 and back.

Only the places are other ones: the ZooKeeper, the data directory, the port to listen on; and `--daemon` lets a start
return.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.conftest import has_leaders
from tests.support.brokers import KafkaZooKeeper
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parents[3] / "docs" / "moving-data.md"
GROUP: Final = "readers"


class Page:
    """The page's blocks of code, with other places in them."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self._folder = folder
        self._places = {
            "localhost:2181": zookeeper,
            "/path/to/data": str(folder / "data"),
        }
        self._text = PAGE.read_text(encoding="utf-8")

    def blocks(self, heading: str, kind: str) -> list[str]:
        section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", self._text, re.MULTILINE | re.DOTALL)
        assert section is not None, heading
        found = re.findall(rf"^```{kind}\n(.*?)^```", section[1], re.MULTILINE | re.DOTALL)
        for here, there in self._places.items():
            found = [block.replace(here, there) for block in found]
        return found

    def run(self, heading: str, number: int = 0, *, listen: int | None = None) -> str:
        """Run the commands of a section; starts are done in the background, and listen at a port of ours."""
        words = self.blocks(heading, "sh")[number]
        extra = " --daemon" + ("" if listen is None else f" --listen 127.0.0.1:{listen}")
        return self.shell(re.sub(r"^(barnabas start .*)$", rf"\1{extra}", words, flags=re.MULTILINE))

    def shell(self, commands: str) -> str:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-c", commands],
            cwd=self._folder,
            env={**os.environ, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout}"
        return done.stdout

    @contextmanager
    def running(self, start: str) -> Iterator[None]:
        """A broker, or several, which the page may have stopped when this ends."""
        self.shell(start)
        try:
            yield
        finally:
            self.shell("barnabas stop --data ./data")

    def kafka(self, heading: str, folder: Path, port: int, number: int | None = None) -> KafkaZooKeeper:
        """Kafka with the page's properties; for the broker of this number, if it is one of several."""
        (text,) = self.blocks(heading, "properties")
        settings = dict(line.split("=", 1) for line in text.splitlines())
        if number is not None:
            assert settings["broker.id"] == "0"
            settings |= {"broker.id": str(number), "log.dirs": f"{settings['log.dirs'].removesuffix('0')}{number}"}
        folder.mkdir(exist_ok=True)
        return KafkaZooKeeper(folder, settings.pop("zookeeper.connect"), Path(settings.pop("log.dirs")), settings, port)


def write(bootstrap: str, topic: str, values: list[bytes], replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: admin.list_topics(timeout=30).controller_id >= 0, "a controller")
    if topic not in admin.list_topics(timeout=30).topics:
        admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result(60)
    wait_until(lambda: has_leaders(admin, topic, 1), f"a leader of {topic}")
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str) -> list[bytes]:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wait_until(lambda: has_leaders(admin, topic, 1), f"a leader of {topic}")
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    while True:
        message = consumer.poll(30)
        assert message is not None, f"{topic} does not end"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        values.append(message.value() or b"")
    consumer.close()
    return values


def commit_by_the_new_protocol(bootstrap: str, topic: str, offset: int) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": GROUP, "group.protocol": "consumer", "log_level": 0}
    )
    assigned: list[bool] = []
    consumer.subscribe([topic], on_assign=lambda *_: assigned.append(True))
    wait_until(lambda: consumer.poll(0.1) is not None or assigned, "an assignment")
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 0})
    (place,) = consumer.committed([TopicPartition(topic, 0)], 60)
    consumer.close()
    return int(place.offset)


def meets_no_new_protocol(bootstrap: str, topic: str) -> bool:
    """Whether a member of the new protocol gets no assignment, and finds the reason in its debugging log alone."""
    seen = logging.getLogger("tests.moving_page")
    seen.setLevel(logging.DEBUG)
    lines: list[str] = []
    seen.handlers = [_Lines(lines)]
    seen.propagate = False
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "group.protocol": "consumer", "debug": "cgrp"}
    consumer = Consumer(settings, logger=seen)
    consumer.subscribe([topic])

    def is_refused() -> bool:
        assert consumer.poll(0.1) is None
        return any("ConsumerGroupHeartbeatRequest not supported by broker" in line for line in lines)

    try:
        wait_until(is_refused, "the broker's word on the new protocol")
        return not consumer.assignment()
    finally:
        consumer.close()


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


def test_one_broker_there_and_back(tmp_path: Path, chroot: str) -> None:
    page, port = Page(tmp_path, chroot), free_port()
    bootstrap = f"127.0.0.1:{port}"
    with page.running(f"barnabas start --data ./data --listen {bootstrap} --daemon"):
        write(bootstrap, "ours", [b"1", b"2"])
        commit_by_the_new_protocol(bootstrap, "ours", 1)
        page.run("To Apache Kafka")
    assert sorted(path.name for path in tmp_path.glob("data*")) == ["data"]
    with page.kafka("To Apache Kafka", tmp_path, port) as kafka:
        assert read(bootstrap, "ours") == [b"1", b"2"]
        assert committed(bootstrap, "ours") == 1
        assert meets_no_new_protocol(bootstrap, "ours")
        write(bootstrap, "ours", [b"3"])
        write(bootstrap, "theirs", [b"4"])
        kafka.stop()
    assert f"zookeeper.connect={chroot}/kafka" in (tmp_path / "server.properties").read_text()
    try:
        page.run("From Apache Kafka")
        assert read(bootstrap, "ours") == [b"1", b"2", b"3"]
        assert read(bootstrap, "theirs") == [b"4"]
        assert committed(bootstrap, "ours") == 1
        commit_by_the_new_protocol(bootstrap, "ours", 3)
    finally:
        page.shell("barnabas stop --data ./data")
    assert page.shell("barnabas log check ./data").endswith(": 0 errors, 0 warnings\n")


def test_a_cluster_there_and_back(tmp_path: Path, chroot: str) -> None:
    page, ports = Page(tmp_path, chroot), [free_port() for _ in range(3)]
    first = free_port(3)
    heading = "A cluster on one machine"
    with page.running(f"barnabas start --brokers 3 --data ./data --listen 127.0.0.1:{first} --daemon"):
        write(f"127.0.0.1:{first}", "ours", [b"1", b"2"], 3)
        page.run(heading)
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["0", "1", "2"]
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(page.kafka(heading, tmp_path / f"kafka-{number}", port, number))
            for number, port in enumerate(ports)
        ]
        bootstrap = brokers[0].bootstrap
        assert read(bootstrap, "ours") == [b"1", b"2"]
        write(bootstrap, "theirs", [b"3"], 3)
        for broker in reversed(brokers):
            broker.stop()
    try:
        page.run(heading, 1, listen=first)
        assert read(f"127.0.0.1:{first}", "ours") == [b"1", b"2"]
        assert read(f"127.0.0.1:{first}", "theirs") == [b"3"]
    finally:
        page.shell("barnabas stop --data ./data")
