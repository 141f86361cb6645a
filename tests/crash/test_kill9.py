"""kill -9 under load, again and again: what was acknowledged is there, once, in order.

One idempotent producer (acks=all) writes numbered records through all of it, sending again what a killed broker never
answered. A process that dies keeps what it wrote to the page cache, so recovery has to bring back every acknowledged
record, recognise the ones that are sent again, and leave files in which `barnabas log check` finds nothing wrong.
Before every other kill the broker's answers are swallowed, so that there is always something stored that is sent again.
Segments are small, so that kills also hit rolls, snapshots and recoveries of more than one segment.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as Delivered
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.brokers import Barnabas
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

KILLS: Final = 20
PARTITIONS: Final = 3
TOPIC: Final = "numbers"
UNANSWERED: Final = 2_000
"""Records on their way at any time: enough for several requests in flight, little enough to end a round soon."""


class Load(threading.Thread):
    """Numbers each partition's records from 0 and keeps what the broker acknowledged, until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.sent = [0] * PARTITIONS
        self.acknowledged: list[dict[int, int]] = [{} for _ in range(PARTITIONS)]
        self.failures: list[str] = []
        self._going = threading.Event()
        self._ending = False
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "compression.type": "lz4",
                "log_level": 0,
            }
        )

    def run(self) -> None:
        while not self._ending:
            if not self._going.is_set() or len(self._producer) >= UNANSWERED:
                self._producer.poll(0.005)
                continue
            for partition in range(PARTITIONS):
                value = b"%d %s" % (self.sent[partition], b"x" * random.randrange(200))
                self._producer.produce(TOPIC, value, partition=partition, on_delivery=self._answered)
                self.sent[partition] += 1
            self._producer.poll(0)

    def total(self) -> int:
        """How many records were acknowledged so far."""
        return sum(map(len, self.acknowledged))

    def go_on(self, count: int) -> None:
        """Send again, and return when `count` more records were acknowledged."""
        enough = self.total() + count
        self._going.set()
        wait_until(lambda: self.failures or self.total() >= enough, f"{count} more acknowledgements", 120, every=0.001)

    def drain(self) -> None:
        """Send nothing new and wait until everything sent was answered."""
        self._going.clear()
        wait_until(lambda: self.failures or self.total() == sum(self.sent), "every record's acknowledgement", 120)

    def end(self) -> None:
        self._ending = True
        self.join(30)

    def _answered(self, error: KafkaError | None, message: Delivered) -> None:
        number = int((message.value() or b"-1 ").split(b" ", 1)[0])
        if error is not None:
            self.failures.append(f"record {number} of partition {message.partition()}: {error}")
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged[partition][number] = offset


def read_all(bootstrap: str, partition: int, count: int) -> list[tuple[int, int]]:
    """(offset, number) of a partition's records from the beginning to the end, `count` or not."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: list[tuple[int, int]] = []
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=0.2):
                error = message.error()
                if error is None:
                    found.append((message.offset() or 0, int((message.value() or b"-1 ").split(b" ", 1)[0])))
                elif error.code() == KafkaError._PARTITION_EOF:
                    return found
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    raise AssertionError(f"{len(found)} of {count} records of partition {partition} came within two minutes")


def check_files(broker: Barnabas) -> None:
    """`barnabas log check` must find nothing wrong."""
    command = [sys.executable, "-m", "barnabas.cli.main", "log", "check", str(broker.data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(600)
def test_acknowledged_records_survive_twenty_kills(tmp_path: Path) -> None:
    with Proxy() as proxy:
        settings = {
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
            "log.segment.bytes": "1048576",
            "auto.create.topics.enable": "false",
        }
        broker = Barnabas(tmp_path, settings)
        proxy.target = broker.port
        bootstrap = f"127.0.0.1:{proxy.port}"
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        load = Load(bootstrap)
        load.start()
        try:
            for kill in range(KILLS):
                load.go_on(random.randrange(1, 8_000))
                if kill % 2:
                    proxy.swallow()
                    wait_until(lambda: proxy.swallowed > 0, "an answer to swallow")
                broker.kill()
                proxy.let_through()
                broker = Barnabas(tmp_path, settings)
                proxy.target = broker.port
                load.drain()
                assert not load.failures
                check_files(broker)
            load.go_on(1)
            load.drain()
            load.end()
            assert not load.failures
            for partition, acknowledged in enumerate(load.acknowledged):
                found = read_all(bootstrap, partition, len(acknowledged))
                assert [number for _, number in found] == list(range(load.sent[partition]))
                assert {number: offset for offset, number in found} == acknowledged
            assert broker.stop() == 0
            check_files(broker)
        finally:
            load.end()
            broker.kill()
