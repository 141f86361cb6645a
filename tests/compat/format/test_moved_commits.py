"""Offsets that were committed in transactions, on their way to Apache Kafka 3.9.1: its cleaner cleans every partition.

Kafka's cleaner refuses a batch of a producer without a sequence number. Earlier versions of Barnabas wrote such, so the
directory is taken along twice: as it is written now, and as it was written then, after `barnabas log mend`.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from crc32c import crc32c

from tests.compat.conftest import has_leaders
from tests.compat.format.test_exchange import metadata
from tests.support.brokers import Barnabas, KafkaZooKeeper
from tests.support.group_scenarios import create
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

OFFSETS: Final = "__consumer_offsets"
GROUPS: Final = tuple(f"group-{number}" for number in range(6))
PARTITIONS: Final = 3
ROUNDS: Final = 12
SMALL: Final = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.segment.bytes": "4000",
    "transaction.state.log.num.partitions": "1",
}
OFTEN: Final = {"log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0.01"}


def commit_in_transactions(bootstrap: str) -> None:
    """Let a later commit take the place of a part of each earlier one, so that a cleaner must open the batches."""
    create(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), "orders", 4)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "mover", "log_level": 0})
    producer.init_transactions(30)
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        about = consumer.consumer_group_metadata()
        for number in range(ROUNDS):
            producer.begin_transaction()
            places = [TopicPartition("orders", at, number, metadata="x" * 200) for at in (number % 3, 3)]
            producer.send_offsets_to_transaction(places, about, 30)
            producer.commit_transaction(30)
        consumer.close()


def commits(bootstrap: str) -> dict[str, list[tuple[int, int]]]:
    found = {}
    for group in GROUPS:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
        places = consumer.committed([TopicPartition("orders", at) for at in range(4)], 30)
        found[group] = [(place.partition, place.offset) for place in places]
        consumer.close()
    return found


def as_written_before(data: Path) -> int:
    """Take the sequence numbers away that a coordinator gave; returns how many batches there were."""
    count = 0
    for path in data.glob(f"{OFFSETS}-*/*.log"):
        content = bytearray(path.read_bytes())
        position = 0
        while position < len(content):
            (length,) = struct.unpack_from(">i", content, position + 8)
            end = position + 12 + length
            (attributes,) = struct.unpack_from(">h", content, position + 21)
            if attributes & 0x30 == 0x10:
                struct.pack_into(">i", content, position + 53, -1)
                struct.pack_into(">I", content, position + 17, crc32c(bytes(content[position + 21 : end])))
                count += 1
            position = end
        path.write_bytes(content)
    return count


def barnabas(*words: str) -> str:
    command = [sys.executable, "-m", "barnabas.cli.main", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cleaned_to(data: Path) -> dict[int, int]:
    path = data / "cleaner-offset-checkpoint"
    rows = re.findall(rf"^{OFFSETS} (\d+) (\d+)$", path.read_text(), re.MULTILINE) if path.exists() else []
    return {int(partition): int(offset) for partition, offset in rows}


def sealed_to(data: Path) -> dict[int, int]:
    """Where the last segment of each partition begins that has more than one."""
    bases = {
        number: sorted(int(path.stem) for path in (data / f"{OFFSETS}-{number}").glob("*.log"))
        for number in range(PARTITIONS)
    }
    return {number: each[-1] for number, each in bases.items() if len(each) > 1}


@pytest.mark.parametrize("written", ["now", "before"])
def test_kafka_cleans_every_partition_of_a_moved_directory(tmp_path: Path, chroot: str, written: str) -> None:
    with Barnabas(tmp_path, {**SMALL, "log.cleaner.enable": "false"}) as ours:
        commit_in_transactions(ours.bootstrap)
        wanted = commits(ours.bootstrap)
        assert ours.stop() == 0
    data = ours.data
    if written == "before":
        count = as_written_before(data)
        assert f"note: {data}: {count} batches of {OFFSETS} have no sequence number" in barnabas(
            "log", "check", str(data)
        )
        assert barnabas("log", "mend", str(data)).count("have a sequence number now") == PARTITIONS
    assert re.fullmatch(r".*: 0 errors, 0 warnings\n", barnabas("log", "check", str(data)))
    assert len(sealed_to(data)) == PARTITIONS
    tree = tmp_path / "tree.json"
    metadata("export", tree, "--data", str(data))
    metadata("import", tree, "--zookeeper", chroot)
    with KafkaZooKeeper(tmp_path, chroot, data, {"broker.id": "1", **SMALL, **OFTEN}) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        wait_until(lambda: has_leaders(admin, "orders", 4), "leaders")

        def clean() -> bool:
            assert "uncleanable" not in kafka.tail(100_000)
            return cleaned_to(data).items() >= sealed_to(data).items()

        wait_until(clean, "Kafka's cleaner", 60)
        assert commits(kafka.bootstrap) == wanted
        kafka.stop()
    found = barnabas("log", "check", str(data))
    assert re.fullmatch(r".*: 0 errors, 0 warnings\n", found), found
